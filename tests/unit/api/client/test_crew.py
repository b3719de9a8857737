"""The threads of a process do what is due for many lakes, and no duty keeps another one waiting."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from lakevilla.api.client import background
from lakevilla.api.client.background import Duty

#: Long enough on a slow machine; a test that passes does not take it.
LIMIT_SECONDS = 30.0


@pytest.fixture(autouse=True)
def crew(monkeypatch: pytest.MonkeyPatch) -> Iterator[background._Crew]:
    """Return a crew of the test's own, without the duties of lakes that are open elsewhere."""
    crew = background._Crew()
    monkeypatch.setattr(background, "_crew", crew)
    yield crew
    crew.close()


def duty(do: Callable[[], object], kind: str = "kind", patience: float = LIMIT_SECONDS) -> Duty:
    """Return a duty that is done once each time that it becomes due."""

    def once() -> None:
        do()

    return Duty(once, kind, patience)


class Hanging:
    """Duties that begin and go on until ``release``, like requests to a store that hangs."""

    def __init__(self, count: int, kind: str = "kind") -> None:
        self._released = threading.Event()
        self._began = threading.Semaphore(0)
        self.duties = [duty(self._hang, kind) for _ in range(count)]
        for one in self.duties:
            one.due_in(0.0)

    def _hang(self) -> None:
        self._began.release()
        assert self._released.wait(LIMIT_SECONDS)

    def until_begun(self, count: int) -> None:
        for _ in range(count):
            assert self._began.acquire(timeout=LIMIT_SECONDS)

    def release(self) -> None:
        self._released.set()
        for one in self.duties:
            one.wait()


def test_duties_that_are_due_at_once_are_done_by_a_few_threads(crew: background._Crew) -> None:
    threads = set()
    done = [duty(lambda: threads.add(threading.get_ident())) for _ in range(50)]
    for one in done:
        one.due_in(0.0)
    for one in done:
        one.wait(LIMIT_SECONDS)
    assert not any(one.is_left for one in done)
    assert len(threads) <= 2
    assert crew._threads <= 2


def test_duties_that_hang_delay_no_duty_of_another_kind() -> None:
    """A renewal never waits for a save, a checkpoint or a report."""
    hanging = Hanging(10, "lakevilla-saver")
    hanging.until_begun(2)
    renewed = threading.Event()
    duty(renewed.set, "lakevilla-heartbeat").due_in(0.0)
    assert renewed.wait(LIMIT_SECONDS)
    hanging.release()


def test_duties_that_hang_delay_others_of_their_kind_by_their_patience_alone() -> None:
    hanging = Hanging(10)
    hanging.until_begun(2)
    renewed = threading.Event()
    duty(renewed.set, patience=0.02).due_in(0.0)
    assert renewed.wait(LIMIT_SECONDS)
    hanging.release()


def test_as_many_duties_hang_at_the_same_time_as_have_lost_patience() -> None:
    hanging = Hanging(0)
    hanging.duties = [duty(hanging._hang, patience=0.001) for _ in range(30)]
    for one in hanging.duties:
        one.due_in(0.0)
    hanging.until_begun(30)
    hanging.release()


def test_a_duty_that_becomes_due_while_it_is_done_is_done_again() -> None:
    began, go_on, times = threading.Event(), threading.Event(), []

    def work() -> None:
        times.append(1)
        began.set()
        assert go_on.wait(LIMIT_SECONDS)

    one = duty(work)
    one.due_in(0.0)
    assert began.wait(LIMIT_SECONDS)
    one.due_in(0.0)
    go_on.set()
    one.wait(LIMIT_SECONDS)
    assert len(times) == 2


def test_a_duty_becomes_due_at_the_earliest_time_that_was_requested() -> None:
    done = threading.Event()
    one = duty(done.set)
    one.due_in(1000.0)
    one.due_in(0.0)
    one.due_in(1000.0)
    assert done.wait(LIMIT_SECONDS)


def test_a_cancelled_duty_is_not_done_again_and_is_not_kept(crew: background._Crew) -> None:
    began, go_on, times = threading.Event(), threading.Event(), []

    def work() -> float:
        times.append(1)
        began.set()
        assert go_on.wait(LIMIT_SECONDS)
        return 0.0

    running, later = Duty(work, "kind", 1.0), duty(lambda: times.append(2))
    later.due_in(1000.0)
    running.due_in(0.0)
    assert began.wait(LIMIT_SECONDS)
    later.cancel()
    running.cancel()
    later.wait()
    assert running.is_left
    go_on.set()
    running.wait(LIMIT_SECONDS)
    assert times == [1]
    assert not crew._later
    running.due_in(0.0)  # one that was cancelled can become due again
    running.cancel()
    running.wait(LIMIT_SECONDS)


def test_a_duty_may_cancel_itself_and_wait_for_itself() -> None:
    ended = threading.Event()

    def work() -> None:
        one.cancel()
        one.wait()
        ended.set()

    one = duty(work)
    one.due_in(0.0)
    assert ended.wait(LIMIT_SECONDS)


def test_a_duty_that_fails_ends_no_thread(
    crew: background._Crew, caplog: pytest.LogCaptureFixture
) -> None:
    def fail() -> None:
        raise ValueError("a fault")

    failing, well = duty(fail), threading.Event()
    failing.due_in(0.0)
    failing.wait(LIMIT_SECONDS)
    duty(well.set).due_in(0.0)
    assert well.wait(LIMIT_SECONDS)
    assert crew._threads == 1
    assert "a fault" in caplog.text


def test_duties_wait_for_a_thread_if_the_system_has_none(
    crew: background._Crew, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(background, "_AGAIN_SECONDS", 0.01)
    started, refused = crew._has_another, threading.Semaphore(0)

    def refuse() -> bool:
        refused.release()
        return False

    monkeypatch.setattr(crew, "_has_another", refuse)
    done = threading.Event()
    duty(done.set).due_in(0.0)
    for _ in range(3):
        assert refused.acquire(timeout=LIMIT_SECONDS)
    monkeypatch.setattr(crew, "_has_another", started)
    assert done.wait(LIMIT_SECONDS)


def test_threads_end_once_nothing_is_left(crew: background._Crew) -> None:
    later = duty(lambda: None)
    later.due_in(1000.0)
    one = duty(lambda: None)
    one.due_in(0.0)
    one.wait(LIMIT_SECONDS)
    assert crew._clock is not None
    clock = crew._clock
    later.cancel()
    clock.join(LIMIT_SECONDS)
    assert not clock.is_alive()
    while crew._threads:
        crew._ended.get(timeout=LIMIT_SECONDS)


def test_a_forked_child_has_none_of_its_parents_duties() -> None:
    hanging = Hanging(3)
    hanging.until_begun(2)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            done = threading.Event()
            duty(done.set).due_in(0.0)
            status = 0 if done.wait(LIMIT_SECONDS) and not background._crew._ready else 2
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert status == 0
    hanging.release()


def test_a_renewal_is_on_time_while_fifty_lakes_hang() -> None:
    """Fifty lakes' renewals hang; a lake at another store is renewed at each of its times."""
    hanging = Hanging(0)
    hanging.duties = [duty(hanging._hang, "lakevilla-heartbeat", 0.005) for _ in range(50)]
    for one in hanging.duties:
        one.due_in(0.0)
    times: list[float] = []
    enough = threading.Event()

    def renew() -> float | None:
        times.append(time.monotonic())
        if len(times) == 5:
            enough.set()
            return None
        return 0.02

    Duty(renew, "lakevilla-heartbeat", 0.005).due_in(0.0)
    assert enough.wait(LIMIT_SECONDS)
    hanging.release()
