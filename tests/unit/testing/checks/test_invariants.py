"""Each invariant finds the violation that is planted in a correct store."""

import json

import pyarrow as pa
import pytest

from lakevilla.maintenance import recovery
from lakevilla.store.base import ANY
from lakevilla.sublogs.operations import Alter
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.state.parts import Options
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import Feature
from lakevilla.transaction.verbs.begin import begin
from lakevilla.transaction.verbs.read_write import append, execute
from lakevilla_testing.checks import invariants
from lakevilla_testing.checks.invariants import Violated
from lakevilla_testing.histories.attempts import COLUMNS, SCHEMA, context_of
from lakevilla_testing.tables import delta_writer, iceberg_writer
from lakevilla_testing.tables.iceberg_reader import metadata_key
from lakevilla_testing.tables.reader import read_table, run_now
from lakevilla_testing.world.scheduler import Simulation

TABLES = ("a", "b")
WRITERS = {"delta": delta_writer, "iceberg": iceberg_writer}


@pytest.fixture(params=WRITERS)
def lake(request):
    """A Delta table and one of either format; two commits to both, and one of metadata."""
    simulation = Simulation()
    ids = []

    def program(client):
        yield from delta_writer.create(client, "a", COLUMNS)
        yield from WRITERS[request.param].create(client, "b", COLUMNS)
        for number in (1, 2, 3):
            txn = begin(
                TransactionState(context_of(client), client.ids.txn_id(), Options(Feature.I))
            )
            txn.through_head = True
            for table in TABLES if number < 3 else ():
                rows = pa.Table.from_pylist(
                    [{"id": number, "balance": 10, "items": ""}], schema=SCHEMA
                )
                yield from append(txn, table, rows.to_reader())
            if number == 3:
                change = {"set_properties": {"comment": "x"}}
                yield from execute(txn, Alter("b", change), "alter")
            yield from commit(txn)
            ids.append(txn.id)

    simulation.add("writer", program)
    simulation.run()
    return simulation, ids


@pytest.fixture
def iceberg(lake, request):
    """Return whether the second table is an Iceberg table."""
    return request.node.callspec.params["lake"] == "iceberg"


def log(table, version):
    return f"{table}/_delta_log/{version:020}.json"


def entry(version, *, iceberg):
    """Return the key of the object that makes a version of the second table."""
    return metadata_key("b", version) if iceberg else log("b", version)


def snapshots(store, version):
    return json.loads(store.objects[metadata_key("b", version)].body)["snapshots"]


def replaced(store, version, **parts):
    """Change parts of the second table's metadata in one version of it."""
    key = metadata_key("b", version)
    store.put(key, json.dumps({**json.loads(store.objects[key].body), **parts}).encode(), ANY)


def test_a_correct_store_violates_no_invariant(lake):
    simulation, ids = lake
    store = simulation.store
    invariants.every_table_is_readable(store, TABLES)
    invariants.no_id_commits_twice(store, TABLES)
    invariants.tables_follow_head(store, TABLES)
    invariants.all_or_nothing(store, TABLES)
    invariants.no_orphan_files(store, TABLES)
    # Two commits with rows, and one without.
    assert run_now(store, read_table("b")).transactions == ids


@pytest.mark.parametrize(
    ("lake", "name"),
    [
        ("delta", log("a", 1)),
        ("delta", log("b", 1)),
        ("delta", "b/lv-h-"),
        ("iceberg", metadata_key("b", 1)),
        ("iceberg", "b/data/lv-h-"),
        ("iceberg", "-m0.avro"),
        ("iceberg", "/snap-"),
    ],
    indirect=["lake"],
)
def test_a_missing_object_makes_a_table_unreadable(lake, name):
    store = lake[0].store
    # The newest object of its kind: no reader needs the manifest list of an old snapshot.
    store.delete([key for key in store.objects if name in key][-1])
    with pytest.raises(Violated, match="lacks"):
        invariants.every_table_is_readable(store, TABLES)


def test_a_version_published_twice_is_found(lake, iceberg):
    store = lake[0].store
    if iceberg:
        there = snapshots(store, 3)
        replaced(store, 3, snapshots=[*there, {**there[-1], "snapshot-id": 7}])
    else:
        store.put(log("b", 4), store.objects[log("b", 2)].body, ANY)
    with pytest.raises(Violated, match="more than once"):
        invariants.no_id_commits_twice(store, TABLES)


def test_versions_in_another_order_than_in_head_are_found(lake, iceberg):
    store = lake[0].store
    if iceberg:
        one, two = snapshots(store, 3)
        current = {"current-snapshot-id": two["snapshot-id"]}
        for version, order in ((1, [two]), (2, [two, one]), (3, [two, one])):
            replaced(store, version, snapshots=order, **current)
    else:
        one, two = store.objects[log("b", 1)].body, store.objects[log("b", 2)].body
        store.put(log("b", 1), two, ANY)
        store.put(log("b", 2), one, ANY)
    with pytest.raises(Violated, match="in the order"):
        invariants.tables_follow_head(store, TABLES)


@pytest.mark.parametrize("version", [2, 3])
def test_a_commit_that_one_of_its_tables_lacks_is_found(lake, iceberg, version):
    store = lake[0].store
    for number in range(version, 4):
        store.delete(entry(number, iceberg=iceberg))
    with pytest.raises(Violated, match="b: "):
        invariants.all_or_nothing(store, TABLES)


def test_a_data_file_that_no_log_entry_names_is_found(lake):
    store = lake[0].store
    store.put("a/lv-h-orphan.parquet", b"", ANY)
    with pytest.raises(Violated, match="belongs to no commit"):
        invariants.no_orphan_files(store, TABLES)


@pytest.mark.parametrize("lake", ["iceberg"], indirect=True)
@pytest.mark.parametrize(
    "name", ["data/lv-h-x.parquet", "metadata/lv-h-x-m0.avro", "snap-1-lv-h-x.avro"]
)
def test_an_object_that_no_table_version_names_is_found(lake, name):
    store = lake[0].store
    store.put(f"b/{name}", b"", ANY)
    with pytest.raises(Violated, match="was not collected"):
        invariants.no_orphan_files(store, TABLES)


def test_a_recovery_that_changes_the_lake_each_time_is_found(lake):
    simulation, _ = lake
    client = simulation.clients[0]
    invariants.recovery_twice_is_recovery_once(
        simulation.store, lambda: recovery.recover(context_of(client))
    )

    def restless():
        yield from delta_writer.append(client, "a", [{"id": 9, "balance": 0, "items": ""}])

    with pytest.raises(Violated, match="second recovery changed"):
        invariants.recovery_twice_is_recovery_once(simulation.store, restless)
