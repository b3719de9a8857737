"""Clients with secrets, on stores that refuse them and repeat what they were sent."""

from __future__ import annotations

from tests.prove.layer_main import main
from tests.prove.turn import Turn
from tests.support.planted_secrets import shown_to_a_refused_client

COMMAND = (
    "python -c 'from tests.support.planted_secrets import shown_to_a_refused_client as shown; "
    "print(shown({seed}).leaks())'"
)


def run(turn: Turn) -> None:
    while turn.goes_on():
        seed = turn.next_seed()
        shown = shown_to_a_refused_client(seed)
        turn.count("refused clients")
        turn.count("texts read", len(shown.texts))
        turn.fired("errors", sum(where.startswith("error") for where, _ in shown.texts))
        leaks = shown.leaks()
        if leaks:
            turn.failed(seed, COMMAND.format(seed=seed), "\n".join(leaks))


if __name__ == "__main__":
    main(run)
