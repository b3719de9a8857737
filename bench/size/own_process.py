"""Work in a process of its own, so that its peak memory is its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from bench.harness.clients import Measured

#: Where `bench` and `lakevilla` lie; not resolved, so that a process finds those of its parent.
_ROOT = Path(__file__).parents[2]


@dataclass(slots=True)
class Own:
    """What a process measured of itself: its time, its figures, and what its work returned."""

    measured: Measured
    figures: dict[str, float] = field(default_factory=dict)
    returned: Mapping[str, Any] = field(default_factory=dict)


def in_own_process(module: str, function: str, *arguments: str | float) -> Own:
    """Call a function of a module in a process of its own; it returns figures by name.

    What it raises, or that the process was killed, is in ``deaths``. Its memory is that of what
    its module imports, and of its work.
    """
    path = os.pathsep.join(filter(None, (str(_ROOT), os.environ.get("PYTHONPATH"))))
    command = [sys.executable, "-m", "bench.size.child", module, function, json.dumps(arguments)]
    done = subprocess.run(
        command,
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        why = (done.stderr.strip().splitlines() or [f"status {done.returncode}"])[-1]
        return Own(Measured(deaths=[f"{module}.{function}: {why}"]))
    found = json.loads(done.stdout.splitlines()[-1])
    measured = Measured(seconds=found["seconds"])
    measured.record(function, found["seconds"])
    return Own(measured, found["figures"], found["returned"])
