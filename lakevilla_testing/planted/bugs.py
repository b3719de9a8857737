"""A planted bug, and the means to plant it: functions of the library are replaced for a while."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from lakevilla.settings import Settings
from lakevilla.store.effects import Program
from lakevilla.transaction.state.values import Feature
from lakevilla_testing.histories.plan import SERIALIZABLE, Plan, draw

#: The environment variable that names the bug to plant in a process.
VARIABLE = "LAKEVILLA_PLANTED"


@dataclass(frozen=True)
class PlantedBug:
    """A planted bug.

    ``focus`` are the fields of the plan in which the bug is searched for, from ``first_seed`` on. A
    bug that needs a rare race is found by a test that plays this race, and not by histories; of a
    bug that is an edit (``edits``), ``found_by`` is the name of this test.
    """

    name: str
    plant: Callable[[], Any]
    focus: dict[str, Any] = field(default_factory=dict)
    first_seed: int = 0
    for_histories: bool = True
    found_by: str = ""

    def plan(self, seed: int) -> Plan:
        usual: dict[str, Any] = {
            "features": (Feature.R | Feature.I,),
            "kinds": ("transfer", "lists", "add"),
            "foreign": (),
            "collects": False,
            "long": False,
            "short": False,
            "guarded": False,
            "transactions": 4,
            "intensity": 1.0,
            "attempts": 3,
            "clients": 4,
            "threads": 1,
            "levels": (SERIALIZABLE,),
            "settings": Settings(),
            "formats": "delta",
            "commits_again": False,
            "neglected": "",
            "crowded": False,
            "keepers": 0,
            "givers": 0,
            "made": False,
            "whole": False,
            "marks": False,
            "combined": False,
            "chained": False,
            "told": False,
        }
        return replace(draw(seed), **{**usual, **self.focus})


#: Every planted bug by its name; ``every.py`` knows the files that add to it.
PLANTED: dict[str, PlantedBug] = {}


def planted(
    first_seed: int = 0, for_histories: bool = True, **focus: Any
) -> Callable[[Callable[[], Iterator[None]]], None]:
    def note(plant: Callable[[], Iterator[None]]) -> None:
        name = plant.__name__.strip("_")
        PLANTED[name] = PlantedBug(name, contextmanager(plant), focus, first_seed, for_histories)

    return note


@contextmanager
def instead(original: Any, replacement: Any) -> Iterator[None]:
    """Replace a function by ``replacement``, in each module of the library that has it under the
    name.
    """
    places = [
        (module, name)
        for module_name, module in list(sys.modules.items())
        if module_name.startswith(("lakevilla.", "lakevilla_testing."))
        for name, value in list(vars(module).items())
        if value is original
    ]
    assert places, original
    for module, name in places:
        setattr(module, name, replacement)
    try:
        yield
    finally:
        for module, name in places:
            setattr(module, name, original)


@contextmanager
def attribute(owner: Any, name: str, replacement: Any) -> Iterator[None]:
    original = getattr(owner, name)
    setattr(owner, name, replacement)
    try:
        yield
    finally:
        setattr(owner, name, original)


def nothing(*_: Any, **__: Any) -> Program[None]:
    yield from ()
