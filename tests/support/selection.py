"""Select the cases that a run executes, and the seeds that its random tests draw from.

Options of pytest, all of which the header of a run repeats:

``--cases few``
    The cases of ``make test``, the same ones on each day and machine. `few` has the rule; the marks
    ``cases(n)``, ``seam`` and ``night`` set another number for a function.
``--search whole`` and ``--search soak``
    How much a test searches that draws its input; see `tests.support.search`.
``--seeds today`` and ``--seeds 2026-11-22``
    Draw the seeds of a date instead of the fixed ones.
``--slice 7``
    Run all slices of the suite, in a fixed order that begins with the seventh.
``--minutes 9``
    Start no test after so many minutes.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import date
from functools import cache
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

import pytest

#: The number of slices that the whole suite is cut into.
SLICES = 48
#: The date that fixed seeds are of.
FIXED = date(2026, 11, 28)
#: How many cases of a function ``make test`` runs, by the folder of its test; None: all of them.
FEW: dict[str, int | None] = {
    "unit": None,
    "contract": 1,
    "property": 2,
}
#: The number of cases for folders that are not in the table above.
FEW_ELSEWHERE = 1
TESTS = Path(__file__).parents[1]


class Case(NamedTuple):
    """One parameter set of a test function."""

    test: str
    function: str
    #: The name of each parameter with the index of its value.
    values: frozenset[tuple[str, int]]
    #: How long it takes beside the other cases of its function: 0, or 1 on a server, or 2 on a
    #: server that is slow to start.
    cost: int
    #: How many cases of its function ``make test`` runs; None: all of them.
    limit: int | None


def few(cases: Iterable[Case]) -> set[str]:
    """Return the tests that ``make test`` runs: a part of each function's cases.

    A function's cases on a server, or in Spark's session, are left out if it has others, and those
    on a slow server if it has others on a server; else one of them runs. Of the rest, the case with
    the most values of parameters that no earlier case has is added, until each value occurs or the
    limit is reached. A function with the limit 0 runs only at night.
    """
    functions: dict[str, list[Case]] = defaultdict(list)
    for case in cases:
        functions[case.function].append(case)
    return {case.test for found in functions.values() for case in _cover(_cheapest(found))}


def _cheapest(cases: Sequence[Case]) -> Sequence[Case]:
    least = min(case.cost for case in cases)
    return [case for case in cases if case.cost == least]


def _cover(cases: Sequence[Case]) -> Sequence[Case]:
    """Return few cases that together have each value of each parameter, in the order of
    the cases.
    """
    limit = cases[0].limit
    if limit is None:
        return cases
    # A function with one long list of values gets cases spread over the list, not only its first
    # ones.
    step = max(1, len(cases) // max(1, limit))
    # Functions begin at different cases: of the functions with one case, half run on each format.
    turned = [(place - slice_of(cases[0].function)) % len(cases) for place in range(len(cases))]
    order = sorted(range(len(cases)), key=lambda place: (turned[place] % step > 0, turned[place]))
    missing = frozenset().union(*(case.values for case in cases))
    taken: list[int] = []
    while len(taken) < limit and (missing or not taken):
        best = max(order, key=lambda place: len(cases[place].values & missing))
        taken.append(best)
        missing -= cases[best].values
    return [cases[place] for place in sorted(taken)]


def slice_of(test: str) -> int:
    """Return the slice that a test is in, which depends on its name alone."""
    return int.from_bytes(blake2b(test.encode(), digest_size=8).digest(), "big") % SLICES


# ------------------------------------------------------------------- pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("selection")
    group.addoption(
        "--cases", choices=("few", "all"), default="all", help="the cases of make test, or all"
    )
    group.addoption(
        "--search",
        choices=("small", "whole", "soak"),
        default=os.environ.get("LAKEVILLA_SEARCH", "small"),
        help="how much tests search whose input is drawn",
    )
    group.addoption(
        "--seeds",
        default=os.environ.get("LAKEVILLA_SEEDS", "fixed"),
        metavar="fixed|today|DATE",
        help="draw the fixed seeds, or those of a date",
    )
    group.addoption(
        "--slice",
        type=int,
        default=None,
        help=f"run the {SLICES} slices of the suite, this one (modulo {SLICES}) first",
    )
    group.addoption("--minutes", type=float, default=None, help="start no test after so many")


def pytest_configure(config: pytest.Config) -> None:
    for mark in (
        "cases(n): so many of the function's cases run in make test (None: all)",
        "seam: needs Spark's session, and runs in make test all the same",
        "night: takes longer than its folder may, and runs in make test-all alone",
    ):
        config.addinivalue_line("markers", mark)
    # Test modules read both while pytest imports them, as do the processes that tests start.
    os.environ["LAKEVILLA_SEARCH"] = config.getoption("--search")
    if not hasattr(config, "workerinput"):  # a worker keeps the date of the run, even past midnight
        os.environ["LAKEVILLA_SEEDS"] = _date_of(config.getoption("--seeds")).isoformat()
    minutes = config.getoption("--minutes")
    if minutes is not None:
        config.pluginmanager.register(Deadline(time.monotonic() + 60 * minutes))


def _date_of(seeds: str) -> date:
    try:
        return {"fixed": FIXED, "today": date.today()}.get(seeds) or date.fromisoformat(seeds)
    except ValueError as error:
        raise pytest.UsageError(f"--seeds is fixed, today or a date, not {seeds!r}") from error


def pytest_report_header(config: pytest.Config) -> str:
    options = [f"--cases {config.getoption('--cases')} --search {config.getoption('--search')}"]
    options.append(f"--seeds {os.environ['LAKEVILLA_SEEDS']}")
    if config.getoption("--slice") is not None:
        options.append(f"--slice {config.getoption('--slice') % SLICES}")
    return f"selection: {' '.join(options)}"


@pytest.hookimpl(trylast=True)  # last, so that cases that -m or -k deselects do not count
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--cases") == "few":
        cases = list(map(_case, items))
        selected = few(cases)
        pairs = list(zip(items, cases, strict=True))
        config.hook.pytest_deselected(items=[i for i, case in pairs if case.test not in selected])
        items[:] = [item for item, case in pairs if case.test in selected]
    first = config.getoption("--slice")
    if first is not None:
        # A group of xdist runs in one worker; it starts first, concurrently with all other groups.
        items.sort(
            key=lambda item: (
                (slice_of(name_of(item)) - first) % SLICES,
                item.get_closest_marker("xdist_group") is None,
            )
        )


def name_of(item: pytest.Item) -> str:
    """Return the test's id, without the group that a worker of xdist appends."""
    return _name_in(item, item.get_closest_marker("xdist_group"))


def _name_in(item: pytest.Item, group: pytest.Mark | None) -> str:
    return item.nodeid if group is None else item.nodeid.removesuffix(f"@{group.args[0]}")


def _case(item: pytest.Item) -> Case:
    group = item.get_closest_marker("xdist_group")
    name = _name_in(item, group)
    call = getattr(item, "callspec", None)
    values = frozenset() if call is None else frozenset(call.indices.items())
    words = () if call is None else [one for one in call.params.values() if isinstance(one, str)]
    cost = max([int(group is not None), *(_COSTS.get(word, 0) for word in words)])
    return Case(name, name.partition("[")[0], values, cost, _limit(item, group, cost > 0))


#: Words in parameters of cases that need a server on loopback.
_COSTS = dict.fromkeys(("ministack", "moto", "minio", "given", "remote", "rest"), 1)
_COSTS |= {"azurite": 2, "gcs": 2}


def _limit(item: pytest.Item, group: pytest.Mark | None, on_server: bool) -> int | None:
    if item.get_closest_marker("night") is not None:
        return 0
    mark = item.get_closest_marker("cases")
    if mark is not None:
        limit: int | None = mark.args[0]
        return limit
    if group is not None and group.args == ("spark",):
        return int(item.get_closest_marker("seam") is not None)
    if on_server:
        return 1
    return FEW.get(folder_of(item.path), FEW_ELSEWHERE)


@cache
def folder_of(module: Path) -> str:
    """Return the folder of `tests` that a module is in, or nothing."""
    return module.relative_to(TESTS).parts[0] if module.is_relative_to(TESTS) else ""


class Deadline:
    """Start no test after the deadline."""

    def __init__(self, at: float) -> None:
        self._at = at

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self) -> bool | None:
        return True if time.monotonic() >= self._at else None
