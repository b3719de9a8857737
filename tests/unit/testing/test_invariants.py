"""Each invariant finds the violation that is planted in a store where all was well."""

import pyarrow as pa
import pytest

from lakevilla.maintenance import recovery
from lakevilla.store.base import ANY
from lakevilla.testing.checks import invariants
from lakevilla.testing.checks.invariants import Told, Violated
from lakevilla.testing.histories.attempts import COLUMNS, SCHEMA, context_of
from lakevilla.testing.tables import delta_writer as foreign
from lakevilla.testing.world.scheduler import Simulation
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.state.features import Feature
from lakevilla.transaction.state.transaction import Transaction
from lakevilla.transaction.verbs.begin import begin
from lakevilla.transaction.verbs.read_write import append

TABLES = ("a", "b")


@pytest.fixture
def lake():
    """Two tables, two commits over both; the store, and the transactions' ids."""
    simulation = Simulation()
    ids = []

    def program(client):
        for table in TABLES:
            yield from foreign.create(client, table, COLUMNS)
        for number in (1, 2):
            txn = begin(Transaction(context_of(client), Feature.I, client.ids.txn_id()))
            txn.through_head = True
            for table in TABLES:
                rows = pa.Table.from_pylist(
                    [{"id": number, "balance": 10, "items": ""}], schema=SCHEMA
                )
                yield from append(txn, table, rows.to_reader())
            yield from commit(txn)
            ids.append(txn.id)

    simulation.add("writer", program)
    simulation.run()
    return simulation, ids


def log(table, version):
    return f"{table}/_delta_log/{version:020}.json"


def test_nothing_is_found_where_all_is_well(lake):
    simulation, ids = lake
    store = simulation.store
    told = [Told(txn, "committed", TABLES) for txn in ids]
    invariants.every_table_is_readable(store, TABLES)
    invariants.no_id_commits_twice(store, TABLES)
    invariants.tables_follow_head(store, TABLES)
    invariants.all_or_nothing(store, TABLES)
    invariants.acknowledged_is_there(store, TABLES, told)
    invariants.aborted_is_not_there(store, TABLES, told)
    invariants.sum_is_constant(store, TABLES, "balance", 40)
    invariants.no_orphan_files(store, TABLES)


@pytest.mark.parametrize("key", [log("a", 1), "data"])
def test_gap_in_a_log_and_missing_file_make_a_table_unreadable(lake, key):
    store = lake[0].store
    if key == "data":
        key = next(k for k in store.objects if k.startswith("b/lv-h-"))
    store.delete(key)
    with pytest.raises(Violated, match="lacks"):
        invariants.every_table_is_readable(store, TABLES)


def test_entry_published_twice_is_found(lake):
    store = lake[0].store
    store.put(log("a", 3), store.objects[log("a", 2)].body, ANY)
    with pytest.raises(Violated, match="more than once"):
        invariants.no_id_commits_twice(store, TABLES)


def test_entries_in_another_order_than_heads_are_found(lake):
    store = lake[0].store
    one, two = store.objects[log("a", 1)].body, store.objects[log("a", 2)].body
    store.put(log("a", 1), two, ANY)
    store.put(log("a", 2), one, ANY)
    with pytest.raises(Violated, match="in the order"):
        invariants.tables_follow_head(store, TABLES)


def test_commit_that_one_table_lacks_is_found(lake):
    store = lake[0].store
    store.delete(log("b", 2))
    with pytest.raises(Violated, match="b: "):
        invariants.all_or_nothing(store, TABLES)


def test_acknowledged_commit_that_is_nowhere_is_found(lake):
    simulation, ids = lake
    lost = Told("0" + ids[0][1:-1] + "f", "committed", TABLES)
    with pytest.raises(Violated, match="nowhere"):
        invariants.acknowledged_is_there(simulation.store, TABLES, [lost])


def test_aborted_transaction_that_is_there_is_found(lake):
    simulation, ids = lake
    with pytest.raises(Violated, match="has committed"):
        invariants.aborted_is_not_there(simulation.store, TABLES, [Told(ids[0], "aborted", TABLES)])


def test_money_that_was_made_is_found(lake):
    with pytest.raises(Violated, match="is 40, not 30"):
        invariants.sum_is_constant(lake[0].store, TABLES, "balance", 30)


def test_file_that_no_entry_names_is_found(lake):
    store = lake[0].store
    store.put("a/lv-h-orphan.parquet", b"", ANY)
    with pytest.raises(Violated, match="belongs to no commit"):
        invariants.no_orphan_files(store, TABLES)


def test_recovery_that_never_ends_is_found(lake):
    simulation, _ = lake
    client = simulation.clients[0]
    invariants.recovery_twice_is_recovery_once(
        simulation.store, lambda: recovery.recover(context_of(client))
    )

    def restless():
        yield from foreign.append(client, "a", [{"id": 9, "balance": 0, "items": ""}])

    with pytest.raises(Violated, match="second recovery changed"):
        invariants.recovery_twice_is_recovery_once(simulation.store, restless)
