"""Real processes that are killed, stopped and resumed."""

from __future__ import annotations

from tests.prove.layer_main import main
from tests.prove.suite import run_tests
from tests.prove.turn import Turn


def run(turn: Turn) -> None:
    run_tests(turn, ["tests/integration/processes", "tests/integration/test_no_torn_snapshot.py"])


if __name__ == "__main__":
    main(run)
