"""Check all models, or those that are named: ``python -m models [NAME ...]``.

Each is checked with its rules, which must hold, and then with each planted flaw, which must show.
``python -m models --rules`` prints which line of which model is which rule of which note;
``--run NAME NUMBER`` prints one drawn run of large scenarios.
"""

from __future__ import annotations

import random
import re
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from models import combine, given, given_branch, given_making, head, inbox, queues, refs
from models.checker import Found, Model, explore, walk

ROOT = Path(__file__).parents[1]


class Checked(NamedTuple):
    """A model that is checked.

    Attributes
    ----------
    note : int
        The design note whose rules it has, where a rule does not name another one.
    make : callable
        Makes the model with a flaw, or with none.
    flaws, costs : mapping of str to str
        The flaws that must show, and those that break no invariant, with the rules that they leave
        out.
    large : callable, optional
        Makes the model with scenarios that are too large to be visited whole: runs are drawn.
    quick : callable, optional
        Makes it with a flaw or none, and with less to visit, for the tests of each day.
    """

    note: int
    make: Callable[[str], Model[Any]]
    flaws: Mapping[str, str]
    costs: Mapping[str, str] = MappingProxyType({})
    large: Callable[[], Model[Any]] | None = None
    quick: Callable[[str], Model[Any]] | None = None


MODELS = {
    "head": Checked(
        2,
        head.Head,
        head.FLAWS,
        large=lambda: head.Head(faults=2, scenarios=tuple(head.LARGE)),
    ),
    "queues": Checked(
        5,
        queues.Queues,
        queues.FLAWS,
        queues.COSTS,
        large=lambda: queues.Queues(scenarios=tuple(queues.LARGE)),
    ),
    "inbox": Checked(
        29,
        inbox.Inbox,
        inbox.FLAWS,
        large=lambda: inbox.Inbox(scenarios=tuple(inbox.LARGE)),
        quick=lambda flaw: inbox.Inbox(flaw, scenarios=inbox.QUICK),
    ),
    "refs": Checked(
        31,
        refs.Refs,
        refs.FLAWS,
        large=lambda: refs.Refs(faults=2, scenarios=tuple(refs.LARGE)),
    ),
    "combine": Checked(
        68,
        combine.Combine,
        combine.FLAWS,
        combine.COSTS,
        quick=lambda flaw: combine.Combine(flaw, faults=0),
    ),
    "given": Checked(73, given.Given, given.FLAWS),
    "given_branch": Checked(73, given_branch.GivenBranch, given_branch.FLAWS),
    "given_making": Checked(73, given_making.GivenMaking, given_making.FLAWS),
}


def check(name: str) -> Iterator[tuple[str, Found[Any], bool]]:
    """Yield what was checked, what was found, and whether that is as it must be."""
    model = MODELS[name]
    found = explore(model.make(""))
    yield f"{name}, the rules", found, found.violation is None
    for flaw, rule in {**model.flaws, **model.costs}.items():
        found = explore(model.make(flaw))
        is_right = (found.violation is None) == (flaw in model.costs)
        costs = " (costs work alone)" if flaw in model.costs else ""
        yield f"{name} without {rule}, {flaw}{costs}", found, is_right


def rules() -> Iterator[str]:
    """Yield a table of all rules: the note, the lines of the model, and the flaw without it."""
    yield "| note | rule | line | without it |"
    yield "|---|---|---|---|"
    notes = {int(one.name[:4]): one.name for one in (ROOT / "docs" / "design").glob("0*.md")}
    for number, rule, name, flaw in rules_of_models():
        at = ", ".join(f"`{name}.py:{line}`" for line in lines_of(name, flaw))
        costs = ", costs work alone" if flaw in MODELS[name].costs else ""
        yield f"| [{number}](../docs/design/{notes[number]}) | {rule} | {at} | `{flaw}`{costs} |"


def rules_of_models() -> Iterator[tuple[int, str, str, str]]:
    """Yield note, rule, model and flaw of each rule that a flaw leaves out."""
    for name, model in MODELS.items():
        for flaw, rule in {**model.flaws, **model.costs}.items():
            cited = re.fullmatch(r"note (\d+), (.*)", rule)
            yield (int(cited[1]), cited[2], name, flaw) if cited else (model.note, rule, name, flaw)


def lines_of(name: str, flaw: str) -> list[int]:
    """Return the lines of a model that are otherwise with a flaw: there its rule is."""
    lines = (ROOT / "models" / f"{name}.py").read_text().splitlines()
    return [
        number
        for number, line in enumerate(lines, 1)
        if f'"{flaw}"' in line and not re.match(rf'(COSTS = {{| +)"{flaw}": "', line)
    ]


def main(names: list[str]) -> int:
    """Print a line for each check; return 1 if one is not as it must be."""
    if names == ["--rules"]:
        print("\n".join(rules()))
        return 0
    if len(names) == 3 and names[0] == "--run":
        return _run(names[1], int(names[2]))
    unknown = [name for name in names if name not in MODELS]
    if unknown:
        print(f"there is no model {', '.join(unknown)}; there are: {', '.join(MODELS)}")
        return 2
    wrong = 0
    for name in names or MODELS:
        for what, found, is_right in check(name):
            told = "no violation" if found.violation is None else f"breaks: {found.violation}"
            print(f"{what}: {found.states:,} states, {told}{'' if is_right else '  WRONG'}")
            if not is_right:
                wrong += 1
                print(f"    {' > '.join(found.path)}")
    return 1 if wrong else 0


def _run(name: str, number: int) -> int:
    """Print one drawn run of a model's large scenarios; return 1 if it breaks an invariant."""
    make = MODELS[name].large
    assert make is not None, f"{name} has no large scenarios"
    model = make()
    for step, state in walk(model, random.Random(number)):
        wrong = model.violation(state)
        print(step if wrong is None else f"{step}  breaks: {wrong}")
        if wrong is not None:
            return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
