"""The process of ``own_process``: it imports what its work does and nothing else.

``python -m bench.size.child MODULE FUNCTION ARGUMENTS``, the arguments as a JSON list.
"""

from __future__ import annotations

import importlib
import json
import resource
import sys
import time
from pathlib import Path


def main(module: str, function: str, arguments: str) -> None:
    """Do the work, and print what it returned beside its time and its peak memory."""
    work = getattr(importlib.import_module(module), function)
    began = time.perf_counter()
    returned = work(*json.loads(arguments))
    seconds = time.perf_counter() - began
    usage = resource.getrusage(resource.RUSAGE_SELF)
    figures = {"peak_mb": memory_bytes("VmHWM:") / 1e6, "cpu_s": usage.ru_utime + usage.ru_stime}
    print(json.dumps({"seconds": seconds, "figures": figures, "returned": returned}))


def memory_bytes(field: str = "VmRSS:") -> int:
    """The memory that this process holds, by Linux; elsewhere the most that it has held."""
    status = Path("/proc/self/status")
    if status.exists():
        # Not ru_maxrss: on Linux it outlives exec, and would be the parent's.
        return int(status.read_text().split(field)[1].split()[0]) * 1024
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return most if sys.platform == "darwin" else most * 1024


if __name__ == "__main__":
    main(*sys.argv[1:])
