"""Overwrites with ``reuse_by`` have a plain overwrite's rows, and rewrite only changed files."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.transforms import IdentityTransform

import lakevilla as lv
from lakevilla.engines.duckdb import database
from lakevilla.engines.duckdb.writing import by_key
from lakevilla.formats.iceberg.catalog.object_store_catalog import ObjectStoreCatalog
from tests.contract.foreign_readers import read_by_others
from tests.property.position_deletes import delete_positions
from tests.support.foreign_changes import delete_by_vector
from tests.support.inside import inside
from tests.support.places import Place
from tests.support.stores import Closed, is_entry
from tests.support.tables import contents
from tests.support.traces import cost

KINDS = ["delta", "mapped", "feed", "iceberg"]


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(by_key, "CUTS", by_key.Cuts(least=4, most=40, one_in=16))


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[lv.Lake]:
    with lv.connect(tmp_path / "lake") as lake:
        yield lake


def make(lake: lv.Lake, kind: str, data: object, name: str = "bank", **options: Any) -> None:
    if kind == "mapped":
        options["properties"] = {"delta.columnMapping.mode": "name"}
    if kind == "feed":
        options["properties"] = {"delta.enableChangeDataFeed": "true"}
    form = "iceberg" if kind == "iceberg" else "delta"
    lake.create_table(name, data, format=form, **options)


def accounts(count: int = 400, **columns: Any) -> pa.Table:
    """Return accounts in a random order."""
    ids = list(range(count))
    Random(1).shuffle(ids)
    table = pa.table({"id": ids, "balance": [float(n) for n in ids]})
    for name, value in columns.items():
        table = table.append_column(name, pa.array([value(n) for n in ids]))
    return table


def with_balance(table: pa.Table, changed: dict[int, float]) -> pa.Table:
    rows = table.to_pylist()
    for row in rows:
        row["balance"] = changed.get(row["id"], row["balance"])
    return pa.Table.from_pylist(rows, table.schema)


def refresh(lake: lv.Lake, data: object, *keys: str, **options: Any) -> lv.OperationResult:
    reuse_by = keys or ("id",)
    return lake.run(lambda txn: txn.overwrite("bank", data, reuse_by=reuse_by, **options))


def files_of(lake: lv.Lake, table: str = "bank") -> set[str]:
    """Return the table's data files, named by the log or not."""
    return {key for key in contents(lake.root) if key.startswith(f"{table}/lv-") or "=" in key}


def same_as_others(lake: lv.Lake, kind: str, expected: pa.Table) -> None:
    """Assert that LakeVilla and all other readers see the expected rows."""
    ours = lake.snapshot().read("bank")
    assert texts(ours) == texts(expected.select(ours.column_names))
    form = "iceberg" if kind == "iceberg" else "delta"
    uri = lake.table("bank").uri
    for name, rows in read_by_others(uri, form, is_mapped=kind == "mapped").items():
        assert texts(rows.select(ours.column_names)) == texts(ours), name


def texts(table: pa.Table) -> list[str]:
    lines = (repr(list(row.values())) for row in table.to_pylist())
    return sorted(line.replace("Etc/UTC", "UTC") for line in lines)


# ------------------------------------------------------------------ what is kept


def test_equal_rows_in_another_order_or_encoding_write_no_file(lake: lv.Lake, kind: str) -> None:
    rows = accounts(name=lambda n: f"account {n % 7}")
    make(lake, kind, rows.schema)
    first = refresh(lake, rows)
    assert first.files_added > 5
    before = files_of(lake)
    coded = rows.set_column(2, "name", rows["name"].combine_chunks().dictionary_encode())
    for again in (
        rows.take(list(range(399, -1, -1))),
        coded,
        pa.Table.from_batches(rows.to_batches(max_chunksize=7)).select(["name", "id", "balance"]),
        (batch for batch in rows.to_batches(max_chunksize=50)),
    ):
        done = refresh(lake, again)
        assert (done.files_added, done.files_removed, done.rows_inserted) == (0, 0, 0)
    assert files_of(lake) == before
    same_as_others(lake, kind, rows)


def test_only_files_with_changed_rows_are_rewritten(lake: lv.Lake, kind: str) -> None:
    rows = accounts()
    make(lake, kind, rows.schema)
    count = refresh(lake, rows).files_added
    since = lake.history(1)[0].version
    changed = with_balance(rows, {17: -1.0, 18: -2.0})
    done = refresh(lake, changed)
    assert 1 <= done.files_added <= 2 < count
    assert done.files_removed == done.files_added
    assert done.rows_deleted == done.rows_inserted <= 80
    same_as_others(lake, kind, changed)
    shown = lake.snapshot().changes("bank", since).to_pylist()
    assert {row["id"] for row in shown} == {17, 18}
    assert refresh(lake, changed).files_added == 0


def test_files_are_reused_with_any_batch_size_of_the_engine(
    lake: lv.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = accounts(10_000)
    make(lake, "delta", rows.schema)
    monkeypatch.setattr(by_key, "CUTS", by_key.Cuts(least=300, most=3000, one_in=300))
    assert refresh(lake, rows).files_added > 10
    monkeypatch.setattr(database, "BATCH_ROWS", 2048)
    assert refresh(lake, rows).files_added == 0


def test_inserted_and_deleted_rows_change_only_files_near_them(lake: lv.Lake, kind: str) -> None:
    rows = accounts(2000)
    make(lake, kind, rows.schema)
    count = refresh(lake, rows).files_added
    fewer = rows.filter(pc.greater(rows["id"], 3))
    done = refresh(lake, fewer)
    assert done.files_removed <= 6 < count / 10
    more = pa.concat_tables([fewer, pa.table({"id": [-5, -4], "balance": [0.5, 0.25]})])
    done = refresh(lake, more)
    assert done.files_removed <= 6
    same_as_others(lake, kind, more)


def test_an_overwrite_with_reuse_of_files_without_tags_rewrites_them_with_tags(
    lake: lv.Lake, kind: str
) -> None:
    rows = accounts(100)
    make(lake, kind, rows)
    done = refresh(lake, rows)
    assert done.files_removed == 1
    assert done.files_added > 1
    assert refresh(lake, rows).files_added == 0
    lake.run(lambda txn: txn.update("bank", {"balance": "0"}, where="id = 3"))
    assert 1 <= refresh(lake, rows).files_added <= 2
    same_as_others(lake, kind, rows)


def test_an_overwrite_with_reuse_without_rows_empties_the_table(lake: lv.Lake, kind: str) -> None:
    rows = accounts(50)
    make(lake, kind, rows.schema)
    refresh(lake, rows)
    refresh(lake, rows.slice(0, 0))
    assert lake.read("bank").num_rows == 0
    refresh(lake, rows)
    same_as_others(lake, kind, rows)


@pytest.mark.parametrize("by", ["kind", "bucket(3, id)", "day"])
def test_files_are_cut_within_partitions(lake: lv.Lake, by: str) -> None:
    def day(n: int) -> datetime.date | None:
        return datetime.date(2024, 1, 1 + n % 3) if n % 4 else None

    rows = accounts(kind=lambda n: ["a b", "x/y", "z"][n % 3], day=day)
    form = "iceberg" if "(" in by or by == "day" else "delta"
    make(lake, form, rows.schema, partition_by=[by])
    count = refresh(lake, rows).files_added
    assert count > 10
    assert refresh(lake, rows).files_added == 0
    changed = with_balance(rows, dict.fromkeys(range(6), -1.0))
    done = refresh(lake, changed)
    assert 1 <= done.files_added <= 12 < count
    same_as_others(lake, form, changed)


def test_a_row_that_moves_to_another_partition_is_not_duplicated(lake: lv.Lake) -> None:
    rows = accounts(100, kind=lambda n: "ab"[n % 2])
    make(lake, "delta", rows.schema, partition_by=["kind"])
    refresh(lake, rows)
    moved = pa.Table.from_pylist(
        [{**row, "kind": "a" if row["id"] == 7 else row["kind"]} for row in rows.to_pylist()],
        rows.schema,
    )
    refresh(lake, moved)
    same_as_others(lake, "delta", moved)


@pytest.mark.night
def test_an_iceberg_table_finds_its_tags_after_many_commits_and_a_gc(
    lake: lv.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = accounts()
    make(lake, "iceberg", rows.schema)
    lake.create_table("other", [{"n": 1}])
    first = refresh(lake, rows)
    for number in range(12):  # to this table and to others, beyond HEAD's own list
        lake.run(lambda txn, n=number: txn.append("bank", [{"id": 1000 + n, "balance": 0.0}]))
    for number in range(140):
        lake.run(lambda txn, n=number: txn.append("other", [{"n": n}]))
    clock = inside(lake).clock
    now = clock.now()
    monkeypatch.setattr(clock, "now", lambda: now + 30 * 24 * 3600)
    lake.gc()
    with lv.connect(lake.root) as other:
        before = cost(other, lambda: other.read("bank"))
        assert before.get
        again = refresh(other, rows)
        assert (again.files_added, again.files_removed) == (0, 12)
        assert first.files_added > 1
    same_as_others(lake, "iceberg", rows)


def test_a_branch_reuses_files_of_an_iceberg_table_that_the_lake_wrote(lake: lv.Lake) -> None:
    rows = accounts()
    make(lake, "iceberg", rows.schema)
    refresh(lake, rows)
    lake.branch("etl")
    etl = lake.on("etl")
    assert refresh(etl, rows).files_added == 0
    assert 1 <= refresh(etl, with_balance(rows, {7: -1.0})).files_added <= 2
    assert refresh(etl, with_balance(rows, {7: -1.0})).files_added == 0
    lake.merge("etl")
    assert 1 <= refresh(lake, rows).files_added <= 2


def test_rows_within_a_file_are_in_the_tables_sort_order(lake: lv.Lake) -> None:
    rows = accounts()
    make(lake, "iceberg", rows.schema)
    table = ObjectStoreCatalog("t", warehouse=lake.root).load_table(("bank",))
    with table.update_sort_order() as order:
        order.desc("balance", IdentityTransform())
    refresh(lake, rows)
    assert refresh(lake, rows).files_added == 0
    for task in (
        ObjectStoreCatalog("t", warehouse=lake.root).load_table(("bank",)).scan().plan_files()
    ):
        found = pq.read_table(task.file.file_path.removeprefix("file://"))["balance"].to_pylist()
        assert found == sorted(found, reverse=True)
    same_as_others(lake, "iceberg", rows)


@pytest.mark.parametrize(
    "value",
    [
        lambda n: f"s{n}",
        lambda n: f"b{n}".encode(),
        lambda n: datetime.date(2020, 1, 1) + datetime.timedelta(n),
        lambda n: datetime.datetime(2020, 1, 1, tzinfo=datetime.UTC) + datetime.timedelta(0, 0, n),
        lambda n: Decimal(n) / 100,
        lambda n: "é" * (n % 3) + str(n),
    ],
)
def test_reuse_keys_can_have_any_plain_type(lake: lv.Lake, value: Callable[[int], object]) -> None:
    rows = accounts(100, key=value)
    make(lake, "delta", rows.schema)
    refresh(lake, rows, "KEY")
    assert refresh(lake, rows.take(list(range(99, -1, -1))), "key").files_added == 0
    changed = with_balance(rows, {5: -1.0})
    assert refresh(lake, changed, "key").files_added == 1
    same_as_others(lake, "delta", changed)


def test_a_reuse_key_can_have_several_columns(lake: lv.Lake) -> None:
    rows = accounts(100, shop=lambda n: n // 10, place=lambda n: n % 10).drop_columns(["id"])
    make(lake, "delta", rows.schema)
    refresh(lake, rows, "shop", "place")
    assert refresh(lake, rows, "shop", "place").files_added == 0
    with pytest.raises(lv.InvalidOperation, match=r"two rows have the key shop="):
        refresh(lake, rows, "shop")


def test_an_overwrite_with_reuse_keeps_few_rows_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows above the limit wait in private files, which are deleted at the end of the verb."""
    rows = accounts(3000, name=lambda n: f"name {n}")
    settings = lv.Settings(in_memory_file_limit_bytes=2000)
    spilled = []
    new_path = by_key._Room.new_path
    monkeypatch.setattr(
        by_key._Room, "new_path", lambda room: spilled.append(new_path(room)) or spilled[-1]
    )
    with lv.connect(tmp_path / "lake", settings=settings) as lake:
        make(lake, "delta", rows.schema)
        refresh(lake, rows)
        assert len(spilled) > 50
        assert not [path for path in spilled if Path(path).exists()]
        same_as_others(lake, "delta", rows)
        spilled.clear()
        assert refresh(lake, rows).files_added == 0
        assert len(spilled) < 3000 / 4
        with pytest.raises(lv.InvalidOperation):
            refresh(lake, pa.concat_tables([rows, rows.slice(0, 1)]))
        assert not [path for path in spilled if Path(path).exists()]


# ------------------------------------------------------------------ what may not be kept


def test_a_file_with_deleted_rows_is_not_kept(lake: lv.Lake) -> None:
    rows = accounts(100)
    make(lake, "delta", rows.schema)
    refresh(lake, rows)
    delete_by_vector(Place(lake.root), row=2)
    assert lake.read("bank").num_rows == 99
    assert 1 <= refresh(lake, rows).files_added <= 2
    # deltalake's Arrow reader refuses the table feature, even without deletion vectors.
    same_as_others(lake, "mapped", rows)


def test_a_file_with_position_deletes_is_not_kept(lake: lv.Lake) -> None:
    rows = accounts(100)
    make(lake, "iceberg", rows.schema)
    refresh(lake, rows)
    table = ObjectStoreCatalog("tests", warehouse=lake.root).load_table(("bank",))
    delete_positions(table, [1, 2], Random(1))
    assert lake.read("bank").num_rows == 98
    assert refresh(lake, rows).files_added >= 1
    same_as_others(lake, "iceberg", rows)


@pytest.mark.parametrize("kind", ["mapped", "iceberg"])
def test_files_are_not_reused_for_a_recreated_column_of_the_same_name(
    lake: lv.Lake, kind: str
) -> None:
    rows = accounts(100)
    make(lake, kind, rows.schema)
    refresh(lake, rows)
    lake.run(lambda txn: txn.alter("bank", drop_columns=["balance"]))
    lake.run(lambda txn: txn.alter("bank", add_columns=pa.schema([("balance", pa.float64())])))
    assert set(lake.read("bank")["balance"].to_pylist()) == {None}
    assert refresh(lake, rows).files_added > 1
    same_as_others(lake, kind, rows)


def test_files_are_reused_for_a_renamed_column(lake: lv.Lake) -> None:
    rows = accounts(100)
    make(lake, "iceberg", rows.schema)
    refresh(lake, rows)
    lake.run(lambda txn: txn.alter("bank", rename_columns={"balance": "amount"}))
    renamed = rows.rename_columns(["id", "amount"])
    assert refresh(lake, renamed).files_added == 0
    same_as_others(lake, "iceberg", renamed)


def test_an_overwrite_with_a_new_schema_rewrites_all_files_with_tags(
    lake: lv.Lake, kind: str
) -> None:
    rows = accounts(100)
    make(lake, kind, rows.schema)
    refresh(lake, rows)
    wider = rows.append_column("note", pa.array(["x"] * 100))
    assert refresh(lake, wider, schema_mode="merge").files_added > 1
    assert refresh(lake, wider).files_added == 0
    assert refresh(lake, rows, schema_mode="overwrite").files_added > 1
    assert lake.read("bank").column_names == ["id", "balance"]
    # The schema is unchanged, so the files are reused.
    assert refresh(lake, rows, schema_mode="overwrite").files_added == 0
    same_as_others(lake, kind, rows)


def test_rows_are_not_duplicated_after_a_rollback_to_files_with_tags(lake: lv.Lake) -> None:
    """A rollback adds an old file again, with its tags, and the overwrite may reuse it."""
    rows = accounts(10)
    make(lake, "delta", rows.schema)
    refresh(lake, rows)
    good = lake.history(1)[0].version
    refresh(lake, with_balance(rows, {1: -1.0}))
    lake.rollback(good)
    refresh(lake, rows)
    same_as_others(lake, "delta", rows)


# ------------------------------------------------------------------ concurrent writers


OTHERS: dict[str, Callable[[lv.Transaction], object]] = {
    "deletes": lambda txn: txn.delete("bank", where="id < 60"),
    "deletes one": lambda txn: txn.delete("bank", where="id = 3"),
    "updates": lambda txn: txn.update("bank", {"balance": "-7"}, where="id % 50 = 3"),
    "appends": lambda txn: txn.append("bank", [{"id": 1000, "balance": 1.0}]),
    "all go": lambda txn: txn.delete("bank", where="true"),
    "refreshes": lambda txn: txn.overwrite("bank", [{"id": 1, "balance": 9.0}], reuse_by=["id"]),
}


@pytest.mark.parametrize("other", OTHERS, ids=str)
@pytest.mark.parametrize("isolation", ["serializable", "snapshot"])
def test_an_overwrite_with_reuse_has_exactly_its_rows_after_concurrent_commits(
    lake: lv.Lake, kind: str, other: str, isolation: Any
) -> None:
    rows = accounts(100)
    make(lake, kind, rows.schema)
    refresh(lake, rows)
    changed = with_balance(rows, {50: -1.0})
    with lake.transaction(isolation=isolation) as txn:
        txn.overwrite("bank", changed, reuse_by=["id"])
        with lv.connect(lake.root) as another:
            another.run(OTHERS[other])
    same_as_others(lake, kind, changed)
    refresh(lake, changed)
    same_as_others(lake, kind, changed)


def test_an_overwrite_with_reuse_has_exactly_its_rows_after_a_concurrent_optimize(
    lake: lv.Lake, kind: str
) -> None:
    rows = accounts(100)
    make(lake, kind, rows.schema)
    refresh(lake, rows)
    for changed in (rows, with_balance(rows, {50: -1.0})):
        refresh(lake, rows)
        with lake.transaction() as txn:
            txn.overwrite("bank", changed, reuse_by=["id"])
            with lv.connect(lake.root) as another:
                assert another.table("bank").optimize().files_removed > 1
        same_as_others(lake, kind, changed)


@pytest.mark.parametrize("features", [lv.Feature.NONE, lv.Feature.R | lv.Feature.CT | lv.Feature.I])
def test_an_overwrite_with_reuse_has_exactly_its_rows_with_other_features(
    lake: lv.Lake, kind: str, features: lv.Feature
) -> None:
    rows = accounts(100)
    make(lake, kind, rows.schema)
    changed = with_balance(rows, {50: -1.0})
    for data in (rows, rows, changed):
        with lake.transaction(features) as txn:
            done = txn.overwrite("bank", data, reuse_by=["id"])
        same_as_others(lake, kind, data)
    # Without a commit object the tags of files of an Iceberg table are lost.
    knows = kind != "iceberg" or features is not lv.Feature.NONE
    assert (done.files_added <= 2) is knows


def test_a_deferred_overwrite_with_reuse_is_performed_on_the_state_at_the_commit(
    lake: lv.Lake, kind: str
) -> None:
    rows = accounts(100)
    make(lake, kind, rows.schema)
    refresh(lake, rows)
    with lake.transaction(defer=True) as txn:
        txn.overwrite("bank", rows, reuse_by=["id"])
        lake.run(lambda other: other.delete("bank", where="id < 60"))
    same_as_others(lake, kind, rows)


def test_a_transaction_can_have_other_operations_before_and_after_overwrites_with_reuse(
    lake: lv.Lake, kind: str
) -> None:
    rows = accounts(100)
    make(lake, kind, rows.schema)
    changed = with_balance(rows, {50: -1.0})
    with lake.transaction() as txn:
        txn.append("bank", [{"id": 1000, "balance": 1.0}])
        txn.overwrite("bank", rows, reuse_by=["id"])
        assert txn.overwrite("bank", changed, reuse_by=["id"]).files_added <= 2
        txn.update("bank", {"balance": "5"}, where="id = 50")
        with lv.connect(lake.root) as another:
            another.run(lambda other: other.append("bank", [{"id": 2000, "balance": 1.0}]))
    same_as_others(lake, kind, with_balance(rows, {50: 5.0}))


@pytest.mark.parametrize(
    ("deletes", "left"),
    [("id < 30", 70), ("id < 30 OR id = 50", 100)],
    ids=["of kept files", "of removed ones too"],
)
def test_a_foreign_delete_before_an_overwrite_with_reuse_is_published_counts_as_later(
    lake: lv.Lake, deletes: str, left: int
) -> None:
    """The delete stays if it touches no file that the overwrite removes; else that is redone."""
    rows = accounts(100)
    make(lake, "delta", rows.schema)
    refresh(lake, rows)
    changed = with_balance(rows, {50: -1.0})
    with lv.connect(lake.root) as owner:
        inside(owner).store = Closed(inside(owner).store, is_entry("bank"))
        with owner.transaction() as txn:
            done = txn.overwrite("bank", changed, reuse_by=["id"])
            assert done.files_added <= 2
    DeltaTable(lake.table("bank").uri).delete(deletes)
    with lv.connect(lake.root) as fresh:
        fresh.recover()
        same_as_others(fresh, "delta", changed.filter(pc.greater_equal(changed["id"], 100 - left)))


def test_an_overwrite_with_reuse_on_a_branch_can_be_merged(lake: lv.Lake, kind: str) -> None:
    rows = accounts(100)
    make(lake, kind, rows.schema)
    refresh(lake, rows)
    changed = with_balance(rows, {50: -1.0})
    lake.branch("etl")
    etl = lake.on("etl")
    for data in (rows, changed):
        done = etl.run(lambda txn, data=data: txn.overwrite("bank", data, reuse_by=["id"]))
    assert done.files_added <= 2
    assert texts(etl.read("bank")) == texts(changed)
    same_as_others(lake, kind, rows)
    lake.merge("etl", delete=True)
    same_as_others(lake, kind, changed)
    refresh(lake, changed)
    same_as_others(lake, kind, changed)


def test_tags_outlive_checkpoints_and_a_vacuum(lake: lv.Lake) -> None:
    rows = accounts(100)
    make(lake, "delta", rows.schema, name="bank")
    refresh(lake, rows)
    for n in range(12):
        lake.run(lambda txn, n=n: txn.append("bank", [{"id": 1000 + n, "balance": 1.0}]))
        refresh(lake, rows)
    lake.table("bank").vacuum()
    with lv.connect(lake.root) as fresh:
        assert refresh(fresh, rows).files_added == 0
        same_as_others(fresh, "delta", rows)


# ------------------------------------------------------------------ errors


NESTED = pa.array([{"x": n} for n in range(20)])


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"reuse_by": ["sku"]}, "has no column sku .* its columns are id, balance, place"),
        ({"reuse_by": ["balance"]}, r"column balance \(double\) can't be in reuse_by"),
        ({"reuse_by": ["place"]}, r"column place \(struct<.*can't be in reuse_by"),
        ({"reuse_by": []}, "reuse_by names no column"),
        ({"reuse_by": "id"}, r"reuse_by takes names of columns, reuse_by=\('sku',\), not 'id'"),
        ({"reuse_by": [1]}, "reuse_by takes names of columns"),
        ({"reuse_by": 7}, "reuse_by takes names of columns"),
        ({"reuse_by": ["id"], "where": "id > 1"}, "leave where and partitions out"),
        ({"reuse_by": ["id"], "partitions": "dynamic"}, "leave where and partitions out"),
    ],
    ids=str,
)
def test_reuse_keys_that_do_not_fit_the_table_are_refused(
    lake: lv.Lake, options: Any, said: str
) -> None:
    rows = accounts(20).append_column("place", NESTED)
    make(lake, "delta", rows)
    before = contents(lake.root)
    with pytest.raises(lv.InvalidOperation, match=said), lake.transaction() as txn:
        txn.overwrite("bank", rows, **options)
    assert contents(lake.root) == before


@pytest.mark.parametrize("by", [[], ["kind"]], ids=["whole", "partitioned"])
@pytest.mark.parametrize(
    ("bad", "said"),
    [
        ({"id": None, "balance": 1.0, "kind": "a"}, "column id of reuse_by has NULL"),
        ({"id": 399, "balance": 2.0, "kind": "a"}, "two rows have the key id=399"),
        ({"id": 0, "balance": 2.0, "kind": "b"}, "two rows have the key id=0"),
    ],
)
def test_duplicate_and_null_reuse_keys_are_refused(
    lake: lv.Lake, kind: str, by: list[str], bad: dict[str, object], said: str
) -> None:
    rows = accounts(400, kind=lambda n: "b")
    make(lake, kind, rows, partition_by=by)
    refresh(lake, rows)
    before = contents(lake.root)
    wrong = pa.concat_tables(
        [with_balance(rows, {5: -1.0}), pa.Table.from_pylist([bad], rows.schema)]
    )
    with pytest.raises(lv.InvalidOperation, match=said), lake.transaction() as txn:
        txn.overwrite("bank", wrong, reuse_by=["id"])
    assert contents(lake.root) == before


def test_rows_that_break_a_constraint_are_refused_by_an_overwrite_with_reuse(lake: lv.Lake) -> None:
    rows = accounts(100)
    make(lake, "delta", rows.schema)
    refresh(lake, rows)
    lake.run(lambda txn: txn.alter("bank", add_constraints={"positive": "balance >= 0"}))
    before = contents(lake.root)
    with pytest.raises(lv.InvalidOperation, match="positive"):
        refresh(lake, with_balance(rows, {99: -1.0}))
    assert contents(lake.root) == before
    assert refresh(lake, rows).files_added == 0


def test_a_failing_source_of_an_overwrite_with_reuse_leaves_no_file(lake: lv.Lake) -> None:
    rows = accounts(100)
    make(lake, "delta", rows.schema)
    refresh(lake, rows)
    before = contents(lake.root)

    def failing() -> Iterator[pa.RecordBatch]:
        yield from with_balance(rows, {50: -1.0}).to_batches()
        raise RuntimeError("the export broke off")

    with pytest.raises(RuntimeError, match="broke off"), lake.transaction() as txn:
        txn.overwrite("bank", failing(), reuse_by=["id"])
    assert contents(lake.root) == before


# ------------------------------------------------------------------ random


@pytest.mark.parametrize("seed", range(6))
def test_random_edits_have_the_same_rows_by_reuse_as_by_a_plain_overwrite(
    lake: lv.Lake, kind: str, seed: int
) -> None:
    """Repeat random edits, then overwrite one table with ``reuse_by`` and another without."""
    rng = Random(seed)
    schema = pa.schema(
        [
            ("id", pa.int64()),
            ("name", pa.string()),
            ("n", pa.float64()),
            ("tags", pa.list_(pa.string())),
            ("at", pa.struct([("x", pa.int32()), ("y", pa.string())])),
        ]
    )

    def row(number: int) -> dict[str, object]:
        return {
            "id": number,
            "name": rng.choice([None, "", "tea", f"n{number}"]),
            "n": rng.choice([None, 0.0, -0.0, float("inf"), number / 3]),
            "tags": rng.choice([None, [], [None, "a"], [f"t{number}"]]),
            "at": rng.choice([None, {"x": None, "y": ""}, {"x": number, "y": None}]),
        }

    rows = {n: row(n) for n in rng.sample(range(1000), rng.randrange(300))}
    # DuckDB's reader shows NULL for a mapped partition column that is not the first one.
    by = rng.choice([[], ["name"]]) if kind != "mapped" else []
    if kind != "iceberg" and by:
        rows = {n: {**r, "name": r["name"] or "none"} for n, r in rows.items()}
    options = {"partition_by": by}
    make(lake, kind, schema, **options)
    make(lake, kind, schema, name="plain", **options)
    for _ in range(4):
        for _ in range(rng.choice([0, 1, 1, 30])):
            number = rng.randrange(1000)
            rows[number] = {**row(number), **({"name": "tea"} if by else {})}
            rows.pop(rng.choice(list(rows)))
        table = pa.Table.from_pylist(rng.sample(list(rows.values()), len(rows)), schema)
        with lake.transaction() as txn:
            if rng.random() < 0.3:
                txn.delete("bank", where=f"id % {rng.randrange(2, 9)} = 0")
            txn.overwrite("bank", table, reuse_by=["id"])
            txn.overwrite("plain", table)
        assert texts(lake.read("plain")) == texts(table)
        same_as_others(lake, kind, table)
