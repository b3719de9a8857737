"""Results of ``Table.optimize``: files, rows, statistics, and reads by other clients."""

from __future__ import annotations

import json
import pickle
import struct
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake

import lakevilla as lv
from lakevilla.engines.zorder import boundaries, z_values
from tests.support.inside import executor, inside
from tests.support.places import Place, make_place
from tests.support.tables import accounts, in_order


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Place:
    return make_place("local", request)


def actions(place: Place, table: str, version: int) -> list[dict[str, Any]]:
    path = Path(place.root) / table / "_delta_log" / f"{version:020}.json"
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_optimize_logs_that_no_row_has_changed_and_a_second_one_writes_nothing(
    place: Place,
) -> None:
    with place.connect() as lake:
        lake.create_table("t", accounts(2))
        for _ in range(3):
            with lake.transaction() as txn:
                txn.append("t", accounts(2))
        done = lake.table("t").optimize()
        assert done.version is not None
        lines = actions(place, "t", done.version)
        moved = [line.get("add") or line.get("remove") for line in lines]
        moved = [line for line in moved if line]
        assert len(moved) == 5
        assert not any(line["dataChange"] for line in moved)
        info = lines[0]["commitInfo"]
        assert info["operation"] == "OPTIMIZE"
        assert not info["isBlindAppend"]
        metrics = info["operationMetrics"]
        assert (metrics["numFilesAdded"], metrics["numFilesRemoved"]) == ("1", "4")
        assert json.loads(metrics["filesRemoved"])["totalFiles"] == 4
        (added,) = [line["add"] for line in lines if "add" in line]
        stats = json.loads(added["stats"])
        assert stats["numRecords"] == 8
        assert (stats["minValues"]["id"], stats["maxValues"]["id"]) == (0, 1)
        assert place.delta("t").history(1)[0]["operation"] == "OPTIMIZE"
        # Nothing is left to do, so nothing is written.
        before = place.delta("t").version()
        assert lake.table("t").optimize() == lv.OptimizeResult()
        assert place.delta("t").version() == before


def test_optimize_never_mixes_partitions_and_can_choose_some_by_a_predicate(place: Place) -> None:
    with place.connect() as lake:
        schema = pa.schema([("id", pa.int64()), ("day", pa.date32()), ("p", pa.string())])
        lake.create_table("t", schema, partition_by=["day", "p"])
        days = [f"2024-01-0{day}" for day in (1, 2, 3)]
        for number in range(4):
            rows = pa.table(
                {"id": [number] * 4, "day": [*days, None], "p": ["x", "y/z", None, "x"]}
            )
            with lake.transaction() as txn:
                txn.append("t", rows.cast(schema))
        table = lake.table("t")
        done = table.optimize("day < '2024-01-03' AND P <> 'x'")
        assert (done.files_considered, done.files_removed, done.files_added) == (4, 4, 1)
        done = table.optimize()
        assert (done.partitions, done.files_removed, done.files_added) == (3, 12, 3)
        assert len(place.delta("t").file_uris()) == 4
        rows = place.delta("t").to_pyarrow_table()
        assert rows.group_by("day").aggregate([("id", "sum")])["id_sum"].to_pylist() == [6] * 4


@pytest.mark.parametrize(
    ("by", "where"),
    [
        ("c", "c = 'abc'"),
        ("day(ts)", "ts >= timestamp '2024-01-02'"),
        ("bucket(16, id)", "ID = 1"),
        ("truncate(1, c)", "c like 'a%'"),
    ],
)
def test_optimize_chooses_iceberg_partitions_by_predicates_on_the_source_columns(
    place: Place, by: str, where: str
) -> None:
    days = [datetime(2024, 1, 1, 5, tzinfo=UTC), datetime(2024, 1, 2, 5, tzinfo=UTC)]
    rows = pa.table({"ts": days, "id": [1, 2], "c": ["abc", "xyz"], "n": [0, 0]})
    with place.connect() as lake:
        lake.create_table("t", rows, format="iceberg", partition_by=by)
        lake.run(lambda txn: txn.append("t", rows))
        done = lake.table("t").optimize(where)
        assert (done.partitions, done.files_removed, done.files_added) == (1, 2, 1)
        assert in_order(lake.read("t")) == in_order(pa.concat_tables([rows, rows]))
        with pytest.raises(lv.InvalidOperation, match=r"n is not a partition column.* choose by"):
            lake.table("t").optimize(f"{where} and n = 0")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"where": "id = 3"}, "column id is not a partition column"),
        ({"where": ""}, "a predicate is required"),
        ({"z_order_by": "p"}, "partition column"),
        ({"z_order_by": ["id", "ID"]}, "named twice"),
        ({"z_order_by": ["missing"]}, "there is no column missing"),
        ({"z_order_by": ["tags"]}, "has no order"),
        ({"target_file_size_bytes": 0}, "more than 0"),
        ({"target_file_size_bytes": 1.5}, "whole number"),
    ],
)
def test_invalid_arguments_of_optimize_are_refused_before_anything_is_written(
    place: Place, wrong: dict[str, Any], message: str
) -> None:
    with place.connect() as lake:
        schema = pa.schema(
            [("id", pa.int64()), ("p", pa.string()), ("tags", pa.list_(pa.string()))]
        )
        lake.create_table("t", schema, partition_by="p")
        before = place.delta("t").version()
        with pytest.raises(lv.InvalidOperation, match=message):
            lake.table("t").optimize(**wrong)
        assert place.delta("t").version() == before


def test_optimize_merges_small_files_up_to_the_target_size_and_keeps_large_ones(
    place: Place,
) -> None:
    with place.connect() as lake:
        schema = pa.schema([("id", pa.int64()), ("text", pa.string())])
        lake.create_table("t", schema)
        for number in range(6):
            texts = [f"{number}-{i * 7919 % 10007}" for i in range(2000)]
            with lake.transaction() as txn:
                txn.append("t", pa.table({"id": range(2000), "text": texts}, schema=schema))
        size = place.delta("t").get_add_actions()["size_bytes"][0].as_py()
        done = lake.table("t").optimize(target_file_size_bytes=int(size * 2.5))
        assert (done.files_removed, done.files_added) == (6, 3)
        done = lake.table("t").optimize(target_file_size_bytes=int(size * 1.1))
        assert done.files_removed == 0
        with lake.transaction() as txn:
            txn.alter("t", set_properties={"delta.targetFileSize": str(size * 100)})
        assert lake.table("t").optimize().files_added == 1
        assert place.delta("t").to_pyarrow_table().num_rows == 12_000


def test_a_z_order_lets_predicates_on_either_column_skip_more_files(place: Place) -> None:
    side = 160
    pairs = [(i * 7919 % side, i // side) for i in range(side * side)]
    rows = pa.table({"x": [x for x, _ in pairs], "y": [f"{y:04}" for _, y in pairs]})
    settings = lv.Settings(in_memory_file_limit_bytes=0)
    with place.connect(settings=settings) as lake:
        lake.create_table("t", rows.schema)
        for start in range(0, rows.num_rows, 3200):
            with lake.transaction() as txn:
                txn.append("t", rows.slice(start, 3200))

        def hit(where: str) -> int:
            with lake.transaction(read_only=True) as txn:
                view = executor(txn).look("t")
                predicate = executor(txn).optional_predicate(where, None)
                return int(inside(lake).run(view.snapshot.files(predicate)).num_rows)

        total = sum(place.delta("t").get_add_actions()["size_bytes"].to_pylist())
        done = lake.table("t").optimize(z_order_by=["x", "y"], target_file_size_bytes=total // 16)
        assert done.files_added >= 8
        count = done.files_added
        assert hit("x BETWEEN 10 AND 12") <= count * 0.6
        assert hit("y BETWEEN '0100' AND '0103'") <= count * 0.6
        assert place.delta("t").to_pyarrow_table().sort_by("x").sort_by("y").num_rows == side**2
        assert lake.snapshot().sql("SELECT count(DISTINCT x || '/' || y) AS n FROM t")[
            "n"
        ].to_pylist() == [side**2]


def test_z_order_values_grow_with_both_columns_and_null_comes_first() -> None:
    rows = pa.table(
        {
            "a": pa.array([None, *range(8)] * 9, pa.int64()),
            "b": pa.array([text for text in "?abcdefgh" for _ in range(9)]),
        }
    )
    cuts = boundaries(rows)
    places = z_values(rows, cuts).to_pylist()
    at = dict(zip(zip(*rows.to_pydict().values(), strict=True), places, strict=True))
    assert len(set(places)) == 81
    assert at[None, "?"] == min(places)
    assert at[7, "h"] == max(places)
    # Each quarter of the plane is contiguous on the curve.
    low = [at[a, b] for a in (None, 0, 1, 2) for b in "?abc"]
    high = [at[a, b] for a in (4, 5, 6, 7) for b in "efgh"]
    assert max(low) < min(high)


def test_optimize_applies_deletion_vectors_to_files_of_any_size(place: Place) -> None:
    uri = place.uri("t")
    write_deltalake(uri, pa.table({"id": range(100)}))
    with place.connect() as lake:
        lake.register("t")
        add_vector(place, "t", [3, 50])
        with place.connect() as fresh:
            assert fresh.snapshot().read("t").num_rows == 98
            done = fresh.table("t").optimize(target_file_size_bytes=1)
            assert (done.files_removed, done.files_added) == (1, 1)
            assert fresh.snapshot().read("t").num_rows == 98
            files = inside(fresh).run(look(fresh, "t"))
            assert files["dv_id"].to_pylist() == [None]
            assert fresh.table("t").optimize(target_file_size_bytes=1).files_removed == 0


def look(lake: lv.Lake, table: str) -> Any:
    with lake.transaction(read_only=True) as txn:
        return executor(txn).look(table).snapshot.files()


def add_vector(place: Place, table: str, rows: list[int]) -> None:
    """Delete rows of the only file by an inline deletion vector."""
    # A portable roaring bitmap: one key, one array container.
    inner = struct.pack("<II", 12346, 1) + struct.pack("<HH", 0, len(rows) - 1)
    inner += struct.pack("<I", 16) + b"".join(struct.pack("<H", row) for row in rows)
    data = struct.pack("<I", 1681511377) + struct.pack("<Q", 1) + struct.pack("<I", 0) + inner
    padded = data + b"\0" * (-len(data) % 4)
    alphabet = (
        "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ.-:+=^!/*?&<>()[]{}@%$#"
    )
    text = ""
    for start in range(0, len(padded), 4):
        value = int.from_bytes(padded[start : start + 4], "big")
        digits = []
        for _ in range(5):
            value, digit = divmod(value, 85)
            digits.append(alphabet[digit])
        text += "".join(reversed(digits))
    delta = DeltaTable(place.uri(table))
    log = Path(place.root) / table / "_delta_log"
    lines = [
        json.loads(line)
        for path in sorted(log.glob("*.json"))
        for line in path.read_text().splitlines()
    ]
    (add,) = [line["add"] for line in lines if "add" in line]
    gone = {"path": add["path"], "dataChange": True, "deletionTimestamp": 1, "partitionValues": {}}
    vector = {
        "storageType": "i",
        "pathOrInlineDv": text,
        "sizeInBytes": len(data),
        "cardinality": len(rows),
    }
    features = {
        "minReaderVersion": 3,
        "minWriterVersion": 7,
        "readerFeatures": ["deletionVectors"],
        "writerFeatures": ["deletionVectors"],
    }
    entry = [
        {"commitInfo": {"operation": "DELETE", "timestamp": 2}},
        {"protocol": features},
        {"remove": {**gone, "size": add["size"]}},
        {"add": {**add, "deletionVector": vector, "dataChange": True}},
    ]
    body = "\n".join(json.dumps(line) for line in entry)
    (log / f"{delta.version() + 1:020}.json").write_text(body)


@pytest.mark.parametrize("z_order_by", [(), ("id",)])
def test_optimize_streams_more_rows_than_fit_into_memory(
    place: Place, z_order_by: tuple[str]
) -> None:
    settings = lv.Settings(in_memory_file_limit_bytes=64 * 1024)
    with place.connect(settings=settings) as lake:
        schema = pa.schema([("id", pa.int64()), ("p", pa.int64()), ("text", pa.string())])
        lake.create_table("t", schema, partition_by="p")
        for number in range(4):
            ids = list(range(number, 40_000, 4))
            texts = [f"text number {i}" for i in ids]
            rows = pa.table({"id": ids, "p": [i % 8 // 4 for i in ids], "text": texts})
            with lake.transaction() as txn:
                txn.append("t", rows)
        done = lake.table("t").optimize(z_order_by=z_order_by)
        assert (done.files_removed, done.files_added) == (8, 2)
        rows = place.delta("t").to_pyarrow_table()
        assert sorted(rows["id"].to_pylist()) == list(range(40_000))
        assert set(rows.select(["id", "p"]).slice(0, 9)["p"].to_pylist()) <= {0, 1}
        if z_order_by:
            for path in (Path(place.root) / "t").rglob(f"lv-*{done_file(place, done.version)}*"):
                ids = duckdb.sql(f"SELECT id FROM '{path}'").fetchall()
                assert ids == sorted(ids)


def done_file(place: Place, version: int | None) -> str:
    assert version is not None
    info = actions(place, "t", version)[0]["commitInfo"]
    return str(info["txnId"])


def test_optimize_adds_nothing_to_a_change_data_feed(place: Place) -> None:
    with place.connect() as lake:
        feed = {"delta.enableChangeDataFeed": "true"}
        lake.create_table("t", accounts(2), properties=feed)
        with lake.transaction() as txn:
            txn.append("t", accounts(2))
        done = lake.table("t").optimize()
        assert done.files_removed == 2
        told = place.delta("t").load_cdf(starting_version=done.version).read_all()
        assert told.num_rows == 0


def test_optimize_moves_rows_that_break_a_constraint_added_later(place: Place) -> None:
    """Moving existing rows does not check constraints."""
    with place.connect() as lake:
        lake.create_table("t", accounts(2))
        with lake.transaction() as txn:
            txn.append("t", accounts(2))
            txn.alter("t", add_constraints={"positive": "balance > 0"})
        assert lake.table("t").optimize().files_removed == 2


def test_a_table_object_can_be_printed_compared_and_pickled(place: Place) -> None:
    with place.connect() as lake:
        lake.create_table("t", accounts(2))
        table = lake.table("t")
        assert "_lake" not in repr(table)
        assert table == place.connect().table("t")
        with lake.transaction() as txn:
            txn.append("t", accounts(2))
        travelled = pickle.loads(pickle.dumps(table))
        assert travelled == table
        assert travelled.optimize().files_removed == 2


def test_an_optimize_costs_four_puts_and_one_get(place: Place) -> None:
    with place.connect() as lake:
        lake.create_table("t", accounts(2))
        lake.guard("t")
        for _ in range(3):
            with lake.transaction() as txn:
                txn.append("t", accounts(2))
        table = lake.table("t")
        with inside(lake).requests.counting() as requests:
            assert table.optimize().files_removed == 4
        # The new file, the commit object, HEAD, the entry; HEAD is read once.
        assert (requests.put, requests.get, requests.list) == (4, 1, 0)
