"""The workers of a run are sent its tests in units."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.unit_scheduling import UnitScheduling
from tests.support.units import MOST, units

pytest_plugins = ["pytester"]


def test_tests_of_a_file_that_follow_each_other_are_a_unit() -> None:
    found = units(["a.py::x", "a.py::y", "b.py::x", "a.py::z"])
    assert found["a.py::x"] == found["a.py::y"]
    assert len(set(found.values())) == 3


def test_a_unit_has_a_limited_number_of_tests() -> None:
    sizes = list(units([f"a.py::x[{number}]" for number in range(2 * MOST + 1)]).values())
    assert sorted(map(sizes.count, set(sizes))) == [1, MOST, MOST]


def test_a_group_is_one_unit_wherever_its_tests_are() -> None:
    found = units(["a.py::x@spark", "a.py::y", "b.py::x[y@z]", "b.py::y[0]@spark"])
    assert found["a.py::x@spark"] == found["b.py::y[0]@spark"]
    assert len(set(found.values())) == 3


class Worker:
    """A worker that notes what it is sent."""

    shutting_down = False

    def __init__(self) -> None:
        self.sent: list[list[int]] = []

    def send_runtest_some(self, indices: list[int]) -> None:
        self.sent.append(indices)

    def shutdown(self) -> None:
        self.shutting_down = True


@pytest.fixture
def scheduling() -> UnitScheduling:
    """Return a scheduler for one worker."""
    option = SimpleNamespace(loadscopereorder=False)
    config: Any = SimpleNamespace(option=option, getvalue=lambda name: ["popen"])
    return UnitScheduling(config)


def test_a_worker_is_sent_the_next_unit_before_it_is_done_and_a_unit_that_is_done_is_forgotten(
    scheduling: UnitScheduling,
) -> None:
    worker: Any = Worker()
    scheduling.add_node(worker)
    tests = [f"{file}.py::x[{number}]" for file in "abc" for number in range(4)]
    scheduling.add_node_collection(worker, tests)
    scheduling.schedule()
    assert worker.sent == [[0, 1, 2, 3]]

    scheduling.mark_test_complete(worker, 0)
    assert worker.sent == [[0, 1, 2, 3]]
    scheduling.mark_test_complete(worker, 1)
    assert worker.sent == [[0, 1, 2, 3], [4, 5, 6, 7]]

    for number in range(2, 12):
        scheduling.mark_test_complete(worker, number)
    assert [number for sent in worker.sent for number in sent] == list(range(12))
    assert worker.shutting_down
    assert scheduling.assigned_work == {worker: {}}


MODULE = """
import pytest

@pytest.fixture(scope="module")
def made():
    with open("made", "a") as file:
        file.write(__name__ + "\\n")

@pytest.mark.parametrize("number", range(9))
def test_it(made, number):
    pass
"""


def test_two_workers_make_the_fixture_of_each_module_once(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    pytester.makepyfile(**{f"test_{name}": MODULE for name in "abcdef"})
    run = ("-p", "tests.support.units", "-p", "no:cacheprovider", "-n", "2", "--dist", "loadgroup")
    result = pytester.runpytest_inprocess(*run)
    result.assert_outcomes(passed=54)
    made = (pytester.path / "made").read_text().split()
    assert sorted(made) == [f"test_{name}" for name in "abcdef"]
