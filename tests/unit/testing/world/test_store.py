import random

from lakevilla.clock import SystemClock
from lakevilla.ids import Ids
from lakevilla.settings import Settings
from lakevilla.store.base import (
    ABSENT,
    ANY,
    Found,
    Match,
    Missing,
    Refused,
    Stored,
    Token,
    Unchanged,
)
from lakevilla.store.effects import Parallel, get, list_objects, put
from lakevilla.store.runner import Runner
from lakevilla_testing.world.store import SimulatedStore


def test_a_conditional_put_is_refused_if_its_condition_does_not_hold():
    store = SimulatedStore()
    first = store.put("a", b"1", ABSENT)
    assert isinstance(first, Stored)
    assert isinstance(store.put("a", b"2", ABSENT), Refused)
    assert isinstance(store.put("b", b"2", Match(first.token)), Refused)
    second = store.put("a", b"2", Match(first.token))
    assert isinstance(second, Stored)
    assert isinstance(store.put("a", b"3", Match(first.token)), Refused)
    assert store.get("a", second.token) == Unchanged()
    assert store.get("a", Token("other")) == Found(b"2", second.token, 1)


def test_a_byte_range_read_returns_a_slice():
    store = SimulatedStore()
    store.put("a", b"0123456789", ANY)
    assert store.get("a", byte_range=(2, 5)).body == b"234"
    assert store.get("a", byte_range=(-3, 0)).body == b"789"
    assert store.get("a", byte_range=(8, 50)).body == b"89"


def test_a_list_is_recursive_and_only_below_the_directory():
    store = SimulatedStore()
    for key in ("d/b", "d/c/e", "da", "d/a"):
        store.put(key, b"", ANY)
    assert {info.key for info in store.list("d")} == {"d/a", "d/b", "d/c/e"}
    assert {info.key for info in store.list("d", "d/a")} == {"d/b", "d/c/e"}
    assert {info.key for info in store.list("")} == {"d/a", "d/b", "d/c/e", "da"}


def test_list_at_shows_the_objects_of_a_past_time():
    now = [0.0]
    store = SimulatedStore(lambda: now[0])
    for second, key in enumerate(("d/a", "d/b", "d/c")):
        now[0] = float(second)
        store.put(key, b"", ANY)
    store.delete("d/a")
    assert {info.key for info in store.list_at(1.5, "d", None)} == {"d/a", "d/b"}
    assert {info.key for info in store.list_at(9, "d", None)} == {"d/b", "d/c"}
    assert store.list_at(-1, "d", None) == []


def test_a_copy_of_a_store_is_independent_of_the_original():
    store = SimulatedStore()
    store.put("a", b"1", ANY)
    other = store.copy()
    other.delete("a")
    assert isinstance(store.get("a"), Found)
    assert isinstance(other.get("a"), Missing)


def test_the_real_runner_can_use_a_simulated_store():
    def program():
        yield from put("a", b"1", ABSENT)
        yield Parallel((put("b", b"2", ANY), put("c", b"3", ANY)))
        keys = [info.key for info in (yield from list_objects(""))]
        return keys, (yield from get("c")).body

    clock = SystemClock()
    runner = Runner(SimulatedStore(), Ids(clock, random.Random(1)), Settings())
    assert runner.run(program()) == (["a", "b", "c"], b"3")
