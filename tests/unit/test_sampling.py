"""A day's share: days that follow one another go through all tests, and all workers agree."""

from __future__ import annotations

import re
from datetime import date, timedelta
from pathlib import Path

import pytest

from tests.support.sampling import Turn, one_days, share

pytest_plugins = ["pytester"]

DAY = date(2026, 11, 22)
TESTS = [f"t[{number}]" for number in range(10)]


@pytest.mark.parametrize("count", [1, 3, 10, 12])
def test_days_that_follow_one_another_go_through_all(count: int) -> None:
    days = -(-len(TESTS) // count)
    drawn = [one_days(TESTS, count, DAY + timedelta(day)) for day in range(days)]
    assert {len(one) for one in drawn} == {min(count, len(TESTS))}
    assert set.union(*drawn) == set(TESTS)
    assert drawn[0] == one_days(TESTS[::-1], count, DAY)


def test_functions_of_as_many_sets_do_not_go_in_step() -> None:
    """Else one day would be Delta's, and the next Iceberg's."""
    formats = {
        one_days([f"test_{number}[delta]", f"test_{number}[iceberg]"], 1, DAY).pop()[-6:]
        for number in range(20)
    }
    assert len(formats) == 2


def test_a_family_shares_its_turns_and_what_has_none_runs_whole() -> None:
    turns = [Turn(test, "kills", 1) for test in ("a", "b[1]", "b[2]")]
    turns += [Turn("c[1]", "c", None), Turn("c[2]", "c", None)]
    chosen = share(turns, DAY)
    assert len(chosen & {"a", "b[1]", "b[2]"}) == 1
    assert {"c[1]", "c[2]"} <= chosen


def test_half_of_the_functions_of_a_module_are_drawn_and_each_case_comes() -> None:
    turns = [Turn(f"{name}[{n}]", name, 1, "module") for name in "abc" for n in range(3)]
    drawn = [share(turns, DAY + timedelta(day)) for day in range(30)]
    assert {len(one) for one in drawn} == {2}
    assert set.union(*drawn) == {turn.test for turn in turns}


def test_a_family_that_disagrees_is_told() -> None:
    with pytest.raises(pytest.UsageError, match="'kills' disagree"):
        share([Turn("a", "kills", 1), Turn("b", "kills", 2)], DAY)


SUITE = """
import pytest

def test_alone():
    pass

@pytest.mark.parametrize("x", range(7))
def test_by_rule(x):
    pass

@pytest.mark.daily(2)
@pytest.mark.parametrize("x", range(7))
def test_by_mark(x):
    pass

@pytest.mark.xdist_group("spark")
@pytest.mark.daily(1, of="long")
def test_long():
    pass

@pytest.mark.daily(1, of="long")
def test_as_long():
    pass

@pytest.mark.xdist_group("spark")
@pytest.mark.parametrize("x", range(9))
def test_on_spark(x):
    pass

@pytest.mark.xdist_group("spark")
def test_on_spark_too():
    pass

@pytest.mark.soak
@pytest.mark.daily(1, of="long")
def test_never():
    pass
"""


@pytest.fixture
def suite(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    pytester.makeini("[pytest]\nmarkers =\n    soak: long")
    pytester.makepyfile(test_it=SUITE)
    # The plugin is imported by the processes that it starts.
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    return pytester


def ran(suite: pytest.Pytester, *options: str) -> list[str]:
    command = [
        "-p",
        "tests.support.sampling",
        "-m",
        "not soak",
        "-q",
        "-rA",
        "-p",
        "no:cacheprovider",
    ]
    told = suite.runpytest_subprocess(*command, *options)
    assert told.ret == 0, told.outlines
    passed = re.findall(r"PASSED \S*::(test_\w+)", "\n".join(told.outlines))
    return sorted(passed)


def test_the_rest_is_what_a_days_share_left(
    suite: pytest.Pytester,
) -> None:
    workers = ("-n", "2", "--dist", "loadgroup")
    day = ran(suite, *workers, "--share", "day", "--day", "2026-11-22")
    assert day.count("test_alone") + day.count("test_by_rule") == 1
    assert day.count("test_by_mark") == 2
    assert day.count("test_on_spark") + day.count("test_on_spark_too") == 1
    assert day.count("test_long") + day.count("test_as_long") == 1
    rest = ran(suite, "--share", "rest", "--day", "2026-11-22")
    assert sorted(day + rest) == ran(suite)


def test_no_test_begins_when_the_time_is_up(suite: pytest.Pytester) -> None:
    told = suite.runpytest_subprocess("-p", "tests.support.sampling", "--minutes", "0")
    assert "passed" not in "\n".join(told.outlines)
    assert "failed" not in "\n".join(told.outlines)
