"""Runs of the models in large scenarios, and runs that real clients of the simulator follow."""

from __future__ import annotations

import random

from models.__main__ import MODELS, check
from models.checker import walk
from tests.prove.layer_main import main
from tests.prove.turn import Turn
from tests.support.simulated import traced_head, traced_refs
from tests.support.simulated.traced_head import TracedHead
from tests.support.simulated.traced_refs import TracedRefs

_SCENARIOS = [
    *((TracedHead, scenario) for scenario in traced_head.TRACED),
    *((TracedRefs, scenario) for scenario in traced_refs.TRACED),
]
#: Large runs for each run that is followed.
_RUNS = 20


def run(turn: Turn) -> None:
    large = {name: model.large() for name, model in MODELS.items() if model.large is not None}
    names = list(large)
    if turn.report.next_seed == 0:
        _check_all(turn)
    while turn.goes_on():
        seed = turn.next_seed()
        _follow(turn, seed)
        for number in range(_RUNS):
            name = names[number % len(names)]
            _walk(turn, name, large[name], seed * _RUNS + number)


def _check_all(turn: Turn) -> None:
    """Visit all states of the small scenarios, and find each flaw, once a campaign."""
    for name in MODELS:
        for what, found, is_right in check(name):
            turn.count("states", found.states)
            turn.count("models, with and without flaws")
            if not is_right:
                turn.failed(0, f"python -m models {name}", f"{what}: {found}")
            if not turn.goes_on():
                return


def _walk(turn: Turn, name, model, number: int) -> None:
    path = []
    for step, state in walk(model, random.Random(number)):
        path.append(step)
        wrong = model.violation(state)
        if wrong is not None:
            command = f"python -m models --run {name} {number}"
            turn.failed(number, command, f"{name} breaks: {wrong}: {' > '.join(path)}")
            return
    turn.count("drawn runs of large models")
    turn.count("steps of drawn runs", len(path))


def _follow(turn: Turn, seed: int) -> None:
    traced, scenario = _SCENARIOS[seed % len(_SCENARIOS)]
    command = (
        f'python -c "from {traced.__module__} import {traced.__name__}; '
        f"{traced.__name__}('{scenario}', {seed}).follow()\""
    )
    try:
        steps = traced(scenario, seed).follow()
    except AssertionError as error:
        notes = "\n".join(getattr(error, "__notes__", ()))
        turn.failed(seed, command, f"{scenario}: {error}\n{notes}")
        return
    turn.count("runs that clients have followed")
    turn.count("steps compared with the code", steps)


if __name__ == "__main__":
    main(run)
