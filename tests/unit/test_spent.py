"""A run of few cases prints what each layer has spent."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.support.spent import BUDGETS, LAYERS, SPARK, Spent, table

pytest_plugins = ["pytester"]

SUITE = """
import os
import pytest

@pytest.mark.parametrize("number", [0, 1])
def test_it(number):
    while os.times().user < 1.2:
        pass

@pytest.mark.seam
@pytest.mark.xdist_group("spark")
def test_on_spark():
    pass
"""


def test_each_layer_has_a_budget() -> None:
    assert {*LAYERS.values(), SPARK} < {*BUDGETS}


def test_the_table_has_the_layers_in_the_order_of_their_budgets() -> None:
    spent = {"own": Spent(1, 2.0, 3.0), "unit": Spent(1000, 90.4, 100.0)}
    both = {**spent, "unit": spent["unit"].and_(Spent(1, 1.0, 1.0))}
    unit, own = table(both)[1:]
    assert unit == f"unit | 1,001 | 91 | 101 | {BUDGETS['unit']}"
    assert own == "own | 1 | 2 | 3 | none"


@pytest.mark.night
def test_a_run_with_two_workers_prints_what_both_have_spent(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    pytester.makepyfile(test_a=SUITE, test_b=SUITE)
    plugins = ("-p", "tests.support.selection", "-p", "tests.support.spent")
    few = ("--cases", "few", "-n", "2", "--dist", "loadgroup", "-p", "no:cacheprovider")
    lines = pytester.runpytest_inprocess(*plugins, *few).outlines
    (spark,) = [line for line in lines if line.startswith(SPARK)]
    assert spark.startswith(f"{SPARK} | 2 | 0 |")
    (others,) = [line for line in lines if re.match(r" \| 2 \|", line)]
    assert int(others.split(" | ")[2]) >= 1


def test_the_page_has_the_budgets() -> None:
    page = (Path(__file__).parents[1] / "README.md").read_text()
    listed = dict(re.findall(r"^\| (.+?) \| (\d+)", page, re.MULTILINE))
    assert listed == {layer: str(seconds) for layer, seconds in BUDGETS.items()}
