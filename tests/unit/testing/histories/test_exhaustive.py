import json

import pytest

from lakevilla.store.base import ABSENT, ANY, Found, Stored
from lakevilla.store.effects import get, list_objects, parallel, put
from lakevilla_testing.histories.exhaustive import (
    crash_everywhere,
    crash_twice_everywhere,
    interleavings,
)
from lakevilla_testing.world.scheduler import Simulation
from tests.support.simulated.counter import check_counter, increment


def writer(client):
    """Two files and a decision that names them; the toy's commit point is the decision."""
    yield from parallel([put("data/a", b"1", ANY), put("data/b", b"2", ANY)])
    body = json.dumps({"nonce": client.ids.nonce(), "files": ["data/a", "data/b"]})
    outcome = yield from put("decision", body.encode(), ABSENT)
    if isinstance(outcome, Stored):
        yield from publish(client)


def hasty_writer(client):
    """Decides before its files are there."""
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
    # Two files, the decision, reading it, two marks, a list; four deaths each.
    assert crash_everywhere(building(writer), check_all_or_nothing, "writer") == 7 * 4


def test_pairs_of_crashes_are_tried():
    runs = crash_twice_everywhere(building(writer), check_all_or_nothing, "writer")
    # The process in its place makes 2 requests (undecided) or 4.
    assert 28 * 2 * 4 < runs < 28 * 4 * 4


def test_crash_between_decision_and_files_is_found():
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


def test_interleavings_end_when_all_have_been_seen():
    # Each client gets and puts once; a loser looks again (read-back, put).
    runs = interleavings(counters(1), check_counter, preemptions=10)
    assert 6 <= runs < 60


def test_interleavings_stop_at_the_limit():
    assert interleavings(counters(3), check_counter, limit=200) == 200


def test_lost_update_needs_one_preemption_and_is_found():
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
