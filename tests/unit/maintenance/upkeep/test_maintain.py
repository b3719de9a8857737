"""The upkeep of a lake: tasks that are due, the maintainer that does them, and its requests."""

from __future__ import annotations

import msgspec
import pytest

from lakevilla.maintenance.upkeep import lease
from lakevilla.maintenance.upkeep.lease import Lease, TaskRecord, look, take, task_key
from lakevilla.maintenance.upkeep.maintain import maintain
from lakevilla.maintenance.upkeep.tasks import TASKS
from lakevilla.results import Report
from lakevilla.store.base import ANY
from lakevilla.store.codec import decode, encode
from lakevilla.store.effects import Put, sleep
from lakevilla_testing.world.heartbeat import SimulatedHeartbeat
from tests.support.simulated.memory_lake import MemoryLake, Peer

HOUR, DAY = 3600.0, 24 * 3600.0


@pytest.fixture
def lake() -> MemoryLake:
    return MemoryLake("a", "b", "c")


def works(peer: Peer, *tasks: str, **options: float | None) -> Report:
    before = len(peer.asked)
    report = peer.run(
        maintain(peer.context, tasks or tuple(TASKS), owner=peer.client.name, **options)
    )  # type: ignore[arg-type]
    peer.asked[:before] = []
    return report


def notes(report: Report) -> dict[str, str]:
    return {one.kind: one.message for one in report.findings if one.severity == "note"}


def fill(lake: MemoryLake, table: str, count: int) -> None:
    peer = lake.peer()
    for number in range(count):
        peer.commit(peer.appending(table, 100 + number))


def files_of(lake: MemoryLake, table: str) -> int:
    return sum(key.endswith(".parquet") and "/_" not in key for key in lake.keys(f"{table}/"))


def test_an_idle_lake_costs_at_most_three_requests_a_task(lake: MemoryLake) -> None:
    for _ in range(3):
        works(lake.peer())
        lake.pass_by(HOUR)
    for task in TASKS:
        peer = lake.peer()
        report = works(peer, task)
        assert "not due" in notes(report)[task]
        assert len(peer.asked) == 2, peer.asked  # the requests for HEAD and the record


def test_a_due_task_costs_three_requests_for_its_record_besides_its_work(lake: MemoryLake) -> None:
    peer = lake.peer()
    works(peer, "checkpoint")
    asked = [str(getattr(one, "key", "")) for one in peer.asked]
    assert [key for key in asked if key == task_key("checkpoint")] == 3 * [task_key("checkpoint")]


def test_a_table_with_many_small_files_is_optimized_and_one_with_few_is_not(
    lake: MemoryLake,
) -> None:
    fill(lake, "a", 49)
    fill(lake, "b", 10)
    before = lake.rows("a"), lake.rows("b")
    report = works(lake.peer(), "optimize")
    assert report.ok
    assert notes(report)["optimize"] == "50 files compacted, 1 written instead"
    assert (lake.rows("a"), lake.rows("b")) == before
    assert works(lake.peer(), "optimize").ok
    assert lake.version("b") == 11


def test_optimize_checks_a_table_again_only_after_a_commit_or_a_day(lake: MemoryLake) -> None:
    works(lake.peer(), "optimize")
    fill(lake, "a", 1)
    peer = lake.peer()
    works(peer, "optimize")
    asked = [str(getattr(one, "key", getattr(one, "prefix", ""))) for one in peer.asked]
    assert any(key.startswith("a/") for key in asked)
    assert not any(key.startswith(("b/", "c/")) for key in asked)
    lake.pass_by(DAY)
    peer = lake.peer()
    works(peer, "optimize")  # other clients may have written without HEAD's knowledge
    assert any(str(getattr(one, "prefix", "")).startswith("b/") for one in peer.asked)


def test_vacuum_and_gc_are_done_once_a_day(lake: MemoryLake) -> None:
    works(lake.peer())
    fill(lake, "a", 1)
    lake.pass_by(HOUR)
    found = notes(works(lake.peer()))
    assert "not due" in found["vacuum"]
    assert "not due" in found["gc"]
    assert "not due" not in found["recover"]
    lake.pass_by(DAY)
    assert not any("not due" in text for text in notes(works(lake.peer(), "vacuum", "gc")).values())


def test_a_vacuum_that_finds_nothing_does_not_replace_head(lake: MemoryLake) -> None:
    before = lake.replacements()
    assert notes(works(lake.peer(), "vacuum"))["vacuum"] == "nothing to do"
    assert lake.replacements() == before


def test_vacuum_deletes_files_past_their_retention(lake: MemoryLake) -> None:
    fill(lake, "a", 49)
    works(lake.peer(), "optimize")
    lake.pass_by(8 * DAY)
    assert works(lake.peer(), "vacuum").ok
    assert files_of(lake, "a") == 1


def test_maintain_stops_when_its_time_is_over_and_continues_there_next_time(
    lake: MemoryLake,
) -> None:
    for table in ("a", "b", "c"):
        fill(lake, table, 49)
    rounds = iter([False, False, True])
    peer = lake.peer()
    program = maintain(peer.context, ["optimize"], stops=lambda: next(rounds))
    assert notes(peer.run(program))["optimize"].endswith("stopped behind table a")
    assert [lake.version(table) for table in "abc"] == [51, 50, 50]
    fill(lake, "a", 50)  # a table before the place to continue: handled in the next round
    works(lake.peer(), "optimize")
    assert [lake.version(table) for table in "abc"] == [101, 51, 51]
    works(lake.peer(), "optimize")
    assert [lake.version(table) for table in "abc"] == [102, 51, 51]


def test_maintain_without_time_begins_no_task(lake: MemoryLake) -> None:
    report = works(lake.peer(), budget_seconds=0.0)
    assert set(notes(report)) == set(TASKS)
    assert not lake.keys("_lakevilla/maintenance/")


def held(lake: MemoryLake, task: str = "gc") -> tuple[Peer, Lease]:
    """Return a maintainer that has the lease on a task."""
    peer = lake.peer()
    found = peer.run(take(peer.context, task, "somebody", peer.run(look(task))))
    assert found is not None
    return peer, found


def test_maintain_waits_about_one_lease_for_a_dead_maintainer(lake: MemoryLake) -> None:
    held(lake)
    began = lake.world.now
    peer = lake.peer()
    report = works(peer, "gc", "recover")
    assert notes(report)["gc"] == "nothing to do"
    lease_seconds = peer.context.settings.lease_seconds
    assert lease_seconds <= lake.world.now - began <= 1.5 * lease_seconds


def test_maintain_leaves_a_task_to_a_maintainer_that_renews_its_lease(
    lake: MemoryLake, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner, lease_of = held(lake)
    looks = []

    def renewed(task: str) -> object:
        looks.append(task)
        if len(looks) == 3:
            owner.run(lease_of.renew())
        return original(task)

    original = lease.look
    monkeypatch.setattr("lakevilla.maintenance.upkeep.maintain.look", renewed)
    before = lake.replacements()
    report = works(lake.peer(), "gc")
    assert notes(report)["gc"] == "somebody is running it"
    assert lake.replacements() == before


def test_a_task_lease_is_renewed_while_the_task_runs_and_released_after_it(
    lake: MemoryLake,
) -> None:
    simulation = lake.world
    beat: list[str] = []

    def program(client):  # type: ignore[no-untyped-def]
        peer = Peer(lake, "x")
        peer.context.renewed = SimulatedHeartbeat(client, 30.0).add
        seen = yield from look("gc")
        found = yield from take(peer.context, "gc", "x", seen)
        for _ in range(5):
            yield from sleep(30.0)
            beat.append((yield from look("gc")).record.renewed)
        assert found is not None
        found.held_at = None

    simulation.add("owner", program)
    simulation.run()
    assert beat == sorted(set(beat))
    assert len(beat) == 5


def ended(message: str) -> lease.TaskResult:
    return lease.TaskResult("lake", 1, 1, True, message, "x", 0)


def test_a_maintainer_that_has_lost_its_lease_overwrites_no_record(lake: MemoryLake) -> None:
    first, late = held(lake)
    lake.pass_by(100)
    works(lake.peer(), "gc")
    record = lake.peer().run(look("gc")).record
    first.run(late.end(ended("late")))
    assert lake.peer().run(look("gc")).record == record


def test_a_renewal_in_flight_does_not_keep_an_ended_lease(lake: MemoryLake) -> None:
    peer, mine = held(lake)
    steps = peer.steps(mine.renew())
    steps.step()  # it is stored, and its response is on the way
    peer.run(mine.end(ended("done")))
    record = lake.peer().run(look("gc")).record
    assert (record.owner, record.result and record.result.message) == ("", "done")


def test_an_unreadable_task_record_is_replaced(lake: MemoryLake) -> None:
    lake.store.apply(Put(task_key("gc"), b"{", ANY))
    assert works(lake.peer(), "gc").ok
    assert lake.peer().run(look("gc")).record.result is not None


def test_a_task_record_of_a_newer_lakevilla_is_not_changed(lake: MemoryLake) -> None:
    lake.store.apply(Put(task_key("gc"), encode(TaskRecord(99, "n")), ANY))
    report = works(lake.peer(), "gc", "recover")
    assert [one.kind for one in report.findings] == ["unsupported_format", "recover"]
    assert report.ok


def test_gc_keeps_the_records_of_maintenance_tasks(lake: MemoryLake) -> None:
    works(lake.peer())
    before = lake.keys("_lakevilla/maintenance/")
    lake.pass_by(30 * DAY)
    works(lake.peer(), "gc")
    assert lake.keys("_lakevilla/maintenance/") == before
    assert len(before) == len(TASKS)


def test_a_damaged_table_does_not_stop_the_upkeep_of_other_tables(lake: MemoryLake) -> None:
    fill(lake, "b", 49)
    lake.store.apply(Put("a/_delta_log/00000000000000000001.json", b"{", ANY))
    report = works(lake.peer(), "optimize")
    assert not report.ok
    assert [one.table for one in report.findings if one.severity == "error"] == ["a"]
    assert lake.version("b") == 51


def test_maintain_works_without_leases_on_a_store_that_can_not_replace_objects() -> None:
    lake = MemoryLake("a", "b", warm=False)
    lake.store.replaces = False
    fill(lake, "a", 49)
    assert works(lake.peer()).ok
    assert lake.version("a") == 50
    assert not lake.keys("_lakevilla/maintenance/")


def test_a_task_that_a_client_with_a_fast_clock_has_done_is_not_put_off_until_that_time(
    lake: MemoryLake,
) -> None:
    works(lake.peer(), "gc")
    key = task_key("gc")
    record = decode(key, lake.store.objects[key].body, TaskRecord)
    ahead = msgspec.structs.replace(record, done_ms=record.done_ms + int(30 * DAY * 1000))
    lake.store.apply(Put(key, encode(ahead), ANY))
    lake.peer().commit(lake.peer().appending("a", 7))
    assert "not due" not in notes(works(lake.peer(), "gc"))["gc"]
