import json
from functools import partial

import pytest

from lakevilla.store.base import ABSENT, ANY, Found, Stored
from lakevilla.store.effects import get, list_objects, parallel, put
from lakevilla_testing.histories.exhaustive import (
    crash_everywhere,
    crash_twice_everywhere,
    interleavings,
    one_search,
    set_up_once,
)
from lakevilla_testing.tables.reader import run_now
from lakevilla_testing.world.scheduler import Simulation
from tests.support.simulated.counter import check_counter, increment


def writer(client):
    """A toy writer of two files, and of a decision that names them and is the commit point."""
    yield from parallel([put("data/a", b"1", ANY), put("data/b", b"2", ANY)])
    body = json.dumps({"nonce": client.ids.nonce(), "files": ["data/a", "data/b"]})
    outcome = yield from put("decision", body.encode(), ABSENT)
    if isinstance(outcome, Stored):
        yield from publish(client)


def hasty_writer(client):
    """A wrong writer that decides before its files are stored."""
    body = json.dumps({"nonce": client.ids.nonce(), "files": ["data/a", "data/b"]})
    yield from put("decision", body.encode(), ABSENT)
    yield from parallel([put("data/a", b"1", ANY), put("data/b", b"2", ANY)])
    yield from publish(client)


def publish(client):
    found = yield from get("decision")
    if isinstance(found, Found):
        for name in json.loads(found.body)["files"]:
            yield from put(f"published/{name}", b"", ANY)
    return [info.key for info in (yield from list_objects("published"))]


def check_all_or_nothing(simulation):
    keys = set(simulation.store.objects)
    decided = "decision" in keys
    assert not decided or {"data/a", "data/b"} <= keys
    crashed_late = simulation.clients[-1].status == "done"
    if decided and crashed_late and len(simulation.clients) > 1:
        landed_late = any(line.verb == "landed" for line in simulation.trace)
        assert landed_late or {"published/data/a", "published/data/b"} <= keys


def building(program):
    def build(faults, schedule):
        simulation = Simulation(faults=faults, schedule=schedule)
        simulation.add("writer", program, restart=publish)
        return simulation

    return build


def test_every_crash_point_is_tried_in_every_way():
    # Two files, the decision, a read of it, two marks, a list: each with four kinds of crash.
    assert crash_everywhere(building(writer), check_all_or_nothing, "writer") == 7 * 4


def test_pairs_of_crashes_are_tried():
    runs = crash_twice_everywhere(building(writer), check_all_or_nothing, "writer")
    # The process that takes over makes 2 requests (undecided) or 4.
    assert 28 * 2 * 4 < runs < 28 * 4 * 4


def test_a_crash_between_the_decision_and_its_files_is_found():
    with pytest.raises(AssertionError) as caught:
        crash_everywhere(building(hasty_writer), check_all_or_nothing, "writer")
    assert "crash" in "".join(caught.value.__notes__)


def counters(times):
    def build(faults, schedule):
        simulation = Simulation(faults=faults, schedule=schedule)
        for name in ("a", "b"):
            simulation.add(name, lambda client: increment(client, times))
        return simulation

    return build


def test_a_search_of_interleavings_ends_after_all_of_them():
    # Each client gets and puts once; the loser tries again (read-back, put).
    runs = interleavings(counters(1), check_counter, preemptions=10)
    assert 6 <= runs < 60


def test_a_search_of_interleavings_stops_at_its_limit():
    assert interleavings(counters(3), check_counter, limit=200) == 200


def test_a_lost_update_is_found_with_one_preemption():
    def careless(client):
        found = yield from get("counter")
        value = json.loads(found.body) if isinstance(found, Found) else 0
        yield from put("counter", json.dumps(value + 1).encode(), ANY)

    def build(faults, schedule):
        simulation = Simulation(faults=faults, schedule=schedule)
        simulation.add("a", careless)
        simulation.add("b", careless)
        return simulation

    def check(simulation):
        assert simulation.store.objects["counter"].body == b"2"

    assert interleavings(build, check, preemptions=0) == 2
    with pytest.raises(AssertionError):
        interleavings(build, check, preemptions=1)


def made_in(numbers):
    """Return a set-up function that notes each time it is really executed."""

    @set_up_once
    def started(faults=None, schedule=None, *, number=0, **options):
        numbers.append(number)
        simulation = Simulation(faults=faults, schedule=schedule, **options)
        run_now(simulation.store, put("start", str(number).encode(), ANY), lambda seconds: None)
        simulation.now += 5.0
        return simulation

    return started


def test_a_search_runs_its_set_up_once_and_each_run_starts_from_the_same_state():
    made, met = [], []
    started = made_in(made)

    def build(faults, schedule):
        simulation = started(faults, schedule, number=7, checked=True, seed=3)
        met.append((sorted(simulation.store.objects), simulation.now, simulation.store.now()))
        assert (simulation.seed, simulation.checked, simulation.faults) == (3, True, faults)
        simulation.add("writer", writer)
        return simulation

    assert crash_everywhere(build, lambda simulation: None, "writer", every=3) > 5
    assert made == [7]
    assert len(met) > 5
    assert {(tuple(keys), now) for keys, now, _ in met} == {(("start",), 5.0)}
    assert len({at for *_, at in met}) == 1


def test_a_set_up_runs_again_for_other_arguments_and_for_another_search():
    made = []
    started = made_in(made)
    started()
    started()
    assert made == [0, 0]

    @one_search
    def search():
        return [started(number=number) for number in (1, 2, 1, 2)]

    search()
    first, second, *_ = search()
    assert made == [0, 0, 1, 2, 1, 2]
    assert first.store.objects["start"].body != second.store.objects["start"].body


def test_a_stride_skips_schedules():
    taken = []

    def build(faults, schedule):
        taken.append(schedule)
        simulation = Simulation(faults=faults, schedule=schedule)
        simulation.add("one", partial(increment, times=3))
        simulation.add("two", partial(increment, times=3))
        return simulation

    def schedules(**options):
        taken.clear()
        interleavings(build, lambda simulation: None, preemptions=1, **options)
        return [schedule.taken for schedule in taken]

    everything = schedules()
    some = schedules(every=3)
    assert 1 < len(some) < len(everything)
    assert all(one in everything for one in some)
    assert len(schedules(every=3, limit=2)) == 2
