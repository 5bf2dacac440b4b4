"""How much memory a run may take on this machine."""

from __future__ import annotations

import os
import re
import resource
import sys
from pathlib import Path

from ster.errors import UsageError
from ster.text import quoted

MEMINFO = Path("/proc/meminfo")
CGROUP = Path("/sys/fs/cgroup")
# The rest is left to the page cache that the weights are mapped from, and to others.
SHARE = 0.75
_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}
_BINARY_UNITS = {"ki": 2**10, "mi": 2**20, "gi": 2**30, "ti": 2**40}
# ASCII, or the Kelvin sign would be a k.
_SIZE = re.compile(
    r"(\d{1,18}(?:\.\d{1,18})?)\s*([kmgt]i?|)b?", re.ASCII | re.IGNORECASE
)


def parse_memory(memory: str | int) -> int:
    """Read a size such as ``800M``, ``4GB``, ``1.5 GiB`` or a number of bytes.

    Raises:
        UsageError: It is no size, or no more than zero.
    """
    text = str(memory)
    found = _SIZE.fullmatch(text.strip())
    size = 0
    if found:
        size = int(float(found[1]) * (_UNITS | _BINARY_UNITS)[found[2].lower()])
    if size <= 0:
        raise UsageError(
            f"invalid memory size {quoted(text)}; expected one such as 800M or 4G"
        )
    return size


def free_memory() -> int:
    """Return how many more bytes a run may take by default: a share of the free."""
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
        held = int((CGROUP / "memory.current").read_text())
        return max(0, limit - held + _page_cache())
    except (OSError, ValueError):
        return 2**62


def _page_cache() -> int:
    """Return what a container's count has of cached files, which are easily freed.

    After one run they are the checkpoint, and the next could not start.
    """
    lines = (CGROUP / "memory.stat").read_text().splitlines()
    counts = dict(line.split() for line in lines)
    return int(counts.get("active_file", 0)) + int(counts.get("inactive_file", 0))
