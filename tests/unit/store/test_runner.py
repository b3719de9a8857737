"""The runner: programs, parallel parts, errors, interrupts, and counted requests."""

from __future__ import annotations

import _thread
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from lakevilla.clock import SystemClock
from lakevilla.errors import InvalidOperation, StoreError
from lakevilla.ids import Ids
from lakevilla.settings import Settings
from lakevilla.store.backends.object_store import open_store
from lakevilla.store.backends.routing import LakeStore
from lakevilla.store.base import (
    ABSENT,
    ANY,
    Condition,
    Failure,
    Found,
    Missing,
    Refused,
    Stored,
    WrappedStore,
)
from lakevilla.store.effects import (
    Effect,
    Gate,
    Get,
    Parallel,
    Program,
    Put,
    Sleep,
    delete,
    get,
    list_objects,
    parallel,
    put,
    put_file,
    sleep,
    some_at_once,
    stat,
    wait_at,
)
from lakevilla.store.parallel import POOL_SIZE, submit
from lakevilla.store.runner import Requests, Runner

QUICK = Settings(retry_limit=3, retry_base_seconds=0.001)


class Hooked:
    """A memory store that calls a function of the key before each get."""

    def __init__(self, on_get: Callable[[str], Any]) -> None:
        self._store = open_store("memory://")
        self._on_get = on_get

    def get(self, key: str, *arguments: Any) -> Any:
        answer = self._on_get(key)
        return answer if answer is not None else self._store.get(key, *arguments)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


def undurable_runner(directory: Path) -> Runner:
    """Return a runner whose small requests wait for no disk, so that no thread of the pool runs
    them.
    """
    settings = replace(QUICK, durable_files=False)
    store = open_store(str(directory), settings=settings)
    return Runner(store, Ids(SystemClock()), settings)


def make_runner(store: Any = None) -> Runner:
    return Runner(store or open_store("memory://"), Ids(SystemClock()), QUICK)


def read(key: str) -> Program[bytes | None]:
    found = yield from get(key)
    return found.body if isinstance(found, Found) else None


def test_a_program_receives_the_outcome_of_each_of_its_effects() -> None:
    def program() -> Program[list[object]]:
        stored = yield from put("k", b"1", ABSENT)
        found = yield from get("k")
        assert isinstance(found, Found)
        info = yield from stat("k")
        listed = yield from list_objects("")
        yield from sleep(0)
        yield from delete("k")
        gone = yield from get("k")
        return [type(stored), found.body, info.size, [i.key for i in listed], gone]

    assert make_runner().run(program()) == [Stored, b"1", 1, ["k"], Missing()]


def test_parallel_returns_results_in_the_order_of_its_parts() -> None:
    runner = make_runner(Hooked(lambda key: time.sleep(0.02 - int(key) * 0.002)))

    def program() -> Program[list[bytes | None]]:
        yield from parallel([Put(str(n), str(n).encode(), ANY) for n in range(10)])
        return (yield from parallel([read(str(n)) for n in range(10)]))

    assert runner.run(program()) == [str(n).encode() for n in range(10)]


def test_parallel_accepts_effects_programs_sleeps_and_parallels_together() -> None:
    def program() -> Program[list[object]]:
        return (
            yield from parallel(
                [
                    Put("a", b"1", ABSENT),
                    read("none"),
                    Sleep(0.001),
                    Parallel((Get("x"), Parallel(()), read("y"))),
                ]
            )
        )

    stored, nothing, slept, nested = make_runner().run(program())
    assert isinstance(stored, Stored)
    assert (nothing, slept, nested) == (None, None, [Missing(), [], None])


def test_parallel_requests_run_at_the_same_time() -> None:
    together = threading.Barrier(32)

    def wait(_: str) -> None:
        together.wait(10)  # raises, and so fails the test, unless 32 requests are there at once

    def program() -> Program[list[object]]:
        return (yield from parallel([Get(str(n)) for n in range(32)]))

    assert make_runner(Hooked(wait)).run(program()) == [Missing()] * 32


def test_a_thread_of_the_pool_that_waits_for_work_holds_no_job() -> None:
    class Job:
        def __call__(self) -> None: ...

    freed, job = threading.Event(), Job()
    weakref.finalize(job, freed.set)
    submit(job)
    del job
    assert freed.wait(10)


@pytest.mark.parametrize("durable", [True, False])
def test_a_request_that_is_refused_ends_no_other_of_its_round(
    durable: bool, tmp_path: Path
) -> None:
    def refused() -> Program[str]:
        try:
            yield Get("a//b")
        except InvalidOperation:
            return "refused"
        return "read"

    def other() -> Program[str]:
        yield Get("a")
        return "went on"

    def program() -> Program[list[str]]:
        return (yield Parallel((refused(), other())))

    store, settings = open_store(str(tmp_path)), Settings(durable_files=durable)
    runner = Runner(store, Ids(SystemClock()), settings)
    assert runner.run(program()) == ["refused", "went on"]


@pytest.mark.parametrize("durable", [True, False])
def test_small_requests_that_wait_for_no_disk_run_in_the_callers_thread(
    durable: bool, tmp_path: Path
) -> None:
    seen: dict[str, int] = {}

    class Watched(WrappedStore):
        def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
            seen[key] = threading.get_ident()
            return super().put(key, body, condition)

    runner = undurable_runner(tmp_path) if not durable else make_runner(open_store(str(tmp_path)))
    runner.store = Watched(runner.store)
    bodies = {"small": b"1", "large": bytes(2 * 1024 * 1024)}
    puts = [Put(key, body, ANY) for key, body in bodies.items()]

    def program() -> Program[list[object]]:
        return (yield from parallel(puts))

    assert all(isinstance(outcome, Stored) for outcome in runner.run(program()))
    here = threading.get_ident()
    assert (seen["small"] == here, seen["large"] == here) == (not durable, False)


def test_an_error_of_a_request_in_the_callers_thread_is_thrown_into_its_program(
    tmp_path: Path,
) -> None:
    (tmp_path / "file").write_bytes(b"1")
    caught: list[str] = []

    def part() -> Program[None]:
        try:
            yield from put("file/below", b"1", ANY)
        except StoreError as error:
            caught.append(error.message)
            raise

    def program() -> Program[list[object]]:
        return (yield from parallel([part(), Put("kept", b"2", ANY)]))

    with pytest.raises(StoreError):
        undurable_runner(tmp_path).run(program())
    assert len(caught) == 1
    assert (tmp_path / "kept").read_bytes() == b"2"


def test_nested_parallel_parts_beyond_the_pool_size_all_finish() -> None:
    def leaf(n: int) -> Program[int]:
        yield from parallel([Get(f"{n}/a"), Get(f"{n}/b"), Get(f"{n}/c")])
        return n

    def program() -> Program[list[int]]:
        return (yield from parallel([leaf(n) for n in range(3 * POOL_SIZE)]))

    assert make_runner().run(program()) == list(range(3 * POOL_SIZE))


def test_sleeping_parts_occupy_no_thread() -> None:
    def part() -> Program[None]:
        yield from sleep(0.05)

    def program() -> Program[list[None]]:
        return (yield from parallel([part() for _ in range(200 * POOL_SIZE)]))

    started = time.monotonic()
    make_runner().run(program())
    # With a thread for each sleeping part, it would take at least 200 times as long as one sleep.
    assert time.monotonic() - started < 200 * 0.05


@pytest.mark.parametrize("parts", [0, 1, 3], ids=["alone", "in a part", "in parts"])
def test_a_wait_at_a_gate_ends_with_its_time_or_when_the_gate_opens(parts: int) -> None:
    shut, open_later = Gate(), Gate()

    def waits() -> Program[tuple[bool, bool]]:
        yield from wait_at(shut, 0.02)
        threading.Timer(0.02, open_later.open).start()
        yield from wait_at(open_later, 60.0)
        return shut.is_open, open_later.is_open

    def program() -> Program[list[tuple[bool, bool]]]:
        if not parts:
            return [(yield from waits())]
        return (yield from parallel([waits() for _ in range(parts)]))

    started = time.monotonic()
    assert make_runner().run(program()) == [(False, True)] * max(1, parts)
    assert 0.02 <= time.monotonic() - started < 30


def test_the_first_error_of_a_parallel_is_raised_after_all_parts_have_ended() -> None:
    ended: list[str] = []

    def slow() -> Program[None]:
        yield from sleep(0.05)
        yield from get("x")
        ended.append("slow")

    def failing() -> Program[None]:
        yield from get("y")
        raise ValueError("first")

    def late() -> Program[None]:
        yield from sleep(0.02)
        raise ValueError("second")

    def program() -> Program[list[None]]:
        return (yield from parallel([slow(), failing(), late()]))

    with pytest.raises(ValueError, match="first"):
        make_runner().run(program())
    assert ended == ["slow"]


def test_some_at_once_begins_a_program_when_another_ends_and_keeps_the_order() -> None:
    running = most = 0

    def part(number: int) -> Program[int]:
        nonlocal running, most
        running += 1
        most = max(most, running)
        yield from get(str(number))
        running -= 1
        return number

    count = 1000
    found = make_runner().run(some_at_once(part(number) for number in range(count)))
    assert found == list(range(count))
    assert most == 256
    assert make_runner().run(some_at_once(part(number) for number in range(3))) == [0, 1, 2]


def test_some_at_once_begins_no_further_program_after_an_error() -> None:
    begun: list[int] = []

    def part(number: int) -> Program[None]:
        begun.append(number)
        yield from get(str(number))
        if number == 5:
            raise ValueError("fifth")

    with pytest.raises(ValueError, match="fifth"):
        make_runner().run(some_at_once(part(number) for number in range(5000)))
    assert 5 in begun
    assert len(begun) < 1000


def test_an_error_of_a_request_is_thrown_into_the_program_that_waits_for_it() -> None:
    runner = make_runner(Hooked(lambda key: Failure("403", permanent=True) if key == "x" else None))

    def part() -> Program[str]:
        try:
            yield from get("x")
        except StoreError:
            yield from put("cleaned", b"1", ANY)
            return "handled"
        return "not raised"

    def program() -> Program[list[str]]:
        first = yield from part()
        return [first, *(yield from parallel([part(), part()]))]

    assert runner.run(program()) == ["handled"] * 3
    assert runner.run(read("cleaned")) == b"1"


def test_errors_raised_by_a_store_are_raised_by_the_runner() -> None:
    def broken(_: str) -> None:
        raise ZeroDivisionError

    runner = make_runner(Hooked(broken))
    with pytest.raises(ZeroDivisionError):
        runner.run(get("x"))

    def program() -> Program[list[object]]:
        return (yield from parallel([Get("x"), Get("y")]))

    with pytest.raises(ZeroDivisionError):
        runner.run(program())


@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("parts", [1, 3])
def test_ctrl_c_ends_all_parts_after_their_clean_up(parts: int) -> None:
    cleaned: list[int] = []
    inside = threading.Semaphore(0)

    def slow_get(_: str) -> None:
        inside.release()
        time.sleep(0.1)

    def part(n: int) -> Program[None]:
        try:
            for _ in range(100):
                yield from get(f"{n}")
        except KeyboardInterrupt:
            yield from put(f"cleaned/{n}", b"1", ANY)
            cleaned.append(n)
            raise

    def sleeper() -> Program[None]:
        try:
            yield from sleep(60)
        except KeyboardInterrupt:
            cleaned.append(-1)
            raise

    def program() -> Program[object]:
        if parts == 1:
            return (yield from part(0))
        return (yield from parallel([*(part(n) for n in range(parts)), sleeper()]))

    def interrupt() -> None:
        for _ in range(parts):
            inside.acquire()
        _thread.interrupt_main()

    helper = threading.Thread(target=interrupt)
    runner = make_runner(Hooked(slow_get))
    helper.start()
    started = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        runner.run(program())
    helper.join()
    assert time.monotonic() - started < 5
    expected = list(range(parts)) + ([-1] if parts > 1 else [])
    assert sorted(cleaned) == sorted(expected)
    assert len(runner.run(list_objects("cleaned"))) == parts


@pytest.mark.parametrize("in_pool", [True, False])
def test_ctrl_c_at_any_time_never_makes_the_runner_hang(in_pool: bool, tmp_path: Path) -> None:
    """The signal is sent at many different times while a large program with nested parallels
    runs.
    """

    def leaf(n: int) -> Program[None]:
        yield from parallel([Get(f"{n}"), read(f"{n}/x")])
        yield from sleep(0.0005)
        yield from put(f"{n}", b"x", ANY)

    def program() -> Program[list[None]]:
        return (yield from parallel([leaf(n) for n in range(12)]))

    runner = make_runner() if in_pool else undurable_runner(tmp_path)
    interrupted = 0
    for instant in range(120):
        previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0002 + 0.00004 * instant)
            try:
                runner.run(program())
            except KeyboardInterrupt:
                interrupted += 1
            finally:
                signal.setitimer(signal.ITIMER_REAL, 0)
        except KeyboardInterrupt:
            interrupted += 1
        finally:
            signal.signal(signal.SIGALRM, previous)
    assert interrupted > 20


def test_requests_are_counted_by_verb_including_retries_and_read_backs() -> None:
    answers = iter([Failure("503"), Failure("503"), None])
    runner = make_runner(Hooked(lambda key: next(answers) if key == "flaky" else None))

    def program() -> Program[None]:
        yield from put("a", b"1", ABSENT)
        yield from put("a", b"2", ABSENT)
        yield from parallel([Get("a"), Get("b")])
        yield from stat("a")
        yield from list_objects("")
        yield from delete("a")
        yield from get("flaky")

    with runner.requests.counting() as counted:
        runner.run(program())
    assert counted == Requests(get=6, put=2, head=1, list=1, delete=1)
    assert counted.total == 11
    assert runner.requests.snapshot() == counted
    with runner.requests.counting() as nothing:
        pass
    assert nothing.total == 0


def test_failed_attempts_are_passed_to_the_listener() -> None:
    answers = iter([Failure("503, slow down"), None])
    reported: list[tuple[str, str]] = []
    runner = Runner(
        Hooked(lambda key: next(answers)),
        Ids(SystemClock()),
        QUICK,
        on_failure=lambda request, failure: reported.append((request.key, failure.reason)),
    )
    assert runner.run(get("k")) == Missing()
    assert reported == [("k", "503, slow down")]


def test_many_threads_can_share_a_runner() -> None:
    runner = make_runner()

    def program(n: int) -> Program[list[bytes | None]]:
        yield from parallel([Put(f"{n}/{i}", f"{n}{i}".encode(), ABSENT) for i in range(8)])
        return (yield from parallel([read(f"{n}/{i}") for i in range(8)]))

    results: dict[int, list[bytes | None]] = {}
    threads = [
        threading.Thread(target=lambda n=n: results.update({n: runner.run(program(n))}))
        for n in range(16)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == {n: [f"{n}{i}".encode() for i in range(8)] for n in range(16)}


def test_a_forked_child_runs_programs_on_its_own_pool(tmp_path: Any) -> None:
    store: LakeStore = open_store(str(tmp_path / "lake"))
    runner = make_runner(store)
    effects: list[Effect] = [Put(f"{n}", b"1", ABSENT) for n in range(8)]
    runner.run(parallel(effects))
    child = os.fork()
    if child == 0:
        signal.alarm(20)
        try:
            parts: list[Effect] = [Get(f"{n}") for n in range(8)]
            found = runner.run(parallel(parts))
            os._exit(0 if all(isinstance(outcome, Found) for outcome in found) else 1)
        except BaseException:
            os._exit(2)
    assert os.waitpid(child, 0)[1] == 0


def test_put_file_uploads_a_file_by_one_put(tmp_path: Any) -> None:
    (tmp_path / "f").write_bytes(b"body")
    runner = make_runner()
    with runner.requests.counting() as counted:
        runner.run(put_file("k", str(tmp_path / "f")))
    assert counted == Requests(put=1)
    assert runner.run(read("k")) == b"body"
