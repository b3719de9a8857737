"""Rows drawn for tables and predicates, against a model and against other readers."""

from __future__ import annotations

from tests.prove.layer_main import main
from tests.prove.suite import run_tests
from tests.prove.turn import Turn


def run(turn: Turn) -> None:
    run_tests(turn, ["tests/property"])


if __name__ == "__main__":
    main(run)
