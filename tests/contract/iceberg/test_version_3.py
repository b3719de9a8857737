"""Iceberg tables of version 3: ids of rows, defaults of columns, upgrades, and what is refused."""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakevilla as lv
from tests.support.iceberg_by_hand import File, Table
from tests.support.places import Place
from tests.support.row_ids_of_iceberg import Lineage, files_of, row_ids

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])
MERGED = {"commit.manifest.min-count-to-merge": "3"}
V3 = {"format-version": "3", **MERGED}


@pytest.fixture
def lake(place: Place) -> Iterator[lv.Lake]:
    with place.connect() as lake:
        lake.create_table("t", SCHEMA, properties=V3)
        append(lake, 1, 2)
        yield lake


def append(lake: lv.Lake, *keys: int, table: str = "t") -> None:
    with lake.transaction() as txn:
        txn.append(table, [{"k": k, "v": f"v{k}"} for k in keys])


def metadata(place: Place, table: str = "t") -> tuple[Path, dict[str, Any]]:
    """Return the newest metadata file, and what it holds."""
    files = (Path(place.uri(table)) / "metadata").glob("v*.metadata.json")
    newest = max(files, key=lambda path: int(path.name[1:].partition(".")[0]))
    return newest, json.loads(newest.read_text())


def edit(place: Place, change: Callable[[dict[str, Any]], object], table: str = "t") -> None:
    path, document = metadata(place, table)
    change(document)
    path.write_text(json.dumps(document))


def unique(found: dict[Any, Lineage]) -> bool:
    ids = [row_id for row_id, _ in found.values()]
    return None not in ids and len(set(ids)) == len(ids)


# -- ids ---------------------------------------------------------------------------------


def test_tables_are_of_version_2_unless_version_3_is_asked_for(place: Place) -> None:
    with place.connect() as lake:
        lake.create_table("two", SCHEMA)
        lake.create_table("three", SCHEMA, properties={"format-version": "3"})
        assert metadata(place, "two")[1]["format-version"] == 2
        assert "next-row-id" not in metadata(place, "two")[1]
        document = metadata(place, "three")[1]
        assert (document["format-version"], document["next-row-id"]) == (3, 0)
        assert "format-version" not in lake.table("three").properties


def test_rows_keep_their_ids_while_manifests_are_merged_and_files_removed(
    lake: lv.Lake, place: Place
) -> None:
    known = row_ids(lake, "t")
    for k in range(3, 20, 2):
        append(lake, k, k + 1)
        if k % 6 == 3:
            with lake.transaction() as txn:
                txn.delete("t", where=f"k IN ({k}, {k + 1})")
        found = row_ids(lake, "t")
        assert unique(found)
        assert all(known.setdefault(key, ids) == ids for key, ids in found.items())
        mark = metadata(place)[1]["next-row-id"]
        assert all(row_id is not None and row_id < mark for row_id, _ in found.values())
    with place.connect() as other:
        assert row_ids(other, "t") == found


def test_a_transaction_on_several_tables_and_one_by_log_entry_give_out_ids(place: Place) -> None:
    with place.connect() as lake:
        for name in ("a", "b"):
            lake.create_table(name, SCHEMA, properties=V3)
        with lake.transaction() as txn:
            txn.append("a", [{"k": 1}])
            txn.append("a", [{"k": 2}])
            txn.append("b", [{"k": 1}])
        with lake.transaction(lv.Feature.R) as txn:
            txn.append("a", [{"k": 3}])
        for name in ("a", "b"):
            assert unique(row_ids(lake, name))


def test_clients_that_append_at_once_give_no_id_twice(place: Place, lake: lv.Lake) -> None:
    lakes = [place.connect() for _ in range(3)]
    for n in range(4):
        open_ = [one.transaction().__enter__() for one in lakes]
        for number, txn in enumerate(open_):
            txn.append("t", [{"k": 100 + 10 * n + number}])
        for txn in open_:
            txn.commit()
    assert len(row_ids(lake, "t")) == 14
    assert unique(row_ids(lake, "t"))
    for one in lakes:
        one.close()


def test_files_that_are_added_again_keep_their_ids(lake: lv.Lake) -> None:
    before = row_ids(lake, "t")
    append(lake, 3)
    version = lake.history()[0].version
    with lake.transaction() as txn:
        txn.overwrite("t", [{"k": 9}])
    lake.rollback(version)
    after = row_ids(lake, "t")
    assert {k: after[k][0] for k in before} == {k: row_id for k, (row_id, _) in before.items()}
    append(lake, 4)
    assert unique(row_ids(lake, "t"))


def test_a_branch_gives_no_ids_and_its_merge_gives_fresh_ones(lake: lv.Lake) -> None:
    lake.branch("night")
    with lake.on("night") as night:
        append(night, 10, 11)
    append(lake, 3)
    before = row_ids(lake, "t")
    lake.merge("night")
    after = row_ids(lake, "t")
    assert {k: ids for k, ids in after.items() if k < 10} == before
    assert unique(after)


def test_a_clone_that_becomes_a_table_has_the_ids_of_its_source(lake: lv.Lake) -> None:
    append(lake, 3)
    before = row_ids(lake, "t")
    lake.clone("t", "copy")
    append(lake, 4, table="copy")
    found = row_ids(lake, "copy")
    assert {k: found[k][0] for k in before} == {k: row_id for k, (row_id, _) in before.items()}
    assert unique(found)
    append(lake, 5, table="copy")
    assert unique(row_ids(lake, "copy"))
    assert row_ids(lake, "t") == before


def test_a_clone_whose_first_write_writes_rows_again_gives_out_no_id_twice(lake: lv.Lake) -> None:
    append(lake, 3, 4)
    lake.run(lambda txn: txn.delete("t", where="k < 3"))
    before = row_ids(lake, "t")
    lake.clone("t", "copy")
    lake.run(lambda txn: txn.update("copy", {"v": "'new'"}, where="k = 3"))
    append(lake, 10, 11, 12, table="copy")
    found = row_ids(lake, "copy")
    assert {k: found[k][0] for k in before} == {k: row_id for k, (row_id, _) in before.items()}
    assert unique(found)
    assert found[4][1] <= found[3][1] < found[10][1]
    assert lake.verify().ok


@pytest.mark.parametrize("copy", [False, True])
def test_an_export_has_the_ids_of_its_source_and_no_change_of_rows_lies_in_its_future(
    lake: lv.Lake, place: Place, copy: bool
) -> None:
    append(lake, 3)
    append(lake, 4)
    before = row_ids(lake, "t")
    target = f"{place.root}-elsewhere/u"
    lake.export("t", target, copy=copy)
    with lv.connect(f"{place.root}-elsewhere", files_outside=[str(place.root)]) as other:
        found = row_ids(other, "u")
        assert {k: row_id for k, (row_id, _) in found.items()} == {
            k: row_id for k, (row_id, _) in before.items()
        }
        assert min(since or 0 for _, since in found.values()) >= max(
            since or 0 for _, since in before.values()
        )
        append(other, 5, table="u")
        assert unique(row_ids(other, "u"))


def test_rows_keep_their_ids_when_they_are_written_again(lake: lv.Lake) -> None:
    append(lake, *range(3, 9))
    before = row_ids(lake, "t")
    changes: list[tuple[set[int], Callable[[lv.Transaction[Any]], object]]] = [
        ({1}, lambda txn: txn.update("t", {"v": "'x'"}, where="k = 1")),
        (set(), lambda txn: txn.delete("t", where="k = 3")),
        ({1, 4}, lambda txn: txn.upsert("t", [{"k": k, "v": "y"} for k in (1, 4, 100)], "k")),
        (set(), lambda txn: txn.overwrite("t", [{"k": 5, "v": "x"}], where="k = 5")),
    ]
    for changed, change in changes:
        lake.run(change)
        after = row_ids(lake, "t")
        assert unique(after)
        both = (before.keys() & after.keys()) - {5}
        assert {k: after[k][0] for k in both} == {k: before[k][0] for k in both}
        assert {k for k in both if after[k][1] != before[k][1]} == changed
        before = after
    lake.table("t").optimize()
    assert row_ids(lake, "t") == before
    assert lake.verify().ok


# -- upgrades ------------------------------------------------------------------------------


def test_an_upgrade_changes_metadata_alone_and_the_next_snapshot_gives_ids(place: Place) -> None:
    with place.connect() as lake:
        lake.create_table("t", SCHEMA, properties=MERGED)
        append(lake, 1, 2)
        append(lake, 3)
        assert {file["base_row_id"] for file in files_of(lake, "t")} == {None}
        snapshots = metadata(place)[1]["snapshots"]
        lake.run(lambda txn: txn.alter("t", set_properties={"format-version": "3"}))
        document = metadata(place)[1]
        assert (document["format-version"], document["next-row-id"]) == (3, 0)
        assert document["snapshots"] == snapshots
        assert {file["base_row_id"] for file in files_of(lake, "t")} == {None}
        append(lake, 4)  # by the client that has read these manifests when they had no ids
        found = row_ids(lake, "t")
        assert unique(found)
        with place.connect() as other:
            assert row_ids(other, "t") == found
        for k in range(5, 9):
            append(lake, k)
        assert {k: ids for k, ids in row_ids(lake, "t").items() if k < 5} == found


def test_an_append_that_meets_an_upgrade_is_published_after_it(place: Place) -> None:
    with place.connect() as lake, place.connect() as other:
        lake.create_table("t", SCHEMA)
        append(lake, 1)
        with lake.transaction() as txn:
            txn.append("t", [{"k": 2}])
            other.run(lambda own: own.alter("t", set_properties={"format-version": "3"}))
        assert unique(row_ids(lake, "t"))
        assert sorted(row_ids(lake, "t")) == [1, 2]


@pytest.mark.parametrize("wanted", ["1", "2", "4", "three"])
def test_a_table_is_not_set_back_and_not_upgraded_beyond_what_is_known(
    lake: lv.Lake, wanted: str
) -> None:
    with pytest.raises(lv.InvalidOperation, match="never back"):
        lake.run(lambda txn: txn.alter("t", set_properties={"format-version": wanted}))


#: Fields that version 1 lacks.
OF_VERSION_1 = ("content", "sequence_number", "file_sequence_number", "min_sequence_number")
ONE_ROW = pa.table(
    [[1]], schema=pa.schema([pa.field("k", pa.int64(), metadata={"PARQUET:field_id": "1"})])
)


def of_version_1(place: Place, **given: Any) -> Table:
    fields = [{"id": 1, "name": "k", "required": False, "type": "long"}]
    directory = Path(place.uri("t"))
    return Table(directory, fields, version=1, without=OF_VERSION_1, **given)


@pytest.mark.parametrize("steps", [("2", "3"), ("3",), ("2",)])
def test_a_table_of_version_1_is_upgraded(place: Place, steps: tuple[str, ...]) -> None:
    table = of_version_1(place).add(File("a.parquet", ONE_ROW))
    table.write(change=lambda d: d.update({"schema": d["schemas"][0], "partition-spec": []}))
    with place.connect() as lake:
        assert lake.read("t").num_rows == 1
        with pytest.raises(lv.UnsupportedTableFeature, match="set_properties"):
            append_k(lake, 2)
        for version in steps:
            lake.run(lambda txn, v=version: txn.alter("t", set_properties={"format-version": v}))
            append_k(lake, 10 + int(version))
        document = metadata(place)[1]
        assert not {"schema", "partition-spec"} & document.keys()
        assert lake.read("t").num_rows == 1 + len(steps)
        assert unique(row_ids(lake, "t")) == (steps[-1] == "3")


def append_k(lake: lv.Lake, k: int) -> None:
    lake.run(lambda txn: txn.append("t", [{"k": k}]))


def test_a_snapshot_that_keeps_manifests_in_the_metadata_file_is_no_part_of_an_upgrade(
    place: Place,
) -> None:
    def inline(document: dict[str, Any]) -> None:
        old = {"snapshot-id": 5, "timestamp-ms": 1, "manifests": [], "summary": {}}
        document["snapshots"].insert(0, old)

    of_version_1(place).add(File("a.parquet", ONE_ROW)).write(change=inline)
    with place.connect() as lake:
        assert lake.read("t").num_rows == 1
        with pytest.raises(lv.UnsupportedTableFeature, match=r"snapshot 5 .* expire it"):
            lake.run(lambda txn: txn.alter("t", set_properties={"format-version": "2"}))


# -- damage ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mark", [None, -1, "7", True])
def test_metadata_without_a_mark_is_refused(lake: lv.Lake, place: Place, mark: object) -> None:
    edit(place, lambda d: d.pop("next-row-id") if mark is None else d.update({"next-row-id": mark}))
    with place.connect() as other:
        with pytest.raises(lv.CorruptObject, match="next-row-id"):
            other.read("t")


def test_a_mark_below_ids_that_rows_have_is_refused_before_ids_are_given_twice(
    lake: lv.Lake, place: Place
) -> None:
    append(lake, 3)
    edit(place, lambda d: d.update({"next-row-id": 1}))
    with place.connect() as other:
        assert other.read("t").num_rows == 3
        with pytest.raises(lv.CorruptObject, match="the table's next-row-id is 1"):
            with other.transaction(lv.Feature.R) as txn:
                txn.append("t", [{"k": 4}])
        report = other.verify()
        assert any("the table's mark is 0" in one.message for one in report.findings), report


# -- defaults --------------------------------------------------------------------------------

DEFAULTS: dict[str, Any] = {
    "b": 7,
    "d": Decimal("1.5"),
    "x": 0.5,
    "day": datetime.date(2024, 1, 2),
    "at": datetime.time(1, 2, 3),
    "ts": datetime.datetime(2024, 1, 2, 3, 4, 5, 6),
    "tz": datetime.datetime(2024, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
    "tx": "it's",
    "bi": b"\x00\xff",
    "bo": False,
}
ADDED = pa.schema(
    [
        pa.field("b", pa.int32(), nullable=False),
        ("d", pa.decimal128(6, 2)),
        ("x", pa.float64()),
        ("day", pa.date32()),
        ("at", pa.time64("us")),
        ("ts", pa.timestamp("us")),
        ("tz", pa.timestamp("us", "UTC")),
        ("tx", pa.string()),
        ("bi", pa.binary()),
        ("bo", pa.bool_()),
    ]
)


def test_rows_that_lack_a_column_have_its_default(lake: lv.Lake, place: Place) -> None:
    lake.run(lambda txn: txn.alter("t", add_columns=ADDED, defaults=DEFAULTS))
    append(lake, 3)
    lake.run(lambda txn: txn.sql("INSERT INTO t (k) VALUES (4)"))
    lake.run(
        lambda txn: txn.sql(
            "MERGE INTO t USING (SELECT 5 AS k) s ON t.k = s.k "
            "WHEN NOT MATCHED THEN INSERT (k) VALUES (s.k)"
        )
    )
    lake.run(lambda txn: txn.upsert("t", [{"k": 6, "tx": None}], "k"))
    with place.connect() as other:
        for row in other.read("t").to_pylist():
            assert {name: row[name] for name in DEFAULTS} == {
                **DEFAULTS,
                "tx": None if row["k"] == 6 else "it's",
            }
        assert other.read("t", where="b = 7 AND day = DATE '2024-01-02'").num_rows == 6
        field = other.table("t").schema.field("b")
        assert field.metadata == {b"initial-default": b"7", b"write-default": b"7"}


def test_a_default_for_new_rows_may_be_changed_and_removed(lake: lv.Lake) -> None:
    added = pa.schema([pa.field("b", pa.int32()), pa.field("c", pa.int32())])
    lake.run(lambda txn: txn.alter("t", add_columns=added, defaults={"b": 1}))
    lake.run(lambda txn: txn.alter("t", set_defaults={"b": 2, "c": 3}))
    append(lake, 3)
    lake.run(lambda txn: txn.alter("t", set_defaults={"b": None}))
    append(lake, 4)
    rows = {row["k"]: (row["b"], row["c"]) for row in lake.read("t").to_pylist()}
    assert rows == {1: (1, None), 2: (1, None), 3: (2, 3), 4: (None, 3)}


INNER = pa.struct([("a", pa.int32())])
NESTED = pa.schema(
    [("k", pa.int64()), ("s", INNER), ("l", pa.list_(INNER)), ("m", pa.map_(pa.string(), INNER))]
)


def test_fields_within_columns_have_defaults(place: Place) -> None:
    def of_fields(document: dict[str, Any]) -> None:
        """Add a field with a default to each struct, as a client that knows nested paths does."""
        fields = document["schemas"][-1]["fields"]
        new = {"name": "c", "required": False, "type": "string", "initial-default": "old"}
        structs = [fields[1]["type"], fields[2]["type"]["element"], fields[3]["type"]["value"]]
        for number, struct in enumerate(structs, 50):
            struct["fields"].append({**new, "id": number, "write-default": "new"})
        inner = [{"id": 61, "name": "q", "required": False, "type": "int", "initial-default": 6}]
        struct = {"type": "struct", "fields": inner}
        given = {"initial-default": {}, "write-default": {}, "required": False}
        fields.append({"id": 60, "name": "z", "type": struct, **given})
        document["last-column-id"] = 61

    rows = [
        {"k": 1, "s": {"a": 1}, "l": [{"a": 1}, None], "m": {"x": {"a": 1}}},
        {"k": 2, "s": None, "l": [], "m": None},
    ]
    with place.connect() as lake:
        lake.create_table("t", NESTED, properties=V3)
        lake.run(lambda txn: txn.append("t", rows))
    edit(place, of_fields)
    with place.connect() as lake:
        old = {"a": 1, "c": "old"}
        assert sorted(lake.read("t").to_pylist(), key=lambda row: row["k"]) == [
            {"k": 1, "s": old, "l": [old, None], "m": [("x", old)], "z": {"q": 6}},
            {"k": 2, "s": None, "l": [], "m": None, "z": {"q": 6}},
        ]
        assert lake.read("t", where="s.c = 'old'")["k"].to_pylist() == [1]
        lake.run(lambda txn: txn.append("t", [{**rows[0], "k": 3}]))
        (row,) = lake.read("t", where="k = 3").to_pylist()
        new = {"a": 1, "c": "new"}
        assert row == {"k": 3, "s": new, "l": [new, None], "m": [("x", new)], "z": {"q": None}}


@pytest.mark.parametrize(
    ("given", "match"),
    [
        ({"defaults": {"v": "x"}}, "those of columns that add_columns adds"),
        ({"set_defaults": {"v": [1]}}, "must be a constant"),
        ({"set_defaults": {"v": 1}}, "has type string and the data int64"),
        ({"set_defaults": {"k": 1.5}}, "the value 1.5 cannot be"),
        ({"set_defaults": {"k": {}}}, "can't have a default"),
        ({"set_defaults": {"no": 1}}, "no column 'no'"),
        ({"set_defaults": "v"}, "must be a mapping"),
    ],
)
def test_a_default_that_does_not_fit_is_refused(
    lake: lv.Lake, given: dict[str, Any], match: str
) -> None:
    with pytest.raises(lv.InvalidOperation, match=match):
        lake.run(lambda txn: txn.alter("t", **given))


def test_defaults_are_refused_where_the_format_has_none(place: Place) -> None:
    with place.connect() as lake:
        lake.create_table("two", SCHEMA)
        lake.create_table("delta", SCHEMA, format="delta")
        with pytest.raises(lv.InvalidOperation, match="upgrade it"):
            lake.run(lambda txn: txn.alter("two", set_defaults={"v": "x"}))
        with pytest.raises(lv.InvalidOperation, match="is a Delta table"):
            lake.run(lambda txn: txn.alter("delta", set_defaults={"v": "x"}))


# -- types -----------------------------------------------------------------------------------


def test_a_column_of_type_unknown_is_null_in_no_file_and_may_get_any_type(
    lake: lv.Lake, place: Place
) -> None:
    def with_unknown(document: dict[str, Any]) -> None:
        new = {"id": 9, "name": "u", "required": False, "type": "unknown"}
        document["schemas"][-1]["fields"].append(new)
        document["last-column-id"] = 9

    edit(place, with_unknown)
    with place.connect() as other:
        assert other.read("t")["u"].to_pylist() == [None, None]
        append(other, 3)
        other.run(lambda txn: txn.append("t", [{"k": 4, "u": None}]))
        for path in Path(place.uri("t")).rglob("*.parquet"):
            assert pq.read_schema(path).names == ["k", "v"]
        other.run(lambda txn: txn.alter("t", change_types={"u": "bigint"}))
        other.run(lambda txn: txn.append("t", [{"k": 5, "u": 5}]))
        found = {row["k"]: row["u"] for row in other.read("t").to_pylist()}
    assert found == {1: None, 2: None, 3: None, 4: None, 5: 5}


def test_times_in_utc_with_nanoseconds_are_read_to_the_microsecond(place: Place) -> None:
    fields = [{"id": 1, "name": "t", "required": False, "type": "timestamptz_ns"}]
    kind = pa.timestamp("ns", "UTC")
    field = pa.field("t", kind, metadata={"PARQUET:field_id": "1"})
    rows = pa.table([pa.array([1_700_000_000_123_456_789, None], kind)], schema=pa.schema([field]))
    Table(Path(place.uri("t")), fields, version=3).add(File("a.parquet", rows)).write()
    with place.connect() as lake:
        found = lake.read("t")["t"]
        assert found.type == pa.timestamp("us", "UTC")
        assert found.cast(pa.int64()).to_pylist() == [1_700_000_000_123_456, None]
        with pytest.raises(lv.UnsupportedTableFeature, match="timestamptz_ns"):
            lake.run(lambda txn: txn.append("t", [{"t": None}]))


def with_stored_ids(place: Place, ids: list[int], base: int) -> None:
    """Write a table with one file, whose rows have these ids, or by the log those from ``base``."""
    fields = [{"id": 1, "name": "k", "required": False, "type": "long"}]
    named = {"k": b"1", "_row_id": b"2147483540"}
    schema = pa.schema(
        [pa.field(n, pa.int64(), metadata={b"PARQUET:field_id": i}) for n, i in named.items()]
    )
    rows = pa.table([list(range(len(ids))), ids], schema=schema)
    table = Table(Path(place.uri("t")), fields, version=3, extra={"next-row-id": base + len(ids)})
    table.add(File("a.parquet", rows), first_row_id=base).write()


@pytest.mark.parametrize(("ids", "ok"), [([4, 9], True), ([4, 10], False), ([4, 99], False)])
def test_verify_reports_ids_in_a_file_that_new_rows_may_get(
    place: Place, ids: list[int], ok: bool
) -> None:
    with_stored_ids(place, ids, 10)
    with place.connect() as lake:
        assert lake.read("t").column_names == ["k"]
        assert row_ids(lake, "t") == {0: (ids[0], 1), 1: (ids[1], 1)}
        lake.run(lambda txn: txn.alter("t", set_comments={"k": "in the lake"}))
        report = lake.verify()
        assert any("holds row ids up to" in one.message for one in report.findings) != ok


def test_verify_reports_files_that_share_ids(place: Place) -> None:
    fields = [{"id": 1, "name": "k", "required": False, "type": "long"}]
    table = Table(Path(place.uri("t")), fields, version=3)
    for number in range(2):
        table.add(File(f"{number}.parquet", ONE_ROW), first_row_id=7)
    table.write()
    with place.connect() as lake:
        lake.run(lambda txn: txn.alter("t", set_comments={"k": "in the lake"}))
        assert lake.read("t").num_rows == 2
        report = lake.verify()
    assert any("have the same ids, from 7 on" in one.message for one in report.findings), report
