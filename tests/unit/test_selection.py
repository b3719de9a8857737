"""The cases of ``make test``, slices, and seeds: equal on each day and in each worker."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.support.selection import SLICES, Case, few, slice_of

pytest_plugins = ["pytester"]


def cases(limit: int | None, *values: dict[str, int], costs: Sequence[int] = ()) -> list[Case]:
    """Return the cases of one function, named by their numbers."""
    return [
        Case(str(number), "function", frozenset(one.items()), cost, limit)
        for number, (one, cost) in enumerate(zip(values, costs or [0] * len(values), strict=True))
    ]


GRID = [{"place": place, "verb": verb} for place in range(3) for verb in range(3)]


def test_a_function_runs_once_with_each_value_of_each_parameter() -> None:
    taken = few(cases(9, *GRID))
    values = [GRID[int(number)] for number in taken]
    assert len(taken) == 3
    assert {value["place"] for value in values} == {value["verb"] for value in values} == {0, 1, 2}


def test_a_limit_of_cases_is_kept_and_each_function_runs_at_least_once() -> None:
    assert len(few(cases(2, *GRID))) == 2
    assert few(cases(2, {})) == {"0"}
    assert len(few(cases(None, *GRID))) == 9


def test_a_long_list_of_cases_is_sampled_evenly() -> None:
    taken = few(cases(4, *({"seed": seed} for seed in range(100))))
    first, *others = sorted(map(int, taken))
    assert first < 25
    assert others == [first + 25, first + 50, first + 75]


def test_a_case_on_a_server_runs_only_if_its_function_has_no_other_case() -> None:
    assert few(cases(4, {"place": 0}, {"place": 1}, costs=(0, 1))) == {"0"}
    assert len(few(cases(1, {"place": 0}, {"place": 1}, costs=(1, 1)))) == 1


def test_a_case_on_a_slow_server_runs_only_if_its_function_has_no_other_case() -> None:
    assert few(cases(4, {"place": 0}, {"place": 1}, {"place": 2}, costs=(2, 1, 2))) == {"1"}
    assert few(cases(4, {"place": 0}, costs=(2,))) == {"0"}


def test_functions_that_run_once_are_spread_over_the_formats() -> None:
    formats = [{"format": 0}, {"format": 1}]
    taken = [
        few(
            Case(f"{function}-{case}", f"{function}", frozenset(values.items()), 0, 1)
            for case, values in enumerate(formats)
        )
        for function in range(200)
    ]
    on_first = sum(f"{function}-0" in one for function, one in enumerate(taken))
    assert all(len(one) == 1 for one in taken)
    assert 60 < on_first < 140


def test_slices_of_the_suite_have_about_equal_sizes() -> None:
    sizes = [0] * SLICES
    for number in range(1000 * SLICES):
        sizes[slice_of(f"tests/test_it.py::test_{number}")] += 1
    assert min(sizes) > 800


SUITE = """
import os
import pytest

def test_alone():
    pass

@pytest.mark.parametrize("x", range(7))
def test_by_rule(x):
    pass

@pytest.mark.cases(5)
@pytest.mark.parametrize("x", range(7))
def test_by_mark(x):
    pass

@pytest.mark.seam
@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("x", range(9))
def test_on_spark(x):
    pass

@pytest.mark.xdist_group("spark")
def test_on_spark_at_night():
    pass

@pytest.mark.night
def test_at_night():
    pass

@pytest.mark.soak
def test_in_a_soak():
    pass

def test_seeds():
    print("seeds of", os.environ["LAKEVILLA_SEEDS"], os.environ["LAKEVILLA_SEARCH"])
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    pytester.makeini("[pytest]\nmarkers =\n    soak: long")
    pytester.makepyfile(test_it=SUITE)
    # The workers that the run starts import the plugin.
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    for name in ("LAKEVILLA_SEEDS", "LAKEVILLA_SEARCH"):
        monkeypatch.delenv(name)
    return pytester


def output(suite: pytest.Pytester, *options: str) -> str:
    plugin = ("-p", "tests.support.selection", "-p", "no:cacheprovider", "-m", "not soak")
    result = suite.runpytest_inprocess(*plugin, "-rA", *options)
    assert result.ret == 0, result.outlines
    return "\n".join(result.outlines)


def passed(suite: pytest.Pytester, *options: str) -> list[str]:
    return re.findall(r"PASSED \S*::(test_\w+)", output(suite, *options))


def test_two_workers_run_the_same_few_cases(suite: pytest.Pytester) -> None:
    ran = passed(suite, "--cases", "few", "-n", "2", "--dist", "loadgroup")
    counts = {name: ran.count(name) for name in set(ran)}
    assert counts == {
        "test_alone": 1,
        "test_by_rule": 1,
        "test_by_mark": 5,
        "test_on_spark": 1,
        "test_seeds": 1,
    }


def test_slices_are_an_order_of_the_whole_suite_that_begins_with_the_given_one(
    suite: pytest.Pytester,
) -> None:
    first = slice_of("test_it.py::test_by_rule[3]")
    ran = re.findall(r"test_it.py::(\S+) PASSED", output(suite, "-v", "--slice", str(first)))
    assert sorted(ran) == sorted(re.findall(r"test_it.py::(\S+) PASSED", output(suite, "-v")))
    places = [(slice_of(f"test_it.py::{name}") - first) % SLICES for name in ran]
    assert places == sorted(places)
    assert places[0] == 0


def test_seeds_are_fixed_unless_a_date_is_given(suite: pytest.Pytester) -> None:
    assert "seeds of 2026-11-28 small" in output(suite)
    of_a_date = output(suite, "--seeds", "2026-11-22", "--search", "whole", "-n", "1")
    assert "seeds of 2026-11-22 whole" in of_a_date
    wrong = suite.runpytest_inprocess("-p", "tests.support.selection", "--seeds", "tomorrow")
    wrong.stderr.fnmatch_lines(["*--seeds is fixed, today or a date, not 'tomorrow'"])


def test_no_test_starts_after_the_time_limit(suite: pytest.Pytester) -> None:
    result = suite.runpytest_inprocess("-p", "tests.support.selection", "--minutes", "0")
    assert not re.search("passed|failed", "\n".join(result.outlines))
