"""A day's share of the tests: what ``make test`` runs, and what of the rest there is time for.

``--share day`` keeps all of ``tests/unit``; elsewhere half of the functions of a module, and of
each an eighth of its parameter sets, one at least. Of those that need Spark's session or are
simulated it keeps a smaller part of each module's: they take seconds each. The mark ``daily`` says
otherwise: ``daily(5)`` keeps five, and ``daily(1, of="kills of a driver")`` one of all tests of
that family. Who is kept is told by the date: tests take turns, and functions are drawn.
``--share rest`` is all others, in an order that the date shuffles, and ``--minutes`` ends it.

``--day 2026-11-22`` repeats a day; it stands in the header of each run.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import pytest

#: Of so many parameter sets of a function, one runs each day.
ONE_OF = 8
#: Of so many that would run of a module, one does each day: with Spark's session, and simulated.
ONE_OF_SPARK, ONE_OF_SIMULATED = 8, 5
UNIT = Path(__file__).parents[1] / "unit"
SIMULATION = Path(__file__).parents[1] / "simulation"


def today() -> date:
    """The day of this run, for what is drawn by itself."""
    return date.fromisoformat(os.environ["LAKEVILLA_DAY"])


class Turn(NamedTuple):
    """A test, the family whose turns it takes, and how many of those run a day (all if None).

    Half of the families of a ``module`` have a turn.
    """

    test: str
    family: str
    daily: int | None
    module: str | None = None


def shuffled(tests: Iterable[str], salt: str = "") -> list[str]:
    """An order that has nothing to do with names, and is the same in each process."""
    return sorted(tests, key=lambda test: blake2b((salt + test).encode()).digest())


def one_days(tests: Sequence[str], count: int, day: date) -> set[str]:
    """``count`` of the tests; days that follow one another go through all of them."""
    ring = shuffled(tests)
    first = day.toordinal() * count
    return {ring[(first + i) % len(ring)] for i in range(min(count, len(ring)))}


def share(turns: Iterable[Turn], day: date) -> set[str]:
    """The tests whose turn it is on this day."""
    families: dict[str, list[Turn]] = defaultdict(list)
    modules: dict[str, set[str]] = defaultdict(set)
    for turn in turns:
        families[turn.family].append(turn)
        if turn.module is not None:
            modules[turn.module].add(turn.family)
    resting: set[str] = set()
    for functions in modules.values():
        # Drawn: who rests each second day would never run half of its parameter sets.
        resting |= set(shuffled(functions, salt=str(day))[-(-len(functions) // 2) :])
    chosen: set[str] = set()
    for name, members in families.items():
        if name in resting:
            continue
        counts = {turn.daily for turn in members}
        if len(counts) > 1:
            raise pytest.UsageError(f"tests of {name!r} disagree how many run a day: {counts}")
        (daily,) = counts
        tests = [turn.test for turn in members]
        chosen |= set(tests) if daily is None else one_days(tests, daily, day)
    return chosen


def turns_of(items: Sequence[pytest.Item]) -> list[Turn]:
    """As the marks say, or by the rule for all others."""
    parameters: dict[str, int] = defaultdict(int)
    for item in items:
        parameters[_function(item)] += 1
    slow: dict[str, set[str]] = defaultdict(set)
    for item in items:
        if _one_of(item) > 1:
            slow[_module(item)].add(_function(item))
    daily = {
        module: sum(-(-parameters[one] // ONE_OF) for one in functions)
        for module, functions in slow.items()
    }
    return [_turn(item, parameters[_function(item)], daily) for item in items]


def _module(item: pytest.Item) -> str:
    return item.nodeid.partition("::")[0]


def _function(item: pytest.Item) -> str:
    return _name(item).partition("[")[0]


def _name(item: pytest.Item) -> str:
    """The test as all processes know it: workers put its group behind it."""
    group = item.get_closest_marker("xdist_group")
    return item.nodeid if group is None else item.nodeid.removesuffix(f"@{group.args[0]}")


def _one_of(item: pytest.Item) -> int:
    """How many tests of its module share a turn, where no mark says it."""
    if item.get_closest_marker("daily") is not None:
        return 1
    group = item.get_closest_marker("xdist_group")
    if group is not None and group.args == ("spark",):
        return ONE_OF_SPARK
    return ONE_OF_SIMULATED if item.path.is_relative_to(SIMULATION) else 1


def _turn(item: pytest.Item, parameters: int, daily: Mapping[str, int]) -> Turn:
    function, module = _function(item), _module(item)
    mark = item.get_closest_marker("daily")
    if mark is not None:
        return Turn(_name(item), mark.kwargs.get("of", function), mark.args[0])
    if item.path.is_relative_to(UNIT):
        return Turn(_name(item), function, None)
    one_of = _one_of(item)
    if one_of > 1:
        return Turn(_name(item), f"{module}, one of {one_of}", -(-daily[module] // one_of))
    return Turn(_name(item), function, -(-parameters // ONE_OF), module)


# ------------------------------------------------------------------- pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("sampling")
    group.addoption(
        "--share",
        choices=("all", "day", "rest"),
        default="all",
        help="all tests, the day's share of them, or the rest",
    )
    group.addoption(
        "--day",
        type=date.fromisoformat,
        # Workers inherit the environment: midnight may come between their starts.
        default=os.environ.setdefault("LAKEVILLA_DAY", date.today().isoformat()),
        help="the day whose share it is and whose seeds are drawn (LAKEVILLA_DAY; today)",
    )
    group.addoption(
        "--minutes", type=float, default=None, help="begin no test after so many minutes"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line(
        "markers",
        "daily(count, of=family): so many of the function's parameter sets, or of the tests of "
        "a family, run in a day's share",
    )
    day: date = config.getoption("--day")
    os.environ["LAKEVILLA_DAY"] = day.isoformat()
    # The tables and predicates of tests/property.
    os.environ.setdefault("LAKEVILLA_ROWS_SEED", str(day.toordinal() * 1000))
    minutes = config.getoption("--minutes")
    if minutes is not None:
        config.pluginmanager.register(Deadline(time.monotonic() + 60 * minutes))


def pytest_report_header(config: pytest.Config) -> str:
    share = config.getoption("--share")
    return f"share: {share}, of {config.getoption('--day')} (repeated by --day)"


@pytest.hookimpl(trylast=True)  # what -m and -k leave out takes no turn
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    part, day = config.getoption("--share"), config.getoption("--day")
    if part == "all":
        return
    chosen = share(turns_of(items), day)
    runs = {True: part == "day", False: part == "rest"}
    config.hook.pytest_deselected(items=[i for i in items if not runs[_name(i) in chosen]])
    items[:] = [item for item in items if runs[_name(item) in chosen]]
    if part == "rest":
        order = shuffled((_name(item) for item in items), salt=str(day))
        places = {test: place for place, test in enumerate(order)}
        # A group runs in one worker from the beginning, beside all others.
        items.sort(key=lambda i: (i.get_closest_marker("xdist_group") is None, places[_name(i)]))


class Deadline:
    """Lets no test begin once the time is up."""

    def __init__(self, at: float) -> None:
        self._at = at

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self) -> bool | None:
        return True if time.monotonic() >= self._at else None
