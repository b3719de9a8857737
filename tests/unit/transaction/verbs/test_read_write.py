"""Verbs of a transaction; a verb that raises has no effect."""

from __future__ import annotations

import pytest

import lakevilla as lv
from lakevilla.sql.expressions.parse import parse_expression, parse_predicate
from lakevilla.sublogs.operations import Update
from lakevilla.transaction.verbs import read_write
from lakevilla.transaction.verbs.read_write import create, drop, execute, overwrite, query
from lakevilla_testing.histories.attempts import SCHEMA
from tests.support.simulated.memory_lake import BY_ENTRY, MemoryLake, Peer, rows_of


@pytest.fixture
def lake() -> MemoryLake:
    return MemoryLake()


@pytest.fixture
def peer(lake: MemoryLake) -> Peer:
    return lake.peer()


def test_a_transaction_reads_its_own_writes_and_other_transactions_do_not(
    lake: MemoryLake, peer: Peer
) -> None:
    txn = peer.appending("a", 7)
    peer.add(txn, "a", 5)
    assert peer.read(txn, "a") == {0: 105, 1: 100, 7: 0}
    other = lake.peer()
    assert other.read(other.begin(), "a") == {0: 100, 1: 100}


def test_a_repeated_read_is_noted_once(peer: Peer) -> None:
    txn = peer.begin()
    peer.read(txn, "a", "id = 0")
    peer.append(txn, "a", 7)
    peer.read(txn, "a", "id = 0")
    (record,) = txn.work.reads.values()
    assert (record.table, record.after) == ("a", 1)


def test_a_query_is_noted_as_a_read_of_all_rows_of_its_tables(peer: Peer) -> None:
    txn = peer.begin()
    sql = "SELECT sum(balance) AS total FROM x"
    rows = peer.run(query(txn, sql, {"x": "a"}, {}, {}, {}))
    assert rows.to_pylist() == [{"total": 200}]
    assert list(txn.work.reads) == [("a", None)]


def test_an_update_that_fails_leaves_no_trace(lake: MemoryLake, peer: Peer) -> None:
    txn = peer.appending("a", 7)
    before, made = list(txn.work.done), dict(txn.work.bodies)
    unknown = Update("a", {"nothing": parse_expression("1")}, parse_predicate("id = 0"))
    with pytest.raises(lv.InvalidOperation):
        peer.run(execute(txn, unknown, "update"))
    assert txn.work.done == before
    peer.commit(txn)
    assert made
    assert lake.ids("a") == [0, 1, 7]


def test_an_overwrite_with_rows_outside_of_its_predicate_is_refused_and_stores_no_file(
    peer: Peer,
) -> None:
    txn = peer.begin()
    with pytest.raises(lv.InvalidOperation, match="where of the overwrite"):
        peer.run(overwrite(txn, "a", rows_of(7).to_reader(), parse_predicate("id = 0")))
    assert (txn.work.done, txn.work.bodies, txn.work.stored) == ([], {}, [])


def test_an_overwrite_replaces_the_rows_of_its_predicate_alone(
    lake: MemoryLake, peer: Peer
) -> None:
    txn = peer.begin()
    peer.run(overwrite(txn, "a", rows_of(0).to_reader(), parse_predicate("id = 0")))
    peer.commit(txn)
    assert lake.rows("a") == {0: 0, 1: 100}


def test_a_second_table_is_refused_in_a_transaction_without_feature_i(peer: Peer) -> None:
    txn = peer.appending("a", 7, features=BY_ENTRY)
    with pytest.raises(lv.InvalidOperation, match="needs Feature"):
        peer.append(txn, "b", 7)
    assert len(txn.work.done) == 1


def test_a_read_only_transaction_refuses_every_write(peer: Peer) -> None:
    txn = peer.begin(read_only=True)
    for verb in (
        read_write.append(txn, "a", rows_of(7).to_reader()),
        drop(txn, "a"),
        create(txn, "c", SCHEMA, (), {}),
    ):
        with pytest.raises(lv.InvalidOperation, match="read-only"):
            peer.run(verb)


def test_a_transaction_can_not_use_a_table_that_it_has_dropped(
    lake: MemoryLake, peer: Peer
) -> None:
    txn = peer.begin()
    peer.run(drop(txn, "a"))
    for verb in (lambda: peer.read(txn, "a"), lambda: peer.append(txn, "a", 7)):
        with pytest.raises(lv.TableNotFound, match="was dropped by this transaction"):
            verb()
    peer.commit(txn)
    assert lake.head.tables["a"].dropped
    assert lake.ids("a") == [0, 1], "its log is as it was"
