"""Each kind of operation, performed on a few rows: the changed state, and the errors."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.engines.base import MergeClause
from lakevilla.formats.base import TableSnapshot
from lakevilla.lake.context import file_namer
from lakevilla.lake.operations.perform import Performed, check_append_only, perform, performed_as
from lakevilla.lake.table_log import open_tail
from lakevilla.sql.expressions.parse import parse_expression, parse_predicate
from lakevilla.store.effects import Program, get
from lakevilla.sublogs.binding import tie
from lakevilla.sublogs.operations import (
    Alter,
    Delete,
    Drop,
    Guard,
    InlineSource,
    Insert,
    Merge,
    Operation,
    Overwrite,
    QuerySource,
    StagedSource,
    Update,
)
from lakevilla_testing.world.rows import decode_rows
from tests.support.simulated.memory_lake import MemoryLake, Peer, rows_of


@pytest.fixture
def lake() -> MemoryLake:
    return MemoryLake()


@pytest.fixture
def peer(lake: MemoryLake) -> Peer:
    return lake.peer()


def snapshot(peer: Peer, table: str = "a") -> TableSnapshot:
    return peer.run(open_tail(peer.context, table)).snapshot


def performed(peer: Peer, operation: Operation, before: TableSnapshot | None = None) -> Performed:
    before = before or snapshot(peer)
    name = file_namer(peer.context, peer.context.ids.txn_id(), through_head=True)

    def lookup(location: str) -> Program[TableSnapshot]:
        return (yield from open_tail(peer.context, location)).snapshot

    sources = {"a": before.layout, "b": snapshot(peer, "b").layout}
    return peer.run(
        perform(peer.context, tie(operation, before.layout, sources), before, name, lookup)
    )


def balances(peer: Peer, done: Performed, before: TableSnapshot | None = None) -> dict[int, int]:
    """Return the rows of the state after the change of ``done``."""
    after = (before or snapshot(peer)).apply(done.change)
    rows: dict[int, int] = {}
    for path in peer.run(after.files())["path"].to_pylist():
        key = f"a/{path}"
        body = done.bodies.get(key) or peer.run(get(key)).body  # type: ignore[union-attr]
        rows |= {row["id"]: row["balance"] for row in decode_rows(body)}
    return rows


def ipc(rows: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


ONE, NOBODY = parse_predicate("id = 1"), parse_predicate("id = 99")
SEVEN = {"balance": parse_expression("7")}


def test_an_update_changes_matching_rows_and_copies_the_others_of_their_file(peer: Peer) -> None:
    done = performed(peer, Update("a", SEVEN, ONE))
    assert balances(peer, done) == {0: 100, 1: 7}
    assert (done.counts.rows_updated, done.counts.files_removed) == (1, 1)


def test_a_delete_removes_matching_rows(peer: Peer) -> None:
    done = performed(peer, Delete("a", ONE))
    assert balances(peer, done) == {0: 100}
    assert done.counts.rows_deleted == 1


@pytest.mark.parametrize("operation", [Update("a", SEVEN, NOBODY), Delete("a", NOBODY)])
def test_an_operation_that_matches_no_row_changes_nothing(peer: Peer, operation: Operation) -> None:
    done = performed(peer, operation)
    assert done.change.is_empty
    assert done.bodies == {}


def test_an_overwrite_with_a_predicate_keeps_rows_that_do_not_match_it(peer: Peer) -> None:
    source = peer.appending("a", 1)
    (file,) = source.work.done[0].change.adds
    done = performed(peer, Overwrite("a", (file,), ONE))
    done.bodies.update(source.work.bodies)
    assert balances(peer, done) == {0: 100, 1: 0}
    whole = performed(peer, Overwrite("a", (file,)))
    whole.bodies.update(source.work.bodies)
    assert balances(peer, whole) == {1: 0}
    assert (whole.counts.rows_deleted, whole.counts.rows_inserted) == (2, 1)


def merge(source: Any) -> Merge:
    clauses = (
        MergeClause("matched_update", None, {"balance": parse_expression("s.balance")}),
        MergeClause(
            "not_matched_insert",
            None,
            {name: parse_expression(f"s.{name}") for name in ("id", "balance", "items")},
        ),
    )
    return Merge("a", source, parse_predicate("s.id = t.id"), "s", "t", clauses)


def test_a_merge_updates_matching_rows_and_inserts_the_others(peer: Peer) -> None:
    done = performed(peer, merge(InlineSource(ipc(rows_of(1, 7)))))
    assert balances(peer, done) == {0: 100, 1: 0, 7: 0}
    assert (done.counts.rows_updated, done.counts.rows_inserted) == (1, 1)


def test_a_merge_in_which_two_source_rows_match_one_target_row_is_refused(peer: Peer) -> None:
    with pytest.raises(lv.InvalidOperation, match="2 source rows match one target row"):
        performed(peer, merge(InlineSource(ipc(rows_of(1, 1)))))


def test_an_insert_runs_its_query_on_the_given_state(peer: Peer) -> None:
    query = QuerySource("SELECT id + 10 AS id, balance, items FROM x", {"x": "b"})
    done = performed(peer, Insert("a", ("id", "balance", "items"), query))
    assert balances(peer, done) == {0: 100, 1: 100, 10: 100, 11: 100}


def test_an_insert_of_too_few_columns_is_refused(peer: Peer) -> None:
    query = QuerySource("SELECT id FROM x", {"x": "b"})
    with pytest.raises(lv.InvalidOperation, match="names 2 columns and its query returns 1"):
        performed(peer, Insert("a", ("id", "balance"), query))


def test_a_missing_stored_source_is_reported_and_never_read_as_empty(peer: Peer) -> None:
    source = StagedSource(("_lakevilla/txns/x/source",), (1,), b"")
    query = QuerySource("SELECT * FROM v", {}, {}, {"v": source})
    with pytest.raises(lv.CorruptObject, match="is missing"):
        performed(peer, Insert("a", ("id", "balance", "items"), query))


def test_an_operation_on_a_column_that_was_dropped_is_refused(peer: Peer) -> None:
    with pytest.raises(lv.InvalidOperation, match="nothing"):
        perform_now(peer, Update("a", {"nothing": parse_expression("1")}, ONE))


def perform_now(peer: Peer, operation: Operation) -> Performed:
    name = file_namer(peer.context, peer.context.ids.txn_id(), through_head=True)
    return peer.run(perform(peer.context, operation, snapshot(peer), name, None))  # type: ignore[arg-type]


def test_a_constraint_is_added_only_if_it_holds_for_all_rows(peer: Peer) -> None:
    for limit, holds in ((1000, True), (50, False)):
        request = {"add_constraints": {"small": f"balance < {limit}"}}
        if holds:
            done = performed(peer, Alter("a", request))
            after = snapshot(peer).apply(done.change)
            assert [one.name for one in after.layout.constraints] == ["small"]
        else:
            with pytest.raises(lv.InvalidOperation, match="does not hold for rows"):
                performed(peer, Alter("a", request))


def test_new_rows_must_satisfy_the_constraints_of_the_state(peer: Peer) -> None:
    before = snapshot(peer)
    constraint = performed(peer, Alter("a", {"add_constraints": {"small": "balance < 1000"}}))
    with pytest.raises(lv.InvalidOperation, match="small"):
        performed(
            peer,
            Update("a", {"balance": parse_expression("5000")}, ONE),
            before.apply(constraint.change),
        )


def test_a_drop_makes_no_log_entry_and_a_guard_adds_a_writer_feature(
    peer: Peer,
) -> None:
    assert performed(peer, Drop("a", snapshot(peer).table_id)).change.is_empty
    done = performed(peer, Guard("a", True))
    guarded = snapshot(peer).apply(done.change)
    assert guarded.guarded
    back = performed(peer, Guard("a", False), guarded)
    assert not guarded.apply(back.change).guarded


def test_an_append_only_table_refuses_operations_that_remove_rows(peer: Peer) -> None:
    before = snapshot(peer)
    only_grows = performed(peer, Alter("a", {"set_properties": {"delta.appendOnly": "true"}}))
    grown = before.apply(only_grows.change)
    taking = performed(peer, Delete("a", ONE), grown)
    with pytest.raises(lv.InvalidOperation, match="delete: table a is append-only"):
        check_append_only(grown, taking, "delete")
    check_append_only(before, taking)


def test_the_ids_of_fields_that_an_alteration_adds_are_noted_for_a_redo(peer: Peer) -> None:
    before = snapshot(peer)
    columns = pa.schema([("note", pa.string())]).serialize().to_pybytes()
    operation = Alter("a", {}, columns)
    done = performed(peer, operation)
    again = performed_as(operation, before, done)
    assert isinstance(again, Alter)
    assert [path for path, _ in again.added] == [("note",)]
    update = Update("a", SEVEN, ONE)
    assert performed_as(update, before, performed(peer, update)) is update
