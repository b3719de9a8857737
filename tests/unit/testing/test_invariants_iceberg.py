"""Each invariant finds the violation that is planted in an Iceberg table where all was well."""

import json

import pyarrow as pa
import pytest

from lakevilla.store.base import ANY
from lakevilla.sublogs.operations import Alter
from lakevilla.testing.checks import invariants
from lakevilla.testing.checks.invariants import Violated
from lakevilla.testing.histories.attempts import COLUMNS, SCHEMA, context_of
from lakevilla.testing.tables import delta_writer as foreign
from lakevilla.testing.tables import iceberg_writer as foreign_iceberg
from lakevilla.testing.tables.iceberg_reader import metadata_key
from lakevilla.testing.tables.reader import read_table, run_now
from lakevilla.testing.world.scheduler import Simulation
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.state.features import Feature
from lakevilla.transaction.state.transaction import Transaction
from lakevilla.transaction.verbs.begin import begin
from lakevilla.transaction.verbs.read_write import append, execute

TABLES = ("a", "b")


@pytest.fixture
def lake():
    """A Delta table and an Iceberg table, two commits over both, one of metadata; and the ids."""
    simulation = Simulation()
    ids = []

    def program(client):
        yield from foreign.create(client, "a", COLUMNS)
        yield from foreign_iceberg.create(client, "b", COLUMNS)
        for number in (1, 2, 3):
            txn = begin(Transaction(context_of(client), Feature.I, client.ids.txn_id()))
            txn.through_head = True
            for table in TABLES if number < 3 else ():
                rows = pa.Table.from_pylist(
                    [{"id": number, "balance": 10, "items": ""}], schema=SCHEMA
                )
                yield from append(txn, table, rows.to_reader())
            if number == 3:
                yield from execute(txn, Alter("b", {"set_properties": {"note": "x"}}), "alter")
            yield from commit(txn)
            ids.append(txn.id)

    simulation.add("writer", program)
    simulation.run()
    return simulation.store, ids


def metadata(store, version):
    return json.loads(store.objects[metadata_key("b", version)].body)


def replaced(store, version, **parts):
    body = json.dumps({**metadata(store, version), **parts}).encode()
    store.put(metadata_key("b", version), body, ANY)


def test_nothing_is_found_where_all_is_well(lake):
    store, ids = lake
    invariants.every_table_is_readable(store, TABLES)
    invariants.no_id_commits_twice(store, TABLES)
    invariants.tables_follow_head(store, TABLES)
    invariants.all_or_nothing(store, TABLES)
    invariants.sum_is_constant(store, TABLES, "balance", 40)
    invariants.no_orphan_files(store, TABLES)
    # Two in snapshots, and one that made none.
    assert run_now(store, read_table("b")).transactions == ids


@pytest.mark.parametrize("key", [metadata_key("b", 1), "b/data/lv-h-", "-m0.avro", "/snap-"])
def test_missing_object_makes_a_table_unreadable(lake, key):
    store, _ = lake
    # The newest of its kind: the list of a snapshot that is past is nobody's loss.
    store.delete([k for k in store.objects if key in k][-1])
    with pytest.raises(Violated, match="lacks"):
        invariants.every_table_is_readable(store, TABLES)


def test_version_published_twice_is_found(lake):
    store, _ = lake
    snapshots = metadata(store, 3)["snapshots"]
    again = {**snapshots[-1], "snapshot-id": 7}
    replaced(store, 3, snapshots=[*snapshots, again])
    with pytest.raises(Violated, match="more than once"):
        invariants.no_id_commits_twice(store, TABLES)


def test_versions_in_another_order_than_heads_are_found(lake):
    store, _ = lake
    one, two = metadata(store, 3)["snapshots"]
    for version, snapshots in ((1, [two]), (2, [two, one]), (3, [two, one])):
        replaced(store, version, snapshots=snapshots, **{"current-snapshot-id": two["snapshot-id"]})
    with pytest.raises(Violated, match="in the order"):
        invariants.tables_follow_head(store, TABLES)


@pytest.mark.parametrize("version", [2, 3])
def test_commit_that_the_table_lacks_is_found(lake, version):
    store, _ = lake
    for number in range(version, 4):
        store.delete(metadata_key("b", number))
    with pytest.raises(Violated, match="b: "):
        invariants.all_or_nothing(store, TABLES)


@pytest.mark.parametrize(
    "name", ["data/lv-h-x.parquet", "metadata/lv-h-x-m0.avro", "snap-1-lv-h-x.avro"]
)
def test_object_that_no_version_names_is_found(lake, name):
    store, _ = lake
    store.put(f"b/{name}", b"", ANY)
    with pytest.raises(Violated, match="was not collected"):
        invariants.no_orphan_files(store, TABLES)
