"""Check all models, or those that are named: ``python -m models [NAME ...]``.

Each is checked with its rules, which must hold, and then with each planted flaw, which must show.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any

from models import combine, given, given_branch, given_making
from models.checker import Found, Model, explore

#: By name, what makes a model with a flaw (or none); the flaws, with the rules that they leave out;
#: and rules that may be left out, as no invariant needs them.
MODELS: dict[str, tuple[Callable[[str], Model[Any]], dict[str, str], dict[str, str]]] = {
    "combine": (combine.Combine, combine.FLAWS, combine.COSTS),
    "given": (given.Given, given.FLAWS, {}),
    "given_branch": (given_branch.GivenBranch, given_branch.FLAWS, {}),
    "given_making": (given_making.GivenMaking, given_making.FLAWS, {}),
}


def check(name: str) -> Iterator[tuple[str, Found[Any], bool]]:
    """Yield what was checked, what was found, and whether that is as it must be."""
    model, flaws, costs = MODELS[name]
    found = explore(model(""))
    yield f"{name}, the rules", found, found.violation is None
    for flaw, rule in {**flaws, **costs}.items():
        found = explore(model(flaw))
        yield f"{name} without {rule}, {flaw}", found, (found.violation is None) == (flaw in costs)


def main(names: list[str]) -> int:
    """Print a line for each check; return 1 if one is not as it must be."""
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


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
