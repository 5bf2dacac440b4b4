"""How much memory a run may take on this machine."""

from __future__ import annotations

import re
import resource
import sys
from contextlib import suppress
from pathlib import Path

from ster.errors import UsageError
from ster.text import quoted

CGROUP = Path("/sys/fs/cgroup")
PROCESS = Path("/proc/self/status")
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
            f"invalid memory size {quoted(text)}; expected one such as 800M or 4G",
            field="memory",
            found=memory,
            expected="a size above zero, such as 800M or 4G",
        )
    return size


def free_memory() -> int:
    """Return how many more bytes a run may take by default: a share of the free."""
    import psutil  # late: words about sizes are read without it

    available = psutil.virtual_memory().available
    return int(SHARE * min(available, _container_limit()))


def held_memory() -> int:
    """Return how many bytes this process holds already."""
    import psutil

    return int(psutil.Process().memory_info().rss)


def peak_memory() -> int:
    """Return the most bytes that this process has held.

    What Linux says of a process by ``getrusage`` begins with what its parent held.
    """
    with suppress(OSError):
        found = re.search(r"^VmHWM:\s*(\d+) kB$", PROCESS.read_text(), re.MULTILINE)
        if found:
            return 1024 * int(found[1])
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else 1024 * peak  # Linux counts in KiB


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
