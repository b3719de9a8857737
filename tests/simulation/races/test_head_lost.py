"""Lose HEAD under a transaction, at each of its requests, and rebuild it (hazard 39)."""

import pytest

from lakevilla.errors import LakeVillaError
from lakevilla.global_log.head import HEAD_KEY, Head
from lakevilla.maintenance import doctor, rebuild_head, recovery
from lakevilla.maintenance.gc import gc
from lakevilla.store.codec import decode
from lakevilla.store.effects import DeleteObject, Put
from lakevilla_testing.checks import invariants
from lakevilla_testing.histories.attempts import context_of
from tests.support.search import how_many
from tests.support.simulated.commits import TABLES, Process, alone, balances, lake, transfer


def rebuild(client):
    return rebuild_head.rebuild_head(context_of(client))


def lost_beneath(request, *, late, tables, iceberg=()):
    """Pause a transfer of 7 before its ``request``-th request, while HEAD is lost and rebuilt.

    With ``late`` that request had been sent before: the store performs it after the rebuild.
    """
    simulation = lake(tables=tables, iceberg=iceberg)
    process = Process(simulation, lambda client: transfer(client, amount=7), "sleeper")
    for _ in range(request):
        if process.done:
            return None
        process.step()
    if process.done:
        return None
    is_write = isinstance(process.next, Put)
    if late and not is_write:
        return simulation, process, None
    sent = process.next
    simulation.store.apply(DeleteObject(HEAD_KEY))
    report = alone(simulation, rebuild, "rebuilder")
    if late:
        simulation.store.apply(sent)
    return simulation, process, report


@pytest.mark.parametrize("iceberg", [(), TABLES], ids=["delta", "iceberg"])
@pytest.mark.parametrize("late", [False, True], ids=["in time", "late"])
def test_a_transfer_is_stored_whole_or_reported_when_head_is_lost_and_other_transactions_go_on(
    late, iceberg
):
    request, moved, told, refused = 0, 0, 0, 0
    while (found := lost_beneath(request, late=late, tables=TABLES, iceberg=iceberg)) is not None:
        request += how_many(3, whole=1)
        simulation, process, report = found
        if report is None:
            continue
        try:
            process.finish()
        except LakeVillaError:
            refused += 1
        unknown = [one for one in report.findings if one.kind in ("maybe_decided", "unpublished")]
        alone(simulation, lambda client: transfer(client, amount=1), "next")
        report = alone(simulation, lambda c: recovery.recover(context_of(c)), "recoverer")
        assert {finding.kind for finding in report.findings} <= {"head_rebuilt", "published"}
        invariants.every_table_is_readable(simulation.store, TABLES)
        invariants.no_id_commits_twice(simulation.store, TABLES)
        now = balances(simulation)
        a, b = 100 - now["a"][0] - 1, now["b"][0] - 100 - 1
        assert {a, b} <= {0, 7}, f"request {request}"
        assert a == b or unknown, f"request {request}: half of it, and nobody was told"
        moved += a == b == 7
        told += bool(unknown)
        # The logs show the same rows as the lake; and once HEAD is confirmed, the doctor finds
        # nothing.
        alone(simulation, lambda c: rebuild_head.confirm_head(context_of(c)), "confirmer")
        alone(simulation, lambda c: gc.gc(context_of(c)), "collector")
        assert balances(simulation) == now
        assert alone(simulation, lambda c: doctor.doctor(context_of(c)), "doctor").ok
    assert request > 15
    assert moved
    assert told
    assert refused


def test_a_rebuilt_head_gives_away_no_number_a_second_time():
    simulation = lake()
    old = decode(HEAD_KEY, simulation.store.objects[HEAD_KEY].body, Head)
    simulation.store.apply(DeleteObject(HEAD_KEY))
    alone(simulation, rebuild, "rebuilder")
    new = decode(HEAD_KEY, simulation.store.objects[HEAD_KEY].body, Head)
    assert new.sequence > old.sequence + 999
    assert new.replacement > old.replacement + 999
    assert new.floor > max(commit.txn for commit in old.commits)
    assert new.lake_id not in (old.lake_id, *old.former)
