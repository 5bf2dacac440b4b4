"""Names the machine and the versions, and not its owner."""

from __future__ import annotations

import os
import platform
import re
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import numpy as np
from threadpoolctl import threadpool_info

PACKAGES = ("ster-mlx", "numpy", "mlx", "mlx-lm", "torch", "transformers")


def describe() -> str:
    """Describe processor, memory, BLAS and versions in one sentence."""
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    parts = [
        f"{processor()}, {cores()} cores, {graphics()}{memory / 1e9:.0f} GB",
        f"{system()} {platform.machine()}",
        f"BLAS {blas()}",
        f"Python {platform.python_version()}",
        *(f"{name} {found}" for name in PACKAGES if (found := installed(name))),
    ]
    return "; ".join(parts)


def processor() -> str:
    """Name the processor."""
    if sys.platform == "darwin":
        command = ["sysctl", "-n", "machdep.cpu.brand_string"]
        return subprocess.check_output(command, text=True).strip()
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def system() -> str:
    """Name the system; of a Mac with the version that people know."""
    if sys.platform == "darwin":
        return f"macOS {platform.mac_ver()[0]}"
    return platform.system()


def graphics() -> str:
    """Count the cores of a Mac's GPU, which chips of one name differ in."""
    if sys.platform != "darwin":
        return ""
    command = ["system_profiler", "SPDisplaysDataType"]
    try:
        told = subprocess.check_output(
            command, text=True, timeout=30, stderr=subprocess.DEVNULL
        )
    except (OSError, subprocess.SubprocessError):
        return ""
    return read_graphics(told)


def read_graphics(told: str) -> str:
    """Read the number of cores in what ``system_profiler`` says of displays."""
    found = re.search(r"Total Number of Cores: (\d+)", told)
    return f"{found[1]} GPU cores, " if found else ""


def cores() -> int:
    """Count the cores that this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def blas() -> str:
    """Name the BLAS under numpy, and the kernels that it chose."""
    pools = [pool for pool in threadpool_info() if pool["user_api"] == "blas"]
    if not pools:  # Accelerate says nothing of itself
        built = np.show_config(mode="dicts")["Build Dependencies"]["blas"]
        return str(built["name"])
    pool = pools[0]
    kernels = pool.get("architecture", "unknown")
    return f"{pool['internal_api']} {pool['version']} ({kernels})"


def installed(name: str) -> str | None:
    """Return a package's version, or nothing where it is not installed."""
    try:
        return version(name)
    except PackageNotFoundError:
        return None


if __name__ == "__main__":
    print(describe())
