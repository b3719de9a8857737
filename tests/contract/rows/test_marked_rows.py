"""Deleted rows are marked in the log where the table allows it; the file with them stays."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable, QueryBuilder, write_deltalake

import lakevilla as lv
from lakevilla.api.run import code_of
from lakevilla.engines.duckdb.reading.relation import Files
from lakevilla.engines.duckdb.writing import rewrite
from lakevilla.engines.duckdb.writing.rewrite import Marks
from lakevilla.formats.delta import deletion_vectors
from lakevilla.transaction.commit.together.chain import chain_of
from lakevilla_testing.planted.every import PLANTED
from tests.contract.foreign_readers import POLARS_READS_VECTORS
from tests.support.inside import inside
from tests.support.marked import CHANGES, Change, kept, rows
from tests.support.places import Place
from tests.support.traces import Trace

ALLOWED = {"delta.enableDeletionVectors": "true"}
pytestmark = pytest.mark.usefixtures("marks_in_small_files")


@pytest.fixture
def lake(local_place: Place) -> Any:
    with local_place.connect() as lake:
        create(lake, "t")
        yield lake


def create(lake: lv.Lake, name: str, **properties: str) -> None:
    data = rows(*((k, "old") for k in range(100)))
    lake.create_table(name, data, properties={**ALLOWED, **properties})


def last_actions(place: Place, name: str = "t") -> list[dict[str, Any]]:
    log = Path(place.uri(name).removeprefix("file://")) / "_delta_log"
    entry = max(path for path in log.glob("*.json") if path.stem.isdigit())
    return [json.loads(line) for line in entry.read_text().splitlines()]


@pytest.mark.parametrize("change", CHANGES)
def test_a_statement_that_changes_few_rows_leaves_the_file(
    lake: lv.Lake, local_place: Place, change: str
) -> None:
    with lake.transaction() as txn:
        CHANGES[change](txn)
    actions = last_actions(local_place)
    (removed,) = [action["remove"] for action in actions if "remove" in action]
    again = [a["add"] for a in actions if "add" in a and a["add"].get("deletionVector")]
    assert [file["path"] for file in again] == [removed["path"]]
    assert json.loads(again[0]["stats"]).get("tightBounds") is False
    expected = kept(lake)
    assert expected[4] == "old"
    assert expected.get(3) in ("new", None)
    seen_by(local_place, expected)


def seen_by(place: Place, expected: dict[int, str]) -> None:
    table = DeltaTable(place.uri("t"))
    found = QueryBuilder().register("t", table).execute("SELECT k, v FROM t").read_all()
    assert dict(zip(found["k"].to_pylist(), found["v"].to_pylist(), strict=True)) == expected
    assert found.num_rows == len(expected)
    if POLARS_READS_VECTORS:
        assert dict(pl.read_delta(place.uri("t")).rows()) == expected


def test_all_rows_of_a_file_are_removed_with_it(lake: lv.Lake, local_place: Place) -> None:
    with lake.transaction() as txn:
        txn.delete("t", where="k < 70")
        txn.delete("t", where="true")
    assert not [action for action in last_actions(local_place) if "add" in action]
    assert kept(lake) == {}


def test_several_statements_of_one_transaction_mark_rows_of_one_file(
    lake: lv.Lake, local_place: Place
) -> None:
    with lake.transaction() as txn:
        txn.delete("t", where="k = 1")
        assert 1 not in txn.read("t")["k"].to_pylist()
        txn.update("t", {"v": "'a'"}, where="k in (2, 3)")
        txn.update("t", {"v": "'b'"}, where="k in (3, 4)")
    found = kept(lake)
    assert 1 not in found
    assert [found[k] for k in (2, 3, 4, 5)] == ["a", "b", "b", "old"]
    again = [file["add"] for file in last_actions(local_place) if "add" in file]
    assert sorted((file.get("deletionVector") or {}).get("cardinality", 0) for file in again) == [
        0,
        1,
        4,
    ]


def test_a_statement_counts_no_row_that_was_marked_before(lake: lv.Lake) -> None:
    with lake.transaction() as txn:
        txn.delete("t", where="k < 10")
    with lake.transaction() as txn:
        assert txn.delete("t", where="k < 12 or k = 50").rows_deleted == 3
    with lake.transaction() as txn:
        assert txn.update("t", {"v": "'new'"}, where="k in (3, 11, 12, 60)").rows_updated == 2
    expected = {k: "old" for k in range(12, 100) if k != 50} | {12: "new", 60: "new"}
    assert kept(lake) == expected


def test_a_predicate_that_raises_for_rows_that_were_deleted_finds_the_others(
    local_place: Place,
) -> None:
    with local_place.connect() as lake:
        data = rows(*((k, "old" if k < 50 else "7") for k in range(100)))
        lake.create_table("t", data, properties=ALLOWED)
        with lake.transaction() as txn:
            txn.delete("t", where="v = 'old'")
        with lake.transaction() as txn:
            assert txn.delete("t", where="cast(v as int) = 7 and k < 60").rows_deleted == 10
        assert kept(lake) == dict.fromkeys(range(60, 100), "7")


@pytest.mark.parametrize("most", [70, 30])
def test_a_statement_that_fits_rows_of_many_files_marks_them_in_each(
    lake: lv.Lake, local_place: Place, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    with lake.transaction() as txn:
        txn.append("t", rows(*((k, "old") for k in range(100, 200))))
    monkeypatch.setattr(rewrite, "MARKS", Marks(0, 0.25, most, 0.5))
    with lake.transaction() as txn:
        assert txn.delete("t", where="k % 5 = 0").rows_deleted == 40
    vectors = [a["add"]["deletionVector"] for a in last_actions(local_place) if "add" in a]
    assert [one["cardinality"] for one in vectors] == [20, 20]
    expected = {k: "old" for k in range(200) if k % 5}
    assert kept(lake) == expected
    seen_by(local_place, expected)


def test_statements_that_delete_other_rows_of_a_file_commute(local_place: Place) -> None:
    events: list[lv.Event] = []
    with local_place.connect(on_event=events.append) as one, local_place.connect() as other:
        create(one, "t")
        first = one.transaction()
        second = other.transaction()
        with first:
            first.update("t", {"v": "'first'"}, where="k in (1, 2)")
            with second:
                second.update("t", {"v": "'second'"}, where="k in (3, 4)")
        found = kept(one)
        assert [found[k] for k in (1, 2, 3, 4, 5)] == ["first"] * 2 + ["second"] * 2 + ["old"]
        assert len(found) == 100
    assert "redo" not in {event.kind for event in events}


@pytest.mark.parametrize(("other", "read"), [(2, 0), (3, 2)])
def test_a_statement_reads_no_vector_of_files_whose_rows_it_has_left(
    local_place: Place, other: int, read: int
) -> None:
    events: list[lv.Event] = []
    with local_place.connect(on_event=events.append) as one, local_place.connect() as beside:
        create_halves(one)
        one.run(lambda txn: txn.delete("t", where="k in (50, 51)"))
        trace = Trace(inside(one).store)
        inside(one).store = trace
        with one.transaction() as txn:
            txn.update("t", {"v": "'first'"}, where="k = 1")
            known = len(trace.seen)
            beside.run(lambda t: t.update("t", {"v": "'second'"}, where=f"k = {other}"))
        sent = trace.seen[known:]
        found = kept(one)
        assert one.verify().ok
    assert "redo" not in {event.kind for event in events}
    assert (found[1], found[other], len(found)) == ("first", "second", 198)
    fetched = {key for verb, key in sent if verb == "get" and "deletion_vector" in key}
    assert len(fetched) == read


def create_halves(lake: lv.Lake) -> None:
    """Create a table of two files, one of the even keys and one of the odd."""
    even, odd = (rows(*((k, "old") for k in range(start, 200, 2))) for start in (0, 1))
    lake.create_table("t", even, properties=ALLOWED)
    lake.run(lambda txn: txn.append("t", odd))


def updates_two(txn: lv.Transaction) -> object:
    return txn.update("t", {"v": "'new'"}, where="k in (1, 2)")


def upserts_two(txn: lv.Transaction) -> object:
    return txn.upsert("t", rows((2, "new")), "k")


def test_a_function_of_a_chain_marks_the_rows_that_it_has_read(
    lake: lv.Lake, local_place: Place
) -> None:
    def change(txn: lv.Transaction) -> None:
        assert txn.read("t", where="k = 3")["v"].to_pylist() == ["old"]
        txn.update("t", {"v": "'new'"}, where="k = 3")

    context = inside(lake).context
    chain_of(context).note_conflict(context, code_of(change))
    lake.run(change)
    actions = last_actions(local_place)
    (removed,) = [action["remove"] for action in actions if "remove" in action]
    again = [a["add"] for a in actions if "add" in a and a["add"].get("deletionVector")]
    assert [file["path"] for file in again] == [removed["path"]]
    assert kept(lake)[3] == "new"


def test_a_row_that_comes_back_and_fits_is_changed_as_well(local_place: Place) -> None:
    with local_place.connect() as one, local_place.connect() as other:
        create_halves(one)
        one.run(lambda txn: txn.delete("t", where="k = 2"))
        deleted = one.snapshot().version
        with one.transaction() as txn:
            txn.update("t", {"v": "'new'"}, where="k in (1, 2)")
            other.revert(deleted)
        found = kept(one)
        assert (found[1], found[2], len(found)) == ("new", "new", 200)


@pytest.mark.parametrize("change", [updates_two, upserts_two])
def test_a_row_that_comes_back_is_seen_beside_an_upsert_of_other_rows_of_its_file(
    local_place: Place, change: Change
) -> None:
    with local_place.connect() as one, local_place.connect() as other:
        create_halves(one)
        one.run(lambda txn: txn.delete("t", where="k = 2"))
        deleted = one.snapshot().version
        with one.transaction() as txn:
            change(txn)
            other.run(upserts((50, "b")))
            other.revert(deleted)
        assert one.read("t", where="k = 2")["v"].to_pylist() == ["new"]
        assert len(kept(one)) == 200


def test_a_statement_that_replaces_a_file_of_an_operation_that_is_performed_again(
    local_place: Place,
) -> None:
    """The second update is performed again, so the third can't keep what it made of its file."""
    with local_place.connect() as one, local_place.connect() as other:
        create(one, "t")
        for start in (100, 200):
            one.run(lambda txn, k=start: txn.append("t", rows((k, "old"), (k + 1, "old"))))
        with one.transaction() as first:
            for where in ("k = 1", "k = 100", "k IN (100, 200)"):
                first.update("t", {"v": "v || '+'"}, where=where)
            with other.transaction() as second:
                second.update("t", {"v": "'other'"}, where="k IN (2, 201)")
        found = one.read("t").to_pylist()
    changed = sorted((row["k"], row["v"]) for row in found if row["v"] != "old")
    assert changed == [(1, "old+"), (2, "other"), (100, "old++"), (200, "old+"), (201, "other")]
    assert len(found) == 104


def raced(place: Place, first: Change, second: Change) -> tuple[dict[int, str], set[str]]:
    """Let a statement commit while another one that was performed before it is open.

    Return the rows, and the kinds of events of the open one.
    """
    events: list[lv.Event] = []
    with place.connect(on_event=events.append) as one, place.connect() as other:
        create(one, "t")
        with one.transaction() as txn:
            first(txn)
            other.run(second)
        assert one.verify().ok
        return kept(one), {event.kind for event in events}


def upserts(*given: tuple[int, str]) -> Change:
    return lambda txn: txn.upsert("t", rows(*given), "k")


def updates(key: int) -> Change:
    return lambda txn: txn.update("t", {"v": "v || '!'"}, where=f"k = {key}")


def moves_key(key: int, to: int) -> Change:
    """Return a merge that gives the row of a key another one."""

    def change(txn: lv.Transaction) -> object:
        merge = txn.merge("t", rows((key, "b")), on="target.k = source.k")
        return merge.when_matched_update({"k": str(to)}).execute()

    return change


def inserts_key(key: int, to: int) -> Change:
    """Return a merge whose source has a key that no row has, and that inserts another one."""

    def change(txn: lv.Transaction) -> object:
        merge = txn.merge("t", rows((key + 1000, "b")), on="target.k = source.k")
        return merge.when_not_matched_insert({"k": str(to), "v": "source.v"}).execute()

    return change


@pytest.mark.parametrize("where", [None, "k IN (1, 200)"])
def test_a_commit_beside_reads_no_row_that_an_upsert_of_other_keys_has_made(
    local_place: Place, where: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    decoded: list[int] = []
    decode = deletion_vectors._decoded
    monkeypatch.setattr(
        deletion_vectors, "_decoded", lambda *given: decoded.append(1) or decode(*given)
    )
    with local_place.connect() as one, local_place.connect() as beside:
        create_halves(one)
        beside.run(upserts((50, "c"), (51, "c")))
        txn = one.transaction()
        if where is not None:
            txn.read("t", where=where)
        txn.upsert("t", rows((1, "a"), (2, "a"), (200, "a")), "k")
        before = set(Path(local_place.root, "t").glob("*.parquet"))
        beside.run(upserts((3, "b"), (4, "b"), (201, "b")))
        decoded.clear()
        made = set(Path(local_place.root, "t").glob("*.parquet")) - before
        for file in made:
            file.rename(f"{file}.away")  # whoever reads it now raises an error
        txn.commit()
        for file in made:
            Path(f"{file}.away").rename(file)
        found = kept(one)
        assert one.verify().ok
    assert len(made) == 2  # of rows that were there, and of new ones
    assert [found[k] for k in (1, 2, 3, 4, 200, 201)] == ["a", "a", "b", "b", "a", "b"]
    # This process has made all vectors, and knows their rows.
    assert not decoded


@pytest.mark.parametrize(("given", "scans"), [({}, 1), ({"more": "more + 1"}, 2)])
def test_an_upsert_that_sets_each_column_reads_the_files_once(
    local_place: Place, given: dict[str, str], scans: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with local_place.connect() as lake:
        data = rows(*((k, "old") for k in range(100)))
        lake.create_table("t", data.append_column("more", data["k"]), properties=ALLOWED)
        bound: list[str] = []
        bind = Files.bind
        monkeypatch.setattr(
            Files, "bind", lambda *args, **more: bound.append("") or bind(*args, **more)
        )
        source = rows((3, "new"), (200, "new")).append_column("more", pa.array([7, 7]))
        with lake.transaction() as txn:
            merge = txn.merge("t", source, on="target.k = source.k")
            values = {
                "v": "source.v",
                "more": "source.more",
                **{k: f"target.{v}" for k, v in given.items()},
            }
            merge.when_matched_update(values).when_not_matched_insert_all().execute()
        assert len(bound) == scans
        monkeypatch.undo()
        found = lake.read("t", where="k IN (3, 200)").sort_by("k")["more"].to_pylist()
        assert found == [4 if given else 7, 7]


@pytest.mark.parametrize(
    "second",
    [
        upserts((3, "b"), (4, "b"), (201, "b")),
        updates(3),
        lambda txn: txn.append("t", rows((201, "b"))),
        lambda txn: txn.delete("t", where="k = 3"),
    ],
)
def test_an_upsert_of_other_keys_commutes(
    local_place: Place, second: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, events = raced(local_place, upserts((1, "a"), (2, "a"), (200, "a")), second)
    assert "redo" not in events
    assert [found[k] for k in (1, 2, 200, 5)] == ["a", "a", "a", "old"]
    assert found.get(3) in ("b", "old!", "old", None)


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        (upserts((2, "b"), (3, "b")), {1: "a", 2: "a", 3: "b", 200: "a"}),
        (upserts((200, "b")), {1: "a", 2: "a", 200: "a"}),
        (lambda txn: txn.append("t", rows((200, "b"))), {1: "a", 2: "a", 200: "a"}),
        (updates(1), {1: "a", 2: "a", 200: "a"}),
        (lambda txn: txn.delete("t", where="k = 1"), {1: "a", 2: "a", 200: "a"}),
        (lambda txn: txn.update("t", {"k": "200"}, where="k = 7"), {7: None, 200: "a"}),
        (moves_key(7, 200), {7: None, 200: "a"}),
        (inserts_key(7, 200), {7: "old", 200: "a"}),
    ],
)
def test_an_upsert_of_the_same_keys_is_done_again(
    local_place: Place, second: Change, expected: dict[int, str | None]
) -> None:
    found, events = raced(local_place, upserts((1, "a"), (2, "a"), (200, "a")), second)
    assert "redo" in events
    assert {k: found.get(k) for k in expected} == expected
    assert len(found) == (100 if 7 in expected and found.get(7) is None else 101)


def test_a_merge_that_only_inserts_sees_that_another_deletes_a_row_that_it_has_matched(
    local_place: Place,
) -> None:
    def inserts(txn: lv.Transaction) -> object:
        merge = txn.merge("t", rows((1, "a"), (200, "a")), on="target.k = source.k")
        return merge.when_not_matched_insert_all().execute()

    found, events = raced(local_place, inserts, lambda txn: txn.delete("t", where="k = 1"))
    assert "redo" in events
    assert (found[1], found[200]) == ("a", "a")


def test_a_merge_that_acts_on_rows_without_a_match_depends_on_all(local_place: Place) -> None:
    def sweeps(txn: lv.Transaction) -> object:
        merge = txn.merge("t", rows((1, "a")), on="target.k = source.k")
        swept = merge.when_matched_update_all().when_not_matched_by_source_delete("target.v = 'x'")
        return swept.execute()

    change = lambda txn: txn.update("t", {"v": "'x'"}, where="k = 7")  # noqa: E731
    found, events = raced(local_place, sweeps, change)
    assert "redo" in events
    assert 7 not in found


def test_statements_that_change_the_same_row_do_not(local_place: Place) -> None:
    events: list[lv.Event] = []
    with local_place.connect(on_event=events.append) as one, local_place.connect() as other:
        create(one, "t")
        with one.transaction() as first:
            first.update("t", {"v": "v || '+'"}, where="k in (1, 2)")
            with other.transaction() as second:
                second.update("t", {"v": "v || '*'"}, where="k in (2, 3)")
        found = kept(one)
        assert [found[k] for k in (1, 2, 3)] == ["old+", "old*+", "old*"]
    assert "redo" in {event.kind for event in events}


def test_a_read_of_a_row_that_another_deletes_is_a_conflict(local_place: Place) -> None:
    with local_place.connect() as one, local_place.connect() as other:
        create(one, "t")
        create(one, "log")
        with pytest.raises(lv.ConflictError, match="read"), one.transaction() as first:
            first.read("t", where="k = 1")
            first.append("log", rows((1000, "seen")))
            with other.transaction() as second:
                second.delete("t", where="k = 1")
        # Another row of the same file was not read.
        with one.transaction() as first:
            first.read("t", where="k = 2")
            first.append("log", rows((1000, "seen")))
            with other.transaction() as second:
                second.delete("t", where="k = 3")
        assert 1000 in kept(one, "log")


def test_a_table_that_does_not_allow_it_is_rewritten(local_place: Place) -> None:
    with local_place.connect() as lake:
        lake.create_table("t", rows(*((k, "old") for k in range(100))))
        with lake.transaction() as txn:
            txn.delete("t", where="k = 1")
        assert not [a for a in last_actions(local_place) if "deletionVector" in str(a)]


def test_an_optimize_purges_marked_rows(lake: lv.Lake, local_place: Place) -> None:
    with lake.transaction() as txn:
        txn.delete("t", where="k = 1")
    before = kept(lake)
    lake.table("t").optimize()
    assert not [a for a in last_actions(local_place) if (a.get("add") or {}).get("deletionVector")]
    assert kept(lake) == before
    assert lake.verify().ok


@pytest.mark.parametrize(("first", "purged"), [(19, False), (20, True)])
def test_upkeep_purges_a_file_once_a_fifth_of_its_rows_is_marked(
    lake: lv.Lake, local_place: Place, first: int, purged: bool
) -> None:
    lake.run(lambda txn: txn.delete("t", where=f"k < {first}"))
    before = kept(lake)
    assert lake.maintain().ok
    vectors = [a for a in last_actions(local_place) if (a.get("add") or {}).get("deletionVector")]
    assert vectors == [] if purged else len(vectors) == 1
    assert kept(lake) == before
    assert lake.verify().ok


def test_upkeep_that_is_switched_off_purges_nothing(lake: lv.Lake, local_place: Place) -> None:
    lake.run(lambda txn: txn.alter("t", set_properties={"lakevilla.optimize": False}))
    lake.run(lambda txn: txn.delete("t", where="k < 40"))
    lake.maintain()
    assert [a for a in last_actions(local_place) if (a.get("add") or {}).get("deletionVector")]


def test_upkeep_of_small_files_leaves_a_large_one_with_few_marked_rows(local_place: Place) -> None:
    sizes = {"delta.targetFileSize": "10000", "lakevilla.optimize.small_files": "2"}
    with local_place.connect() as lake:
        data = rows(*((k, f"old {k * 7919 % 10007}") for k in range(4000)))
        lake.create_table("t", data, properties={**ALLOWED, **sizes})
        for k in (1, 2, 3):
            lake.run(lambda txn, k=k: txn.update("t", {"v": "'new'"}, where=f"k = {k}"))
        assert lake.maintain().ok
        assert [(file["rows"], file["deletes"]) for file in files_of(lake)] == [(3, 0), (3997, 3)]
        lake.table("t").optimize()
        assert sum(file["deletes"] for file in files_of(lake)) == 0


def files_of(lake: lv.Lake) -> list[dict[str, Any]]:
    found = lake.sql("SELECT rows, deletes FROM lakevilla_files ORDER BY rows").to_pylist()
    return list(found)


def test_rows_come_back_by_a_rollback_and_on_a_branch_they_stay(lake: lv.Lake) -> None:
    version = lake.snapshot().version
    lake.branch("side")
    with lake.transaction() as txn:
        txn.delete("t", where="k = 1")
    with lake.on("side") as side:
        with side.transaction() as txn:
            txn.delete("t", where="k = 2")
        assert sorted(set(range(100)) - kept(side).keys()) == [2]
    lake.merge("side", keys={"t": ["k"]})
    assert sorted(set(range(100)) - kept(lake).keys()) == [1, 2]
    lake.rollback(version)
    assert kept(lake).keys() == set(range(100))


def test_a_refused_transaction_deletes_no_file_of_the_table(lake: lv.Lake) -> None:
    with pytest.raises(ZeroDivisionError), lake.transaction() as txn:
        txn.update("t", {"v": "'new'"}, where="k = 1")
        raise ZeroDivisionError
    with lake.transaction() as txn:
        txn.update("t", {"v": "'new'"}, where="k = 1")
    assert kept(lake)[1] == "new"
    assert lake.verify().ok


def test_the_feed_shows_the_rows_alone(lake: lv.Lake) -> None:
    since = lake.snapshot().version
    with lake.transaction() as txn:
        txn.update("t", {"v": "'new'"}, where="k = 1")
        txn.delete("t", where="k = 2")
    (version,) = lake.changes(since, tables=["t"])
    found = version.tables["t"].to_pylist()
    assert sorted((row["k"], row["v"], row["_change_type"]) for row in found) == [
        (1, "new", "insert"),
        (1, "old", "delete"),
        (2, "old", "delete"),
    ]


def test_a_query_reads_a_file_that_lacks_a_column_and_has_deleted_rows(lake: lv.Lake) -> None:
    with lake.transaction() as txn:
        txn.alter("t", add_columns={"more": "long"})
        txn.update("t", {"more": "7"}, where="k = 1")
    found = lake.sql("SELECT k, more FROM t WHERE k < 3 ORDER BY k")
    assert found["more"].to_pylist() == [None, 7, None]


def test_an_export_copies_no_file_again_of_which_rows_are_deleted(
    lake: lv.Lake, local_place: Place
) -> None:
    lake.export("t", "copy", copy=True)
    (file,) = (Path(local_place.root) / "copy").glob("*.parquet")
    before = file.stat()
    with lake.transaction() as txn:
        txn.update("t", {"v": "'new'"}, where="k = 1")
    lake.export("t", "copy", copy=True)
    assert (file.stat().st_ino, file.stat().st_mtime_ns) == (before.st_ino, before.st_mtime_ns)
    found = QueryBuilder().register("t", DeltaTable(local_place.uri("copy")))
    seen = found.execute("SELECT k, v FROM t").read_all()
    assert dict(zip(seen["k"].to_pylist(), seen["v"].to_pylist(), strict=True)) == kept(lake)


def test_sizes_count_rows_that_are_left(lake: lv.Lake) -> None:
    with lake.transaction() as txn:
        txn.delete("t", where="k = 2")
    found = lake.sql("SELECT rows FROM lakevilla_tables WHERE name = 't'")
    assert found["rows"].to_pylist() == [99]


OFF: dict[str, Change] = {
    "false": lambda txn: txn.alter("t", set_properties={"delta.enableDeletionVectors": False}),
    "unset": lambda txn: txn.alter("t", unset_properties=["delta.enableDeletionVectors"]),
}


@pytest.mark.parametrize("off", OFF)
@pytest.mark.parametrize("change", ["update", "delete", "upsert", "merge"])
def test_a_file_with_marks_is_rewritten_once_the_table_allows_none(
    lake: lv.Lake, local_place: Place, off: str, change: str
) -> None:
    lake.run(lambda txn: txn.delete("t", where="k = 4"))
    lake.run(OFF[off])
    expected = {k: "old" for k in range(100) if k != 4}
    assert kept(lake) == expected
    seen_by(local_place, expected)
    lake.run(CHANGES[change])
    assert not [a for a in last_actions(local_place) if (a.get("add") or {}).get("deletionVector")]
    found = kept(lake)
    assert 4 not in found
    assert {k: v for k, v in found.items() if k not in (3, 50, 200)} == {
        k: v for k, v in expected.items() if k not in (3, 50)
    }
    seen_by(local_place, found)
    assert lake.verify().ok


@pytest.mark.parametrize("off", OFF)
def test_a_branch_s_marks_are_rewritten_in_a_table_that_allows_none_any_more(
    lake: lv.Lake, local_place: Place, off: str
) -> None:
    lake.branch("side")
    with lake.on("side") as side:
        side.run(lambda txn: txn.update("t", {"v": "'new'"}, where="k = 3"))
    lake.run(OFF[off])
    lake.merge("side")
    assert not [a for a in last_actions(local_place) if (a.get("add") or {}).get("deletionVector")]
    assert kept(lake) == {k: "new" if k == 3 else "old" for k in range(100)}
    seen_by(local_place, kept(lake))


def test_marks_come_back_with_the_property_in_a_rollback(lake: lv.Lake, local_place: Place) -> None:
    lake.run(lambda txn: txn.delete("t", where="k = 4"))
    version, before = lake.snapshot().version, kept(lake)
    lake.run(OFF["false"])
    lake.run(lambda txn: txn.update("t", {"v": "'new'"}, where="k = 3"))
    lake.rollback(version)
    assert kept(lake) == before
    seen_by(local_place, before)


def test_a_table_whose_protocol_lacks_the_feature_is_rewritten(local_place: Place) -> None:
    write_deltalake(local_place.uri("t"), rows(*((k, "old") for k in range(100))))
    (first,) = [action for action in last_actions(local_place) if "metaData" in action]
    first["metaData"]["configuration"] = ALLOWED
    log = Path(local_place.uri("t").removeprefix("file://")) / "_delta_log"
    (log / f"{1:020}.json").write_text(json.dumps(first))
    with local_place.connect() as lake:
        lake.register("t")
        lake.run(lambda txn: txn.update("t", {"v": "'new'"}, where="k = 3"))
        actions = last_actions(local_place)
        assert len([action for action in actions if "add" in action]) == 1
        assert not [action for action in actions if "deletionVector" in str(action)]
        assert kept(lake) == {k: "new" if k == 3 else "old" for k in range(100)}
        seen_by(local_place, kept(lake))


def test_the_fault_of_deletes_that_count_as_nothing_is_found(local_place: Place) -> None:
    with PLANTED["deletes_of_others_as_nothing"].plant(), pytest.raises(pytest.fail.Exception):
        test_a_read_of_a_row_that_another_deletes_is_a_conflict(local_place)


def test_the_fault_of_marks_that_a_summary_does_not_tell_is_found(local_place: Place) -> None:
    with PLANTED["vector_told_as_nothing"].plant(), pytest.raises(pytest.fail.Exception):
        test_a_read_of_a_row_that_another_deletes_is_a_conflict(local_place)


def test_the_fault_of_reads_that_count_as_acted_on_is_found(local_place: Place) -> None:
    with PLANTED["reads_as_acted_on"].plant(), pytest.raises(pytest.fail.Exception):
        test_a_read_of_a_row_that_another_deletes_is_a_conflict(local_place)


def test_the_fault_of_rows_that_come_back_unseen_is_found(local_place: Place) -> None:
    with PLANTED["rows_come_back_unseen"].plant(), pytest.raises(AssertionError):
        test_a_row_that_comes_back_and_fits_is_changed_as_well(local_place)


def test_the_fault_of_bounds_that_are_called_tight_is_found(
    lake: lv.Lake, local_place: Place
) -> None:
    with PLANTED["bounds_called_tight"].plant(), pytest.raises(AssertionError):
        test_a_statement_that_changes_few_rows_leaves_the_file(lake, local_place, "delete")


def test_the_fault_of_keys_that_count_as_kept_is_found(local_place: Place) -> None:
    with PLANTED["keys_as_kept"].plant(), pytest.raises(AssertionError):
        test_an_upsert_of_the_same_keys_is_done_again(
            local_place, inserts_key(7, 200), {7: "old", 200: "a"}
        )


def test_the_fault_of_matched_rows_that_count_as_acted_on_is_found(local_place: Place) -> None:
    with PLANTED["matched_rows_as_acted_on"].plant(), pytest.raises(AssertionError):
        test_a_merge_that_only_inserts_sees_that_another_deletes_a_row_that_it_has_matched(
            local_place
        )


def test_a_merge_finds_no_row_that_was_marked_before(lake: lv.Lake) -> None:
    lake.run(lambda txn: txn.delete("t", where="k < 20"))
    result = lake.run(upserts((3, "new"), (50, "new")))
    assert (result.rows_updated, result.rows_inserted) == (1, 1)
    found = kept(lake)
    assert (found[3], found[50], len(found)) == ("new", "new", 81)


def test_clauses_of_a_merge_that_set_some_columns_leave_the_others(lake: lv.Lake) -> None:
    given = rows((1, "a"), (2, "b"), (3, "c"), (4, "d"))
    with lake.transaction() as txn:
        merge = txn.merge("t", given, on="target.k = source.k")
        merge.when_matched_delete("source.v = 'a'").when_matched_update(
            {"k": "target.k + 1000"}, "source.v = 'b'"
        ).when_matched_update({"v": "source.v"}).execute()
    found = kept(lake)
    assert 1 not in found
    assert {k: found.get(k) for k in (2, 1002, 3, 4)} == {2: None, 1002: "old", 3: "c", 4: "d"}


def test_a_merge_leaves_a_key_as_it_is_that_only_equals_that_of_the_source(
    local_place: Place,
) -> None:
    data = pa.table({"k": [-0.0, 1.5, 2.5, 3.5], "n": [1, 2, 3, 4], "v": ["old"] * 4})
    given = pa.table({"k": [0.0, 1.5], "n": [1, 20], "v": ["new", "new"]})
    with local_place.connect() as lake:
        lake.create_table("t", data, properties=ALLOWED)
        with lake.transaction() as txn:
            merge = txn.merge("t", given, on="target.k = source.k AND target.n <=> source.n")
            merge.when_matched_update({"v": "source.v"}).execute()
        assert any(
            "deletionVector" in action.get("add", {}) for action in last_actions(local_place)
        )
        found = lake.read("t").sort_by("n").to_pylist()
    assert [row["v"] for row in found] == ["new", "old", "old", "old"]
    assert [str(row["k"]) for row in found] == ["-0.0", "1.5", "2.5", "3.5"]
    assert [row["n"] for row in found] == [1, 2, 3, 4]


KEYS: dict[str, pa.Array] = {
    "int": pa.array([1, 2, 3], pa.int32()),
    "text": pa.array(["it's", "é", ""]),
    "date": pa.array([1, 2, 3], pa.date32()),
    "time": pa.array([1, 2, 3], pa.timestamp("us", "UTC")),
    "decimal": pa.array([1, 2, 3]).cast(pa.decimal128(22, 2)),
    "float": pa.array([0.5, -0.0, 1e300]),
    "bytes": pa.array([b"a", b"\0", b""]),
}


@pytest.mark.cases(3)
@pytest.mark.parametrize("kind", KEYS)
def test_upserts_by_keys_of_any_type_meet_where_they_have_a_key_in_common(
    local_place: Place, kind: str
) -> None:
    keys = KEYS[kind]

    def given(places: list[int], value: str) -> pa.Table:
        return pa.table({"k": keys.take(pa.array(places)), "v": [value] * len(places)})

    events: list[lv.Event] = []
    with local_place.connect(on_event=events.append) as one, local_place.connect() as other:
        one.create_table("t", given([0, 1, 2], "old"), properties=ALLOWED)
        for common in (False, True):
            events.clear()
            with one.transaction() as txn:
                txn.upsert("t", given([0], "first"), "k")
                second = given([0, 1] if common else [1], "second")
                other.run(lambda txn, second=second: txn.upsert("t", second, "k"))
            found = dict(zip(*one.read("t").to_pydict().values(), strict=True))
            assert [found[key] for key in keys.to_pylist()] == ["first", "second", "old"]
            assert common <= ("redo" in {event.kind for event in events})
