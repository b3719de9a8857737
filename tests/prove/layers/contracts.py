"""What users rely on, over real tables of both formats, and each anomaly of Hermitage."""

from __future__ import annotations

from tests.prove.layer_main import main
from tests.prove.suite import run_tests
from tests.prove.turn import Turn


def run(turn: Turn) -> None:
    run_tests(turn, ["tests/contract", "tests/hermitage", "tests/interop"])


if __name__ == "__main__":
    main(run)
