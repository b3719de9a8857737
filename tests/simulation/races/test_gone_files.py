"""Delete files of decided commits by another client: they are kept, or void and reported (note 19;
hazard 38).
"""

import pyarrow as pa
import pytest

from lakevilla.errors import TransactionAborted
from lakevilla.maintenance import doctor, recovery, vacuum
from lakevilla.maintenance.gc import gc
from lakevilla.store.effects import sleep
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.state.files import store_files
from lakevilla.transaction.state.values import Feature
from lakevilla.transaction.verbs import read_write
from lakevilla_testing.checks import invariants
from lakevilla_testing.histories.attempts import SCHEMA, context_of
from lakevilla_testing.tables import delta_cleaner, delta_writer, iceberg_writer
from lakevilla_testing.tables.reader import table_rows
from tests.support.simulated.commits import (
    TABLES,
    Process,
    add_to,
    alone,
    balances,
    begin,
    lake,
    read,
)

DAY = 24 * 3600
FORMATS = {"delta": delta_writer, "iceberg": iceberg_writer}


def made(kind):
    return lake(iceberg=TABLES if kind == "iceberg" else ())


def append(txn, table, number):
    rows = pa.table({"id": [number], "balance": [100], "items": [""]}, schema=SCHEMA)
    return (yield from read_write.append(txn, table, rows.to_reader()))


def appends_and_updates(client):
    """Append a row and change it at once: the appended file is in no change of the commit."""
    txn = begin(client)
    yield from append(txn, "a", 7)
    yield from add_to(txn, "a", 5, 7)
    yield from add_to(txn, "a", 5, 0)
    yield from commit(txn)


def appends(client):
    txn = begin(client)
    yield from append(txn, "a", 7)
    yield from commit(txn)


def left_behind(simulation, program, kind, name="process"):
    """Decide a transaction that its owner never publishes."""
    Process(simulation, program, name).until("a/_delta_log" if kind == "delta" else "a/metadata/v")


def recovered(simulation):
    report = alone(simulation, lambda client: recovery.recover(context_of(client)), "recoverer")
    invariants.every_table_is_readable(simulation.store, TABLES)
    invariants.all_or_nothing(simulation.store, TABLES)
    # Nothing is blocked: a new client commits to each table, and its commit is published.
    alone(simulation, one_to_each, "fresh")
    invariants.all_or_nothing(simulation.store, TABLES)
    again = alone(simulation, lambda client: recovery.recover(context_of(client)), "again")
    assert again.ok, again
    return report


def one_to_each(client):
    txn = begin(client)
    for table in TABLES:
        yield from append(txn, table, 99)
    result = yield from commit(txn)
    assert None not in result.versions.values()


def voided(report):
    return [finding for finding in report.findings if finding.kind == "voided"]


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("who", ["gc", "vacuum"])
def test_files_that_a_replay_reads_first_are_not_cleaned_up(kind, who):
    simulation = made(kind)
    left_behind(simulation, appends_and_updates, kind)
    simulation.now += 10 * DAY

    def clean_up(client):
        context = context_of(client)
        if who == "gc":
            yield from gc.gc(context)
        else:
            yield from vacuum.vacuum(context, "a", dry_run=False)

    def changed(client):
        assert (yield from FORMATS[kind].rewrite(client, "a", dict))

    alone(simulation, clean_up, "cleaner")
    alone(simulation, changed, "other")
    assert voided(recovered(simulation)) == []
    assert balances(simulation)["a"] == {0: 105, 1: 100, 7: 105, 99: 100}


@pytest.mark.parametrize("kind", FORMATS)
def test_an_append_whose_file_another_client_has_deleted_is_void_and_reported(kind):
    simulation = made(kind)
    left_behind(simulation, appends, kind)
    files = [key for key in simulation.store.objects if key.startswith("a/")]
    simulation.now += 10 * DAY
    tidy = delta_cleaner.vacuum if kind == "delta" else iceberg_writer.remove_orphans
    alone(simulation, lambda client: tidy(client, "a", 7 * DAY), "other")
    deleted = set(files) - set(simulation.store.objects)
    report = recovered(simulation)
    (finding,) = voided(report)
    assert not report.ok
    assert finding.table == "a"
    assert finding.txn_id in finding.message
    assert any(key in finding.message for key in deleted)
    assert "append" in finding.message
    assert balances(simulation)["a"] == {0: 100, 1: 100, 99: 100}
    # The commit stays in the history for clients that query it later.
    later = alone(simulation, lambda client: doctor.doctor(context_of(client)), "doctor")
    (told,) = voided(later)
    assert told.severity == "warning"
    assert told.txn_id == finding.txn_id


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("features", [Feature.R, Feature.R | Feature.I], ids=["entry", "HEAD"])
@pytest.mark.parametrize("days", [0, 10])
def test_an_old_open_transaction_checks_that_its_files_exist_before_it_commits(
    kind, features, days
):
    """A transaction open for longer than another client's retention is aborted; a young
    one is not.
    """
    simulation = made(kind)
    tidy = delta_cleaner.vacuum if kind == "delta" else iceberg_writer.remove_orphans

    def stays_open(client):
        txn = begin(client, features)
        yield from append(txn, "a", 7)
        yield from store_files(txn)
        yield from sleep(days * DAY)
        yield from tidy(client, "a", 7 * DAY)
        if not days:
            return (yield from commit(txn))
        with pytest.raises(TransactionAborted, match=r"a/.* was removed by another client"):
            yield from commit(txn)

    alone(simulation, stays_open, "owner")
    assert recovered(simulation).ok
    assert (7 in balances(simulation)["a"]) == (not days)


def test_commits_behind_a_void_one_are_published():
    simulation = lake()
    left_behind(simulation, appends, "delta")

    def behind(client):
        txn = begin(client)
        yield from add_to(txn, "a", 5)
        yield from append(txn, "a", 8)
        yield from commit(txn)

    # Each is decided on top of its predecessor; none is published.
    keys = set(simulation.store.objects)
    left_behind(simulation, behind, "delta", "behind")
    fresh = [key for key in set(simulation.store.objects) - keys if key.endswith(".parquet")]
    assert len(fresh) == 2
    simulation.now += 10 * DAY
    gone = next(f for f in sorted(keys) if f.startswith("a/lv-h-") and _is_pending(simulation, f))
    simulation.store.delete(gone)
    (finding,) = voided(recovered(simulation))
    assert gone in finding.message
    assert balances(simulation)["a"] == {0: 105, 1: 100, 8: 100, 99: 100}


def _is_pending(simulation, key):
    named = b"".join(
        found.body for k, found in simulation.store.objects.items() if "/_delta_log/" in k
    )
    return key.rpartition("/")[2].encode() not in named


def test_an_update_whose_new_file_was_deleted_is_performed_again():
    simulation = lake()

    def updates(client):
        txn = begin(client)
        yield from add_to(txn, "a", 5)
        yield from commit(txn)

    left_behind(simulation, updates, "delta")
    simulation.now += 10 * DAY
    alone(simulation, lambda client: delta_cleaner.vacuum(client, "a", 7 * DAY), "other")
    assert voided(recovered(simulation)) == []
    assert balances(simulation)["a"] == {0: 105, 1: 100, 99: 100}


def test_an_update_of_a_table_file_that_was_deleted_is_void_and_reported():
    """The table is damaged whatever the outcome of the commit; later commits are published."""
    simulation = lake()

    def updates(client):
        txn = begin(client)
        yield from add_to(txn, "a", 5)
        yield from commit(txn)

    left_behind(simulation, updates, "delta")
    assert all(row["balance"] == 100 for row in table_rows(simulation.store, "a"))

    def changed(client):
        assert (yield from delta_writer.rewrite(client, "a", dict))

    alone(simulation, changed, "other")
    rewritten = max(
        (found.modified_seconds, key)
        for key, found in simulation.store.objects.items()
        if key.startswith("a/") and key.endswith(".parquet")
    )[1]
    kept = simulation.store.objects.pop(rewritten)
    report = alone(simulation, lambda client: recovery.recover(context_of(client)), "recoverer")
    (finding,) = voided(report)
    assert rewritten in finding.message
    simulation.store.objects[rewritten] = kept
    assert voided(recovered(simulation)) == []


@pytest.mark.parametrize("kind", FORMATS)
def test_files_that_a_commit_has_read_may_be_cleaned_up_before_its_replay(kind):
    """Then LakeVilla doesn't know whether the commit's reads still hold: it reports that and goes
    on.
    """
    simulation = made(kind)

    def reads_and_appends(client):
        txn = begin(client)
        yield from read(txn, "a", "id = 0")
        yield from append(txn, "a", 7)
        yield from add_to(txn, "a", 5, 1)
        yield from commit(txn)

    read_before = [
        key
        for key in simulation.store.objects
        if key.startswith("a/") and key.endswith(".parquet") and "_delta_log" not in key
    ]
    left_behind(simulation, reads_and_appends, kind)

    def changed(client):
        assert (yield from FORMATS[kind].rewrite(client, "a", dict))

    alone(simulation, changed, "other")
    for key in read_before:
        del simulation.store.objects[key]
    assert voided(recovered(simulation)) == []
    assert balances(simulation)["a"] == {0: 100, 1: 105, 7: 100, 99: 100}
