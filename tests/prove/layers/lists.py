"""Short histories that read and append to lists, judged by the checker of isolation."""

from __future__ import annotations

from lakevilla_testing.histories import lists
from lakevilla_testing.histories.campaign import HistoryFailed
from tests.prove.layer_main import main
from tests.prove.turn import Turn


def run(turn: Turn) -> None:
    while turn.goes_on():
        seed = turn.next_seed()
        command = f'python -c "from lakevilla_testing.histories import lists; lists.run({seed})"'
        try:
            outcome = lists.run(seed)
        except HistoryFailed as error:
            turn.failed(seed, command, str(error))
            continue
        turn.count("histories")
        turn.count("pairs of transactions at the same time", outcome.overlapping)


if __name__ == "__main__":
    main(run)
