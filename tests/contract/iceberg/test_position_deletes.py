"""Position delete files mark deleted rows of tables of version 2 whose modes say so."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import lakevilla as lv
from lakevilla.ids import txn_in
from lakevilla_testing.planted.every import PLANTED
from tests.contract.foreign_readers import HAS_EXTENSIONS, duckdb_reader
from tests.contract.iceberg.test_vectors import newest, summary
from tests.support.inside import inside
from tests.support.marked import CHANGES, MODES, kept, rows, years_later
from tests.support.places import Place
from tests.support.row_ids_of_iceberg import files_of
from tests.support.stores import Dying, unpublished

V2 = {"format-version": "2", **MODES}
ALL = set(range(100))
pytestmark = pytest.mark.usefixtures("marks_in_small_files")


@pytest.fixture
def lake(place: Place) -> Iterator[lv.Lake]:
    with place.connect() as lake:
        create(lake)
        yield lake


def create(lake: lv.Lake, **options: Any) -> None:
    data = rows(*((k, "old") for k in range(100)))
    lake.create_table("t", data, format="iceberg", **{"properties": V2, **options})


def deletes(lake: lv.Lake) -> list[list[str]]:
    """Return the paths of the delete files of each live data file that has some."""
    files = sorted(files_of(lake, "t"), key=lambda file: str(file["path"]))
    return [[one["path"] for one in file["deletes"]] for file in files if file["deletes"]]


def stored(place: Place) -> set[str]:
    root = Path(place.uri("t").removeprefix("file://"))
    return {path.relative_to(root).as_posix() for path in root.rglob("*-deletes.parquet")}


def seen(place: Place, lake: lv.Lake) -> set[int]:
    """Return the keys, after a check that pyiceberg and DuckDB read the same rows."""
    ours = kept(lake)
    lake.recover()
    table = newest(place)
    found = table.scan().to_arrow()
    assert dict(zip(found["k"].to_pylist(), found["v"].to_pylist(), strict=True)) == ours
    query = f"SELECT k, v FROM iceberg_scan('{table.metadata_location}')"
    assert found.num_rows == len(ours)
    if HAS_EXTENSIONS:
        scanned = duckdb_reader().execute(query).fetchall()
        assert dict(scanned) == ours
        assert len(scanned) == len(ours)
    return set(ours)


@pytest.mark.parametrize("change", CHANGES)
def test_a_statement_that_changes_few_rows_leaves_the_file(
    lake: lv.Lake, place: Place, change: str
) -> None:
    (file,) = files_of(lake, "t")
    lake.run(CHANGES[change])
    assert file["path"] in {one["path"] for one in files_of(lake, "t")}
    ((path,),) = deletes(lake)
    table = pq.read_table(Path(place.uri("t").removeprefix("file://")) / path)
    assert table["pos"].to_pylist() == [3, 50]
    assert set(table["file_path"].to_pylist()) == {f"{newest(place).location()}/{file['path']}"}
    ids = [field.metadata[b"PARQUET:field_id"] for field in table.schema]
    assert ids == [b"2147483546", b"2147483545"]
    found = summary(place)
    assert found["operation"] == ("delete" if change == "delete" else "overwrite")
    assert {n: found[n] for n in ("added-position-delete-files", "added-position-deletes")} == {
        "added-position-delete-files": "1",
        "added-position-deletes": "2",
    }
    assert "added-dvs" not in found
    assert found["total-delete-files"] == "1"
    seen(place, lake)
    assert lake.verify().ok


def test_a_table_that_does_not_ask_for_it_is_rewritten(place: Place) -> None:
    with place.connect() as lake:
        create(lake, properties={"format-version": "2"})
        lake.run(lambda txn: txn.delete("t", where="k = 1"))
        assert deletes(lake) == []
        assert stored(place) == set()


def test_a_later_position_delete_file_replaces_the_one_before(lake: lv.Lake, place: Place) -> None:
    for k in (1, 2, 3):
        lake.run(lambda txn, k=k: txn.delete("t", where=f"k = {k}"))
    ((_,),) = deletes(lake)
    assert len(stored(place)) == 3
    assert summary(place)["total-delete-files"] == "1"
    assert seen(place, lake) == ALL - {1, 2, 3}
    years_later(lake)
    assert len(stored(place)) == 1
    assert seen(place, lake) == ALL - {1, 2, 3}
    lake.table("t").optimize()
    assert deletes(lake) == []
    assert seen(place, lake) == ALL - {1, 2, 3}


@pytest.mark.parametrize(("first", "purged"), [(19, False), (20, True)])
def test_upkeep_purges_a_file_once_a_fifth_of_its_rows_is_marked(
    lake: lv.Lake, place: Place, first: int, purged: bool
) -> None:
    lake.run(lambda txn: txn.delete("t", where="k = 0"))
    lake.run(lambda txn: txn.delete("t", where=f"k < {first}"))
    with place.connect() as other:  # it knows the number from the manifest alone
        assert other.maintain().ok
    lake.recover()
    assert len(deletes(lake)) == (0 if purged else 1)
    assert seen(place, lake) == ALL - set(range(first))
    assert lake.verify().ok


def test_several_statements_of_one_transaction_mark_rows_of_one_file(
    lake: lv.Lake, place: Place
) -> None:
    with lake.transaction() as txn:
        txn.append("t", rows(*((k, "new") for k in range(100, 110))))
        txn.delete("t", where="k IN (1, 101)")
        assert 1 not in txn.read("t")["k"].to_pylist()
        txn.update("t", {"v": "'a'"}, where="k IN (2, 102)")
        txn.update("t", {"v": "'b'"}, where="k = 2")
    assert seen(place, lake) == {*range(110)} - {1, 101}
    assert [kept(lake)[k] for k in (2, 102, 3)] == ["b", "a", "old"]
    assert lake.verify().ok


def test_partitions_have_deletes_of_their_own(place: Place) -> None:
    with place.connect() as lake:
        create(lake, partition_by=["v"])
        lake.run(lambda txn: txn.append("t", rows(*((k, "b c") for k in range(100, 120)))))
        lake.run(lambda txn: txn.delete("t", where="k IN (1, 101)"))
        assert [len(one) for one in deletes(lake)] == [1, 1]
        assert seen(place, lake) == {*range(120)} - {1, 101}


def test_statements_on_other_rows_of_a_file_commute(place: Place) -> None:
    events: list[lv.Event] = []
    with place.connect(on_event=events.append) as one, place.connect() as other:
        create(one)
        with one.transaction() as first:
            first.update("t", {"v": "'first'"}, where="k in (1, 2)")
            first.delete("t", where="k = 5")
            for k in (3, 4):
                other.run(lambda txn, k=k: txn.delete("t", where=f"k = {k}"))
        assert seen(place, one) == ALL - {3, 4, 5}
        assert kept(one)[1] == "first"
        assert [len(found) for found in deletes(one)] == [1]
    assert "redo" not in {event.kind for event in events}


def test_statements_that_change_the_same_row_do_not(place: Place) -> None:
    events: list[lv.Event] = []
    with place.connect(on_event=events.append) as one, place.connect() as other:
        create(one)
        with one.transaction() as first:
            first.update("t", {"v": "v || '+'"}, where="k in (1, 2)")
            other.run(lambda txn: txn.update("t", {"v": "v || '*'"}, where="k in (2, 3)"))
        assert [kept(one)[k] for k in (1, 2, 3)] == ["old+", "old*+", "old*"]
    assert "redo" in {event.kind for event in events}


STEPS: dict[str, Callable[[lv.Lake], object]] = {
    "upgrade": lambda lake: lake.run(
        lambda txn: txn.alter("t", set_properties={"format-version": "3"})
    ),
    "modes off": lambda lake: lake.run(lambda txn: txn.alter("t", unset_properties=list(MODES))),
}


@pytest.mark.parametrize("step", STEPS)
def test_marked_rows_stay_deleted(lake: lv.Lake, place: Place, step: str) -> None:
    lake.run(lambda txn: txn.delete("t", where="k IN (1, 2)"))
    STEPS[step](lake)
    assert seen(place, lake) == ALL - {1, 2}
    lake.run(lambda txn: txn.delete("t", where="k = 3"))
    assert seen(place, lake) == ALL - {1, 2, 3}
    years_later(lake)
    assert stored(place) == set(), "in a vector, or in no file any more"
    assert seen(place, lake) == ALL - {1, 2, 3}
    assert lake.verify().ok


def test_branches_rollbacks_clones_and_the_feed(lake: lv.Lake, place: Place) -> None:
    version = lake.snapshot().version
    lake.branch("side")
    with lake.on("side") as side:
        side.run(lambda txn: txn.delete("t", where="k = 1"))
        side.run(lambda txn: txn.update("t", {"v": "'side'"}, where="k = 2"))
    lake.run(lambda txn: txn.delete("t", where="k = 3"))
    lake.merge("side", keys={"t": ["k"]}, delete=True)
    assert seen(place, lake) == ALL - {1, 3}
    assert kept(lake)[2] == "side"
    lake.clone("t", "trial/t")
    lake.run(lambda txn: txn.delete("trial/t", where="k = 4"))
    assert set(kept(lake, "trial/t")) == ALL - {1, 3, 4}
    before = lake.snapshot().version
    lake.run(lambda txn: txn.delete("t", where="k = 5"))
    (change,) = lake.changes(before, tables=["t"])
    assert [row["k"] for row in change.tables["t"].to_pylist()] == [5]
    lake.rollback(before, tables=["t"])
    assert seen(place, lake) == ALL - {1, 3}
    lake.rollback(version, tables=["t"])
    assert seen(place, lake) == ALL
    lake.rollback(before, tables=["t"])
    years_later(lake)
    assert seen(place, lake) == ALL - {1, 3}
    assert set(kept(lake, "trial/t")) == ALL - {1, 3, 4}
    assert lake.verify().ok


def test_a_decided_commit_is_the_same_once_it_is_published(place: Place) -> None:
    with place.connect() as lake:
        create(lake)
        with unpublished(lake):
            for k in (1, 2):
                lake.run(lambda txn, k=k: txn.delete("t", where=f"k = {k}"))
            pending = deletes(lake)
            assert set(kept(lake)) == ALL - {1, 2}
    with place.connect() as other:
        other.recover()
        assert deletes(other) == pending
        assert seen(place, other) == ALL - {1, 2}
        other.run(lambda txn: txn.delete("t", where="k = 3"))
        assert seen(place, other) == ALL - {1, 2, 3}


def test_a_client_that_dies_at_any_write_leaves_no_delete_file_for_good(tmp_path: Path) -> None:
    new = {k: "new" if k in (1, 2) else "old" for k in range(100)}
    for writes in itertools.count():
        place = Place(str(tmp_path / str(writes)), format="iceberg")
        with place.connect() as lake:
            create(lake)
        made = {txn_in(path.name) for path in Path(place.uri("t")).rglob("lv-*.parquet")}
        with place.connect() as dying:
            inside(dying).client.ensure_safe_store()
            store = inside(dying).store = Dying(inside(dying).store, writes)
            with contextlib.suppress(Dying.Death), dying.transaction() as txn:
                txn.update("t", {"v": "'new'"}, where="k IN (1, 2)")
        with place.connect() as other:
            years_later(other)
            found = kept(other)
            assert found in (dict.fromkeys(range(100), "old"), new)
            seen(place, other)
            files = list(Path(place.uri("t")).rglob("lv-*.parquet"))
            data = {txn_in(path.name) for path in files if not path.stem.endswith("-deletes")}
            assert {txn_in(path) for path in stored(place)} == data - made
            assert other.verify().ok
        if not store.died:
            break
    assert writes > 4


def test_the_fault_of_deletes_that_are_not_replaced_is_found(lake: lv.Lake, place: Place) -> None:
    with PLANTED["old_vector_stays"].plant(), pytest.raises(ValueError, match="too many values"):
        test_a_later_position_delete_file_replaces_the_one_before(lake, place)
