"""Print what a run of ``make test`` has spent on each layer, next to the layer's budget.

A layer's time is that of the processors, with the processes that a test has started and waited for.
Next to it is how long the tests took, one after the other: longer, as tests wait.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import pytest

from tests.support.selection import folder_of

#: The layers by the folder of a test.
LAYERS = {
    "contract": "contract, without Spark",
    "unit": "unit",
    "simulation": "simulation, hermitage",
    "hermitage": "simulation, hermitage",
    "interop": "interop and integration, without Spark",
    "integration": "interop and integration, without Spark",
    "property": "property",
    "benchmarks": "benchmarks, docs",
    "docs": "benchmarks, docs",
}
SPARK = "Spark, in one session"
COLLECTION = "collection, in all workers"
#: The seconds of processor that `make test` may spend on each layer.
BUDGETS = {
    "contract, without Spark": 280,
    "unit": 130,
    "simulation, hermitage": 120,
    "interop and integration, without Spark": 60,
    "property": 50,
    "benchmarks, docs": 40,
    SPARK: 20,
    COLLECTION: 40,
}


class Spent(NamedTuple):
    """What tests have spent: their number, seconds of processor, and seconds that they took."""

    tests: int = 0
    processor: float = 0.0
    lasted: float = 0.0

    def and_(self, other: Spent) -> Spent:
        return Spent(*(own + others for own, others in zip(self, other, strict=True)))


def table(spent: Mapping[str, Spent]) -> list[str]:
    """Return the lines of a table, in the order of the budgets; layers without one are last."""
    lines = ["layer | tests | seconds of processor | seconds they took | budget"]
    for layer in sorted(spent, key=[*BUDGETS, *spent].index):
        tests, processor, lasted = spent[layer]
        budget = BUDGETS.get(layer, "none")
        lines.append(f"{layer} | {tests:,} | {processor:.0f} | {lasted:.0f} | {budget}")
    return lines


# ------------------------------------------------------------------- pytest


def pytest_configure(config: pytest.Config) -> None:
    if config.getoption("--cases") == "few":
        config.pluginmanager.register(Meter(config))


class Meter:
    """Add up what the tests of each layer spend, in this process and in its workers."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._spent: dict[str, Spent] = {}

    def _add(self, layer: str, spent: Spent) -> None:
        self._spent[layer] = self._spent.get(layer, Spent()).and_(spent)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        begun, at = _processor(), time.monotonic()
        try:
            return (yield)
        finally:
            spent = Spent(1, _processor() - begun, time.monotonic() - at)
            self._add(_layer_of(item), spent)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_collection(self) -> Iterator[None]:
        begun, at = _processor(), time.monotonic()
        result = yield
        self._add(COLLECTION, Spent(0, _processor() - begun, time.monotonic() - at))
        return result

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self) -> None:
        output = getattr(self._config, "workeroutput", None)
        if output is not None:
            output["spent"] = {layer: tuple(spent) for layer, spent in self._spent.items()}

    @pytest.hookimpl(optionalhook=True)  # some environments have no xdist
    def pytest_testnodedown(self, node: Any) -> None:
        for layer, spent in getattr(node, "workeroutput", {}).get("spent", {}).items():
            self._add(layer, Spent(*spent))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        terminalreporter.section("what the layers took")
        for line in table(self._spent):
            terminalreporter.line(line)


def _layer_of(item: pytest.Item) -> str:
    group = item.get_closest_marker("xdist_group")
    if group is not None and group.args == ("spark",):
        return SPARK
    folder = folder_of(item.path)
    return LAYERS.get(folder, folder)


def _processor() -> float:
    times = os.times()
    return times.user + times.system + times.children_user + times.children_system
