"""Lakes in which one object is hostile: no verb leaves the lake, and none runs code."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.prove.layer_main import main
from tests.prove.turn import Turn
from tests.support.hostile.search import attack

COMMAND = "python -m tests.support.hostile {seed}"


def run(turn: Turn) -> None:
    if sys.platform != "linux":
        turn.leave_out("the kernel's events of files are Linux's")
        return
    while turn.goes_on():
        seed = turn.next_seed()
        with tempfile.TemporaryDirectory(prefix="hostile-") as directory:
            outcome = attack(seed, Path(directory))
        turn.count("hostile lakes")
        turn.count("verbs", len(outcome.verbs))
        turn.fired("refused by name", outcome.refused)
        if outcome.problems:
            text = "\n".join([outcome.what, *outcome.problems])
            turn.failed(seed, COMMAND.format(seed=seed), text)


if __name__ == "__main__":
    main(run)
