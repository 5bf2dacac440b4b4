"""How much memory a run may take on this machine."""

from __future__ import annotations

import os
import resource
import sys
from pathlib import Path

MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")
# The rest is left to the page cache that the weights are mapped from, and to others.
SHARE = 0.75


def usable_memory() -> int:
    """Return how many bytes a run may take by default: a share of what is free."""
    return int(SHARE * min(_available(), _container_limit()))


def held_memory() -> int:
    """Return how many bytes this process holds already."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        pass  # not Linux: the most it has held must do
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def _available() -> int:
    """Return what the system could give: free or easily freed; else half of all."""
    try:
        for line in MEMINFO.read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass  # not Linux
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def _container_limit() -> int:
    """Return what a container's limit leaves, or more than any machine has."""
    try:
        limit = int((CGROUP / "memory.max").read_text())
        return max(0, limit - int((CGROUP / "memory.current").read_text()))
    except (OSError, ValueError):
        return 2**62
