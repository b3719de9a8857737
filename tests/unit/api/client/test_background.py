"""Background work of a process: tasks run in order, and a failed task fails no transaction."""

from __future__ import annotations

import logging
import threading

import pytest

from lakevilla.api.client.background import Background
from lakevilla.store.effects import Program


class Doing:
    """A runner of programs that send no request."""

    def run(self, program: Program[object]) -> object:
        with pytest.raises(StopIteration) as stop:
            next(program)
        return stop.value.value


@pytest.fixture
def background() -> Background:
    return Background(Doing())  # type: ignore[arg-type]


def noting(done: list[object], what: object) -> Program[object]:
    yield from ()
    done.append(what)
    return what


def failing() -> Program[object]:
    yield from ()
    raise ValueError("the disk is full")


def test_background_programs_run_one_after_the_other_in_a_thread(background: Background) -> None:
    done: list[object] = []
    for number in range(5):
        background.soon(
            lambda number=number: noting(done, number),  # type: ignore[misc]
            lambda: done.append(threading.current_thread().name),
        )
    background.close()
    assert done == [step for number in range(5) for step in (number, "lakevilla-background")]


def test_a_failed_task_is_logged_and_the_next_one_runs(
    background: Background, caplog: pytest.LogCaptureFixture
) -> None:
    done: list[object] = []
    with caplog.at_level(logging.WARNING, "lakevilla"):
        background.soon(failing, lambda: done.append("then"))
        background.soon(lambda: noting(done, 1), lambda: None)
        background.close()
    assert done == [1]
    assert "the next client will do it" in caplog.text
    assert "the disk is full" in caplog.text


def test_a_background_can_be_closed_twice_and_used_afterwards(background: Background) -> None:
    background.close()
    background.close()
    done: list[object] = []
    background.soon(lambda: noting(done, 1), lambda: None)
    background.close()
    assert done == [1]


def test_only_the_last_waiting_program_of_each_key_is_run(background: Background) -> None:
    done: list[object] = []
    begun, go_on = threading.Event(), threading.Event()

    def slow() -> Program[object]:
        yield from ()
        begun.set()
        go_on.wait()
        done.append("slow")

    background.soon(slow, lambda: None, key="a")
    begun.wait()
    for number in range(3):
        background.soon(lambda number=number: noting(done, number), lambda: None, key="a")  # type: ignore[misc]
        background.soon(lambda: noting(done, "b"), lambda: None, key="b")
    background.soon(lambda: noting(done, "always"), lambda: None)
    go_on.set()
    background.close()
    assert done == ["slow", 2, "b", "always"]
