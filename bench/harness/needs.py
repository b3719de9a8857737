"""Disk and memory that a run takes: too little of them is refused before it starts."""

from __future__ import annotations

import os
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

from bench.harness.parameters import WrongParameter

#: What has to be free, whatever a benchmark writes.
_LEAST_DISK_BYTES = 2 * 2**30
_LEAST_MEMORY_BYTES = 512 * 2**20
_CGROUP = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True)
class Needs:
    """What a run takes at its parameters.

    Attributes
    ----------
    data_bytes : int
        Written to the store: disk with the profile ``local``, else memory of the S3 server.
    disk_bytes, memory_bytes : int
        Beside that.
    why : str
        What takes the most, as the message says it.
    """

    data_bytes: int = 0
    disk_bytes: int = 0
    memory_bytes: int = 0
    why: str = "a run"

    def __add__(self, other: Needs) -> Needs:
        why = " and ".join(one.why for one in (self, other) if one != Needs())
        return Needs(
            self.data_bytes + other.data_bytes,
            self.disk_bytes + other.disk_bytes,
            self.memory_bytes + other.memory_bytes,
            why or self.why,
        )


def check_needs(needs: Needs, *, in_memory: bool) -> None:
    """Refuse what this machine does not bear; ``in_memory``: the store keeps its objects there."""
    disk = _LEAST_DISK_BYTES + needs.disk_bytes + (0 if in_memory else needs.data_bytes)
    memory = _LEAST_MEMORY_BYTES + needs.memory_bytes + (needs.data_bytes if in_memory else 0)
    directory = tempfile.gettempdir()
    found = shutil.disk_usage(directory).free
    if found < disk:
        raise WrongParameter(
            f"{directory} has {_gib(found)} free, and {needs.why} takes {_gib(disk)}: set TMPDIR "
            "to a disk that has more, or choose smaller parameters"
        )
    found = available_memory_bytes()
    if found < memory:
        raise WrongParameter(
            f"{_gib(found)} of memory are available, and {needs.why} takes {_gib(memory)}: choose "
            "smaller parameters"
        )


def available_memory_bytes() -> int:
    """What this process and its children may still take."""
    meminfo = Path("/proc/meminfo")
    if meminfo.exists():
        line = next(one for one in meminfo.read_text().splitlines() if "MemAvailable" in one)
        available = int(line.split()[1]) * 1024
    else:
        available = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    try:  # a container's limit
        most = int((_CGROUP / "memory.max").read_text())
        available = min(available, most - int((_CGROUP / "memory.current").read_text()))
    except (OSError, ValueError):
        pass
    return available


def _gib(count: int) -> str:
    return f"{count / 2**30:.1f} GiB"
