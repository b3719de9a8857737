"""Deferred operations behind other transactions have the same effect as immediate ones.

Where it matters which transaction is ahead, real rivals hold places; where any choice
of tables must work, a planned queue reports what the test chooses.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.engines.duckdb.writing.rewrite import Kept
from lakevilla.formats.base import TableSnapshot
from lakevilla.markers.claims import Queue
from lakevilla.sublogs.operations import given_files
from lakevilla.transaction.redo.deferred import defer
from lakevilla.transaction.validation.validate import catch_up
from tests.support.inside import executor, inside
from tests.support.places import Place, fill, skip_constraints, skip_iceberg
from tests.support.search import how_many
from tests.support.tables import accounts, contents, in_order, kinds

CT = lv.Feature.R | lv.Feature.CT | lv.Feature.I


class Planned(Queue):
    """A queue in which other transactions are ahead on the tables that a test names."""

    def __init__(self, behind: Iterable[str] = ()) -> None:
        super().__init__()
        self.behind = set(behind)

    def is_behind(self, table: str) -> bool:
        return table in self.behind


def put_behind(txn: lv.Transaction, *tables: str) -> None:
    """Have other transactions be ahead on these tables alone."""
    queue = executor(txn).state.claims.queue
    if not isinstance(queue, Planned):
        queue = executor(txn).state.claims.queue = Planned()
    queue.behind = set(tables)


def behind(lake: lv.Lake, *tables: str, **options: Any) -> lv.Transaction:
    txn = lake.transaction(**options)
    put_behind(txn, *tables)
    return txn


def put_off(txn: lv.Transaction) -> list[str]:
    """Return the kinds of the deferred operations."""
    return [type(d.operation).__name__ for d in executor(txn).state.work.done if d.deferred]


def rows(lake: lv.Lake, table: str = "bank") -> list[dict[str, Any]]:
    return in_order(lake.snapshot().read(table))


def counts(result: lv.OperationResult) -> tuple[int, ...]:
    return result.rows_matched, result.rows_inserted, result.rows_updated, result.rows_deleted


def paths(lake: lv.Lake, snapshot: TableSnapshot) -> set[str]:
    return set(inside(lake).run(snapshot.files())["path"].to_pylist())


@pytest.fixture
def lake(quick_place: Place) -> Iterator[lv.Lake]:
    fill(quick_place, {"bank": accounts(4), "news": [{"id": 2, "balance": 7}]})
    with quick_place.connect() as lake:
        yield lake


INCOMING = [{"id": 3, "balance": 1}, {"id": 9, "balance": 2}]
VERBS: dict[str, Callable[[lv.Transaction], Any]] = {
    "update": lambda txn: txn.update("bank", {"balance": "balance + 1"}, where="id < 2"),
    "delete": lambda txn: txn.delete("bank", where="id = 1"),
    "upsert": lambda txn: txn.upsert("bank", INCOMING, keys="id"),
    "merge": lambda txn: (
        txn.merge("bank", INCOMING, on="target.id = source.id")
        .when_matched_delete()
        .when_not_matched_insert_all()
        .when_not_matched_by_source_update({"balance": "target.balance * 2"})
        .execute()
    ),
    "merge from a query": lambda txn: txn.sql(
        "MERGE INTO bank USING (SELECT id, balance FROM news) AS n ON bank.id = n.id "
        "WHEN MATCHED THEN UPDATE SET balance = n.balance"
    ),
    "insert": lambda txn: txn.sql("INSERT INTO bank SELECT id + 10, balance FROM news"),
    "insert an aggregate": lambda txn: txn.sql("INSERT INTO bank SELECT 50, count(*) FROM bank"),
    "overwrite": lambda txn: txn.overwrite("bank", INCOMING),
    "overwrite where": lambda txn: txn.overwrite("bank", INCOMING, where="id >= 3"),
}


@pytest.mark.parametrize("verb", VERBS)
def test_a_deferred_verb_has_the_same_effect_as_an_immediate_one(lake: lv.Lake, verb: str) -> None:
    at_once = lake.transaction()
    expected = VERBS[verb](at_once)
    expected_counts, expected_rows = counts(expected), in_order(at_once.read("bank"))
    at_once.abort()
    assert expected_rows != rows(lake), "the verb does something"
    txn = behind(lake, "bank")
    result = VERBS[verb](txn)
    assert len(put_off(txn)) == 1
    txn.commit()
    assert rows(lake) == expected_rows
    assert counts(result) == expected_counts
    assert result.files_added + result.files_removed > 0


@pytest.mark.parametrize("verb", VERBS)
def test_a_deferred_verb_is_performed_when_its_row_counts_are_read(
    lake: lv.Lake, verb: str
) -> None:
    txn = behind(lake, "bank")
    result = VERBS[verb](txn)
    before = put_off(txn)
    told = counts(result)
    assert (len(before), put_off(txn)) == (1, [])
    assert sum(told) > 0
    txn.commit()
    assert counts(result) == told


def test_a_read_performs_deferred_operations_first(lake: lv.Lake) -> None:
    with behind(lake, "bank") as txn:
        txn.update("bank", {"balance": "balance + 1"}, where="id = 0")
        txn.delete("bank", where="balance = 101")
        assert put_off(txn) == ["Update", "Delete"]
        assert in_order(txn.read("bank", where="id < 2")) == [{"id": 1, "balance": 100}]
        assert put_off(txn) == []
        txn.update("bank", {"balance": "0"}, where="id = 1")
        assert txn.sql("SELECT sum(balance) AS total FROM bank").to_pylist() == [{"total": 200}]
    assert rows(lake) == [{"id": i, "balance": 0 if i == 1 else 100} for i in (1, 2, 3)]


def test_a_read_of_another_table_leaves_operations_deferred(lake: lv.Lake) -> None:
    with behind(lake, "bank") as txn:
        txn.delete("bank", where="id = 0")
        assert len(txn.read("news")) == 1
        assert put_off(txn) == ["Delete"]
        assert txn.read("bank")["id"].to_pylist() == [1, 2, 3]
    assert [row["id"] for row in rows(lake)] == [1, 2, 3]


def test_an_append_keeps_its_order_among_deferred_operations(lake: lv.Lake) -> None:
    with behind(lake, "bank") as txn:
        txn.update("bank", {"balance": "1"}, where="true")
        txn.append("bank", [{"id": 20, "balance": 20}])
        txn.update("bank", {"balance": "balance + 5"}, where="id IN (0, 20)")
        txn.append("bank", [{"id": 21, "balance": 21}])
        assert put_off(txn) == ["Update", "Update"]
    assert {row["id"]: row["balance"] for row in rows(lake)} == {
        0: 6,
        1: 1,
        2: 1,
        3: 1,
        20: 25,
        21: 21,
    }


@pytest.mark.parametrize(
    "change",
    [
        lambda txn: txn.alter("bank", add_columns=pa.schema([("note", pa.string())])),
        lambda txn: txn.alter("bank", add_constraints={"positive": "balance > 0"}),
        lambda txn: txn.overwrite(
            "bank", [{"id": 1, "balance": 1, "note": "x"}], schema_mode="merge"
        ),
        lambda txn: txn.append("bank", [{"id": 1, "balance": 1, "note": "x"}], schema_mode="merge"),
        lambda txn: txn.drop_table("bank"),
    ],
    ids=["add a column", "add a constraint", "overwrite and widen", "append and widen", "drop"],
)
def test_a_change_of_a_definition_performs_all_deferred_operations_first(
    request: pytest.FixtureRequest, lake: lv.Lake, change: Callable[[lv.Transaction], Any]
) -> None:
    skip_constraints(request)
    with behind(lake, "bank", "news") as txn:
        txn.delete("news", where="true")
        txn.update("bank", {"balance": "50"}, where="id = 1")
        change(txn)
        assert put_off(txn) == []
    assert rows(lake, "news") == []


def test_later_operations_on_a_table_with_deferred_ones_are_deferred_too(lake: lv.Lake) -> None:
    with behind(lake, "bank") as txn:
        txn.update("bank", {"balance": "balance + 1"}, where="id = 0")
        put_behind(txn)
        txn.update("bank", {"balance": "balance * 2"}, where="id = 0")
        txn.sql("INSERT INTO news SELECT id, balance FROM bank WHERE id = 0")
        txn.update("news", {"balance": "balance + 1"}, where="true")
        assert put_off(txn) == ["Update", "Update", "Insert", "Update"]
    assert rows(lake, "news") == [{"id": 0, "balance": 203}, {"id": 2, "balance": 8}]


def test_a_deferred_update_stores_nothing_before_its_commit(local_place: Place) -> None:
    fill(local_place, {"bank": accounts(4)})
    with local_place.connect() as lake:
        lake.register("bank")
        txn = behind(lake, "bank")
        txn.update("bank", {"balance": "0"}, where="id = 9")
        before = contents(local_place.root)
        with inside(lake).requests.counting() as requests:
            for number in range(4):
                txn.update("bank", {"balance": "balance + 1"}, where=f"id = {number}")
        assert requests.total == 0
        assert contents(local_place.root) == before
        txn.commit()
        assert {row["balance"] for row in rows(lake)} == {101}


def test_an_abort_leaves_no_file_of_deferred_or_late_performed_operations(
    local_place: Place,
) -> None:
    fill(local_place, {"bank": accounts(4), "news": accounts(1)})
    with local_place.connect() as lake:
        lake.register("bank")
        lake.register("news")
        before = contents(local_place.root)
        txn = behind(lake, "bank")
        txn.update("bank", {"balance": "0"}, where="id = 1")
        txn.overwrite("bank", accounts(2), where="id < 2")
        txn.sql("INSERT INTO news SELECT * FROM bank")
        txn.read("news")
        txn.delete("bank", where="id = 0")
        assert put_off(txn) == ["Delete"]
        assert contents(local_place.root) != before
        defer(executor(txn).state, ["bank", "news"])
        txn.abort()
        assert contents(local_place.root) == before


# -- errors ---------------------------------------------------------------------


@pytest.mark.parametrize(
    "wrong",
    [
        lambda txn: txn.update("bank", {"balanc": "0"}, where="true"),
        lambda txn: txn.update("bank", {"balance": "0"}, where="nobody = 1"),
        lambda txn: txn.delete("bank", where="id = 'x' + 1"),
        lambda txn: txn.overwrite("bank", INCOMING, where="nobody = 1"),
        lambda txn: txn.overwrite("bank", INCOMING, where="id = 9"),
        lambda txn: txn.sql("INSERT INTO bank SELECT id FROM news"),
        lambda txn: txn.sql("INSERT INTO bank SELECT nobody, id FROM news"),
        lambda txn: txn.sql("INSERT INTO bank SELECT [id], id FROM news"),
        lambda txn: (
            txn.merge("bank", INCOMING, on="target.nobody = source.id")
            .when_matched_delete()
            .execute()
        ),
        lambda txn: txn.upsert("bank", INCOMING, keys="nobody"),
        lambda txn: txn.sql(
            "MERGE INTO bank USING news AS n ON bank.nobody = n.id WHEN MATCHED THEN DELETE"
        ),
    ],
)
def test_an_invalid_operation_is_refused_at_the_verb_and_not_deferred(
    lake: lv.Lake, wrong: Callable[[lv.Transaction], Any]
) -> None:
    with behind(lake, "bank") as txn:
        txn.update("bank", {"balance": "5"}, where="id = 0")
        with pytest.raises(lv.InvalidOperation):
            wrong(txn)
        assert len(txn.operations) == 1
    assert rows(lake)[0] == {"id": 0, "balance": 5}


def test_an_insert_that_can_only_be_redone_with_its_rows_is_not_deferred(
    lake: lv.Lake,
) -> None:
    sql = (
        "INSERT INTO bank SELECT 5, CASE WHEN count(*) = 0 THEN error('none') ELSE 1 END FROM news"
    )
    with behind(lake, "bank") as txn:
        txn.sql(sql)
        assert put_off(txn) == []
        txn.delete("bank", where="id = 0")
        assert put_off(txn) == ["Delete"]
    assert [row["id"] for row in rows(lake)] == [1, 2, 3, 5]


def test_an_append_only_table_refuses_a_delete_at_the_verb(
    request: pytest.FixtureRequest, lake: lv.Lake
) -> None:
    skip_iceberg(request)
    with lake.transaction() as txn:
        txn.alter("bank", set_properties={"delta.appendOnly": "true"})
    with behind(lake, "bank") as txn:
        with pytest.raises(lv.InvalidOperation, match="append-only"):
            txn.delete("bank", where="id = 0")
        txn.sql("INSERT INTO bank SELECT 11, 1")
        merge = txn.merge("bank", INCOMING, on="target.id = source.id")
        merge.when_not_matched_insert_all().execute()
        assert put_off(txn) == ["Insert", "Merge"]
    assert sorted(row["id"] for row in rows(lake)) == [0, 1, 2, 3, 9, 11]


def impossible(txn: lv.Transaction) -> None:
    """Update with an overflow that shows only when the rows are read."""
    txn.update("bank", {"balance": "CAST(id * 9223372036854775807 AS BIGINT)"}, where="id >= 2")


@pytest.mark.parametrize(
    "look",
    [
        lambda txn: txn.commit(),
        lambda txn: txn.read("bank"),
        lambda txn: txn.sql("SELECT * FROM bank"),
        lambda txn: txn.alter("bank", drop_not_null=["id"]),
    ],
    ids=["commit", "read", "sql", "alter"],
)
def test_a_row_error_of_a_deferred_update_is_raised_when_performed_and_nothing_commits(
    lake: lv.Lake, look: Callable[[lv.Transaction], Any]
) -> None:
    before = rows(lake)
    txn = behind(lake, "bank")
    txn.update("bank", {"balance": "1"}, where="id = 0")
    impossible(txn)
    with pytest.raises(lv.InvalidOperation, match="update of table bank, deferred") as raised:
        look(txn)
    assert raised.value.table == "bank"
    with pytest.raises(lv.InvalidOperation):
        txn.commit()
    txn.abort()
    assert rows(lake) == before


def test_deferred_operations_can_be_performed_after_an_interruption(
    lake: lv.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*args: object) -> None:
        raise KeyboardInterrupt

    with behind(lake, "bank") as txn:
        txn.update("bank", {"balance": "balance + 1"}, where="id = 0")
        txn.delete("bank", where="id = 1")
        txn.append("bank", [{"id": 7, "balance": 7}])
        txn.update("bank", {"balance": "balance * 2"}, where="id = 0")
        with monkeypatch.context() as patch:
            patch.setattr(type(inside(lake).engine), "delete", interrupted)
            patch.setattr(Kept, "change", interrupted)  # which serves from the second change on
            with pytest.raises(KeyboardInterrupt):
                txn.read("bank")
        assert put_off(txn) == ["Delete", "Update"]
        assert sorted(txn.read("bank")["id"].to_pylist()) == [0, 2, 3, 7]
    assert rows(lake)[0] == {"id": 0, "balance": 202}


def test_counts_of_deferred_verbs_raise_after_the_transaction_has_ended(lake: lv.Lake) -> None:
    txn = behind(lake, "bank")
    result = txn.delete("bank", where="id = 0")
    txn.abort()
    with pytest.raises(lv.InvalidOperation, match="aborted"):
        _ = result.rows_deleted


# -- concurrent commits of other transactions ----------------------------------------


def rival_update(place: Place, sets: str = "balance + 1") -> None:
    with place.connect() as other, other.transaction() as txn:
        txn.update("bank", {"balance": sets}, where="id = 1")


def test_a_deferred_operation_does_not_conflict_with_a_commit_in_between(
    quick_place: Place,
) -> None:
    fill(quick_place, {"bank": accounts(4)})
    events: list[lv.Event] = []
    with quick_place.connect(on_event=events.append) as lake:
        txn = behind(lake, "bank")
        result = txn.update("bank", {"balance": "balance * 2"}, where="id <= 1")
        rival_update(quick_place)
        committed = txn.commit()
        assert [row["balance"] for row in rows(lake)] == [200, 202, 100, 100]
        assert result.rows_updated == 2
        assert committed.retries == 0
        assert "redo" not in kinds(events)


def test_a_read_before_a_deferred_update_conflicts_with_a_commit_in_between(
    quick_place: Place,
) -> None:
    fill(quick_place, {"bank": accounts(4)})
    with quick_place.connect() as lake:
        txn = behind(lake, "bank")
        (row,) = txn.read("bank", where="id = 1").to_pylist()
        txn.update("bank", {"balance": row["balance"] * 2}, where="id = 1")
        assert put_off(txn) == ["Update"]
        rival_update(quick_place)
        with pytest.raises(lv.ConflictError):
            txn.commit()
        assert [row["balance"] for row in rows(lake)] == [100, 101, 100, 100]


def test_a_deferred_update_of_a_column_dropped_meanwhile_is_a_conflict(delta_place: Place) -> None:
    fill(delta_place, {"bank": [{"id": 0, "balance": 1, "note": "x"}]})
    with delta_place.connect() as lake, delta_place.connect() as other:
        with other.transaction() as rival:
            rival.alter("bank", set_properties={"delta.columnMapping.mode": "name"})
        txn = behind(lake, "bank")
        txn.update("bank", {"note": "'y'"}, where="true")
        with other.transaction() as rival:
            rival.alter("bank", drop_columns=["note"])
        with pytest.raises(lv.ConflictError, match="note"):
            txn.commit()
        assert rows(lake) == [{"id": 0, "balance": 1}]


def test_a_deferred_update_that_breaks_a_constraint_added_meanwhile_is_a_conflict(
    delta_place: Place,
) -> None:
    fill(delta_place, {"bank": accounts(2)})
    with delta_place.connect() as lake, delta_place.connect() as other:
        txn = behind(lake, "bank")
        txn.update("bank", {"balance": "-1"}, where="id = 0")
        with other.transaction() as rival:
            rival.alter("bank", add_constraints={"positive": "balance > 0"})
        with pytest.raises(lv.ConflictError, match="positive"):
            txn.commit()


def test_a_deferred_overwrite_must_fit_a_schema_changed_meanwhile(
    delta_place: Place,
) -> None:
    fill(delta_place, {"bank": accounts(2)})
    with delta_place.connect() as lake, delta_place.connect() as other:
        txn = behind(lake, "bank")
        txn.overwrite("bank", [{"id": 0, "balance": -1}])
        with other.transaction() as rival:
            rival.alter("bank", add_constraints={"positive": "balance > 0"})
        with pytest.raises(lv.ConflictError, match="schema or constraints"):
            txn.commit()
        assert rows(lake) == accounts(2)


def test_a_deferred_operation_on_a_table_dropped_meanwhile_is_a_conflict(
    quick_place: Place,
) -> None:
    fill(quick_place, {"bank": accounts(2)})
    with quick_place.connect() as lake, quick_place.connect() as other:
        lake.register("bank") if quick_place.seen_by_others else None
        txn = behind(lake, "bank")
        txn.update("bank", {"balance": "1"}, where="true")
        other.drop_table("bank")
        with pytest.raises(lv.ConflictError):
            txn.commit()


def test_only_performed_operations_are_redone_and_deferred_ones_stay_deferred(
    quick_place: Place,
) -> None:
    fill(quick_place, {"bank": accounts(2), "news": accounts(2)})
    events: list[lv.Event] = []
    with quick_place.connect(on_event=events.append) as lake, quick_place.connect() as other:
        txn = behind(lake, "news")
        txn.update("bank", {"balance": "balance * 2"}, where="id = 1")
        txn.update("news", {"balance": "balance * 2"}, where="id = 1")
        with other.transaction() as rival:
            rival.update("bank", {"balance": "balance + 1"}, where="id = 1")
            rival.update("news", {"balance": "balance + 1"}, where="id = 1")
        inside(lake).run(catch_up(executor(txn).state))
        assert put_off(txn) == ["Update"]
        assert kinds(events).count("redo") == 1
        txn.commit()
        assert kinds(events).count("redo") == 1
        assert rows(lake, "bank")[1] == rows(lake, "news")[1] == {"id": 1, "balance": 202}


def test_a_redo_on_one_table_keeps_reads_and_deferred_operations_on_another(
    quick_place: Place,
) -> None:
    fill(quick_place, {"bank": accounts(2), "news": accounts(2)})
    with quick_place.connect() as lake:
        txn = behind(lake, "news")
        txn.update("bank", {"balance": "balance * 2"}, where="id = 1")
        txn.read("news")
        txn.update("news", {"balance": "balance * 2"}, where="id = 1")
        rival_update(quick_place)
        txn.commit()
        assert rows(lake, "bank")[1] == {"id": 1, "balance": 202}
        assert rows(lake, "news")[1] == {"id": 1, "balance": 200}


def test_a_redo_drops_a_file_in_memory_that_was_not_stored_yet(
    quick_place: Place,
) -> None:
    fill(quick_place, {"bank": accounts(2)})
    with quick_place.connect() as lake:
        txn = lake.transaction()
        txn.update("bank", {"balance": "balance * 2"}, where="id = 1")
        (made,) = executor(txn).state.work.bodies
        rival_update(quick_place)
        inside(lake).run(catch_up(executor(txn).state))
        assert len(executor(txn).state.work.bodies) == 1
        assert made not in (*executor(txn).state.work.bodies, *executor(txn).state.work.stored)


# -- giving way ---------------------------------------------------------------------


def test_giving_way_defers_performed_operations_which_are_performed_again_at_the_commit(
    quick_place: Place,
) -> None:
    fill(quick_place, {"bank": accounts(3)})
    events: list[lv.Event] = []
    with quick_place.connect(on_event=events.append) as lake:
        txn = lake.transaction()
        txn.update("bank", {"balance": "balance * 2"}, where="id = 1")
        txn.append("bank", [{"id": 7, "balance": 7}])
        txn.overwrite("bank", [{"id": 7, "balance": 8}], where="id IN (0, 7)")
        assert executor(txn).state.work.bodies, "what the overwrite has left of a file"
        defer(executor(txn).state, ["bank"])
        assert put_off(txn) == ["Update", "Overwrite"]
        work = executor(txn).state.work
        given = {f"bank/{one.path}" for done in work.done for one in given_files(done.operation)}
        assert work.bodies.keys() <= given, "what the update has made is dropped"
        assert paths(lake, executor(txn).state.work.tables["bank"].view.snapshot) < paths(
            lake, executor(txn).state.work.tables["bank"].snapshot
        ), "the table's own files, and the append's"
        rival_update(quick_place)
        txn.commit()
        assert rows(lake) == [
            {"id": 1, "balance": 202},
            {"id": 2, "balance": 100},
            {"id": 7, "balance": 8},
        ]
        assert "redo" not in kinds(events)


def test_giving_way_on_a_table_defers_operations_on_other_tables_that_have_read_it(
    lake: lv.Lake,
) -> None:
    txn = lake.transaction()
    txn.update("bank", {"balance": "1"}, where="id = 0")
    txn.sql("INSERT INTO news SELECT * FROM bank")
    txn.delete("news", where="balance = 100")
    defer(executor(txn).state, ["bank"])
    assert put_off(txn) == ["Update", "Insert", "Delete"]
    txn.commit()
    assert rows(lake, "news") == [{"id": 0, "balance": 1}, {"id": 2, "balance": 7}]


def test_giving_way_keeps_operations_whose_results_the_caller_has_read(
    lake: lv.Lake,
) -> None:
    txn = lake.transaction()
    txn.update("bank", {"balance": "1"}, where="id = 0")
    txn.sql("INSERT INTO news SELECT * FROM bank")
    txn.read("news")
    txn.update("bank", {"balance": "2"}, where="id = 1")
    defer(executor(txn).state, ["bank", "news"])
    assert put_off(txn) == ["Update"]
    txn.commit()
    assert rows(lake)[:2] == [{"id": 0, "balance": 1}, {"id": 1, "balance": 2}]


def test_giving_way_does_not_defer_operations_before_a_new_constraint(
    request: pytest.FixtureRequest, lake: lv.Lake
) -> None:
    skip_iceberg(request)
    txn = lake.transaction()
    txn.update("bank", {"balance": "balance + 1"}, where="true")
    txn.alter("bank", add_constraints={"rich": "balance > 100"})
    txn.update("bank", {"balance": "balance + 1"}, where="true")
    defer(executor(txn).state, ["bank"])
    assert put_off(txn) == ["Update"]
    assert executor(txn).state.work.done[-1].deferred
    txn.commit()
    assert {row["balance"] for row in rows(lake)} == {102}


@pytest.mark.parametrize(("sets", "conflicts"), [("balance + 1", False), ("0", True)])
def test_row_counts_read_before_giving_way_must_not_change(
    quick_place: Place, sets: str, conflicts: bool
) -> None:
    fill(quick_place, {"bank": accounts(3)})
    with quick_place.connect() as lake:
        txn = lake.transaction()
        result = txn.delete("bank", where="balance >= 100")
        assert result.rows_deleted == 3
        defer(executor(txn).state, ["bank"])
        rival_update(quick_place, sets)
        if conflicts:
            with pytest.raises(lv.ConflictError, match="row counts"):
                txn.commit()
        else:
            txn.commit()
            assert rows(lake) == []


def test_a_deferred_update_that_breaks_a_constraint_after_a_rivals_commit_is_a_conflict(
    delta_place: Place,
) -> None:
    fill(delta_place, {"bank": accounts(3)})
    with delta_place.connect() as lake:
        with lake.transaction() as setup:
            setup.alter("bank", add_constraints={"positive": "balance >= 0"})
        txn = lake.transaction()
        txn.update("bank", {"balance": "balance - 100"}, where="id = 1")
        defer(executor(txn).state, ["bank"])
        rival_update(delta_place, "50")
        with pytest.raises(lv.ConflictError, match="positive"):
            txn.commit()
        assert rows(lake)[1] == {"id": 1, "balance": 50}


# -- saved and resumed ---------------------------------------------------------------


def test_deferred_operations_are_saved_deferred_and_performed_after_resuming(
    quick_place: Place,
) -> None:
    fill(quick_place, {"bank": accounts(3), "news": accounts(1)})
    with quick_place.connect() as lake, quick_place.connect() as other:
        txn = behind(lake, "bank")
        txn.update("bank", {"balance": "balance * 2"}, where="id <= 1")
        txn.overwrite("bank", [{"id": 5, "balance": 5}], where="id = 5")
        txn.sql("INSERT INTO news SELECT id + 10, balance FROM bank")
        txn.save()
        assert put_off(txn) == ["Update", "Overwrite", "Insert"]
        rival_update(quick_place)
        resumed = other.resume(txn.id)
        assert put_off(resumed) == ["Update", "Overwrite", "Insert"]
        resumed.commit()
        assert [row["balance"] for row in rows(other)] == [200, 202, 100, 5]
        assert [row["balance"] for row in rows(other, "news")] == [100, 200, 202, 100, 5]


def test_a_resumed_deferred_update_that_a_rivals_commit_made_invalid_is_a_conflict(
    delta_place: Place,
) -> None:
    fill(delta_place, {"bank": accounts(3)})
    with delta_place.connect() as lake, delta_place.connect() as other:
        with lake.transaction() as setup:
            setup.alter("bank", add_constraints={"positive": "balance >= 0"})
        txn = lake.transaction()
        txn.update("bank", {"balance": "balance - 100"}, where="id = 1")
        defer(executor(txn).state, ["bank"])
        txn.save()
        rival_update(delta_place, "50")
        with pytest.raises(lv.ConflictError, match="positive"):
            other.resume(txn.id).commit()


# -- random sequences ------------------------------------------------------------------

TABLES = ("bank", "news")
Step = tuple[str, Callable[[lv.Transaction], Any], tuple[str, ...], tuple[str, ...]]


def draw(rng: random.Random) -> list[Step]:
    """Return random steps: a verb, tables with others ahead, tables to give way on afterwards."""
    steps: list[Step] = []
    for number in range(rng.randrange(3, 9)):
        table, other = rng.sample(TABLES, 2)
        low, fresh = rng.randrange(6), 100 + 10 * number
        given = [{"id": low, "balance": 3}, {"id": fresh, "balance": number}]

        def merge(txn: lv.Transaction, table: str = table, given: Any = given) -> Any:
            merge = txn.merge(table, given, on="target.id = source.id")
            return merge.when_matched_delete().when_not_matched_insert_all().execute()

        verbs: dict[str, Callable[[lv.Transaction], Any]] = {
            "update": lambda txn, t=table, low=low: txn.update(
                t, {"balance": "balance * 2 + 1"}, where=f"id >= {low}"
            ),
            "delete": lambda txn, t=table, low=low: txn.delete(t, where=f"id = {low}"),
            "upsert": lambda txn, t=table, given=given: txn.upsert(t, given, keys="id"),
            "merge": merge,
            "insert": lambda txn, t=table, o=other, fresh=fresh: txn.sql(
                f"INSERT INTO {t} SELECT id + {fresh}, balance FROM {o} WHERE id < 3"
            ),
            "append": lambda txn, t=table, given=given: txn.append(t, given),
            "overwrite": lambda txn, t=table, given=given: txn.overwrite(t, given),
            "overwrite where": lambda txn, t=table, low=low: txn.overwrite(
                t, [{"id": low, "balance": 9}], where=f"id = {low}"
            ),
            "read": lambda txn, t=table, low=low: txn.read(t, where=f"id > {low}"),
            "look": lambda txn, t=table, low=low: counts(
                txn.update(t, {"balance": "balance - 1"}, where=f"id < {low}")
            ),
        }
        kind = rng.choice(list(verbs))
        ahead = tuple(t for t in TABLES if rng.random() < 0.5)
        shifted = tuple(t for t in TABLES if rng.random() < 0.15)
        steps.append((f"{kind} {table}", verbs[kind], ahead, shifted))
    return steps


def outcome(
    lake: lv.Lake, steps: Collection[Step], *, plan: bool
) -> tuple[list[Any], dict[str, list[dict[str, Any]]], int]:
    """Run the steps; return the results, the rows at the end, and how many operations deferred."""
    told, results, late = [], [], 0
    with lake.transaction() as txn:
        for _, verb, ahead, shifted in steps:
            if plan:
                put_behind(txn, *ahead)
            result = verb(txn)
            if isinstance(result, lv.OperationResult):
                results.append(result)
            else:
                told.append(in_order(result) if isinstance(result, pa.Table) else result)
            late += len(put_off(txn))
            if plan and shifted:
                defer(executor(txn).state, shifted)
    told += [counts(result) for result in results]
    return told, {table: rows(lake, table) for table in TABLES}, late


def test_any_choice_of_deferred_operations_has_the_same_results_as_none(
    request: pytest.FixtureRequest,
) -> None:
    late, seeds = 0, how_many(5, whole=24)
    for seed in range(seeds):
        steps = draw(random.Random(seed))
        ends = []
        for plan in (False, True):
            place = Place(f"memory://logical-{seed}-{plan}-{request.node.name}")
            fill(place, {"bank": accounts(4), "news": accounts(3, balance=10)})
            with place.connect() as lake:
                ends.append(outcome(lake, steps, plan=plan))
        names = [name for name, *_ in steps]
        assert ends[1][:2] == ends[0][:2], (seed, names)
        late += ends[1][2]
    assert late > 2.5 * seeds, "the plan put something off"


# -- in a real queue --------------------------------------------------------------------


@contextmanager
def in_front(place: Place, table: str = "bank") -> Iterator[lv.Transaction]:
    """Return an open transaction of another client that is first in the table's queue."""
    with place.connect() as other:
        txn = other.transaction(CT)
        txn.update(table, {"balance": "balance + 1"}, where="id = 1")
        yield txn
        txn.abort()


def test_a_transaction_behind_a_rival_waits_and_then_works_on_the_rivals_state(
    quick_place: Place,
) -> None:
    fill(quick_place, {"bank": accounts(4)})
    events: list[lv.Event] = []
    waits = threading.Event()

    def on_event(event: lv.Event) -> None:
        events.append(event)
        if event.kind == "waiting":
            waits.set()

    with (
        quick_place.connect(on_event=on_event) as lake,
        in_front(quick_place) as rival,
    ):
        txn = lake.transaction(CT)
        result = txn.update("bank", {"balance": "balance * 2"}, where="id <= 1")
        assert put_off(txn) == ["Update"]
        ended: list[lv.CommitResult] = []
        waiting = threading.Thread(target=lambda: ended.append(txn.commit()))
        waiting.start()
        assert waits.wait(30)
        rival.commit()
        waiting.join(30)
        assert ended
        assert [row["balance"] for row in rows(lake)] == [200, 202, 100, 100]
        assert result.rows_updated == 2
        assert "waiting" in kinds(events)
        assert "redo" not in kinds(events)


def test_many_concurrent_commits_cause_no_redo_of_deferred_operations(quick_place: Place) -> None:
    fill(quick_place, {"bank": accounts(4)})
    events: list[lv.Event] = []
    with quick_place.connect(on_event=events.append) as lake, in_front(quick_place) as rival:
        txn = lake.transaction(CT)
        for _ in range(5):
            txn.update("bank", {"balance": "balance * 2"}, where="id = 1")
        for _ in range(3):
            rival_update(quick_place)
        rival.abort()
        assert len(put_off(txn)) == 5
        assert txn.commit().retries == 0
        assert rows(lake)[1] == {"id": 1, "balance": 103 * 32}
        assert "redo" not in kinds(events)


def test_gc_deletes_saved_files_of_operations_that_were_deferred_later(
    local_place: Place,
) -> None:
    fill(local_place, {"bank": accounts(4)})
    # No transaction is too young to be fenced.
    with local_place.connect(settings=lv.Settings(max_age_seconds=0)) as lake:
        lake.register("bank")
        with lake.transaction() as txn:
            txn.update("bank", {"balance": "balance + 1"}, where="id = 1")
            txn.save()
            defer(executor(txn).state, ["bank"])
        assert len(own_files(local_place)) == 2
        lake.gc()
        assert len(own_files(local_place)) == 1
        assert rows(lake)[1] == {"id": 1, "balance": 101}


def own_files(place: Place) -> list[str]:
    """Return the data files that LakeVilla has written."""
    return [key for key in contents(place.root) if "/lv-" in key]
