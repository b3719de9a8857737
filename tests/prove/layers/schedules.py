"""Every crash of small scenarios, and interleavings of their clients."""

from __future__ import annotations

from tests.prove.layer_main import main
from tests.prove.suite import run_tests
from tests.prove.turn import Turn

FOLDERS = ("catalog", "feed", "queues", "races", "refs", "upkeep")


def run(turn: Turn) -> None:
    run_tests(turn, [f"tests/simulation/{folder}" for folder in FOLDERS])


if __name__ == "__main__":
    main(run)
