"""Tables of every kind, backed up and restored at another root."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import lakevilla as lv
from tests.support.backups import beside, rows_of, shown
from tests.support.places import Place

ROWS = [{"id": number, "text": f"row {number}", "part": number % 2} for number in range(40)]


def partitioned(lake: lv.Lake) -> None:
    lake.create_table("t", ROWS, partition_by=["part"])


def marked(lake: lv.Lake) -> None:
    """Rows that are marked as deleted, in files that are not written again."""
    delta = {"delta.enableDeletionVectors": "true"}
    iceberg = {"write.delete.mode": "merge-on-read", "write.update.mode": "merge-on-read"}
    lake.create_table("t", ROWS)
    kind = lake.table("t").format
    lake.run(lambda txn: txn.alter("t", set_properties=delta if kind == "delta" else iceberg))
    lake.run(
        lambda txn: txn.append("t", [{"id": 100 + n, "text": "x", "part": 0} for n in range(9)])
    )
    lake.run(lambda txn: txn.delete("t", where="id IN (3, 104)"))


def with_row_ids(lake: lv.Lake) -> None:
    kind = "delta.enableRowTracking"
    lake.create_table("t", ROWS, properties={kind: "true"})
    lake.run(lambda txn: txn.update("t", {"text": "'new'"}, where="id = 7"))


def renamed_column(lake: lv.Lake) -> None:
    lake.create_table("t", ROWS)
    if lake.table("t").format == "delta":
        mapped = {"delta.columnMapping.mode": "name"}
        lake.run(lambda txn: txn.alter("t", set_properties=mapped))
    lake.run(lambda txn: txn.alter("t", rename_columns={"text": "words"}))
    lake.run(lambda txn: txn.append("t", [{"id": 99, "words": "late", "part": 1}]))


def renamed_table(lake: lv.Lake) -> None:
    lake.create_table("first", ROWS)
    lake.rename_table("first", "t")


def shown_by_a_clone(lake: lv.Lake) -> None:
    lake.create_table("src/t", ROWS)
    lake.clone("src", "copy")


def written_in_a_clone(lake: lv.Lake) -> None:
    lake.create_table("src/t", ROWS)
    lake.clone("src", "copy")
    lake.run(lambda txn: txn.append("copy/t", [{"id": 99, "text": "late", "part": 1}]))
    lake.run(lambda txn: txn.delete("src/t", where="id < 30"))


def merged_from_a_branch(lake: lv.Lake) -> None:
    lake.create_table("t", ROWS)
    lake.branch("etl")
    lake.on("etl").run(lambda txn: txn.append("t", [{"id": 99, "text": "late", "part": 1}]))
    lake.on("etl").create_table("made", [{"id": 1}])
    lake.merge("etl", delete=True)


def with_a_view(lake: lv.Lake) -> None:
    lake.create_table("t", ROWS)
    lake.session().sql("CREATE VIEW v AS SELECT id FROM t WHERE part = 1")


def protected(lake: lv.Lake) -> None:
    lake.create_table("t", ROWS)
    lake.protect_main()


def tagged_and_dropped(lake: lv.Lake) -> None:
    lake.create_table("t", ROWS)
    lake.create_table("old", [{"id": 1}])
    lake.tag("with-old")
    lake.drop_table("old")


def empty(lake: lv.Lake) -> None:
    lake.create_table("t", {"id": "long"})


KINDS = [
    partitioned,
    marked,
    renamed_column,
    renamed_table,
    shown_by_a_clone,
    written_in_a_clone,
    merged_from_a_branch,
    with_a_view,
    protected,
    tagged_and_dropped,
    empty,
]


@pytest.mark.parametrize("kind", KINDS, ids=[one.__name__ for one in KINDS])
def test_a_restored_lake_has_tables_of_each_kind(
    shared_place: Place, kind: Callable[[lv.Lake], None]
) -> None:
    with shared_place.connect() as lake:
        kind(lake)
        before = shown(lake)
        made = lake.backup(beside(lake.root, "copy"), verify="hashes")
    root = beside(shared_place.root, "restored")
    lv.restore(made.target, root, verify="hashes")
    with lv.connect(root) as restored:
        assert shown(restored) == before
        assert restored.is_main_protected() == (kind is protected)
        restored.recover(confirm_head=True)
        assert restored.verify().ok
        restored.maintain()
        restored.gc()
        assert shown(restored) == before
        if kind in (partitioned, shown_by_a_clone, written_in_a_clone, merged_from_a_branch):
            for table in restored.tables():
                others = Place(root, format=shared_place.format).seen(table.name)
                assert len(others) == len(rows_of(restored, table.name))


@pytest.mark.parametrize("kind", KINDS, ids=[one.__name__ for one in KINDS])
def test_a_lake_in_place_has_tables_of_each_kind(
    shared_place: Place, kind: Callable[[lv.Lake], None]
) -> None:
    with shared_place.connect() as lake:
        kind(lake)
        before = shown(lake)
        made = lake.backup(beside(lake.root, "copy"))
        if kind is not protected:
            name = next(table.name for table in lake.tables() if table.name != "v")
            lake.run(lambda txn: txn.delete(name, where="true"))
    lv.restore(made.target, shared_place.root, in_place=True)
    with shared_place.connect() as lake:
        assert shown(lake) == before
        lake.recover(confirm_head=True)
        assert lake.verify().ok


def test_rows_keep_their_ids_in_a_restored_table(local_place: Place) -> None:
    with local_place.connect() as lake:
        with_row_ids(lake)
        before = rows_of(lake, "t")
        target = lake.backup(beside(lake.root, "copy")).target
    root = beside(local_place.root, "restored")
    lv.restore(target, root)
    with lv.connect(root) as restored:
        assert rows_of(restored, "t") == before
        restored.run(lambda txn: txn.append("t", [{"id": 99, "text": "late", "part": 1}]))
        assert restored.verify().ok


@pytest.mark.usefixtures("marks_in_small_files")
def test_an_object_of_vectors_that_was_cut_is_found_and_mended(local_place: Place) -> None:
    """No log has its size, but where the vectors are in it."""

    def cut(root: str) -> None:
        (vectors,) = Path(root).rglob("*.bin")
        vectors.write_bytes(vectors.read_bytes()[:-3])

    with local_place.connect() as lake:
        marked(lake)
        before = shown(lake)
        target = lake.backup(beside(lake.root, "copy")).target
        cut(target)
        with pytest.raises(lv.CorruptObject, match="its table says at least"):
            lv.restore(target, beside(lake.root, "restored"))
        assert lake.backup(target).copied_files == 1
        cut(lake.root)
        with pytest.raises(lv.CorruptObject, match="its table says at least"):
            lake.backup(beside(lake.root, "other"))
    lv.restore(target, local_place.root, in_place=True)
    with local_place.connect() as lake:
        assert shown(lake) == before
