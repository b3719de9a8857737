"""Engines read the Delta tables of a lake through the gateway, as tables of Iceberg."""

from __future__ import annotations

import datetime
import json
import os
import random
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

import lakevilla as lv
from lakevilla.clock import SystemClock
from lakevilla.serve.delta import footers
from lakevilla_testing.planted.every import PLANTED
from tests.contract.foreign_readers import HAS_EXTENSIONS
from tests.contract.serve.gateway import Gateway, serving
from tests.support.inside import inside
from tests.support.tables import accounts, in_order

Made = Callable[[lv.Lake], object]
TABLE = "/namespaces/root/tables/t"


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[lv.Lake]:
    with lv.connect(tmp_path / "lake") as lake:
        yield lake


def create(lake: lv.Lake, rows: Any, *partition_by: str, **properties: str) -> None:
    named = {f"delta.{name}": value for name, value in properties.items()}
    lake.create_table("t", rows, format="delta", partition_by=partition_by, properties=named)


def change(lake: lv.Lake, work: Callable[[lv.Transaction], object]) -> None:
    lake.run(work)


def rows(table: pa.Table) -> list[dict[str, Any]]:
    """Return rows in order; as text, in which NaN equals itself."""
    return [{name: repr(value) for name, value in row.items()} for row in in_order(table)]


def of_duckdb(gateway: Gateway, warehouse: str = "lake", where: str = "true") -> pa.Table:
    return (
        gateway.duckdb(warehouse)
        .sql(f"SET TimeZone = 'UTC'; FROM l.root.t WHERE {where}")
        .to_arrow_table()
    )


def seen(gateway: Gateway, warehouse: str = "lake") -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of the table as each engine reads them."""
    yield rows(gateway.pyiceberg(warehouse).load_table("root.t").scan().to_arrow())
    if HAS_EXTENSIONS:
        yield rows(of_duckdb(gateway, warehouse))


def day(number: int) -> datetime.date:
    return datetime.date(2024, 1, 1) + datetime.timedelta(number)


def instant(number: int, zone: datetime.tzinfo | None = None) -> datetime.datetime:
    return datetime.datetime(2024, 1, 1, 1, 2, 3, 123_456, zone) + datetime.timedelta(number)


def all_types(count: int = 4) -> pa.Table:
    """Return rows with a column of each type of Delta, and NULL in each."""
    columns: dict[str, tuple[pa.DataType, Callable[[int], object]]] = {
        "byte": (pa.int8(), lambda n: n - 2),
        "short": (pa.int16(), lambda n: n * 300),
        "int": (pa.int32(), lambda n: -n),
        "long": (pa.int64(), lambda n: n << 40),
        "float": (pa.float32(), lambda n: n / 2),
        "double": (pa.float64(), lambda n: float("nan") if n == 1 else -0.0),
        "flag": (pa.bool_(), lambda n: n % 2 == 0),
        "text": (pa.string(), lambda n: "é" * (n * 40)),
        "bytes": (pa.binary(), lambda n: bytes([n, 255])),
        "day": (pa.date32(), day),
        "at": (pa.timestamp("us", "UTC"), lambda n: instant(n, datetime.UTC)),
        "local": (pa.timestamp("us"), instant),
        "money": (pa.decimal128(20, 2), lambda n: Decimal(n) / 4 - 1),
        "one": (pa.struct([("x", pa.int64()), ("y", pa.string())]), lambda n: {"x": n, "y": None}),
        "some": (pa.list_(pa.int64()), lambda n: [n, None]),
        "by": (pa.map_(pa.string(), pa.int32()), lambda n: [("k", n)]),
    }
    found = {
        name: pa.array([None if n == 0 else of(n) for n in range(count)], kind)
        for name, (kind, of) in columns.items()
    }
    return pa.table({"id": range(count), **found})


def plain(lake: lv.Lake) -> None:
    create(lake, all_types())
    change(lake, lambda txn: txn.append("t", all_types(2)))


def partitioned(lake: lv.Lake) -> None:
    names = ("byte", "long", "flag", "text", "day", "at", "local", "money")
    create(lake, all_types().select(["id", *names]), *names)


def partitioned_by_others(lake: lv.Lake) -> None:
    create(lake, pa.table({"p": ["a b", "c/d", None], "v": [1, 2, 3]}), "p")
    more = pa.table({"p": ["a b", "é%20", ""], "v": [4, 5, 6]})
    write_deltalake(f"{lake.root}/t", more, mode="append")


def partitioned_by_odd_names(lake: lv.Lake) -> None:
    """Names that Avro, in which manifests are, does not allow."""
    names = ("é", "_xE9", "a b", "1", "p-q", "日付")
    data = {name: [place, None, 7] for place, name in enumerate(names)}
    create(lake, pa.table({"id": range(3), **data}), *names, enableDeletionVectors="true")
    change(lake, lambda txn: txn.delete("t", "id = 2"))


def mapped_by_name(lake: lv.Lake) -> None:
    create(lake, accounts(3), **{"columnMapping.mode": "name"})
    change(lake, lambda txn: txn.alter("t", rename_columns={"balance": "money"}))
    change(lake, lambda txn: txn.append("t", [{"id": 7, "money": 70}]))


def mapped_by_id(lake: lv.Lake) -> None:
    within = pa.table({"one": [{"x": 1, "y": 2}, None], "p": ["a", "b"]})
    create(lake, within, "p", **{"columnMapping.mode": "id"})
    change(lake, lambda txn: txn.alter("t", rename_columns={"one.x": "z", "p": "q"}))


def mapped_later(lake: lv.Lake) -> None:
    create(lake, accounts(3))
    change(lake, lambda txn: txn.alter("t", set_properties={"delta.columnMapping.mode": "name"}))
    change(lake, lambda txn: txn.alter("t", rename_columns={"balance": "money"}))
    change(lake, lambda txn: txn.alter("t", add_columns={"balance": "long"}))
    change(lake, lambda txn: txn.append("t", [{"id": 7, "money": 70, "balance": 71}]))


def widened(lake: lv.Lake) -> None:
    old = {"a": pa.array([1, 2], pa.int32()), "b": pa.array([0.1, 2], pa.float32())}
    create(lake, pa.table(old), enableTypeWidening="true")
    change(lake, lambda txn: txn.alter("t", change_types={"a": "long", "b": "double"}))
    change(lake, lambda txn: txn.append("t", [{"a": 1 << 40, "b": 0.2}]))


def with_added_columns(lake: lv.Lake) -> None:
    create(lake, accounts(2))
    change(lake, lambda txn: txn.alter("t", add_columns={"one": "struct<x:int>", "note": "string"}))
    change(lake, lambda txn: txn.append("t", [{"id": 9, "one": {"x": 1}, "note": "new"}]))


def with_row_tracking(lake: lv.Lake) -> None:
    create(lake, accounts(3), enableRowTracking="true")
    change(lake, lambda txn: txn.update("t", {"balance": "1"}, where="id = 1"))


def mapped_with_row_tracking(lake: lv.Lake) -> None:
    create(lake, accounts(3), enableRowTracking="true", **{"columnMapping.mode": "name"})
    change(lake, lambda txn: txn.alter("t", rename_columns={"balance": "money"}))
    change(lake, lambda txn: txn.update("t", {"money": "1"}, where="id = 1"))


def of_another_client(lake: lv.Lake) -> None:
    write_deltalake(f"{lake.root}/t", all_types().drop_columns("by"))
    lake.register("t")


def of_a_clone(lake: lv.Lake) -> None:
    lake.create_table("source", accounts(100), properties={"delta.enableDeletionVectors": "true"})
    change(lake, lambda txn: txn.delete("source", "id = 3"))
    lake.clone("source", "t")
    change(lake, lambda txn: txn.append("t", accounts(2)))


def mapped_with_ids_of_elements(lake: lv.Lake) -> None:
    """As a client with delta.enableIcebergCompatV2 makes it."""
    names = {"l": ("element",), "m": ("key", "value")}
    types = {
        "l": {"type": "array", "elementType": "long", "containsNull": True},
        "m": {"type": "map", "keyType": "string", "valueType": "long", "valueContainsNull": True},
    }
    fields = [
        {
            "name": name,
            "type": types[name],
            "nullable": True,
            "metadata": {
                "delta.columnMapping.id": number,
                "delta.columnMapping.physicalName": f"col-{number}",
                "delta.columnMapping.nested.ids": {
                    f"col-{number}.{part}": 10 * number + place for place, part in enumerate(parts)
                },
            },
        }
        for number, (name, parts) in enumerate(names.items(), 1)
    ]
    metadata = {
        "id": "5fba94ed-9794-4965-ba6e-6ee3c0d22af9",
        "format": {"provider": "parquet", "options": {}},
        "schemaString": json.dumps({"type": "struct", "fields": fields}),
        "partitionColumns": [],
        "configuration": {
            "delta.columnMapping.mode": "name",
            "delta.columnMapping.maxColumnId": "21",
        },
    }
    protocol = {"minReaderVersion": 2, "minWriterVersion": 5}
    log = Path(lake.root, "t/_delta_log")
    log.mkdir(parents=True)
    actions = ({"protocol": protocol}, {"metaData": metadata})
    (log / f"{0:020}.json").write_text("\n".join(map(json.dumps, actions)))
    lake.register("t")
    data = {
        "l": [[1, None], []],
        "m": pa.array([[("k", 1)], None], pa.map_(pa.string(), pa.int64())),
    }
    change(lake, lambda txn: txn.append("t", pa.table(data)))


def without_rows(lake: lv.Lake) -> None:
    create(lake, pa.schema([("id", pa.int64())]))


def with_vectors(lake: lv.Lake) -> None:
    create(lake, accounts(100), enableDeletionVectors="true")
    change(lake, lambda txn: txn.delete("t", "id IN (3, 50)"))
    change(lake, lambda txn: txn.append("t", accounts(10)))


def mapped_and_partitioned_with_vectors(lake: lv.Lake) -> None:
    data = pa.table({"p": [f"p {n % 3}" for n in range(90)], "v": range(90)})
    create(lake, data, "p", enableDeletionVectors="true", **{"columnMapping.mode": "name"})
    change(lake, lambda txn: txn.update("t", {"v": "-v"}, where="v % 10 = 1"))


KINDS: tuple[Made, ...] = (
    plain,
    partitioned,
    partitioned_by_others,
    partitioned_by_odd_names,
    mapped_by_name,
    mapped_by_id,
    mapped_later,
    widened,
    with_added_columns,
    with_row_tracking,
    mapped_with_row_tracking,
    of_another_client,
    of_a_clone,
    mapped_with_ids_of_elements,
    without_rows,
    with_vectors,
    mapped_and_partitioned_with_vectors,
)


@pytest.mark.usefixtures("marks_in_small_files")
@pytest.mark.parametrize("make", KINDS, ids=lambda make: make.__name__)
def test_engines_read_the_rows_that_lakevilla_reads(lake: lv.Lake, make: Made) -> None:
    make(lake)
    expected = rows(lake.read("t"))
    with serving(lake) as gateway:
        for found in seen(gateway):
            assert found == expected
    assert not lake.doctor().findings


def test_deltalake_reads_the_same(lake: lv.Lake) -> None:
    plain(lake)
    with serving(lake) as gateway:
        found = rows(gateway.pyiceberg().load_table("root.t").scan().to_arrow())
    assert found == rows(DeltaTable(f"{lake.root}/t").to_pyarrow_table())


def test_pyiceberg_reads_maps_that_deltalake_has_written(lake: lv.Lake) -> None:
    """DuckDB refuses them: it knows no map of a file without ids but ``key_value``."""
    write_deltalake(f"{lake.root}/t", all_types().select(["id", "by"]))
    lake.register("t")
    with serving(lake) as gateway:
        assert next(seen(gateway)) == rows(lake.read("t"))


@pytest.mark.parametrize("selected", [("id",), ("id", "p")])
def test_pyiceberg_finds_rows_by_a_partition_column_that_it_selects(
    lake: lv.Lake, selected: tuple[str, ...]
) -> None:
    """If it finds them without that, too, the guide need not warn of it any more."""
    create(lake, pa.table({"id": [1, 2], "p": ["a", None]}), "p")
    with serving(lake) as gateway:
        table = gateway.pyiceberg().load_table("root.t")
        found = table.scan(row_filter="p = 'a'", selected_fields=selected).to_arrow()
    assert found["id"].to_pylist() == ([1] if "p" in selected else [])


def test_pyiceberg_reads_doubles_of_partitions_as_floats(lake: lv.Lake) -> None:
    create(lake, pa.table({"id": [1], "p": [0.1]}), "p")
    with serving(lake) as gateway:
        found = gateway.pyiceberg().load_table("root.t").scan().to_arrow()
        assert found["p"].to_pylist() == [pytest.approx(0.1, rel=1e-7)]
        assert found["p"].to_pylist() != [0.1]
        if HAS_EXTENSIONS:
            assert of_duckdb(gateway)["p"].to_pylist() == [0.1]


def test_a_table_with_vectors_has_format_3_and_others_have_2(
    lake: lv.Lake, marks_in_small_files: None
) -> None:
    with_vectors(lake)
    with serving(lake) as gateway:
        metadata = gateway.ask(TABLE).json()["metadata"]
        assert metadata["format-version"] == 3
        assert metadata["snapshots"][0]["summary"]["total-position-deletes"] == "2"
        lake["t"].optimize()
        assert gateway.ask(TABLE).json()["metadata"]["format-version"] == 2


# -------------------- states


def test_each_ref_and_version_is_shown(lake: lv.Lake) -> None:
    create(lake, accounts(2))
    lake.tag("monday")
    lake.branch("etl")
    lake.on("etl").run(lambda txn: txn.append("t", accounts(3, 7)))
    lake.on("etl").run(lambda txn: txn.delete("t", "id = 2"))
    change(lake, lambda txn: txn.update("t", {"balance": "1"}, where="true"))
    newest = lake.history(1)[0].version
    with serving(lake) as gateway:
        for name in ("monday", "etl"):
            for found in seen(gateway, f"lake@{name}"):
                assert found == rows(lake.on(name).read("t"))
        with lake.snapshot(version=newest - 1) as before:
            found = gateway.pyiceberg(f"lake@v{newest - 1}").load_table("root.t").scan()
            assert rows(found.to_arrow()) == rows(before.read("t"))
        now = gateway.pyiceberg("lake@now")
        change(lake, lambda txn: txn.append("t", accounts(5)))
        assert now.load_table("root.t").scan().to_arrow().num_rows == 2


def test_decided_and_foreign_commits_are_shown_and_none_is_published(lake: lv.Lake) -> None:
    create(lake, accounts(2))
    with serving(lake) as gateway:
        gateway.ask(TABLE)
        write_deltalake(f"{lake.root}/t", pa.Table.from_pylist(accounts(3)), mode="append")
        for found in seen(gateway):
            assert len(found) == 5
        version = DeltaTable(f"{lake.root}/t").version()
        change(lake, lambda txn: txn.append("t", accounts(1)))
        for found in seen(gateway):
            assert len(found) == 6
        assert DeltaTable(f"{lake.root}/t").version() == version + 1


@pytest.mark.parametrize("warehouse", ["lake", "lake@etl"])
def test_commits_are_refused_before_anything_is_decided(lake: lv.Lake, warehouse: str) -> None:
    create(lake, accounts(2))
    lake.branch("etl")
    branch = lake.on("etl")
    before = [len(one.history()) for one in (lake, branch)]
    with serving(lake) as gateway:
        assert gateway.pyiceberg(warehouse).list_tables("root") == [("root", "t")]
        table = gateway.pyiceberg(warehouse).load_table("root.t")
        with pytest.raises(Exception, match="is a Delta table"):
            table.append(pa.table({"id": [1], "balance": [1]}))
        if HAS_EXTENSIONS:
            with pytest.raises(Exception, match="is a Delta table"):
                gateway.duckdb(warehouse).execute("INSERT INTO l.root.t VALUES (1, 1)")
    assert [len(one.history()) for one in (lake, branch)] == before
    assert lake.read("t").num_rows == branch.read("t").num_rows == 2


def test_a_commit_of_several_tables_is_refused_whole_for_a_delta_table(lake: lv.Lake) -> None:
    create(lake, accounts(2))
    lake.create_table("ice", accounts(2), format="iceberg")
    before = lake.history(1)[0].version
    parts = [
        {
            "identifier": {"namespace": ["root"], "name": name},
            "requirements": [],
            "updates": [{"action": "set-properties", "updates": {"owner": "me"}}],
        }
        for name in ("ice", "t")
    ]
    body = {"table-changes": parts}
    with serving(lake) as gateway:
        status, _, message = gateway.refused("/transactions/commit", method="POST", json=body)
    assert (status, "root.t is a Delta table" in message) == (400, True)
    assert lake.history(1)[0].version == before


# -------------------- files


def shown_files(lake: lv.Lake) -> dict[str, bytes]:
    found = Path(lake.root, "t/_lakevilla/iceberg").rglob("*")
    return {path.name: path.read_bytes() for path in found if path.is_file()}


def test_two_gateways_make_the_same_files(lake: lv.Lake, marks_in_small_files: None) -> None:
    with_vectors(lake)
    made = []
    for _ in range(2):
        with lv.connect(lake.root) as own, serving(own) as gateway:
            assert gateway.ask(TABLE).status_code == 200
        made.append(shown_files(lake))
        for path in Path(lake.root, "t/_lakevilla/iceberg").rglob("*.*"):
            path.unlink()
    assert made[0] == made[1]
    assert any(name.endswith(".puffin") for name in made[0])


def test_states_with_the_same_files_share_their_manifest(lake: lv.Lake) -> None:
    create(lake, accounts(2))
    lake.branch("etl")
    lake.on("etl").run(lambda txn: txn.alter("t", set_properties={"owner": "me"}))
    with serving(lake) as gateway:
        gateway.ask(TABLE)
        before = set(shown_files(lake))
        assert gateway.ask(f"/etl{TABLE}").status_code == 200
    made = sorted(name.rpartition(".")[0] for name in set(shown_files(lake)) - before)
    assert len(made) == 2
    assert made[1] == f"snap-{made[0].removesuffix('.metadata')}"


def test_a_later_period_copies_what_was_made_and_reads_no_footer_again(
    lake: lv.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(lake, accounts(2))
    write_deltalake(f"{lake.root}/t", pa.Table.from_pylist(accounts(3)), mode="append")
    with serving(lake) as gateway:
        gateway.ask(TABLE)
    before, now = shown_files(lake), SystemClock.now
    monkeypatch.setattr(SystemClock, "now", lambda clock: now(clock) + 42 * 3600)
    with lv.connect(lake.root) as own, serving(own) as gateway:
        monkeypatch.setattr(footers, "_footer", None)
        assert gateway.ask(TABLE).status_code == 200
        assert len(next(seen(gateway))) == 5
    directories = sorted(Path(lake.root, "t/_lakevilla/iceberg").iterdir())
    assert int(directories[1].name) == int(directories[0].name) + 1
    (manifest,) = [name for name in before if name.endswith(".avro") and name[:5] != "snap-"]
    assert (directories[1] / manifest).read_bytes() == before[manifest]


def test_vacuum_deletes_shown_states_after_the_retention(lake: lv.Lake) -> None:
    create(lake, accounts(2))
    with serving(lake) as gateway:
        gateway.ask(TABLE)
        lake["t"].vacuum(dry_run=False)
        assert len(shown_files(lake)) == 3
        lake["t"].vacuum(0, dry_run=False, enforce_retention_duration=False)
        assert not shown_files(lake)
        assert not lake.doctor().findings
        assert len(next(seen(gateway))) == 2


def test_vacuum_deletes_a_state_with_the_manifest_that_it_names(lake: lv.Lake) -> None:
    create(lake, accounts(2))
    with serving(lake) as gateway:
        gateway.ask(TABLE)
        for path in Path(lake.root, "t/_lakevilla/iceberg").rglob("*.avro"):
            os.utime(path, (0, 0))
        lake["t"].vacuum(dry_run=False)
        assert not shown_files(lake)
        assert len(next(seen(gateway))) == 2


def test_the_vacuum_of_deltalake_leaves_shown_states(lake: lv.Lake) -> None:
    create(lake, accounts(2))
    with serving(lake) as gateway:
        gateway.ask(TABLE)
        table = DeltaTable(f"{lake.root}/t")
        table.vacuum(0, dry_run=False, enforce_retention_duration=False)
        assert len(shown_files(lake)) == 3


def test_a_gateway_that_only_reads_shows_what_another_has_made(lake: lv.Lake) -> None:
    create(lake, accounts(2))
    with lv.connect(lake.root) as own, serving(own, read_only=True) as reader:
        assert reader.refused(TABLE)[0] == 406
        assert not shown_files(lake)
        with serving(lake) as gateway:
            gateway.ask(TABLE)
        assert reader.ask(TABLE).status_code == 200


def test_a_state_that_is_known_costs_three_requests_and_no_write(lake: lv.Lake) -> None:
    create(lake, accounts(2))
    with serving(lake) as gateway:
        first = gateway.ask(TABLE)
        with inside(lake).requests.counting() as made:
            again = gateway.ask(TABLE)
        assert (made.get, made.put, made.list) == (3, 0, 0)
        assert again.content == first.content
        assert (
            gateway.ask(TABLE, headers={"If-None-Match": first.headers["ETag"]}).status_code == 304
        )


def test_a_first_load_reads_nothing_but_the_log_of_own_files(lake: lv.Lake) -> None:
    create(lake, accounts(2))
    for count in range(3):
        change(lake, lambda txn, count=count: txn.append("t", accounts(count)))  # type: ignore[misc]
    with serving(lake) as gateway:
        gateway.ask("/namespaces")
        with inside(lake).requests.counting() as made:
            assert gateway.ask(TABLE).status_code == 200
    # HEAD, the log's next entry and the state; then its manifest, the list and its metadata.
    assert (made.get, made.put, made.list) == (3, 3, 0)


# -------------------- footers


def numbered(**ids: int) -> pa.Schema:
    """Return a schema with field ids, as Arrow keeps them of a file that it has read."""
    return pa.schema(
        [
            pa.field(name, pa.int64(), metadata={"PARQUET:field_id": str(number)})
            for name, number in ids.items()
        ]
    )


def add_with_ids(lake: lv.Lake, **ids: int) -> None:
    columns = {name: [5, 6] for name in ids}
    write_deltalake(f"{lake.root}/t", pa.table(columns, schema=numbered(**ids)), mode="append")


@pytest.mark.parametrize("ids", [{"a": 2, "b": 1}, {"a": 1, "b": 7}, {"a": 31, "b": 32}])
def test_a_file_with_other_field_ids_is_refused_until_it_is_rewritten(
    lake: lv.Lake, ids: dict[str, int]
) -> None:
    create(lake, pa.table({"a": [1], "b": [2]}))
    add_with_ids(lake, **ids)
    with serving(lake) as gateway:
        status, _, message = gateway.refused(TABLE)
        assert status == 406
        assert "has the field id" in message
        assert not [name for name in shown_files(lake) if name.endswith(".avro")]
        lake["t"].optimize(z_order_by="a")
        expected = rows(lake.read("t"))
        for found in seen(gateway):
            assert found == expected


def test_a_file_with_the_ids_that_are_shown_is_shown(lake: lv.Lake) -> None:
    create(lake, pa.table({"a": [1], "b": [2]}))
    add_with_ids(lake, a=1, b=2)
    with serving(lake) as gateway:
        for found in seen(gateway):
            assert found == rows(lake.read("t"))


def test_a_gateway_that_reads_no_footer_would_show_wrong_columns(lake: lv.Lake) -> None:
    create(lake, pa.table({"a": [1], "b": [2]}))
    write_deltalake(
        f"{lake.root}/t", pa.table({"a": [3], "b": [4]}, schema=numbered(a=2, b=1)), mode="append"
    )
    with PLANTED["footers_not_read"].plant(), serving(lake) as gateway:
        for found in seen(gateway):
            assert {"a": "4", "b": "3"} in found


@pytest.mark.skipif(not HAS_EXTENSIONS, reason="needs DuckDB's extension for Iceberg")
def test_a_dropped_column_would_come_back_by_a_column_s_own_name(lake: lv.Lake) -> None:
    create(lake, accounts(1))
    change(lake, lambda txn: txn.alter("t", set_properties={"delta.columnMapping.mode": "name"}))
    change(lake, lambda txn: txn.alter("t", drop_columns=["balance"]))
    change(lake, lambda txn: txn.alter("t", add_columns={"balance": "long"}))
    expected = [{"id": "0", "balance": "None"}]
    assert rows(lake.read("t")) == expected
    with PLANTED["logical_names_mapped"].plant(), serving(lake) as gateway:
        assert rows(of_duckdb(gateway)) == [{"id": "0", "balance": "100"}]
    lake["t"].vacuum(0, dry_run=False, enforce_retention_duration=False)
    with serving(lake) as gateway:
        assert rows(of_duckdb(gateway)) == expected


@pytest.mark.parametrize("mode", ["none", "name"])
def test_own_files_have_the_ids_of_the_mapping_or_none(lake: lv.Lake, mode: str) -> None:
    """So their footers need not be read."""
    data = pa.table({"a": [1, 2], "b": [3, 4]}, schema=numbered(a=7, b=8))
    create(lake, data, **{"columnMapping.mode": mode})
    change(lake, lambda txn: txn.append("t", data))
    change(lake, lambda txn: txn.update("t", {"b": "9"}, where="a = 1"))
    lake["t"].optimize()
    found = {
        tuple((field.metadata or {}).get(b"PARQUET:field_id") for field in pq.read_schema(path))
        for path in Path(lake.root, "t").glob("*.parquet")
    }
    assert found == {(None, None) if mode == "none" else (b"1", b"2")}


def test_footers_of_other_clients_files_are_read_once(lake: lv.Lake) -> None:
    create(lake, accounts(2))
    for count in range(3):
        more = pa.Table.from_pylist(accounts(count + 1))
        write_deltalake(f"{lake.root}/t", more, mode="append")
    lake.run(lambda txn: txn.append("t", accounts(1)))
    with serving(lake) as gateway:
        with inside(lake).requests.counting() as first:
            gateway.ask(TABLE)
        lake.run(lambda txn: txn.append("t", accounts(1)))
        with inside(lake).requests.counting() as second:
            gateway.ask(TABLE)
    assert first.get - second.get == 3


def test_rows_are_counted_by_footers_where_the_log_does_not_say_them(lake: lv.Lake) -> None:
    create(lake, accounts(3))
    (entry,) = Path(lake.root, "t/_delta_log").glob("*0.json")
    text = entry.read_text()
    entry.write_text(text.replace("numRecords", "numRowsOf"))
    with lv.connect(lake.root) as own, serving(own) as gateway:
        summary = gateway.ask(TABLE).json()["metadata"]["snapshots"][0]["summary"]
        assert summary["total-records"] == "3"
        assert len(next(seen(gateway))) == 3


def test_a_file_elsewhere_that_the_lake_may_not_read_is_not_shown(
    lake: lv.Lake, tmp_path: Path
) -> None:
    """Its name is that of a file of LakeVilla's, which is not looked at in the table itself."""
    create(lake, accounts(2))
    (own,) = Path(lake.root, "t").glob("*.parquet")
    outside = tmp_path / "outside" / own.name
    outside.parent.mkdir()
    outside.write_bytes(own.read_bytes())
    (entry,) = Path(lake.root, "t/_delta_log").glob("*0.json")
    entry.write_text(entry.read_text().replace(own.name, f"file://{outside}"))
    with lv.connect(lake.root) as again, serving(again) as gateway:
        status, _, message = gateway.refused(TABLE)
    assert status == 400
    assert "is in no table of the lake" in message


# -------------------- refused


def mapped_lists(lake: lv.Lake) -> None:
    create(lake, pa.table({"l": [[1]]}), **{"columnMapping.mode": "name"})


def widened_elsewhere(lake: lv.Lake) -> None:
    create(lake, pa.table({"a": pa.array([1], pa.int32())}), enableTypeWidening="true")
    change(lake, lambda txn: txn.alter("t", change_types={"a": "double"}))


def with_ambiguous_names(lake: lv.Lake) -> None:
    create(lake, pa.table({"a.b": [1], "a": [{"b": 1}]}))


def partitioned_by_bytes(lake: lv.Lake) -> None:
    create(lake, pa.table({"p": [b"\xff"], "v": [1]}), "p")


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (mapped_lists, "nested.ids"),
        (widened_elsewhere, "from integer to double"),
        (with_ambiguous_names, "two of its columns have the full name a.b"),
        (partitioned_by_bytes, "partition column p"),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_a_table_that_iceberg_can_not_have_is_refused_by_name(
    lake: lv.Lake, make: Made, reason: str
) -> None:
    make(lake)
    with serving(lake) as gateway:
        status, kind, message = gateway.refused(TABLE)
    assert (status, kind) == (406, "UnsupportedOperationException")
    assert reason in message
    assert "table t" in message


# -------------------- statistics


Literal = Callable[[Any], str]
#: Columns with bounds, or with partition values, and their values as literals of SQL.
COLUMNS: dict[str, Literal] = {
    **dict.fromkeys(("byte", "short", "long", "float", "money"), str),
    "flag": lambda value: str(value).lower(),
    "text": lambda value: f"'{value}'",
    "day": lambda value: f"DATE '{value}'",
    "at": lambda value: f"TIMESTAMPTZ '{value.isoformat(' ')}'",
    "local": lambda value: f"TIMESTAMP '{value.isoformat(' ')}'",
}


@pytest.fixture
def of_many_files(lake: lv.Lake) -> lv.Lake:
    """Return a lake whose table has files of LakeVilla's and of deltalake's, in partitions."""
    data = all_types(40).drop_columns(["one", "some", "by", "bytes"])
    create(lake, data.slice(0, 8), "flag")
    for start in range(8, 40, 8):
        part = data.slice(start, 8)
        if start % 16:
            change(lake, lambda txn, part=part: txn.append("t", part))  # type: ignore[misc]
        else:
            write_deltalake(f"{lake.root}/t", part, mode="append", partition_by=["flag"])
    return lake


def drawn(lake: lv.Lake, count: int) -> Iterator[tuple[str, str, Any, set[int]]]:
    """Yield column, sign and value of predicates, and the ids of the rows for which they hold."""
    table, draw = lake.read("t"), random.Random(7)
    for _ in range(count):
        column, sign = draw.choice(list(COLUMNS)), draw.choice(["=", "<", "<=", ">", ">="])
        value = draw.choice(table[column].drop_null().to_pylist())
        where = f'"{column}" {sign} {COLUMNS[column](value)}'
        found = duckdb.sql(f"SET TimeZone = 'UTC'; SELECT id FROM \"table\" WHERE {where}")
        yield column, sign, value, {one for (one,) in found.fetchall()}


def test_pyiceberg_leaves_out_files_and_never_rows(of_many_files: lv.Lake) -> None:
    with serving(of_many_files) as gateway:
        table = gateway.pyiceberg().load_table("root.t")
        files = {task.file.file_path for task in table.scan().plan_files()}
        ids_of = {path: pq.read_table(path, columns=["id"])["id"].to_pylist() for path in files}
        left_out = 0
        for column, sign, value, ids in drawn(of_many_files, 100):
            text = value.isoformat() if hasattr(value, "isoformat") else value
            text = f"'{text}'" if isinstance(text, str) else str(text).lower()
            scan = table.scan(row_filter=f"{column} {sign} {text}")
            planned = {task.file.file_path for task in scan.plan_files()}
            needed = {path for path in files if ids & set(ids_of[path])}
            assert needed <= planned, (column, sign, value)
            left_out += len(files - planned)
    assert left_out > 100


@pytest.mark.skipif(not HAS_EXTENSIONS, reason="needs DuckDB's extension for Iceberg")
def test_duckdb_leaves_out_no_rows(of_many_files: lv.Lake) -> None:
    with serving(of_many_files) as gateway:
        connection = gateway.duckdb()
        connection.execute("SET TimeZone = 'UTC'")
        for column, sign, value, ids in drawn(of_many_files, 100):
            where = f'"{column}" {sign} {COLUMNS[column](value)}'
            found = connection.execute(f"SELECT id FROM l.root.t WHERE {where}").fetchall()
            assert {one for (one,) in found} == ids, where


def found_at(lake: lv.Lake) -> list[int]:
    """Return how many files pyiceberg reads for the only row, by each of its times."""
    counts = []
    with serving(lake) as gateway:
        table = gateway.pyiceberg().load_table("root.t")
        for column, value in (("at", instant(0, datetime.UTC)), ("local", instant(0))):
            scan = table.scan(row_filter=f"{column} >= '{value.isoformat()}'")
            counts.append(len(list(scan.plan_files())))
    return counts


def test_times_are_found_beyond_the_millisecond_to_which_writers_cut_bounds(lake: lv.Lake) -> None:
    times = {"at": [instant(0, datetime.UTC)], "local": [instant(0)]}
    write_deltalake(f"{lake.root}/t", pa.table(times))
    lake.register("t")
    with PLANTED["bounds_as_cut"].plant():
        assert found_at(lake) == [0, 0]
    lake["t"].vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert found_at(lake) == [1, 1]


def test_no_engine_may_take_bounds_for_values(of_many_files: lv.Lake) -> None:
    """Those of times are a millisecond off: Iceberg's reads from the mode that they are none."""
    with serving(of_many_files) as gateway:
        properties = gateway.ask(TABLE).json()["metadata"]["properties"]
    assert properties["write.metadata.metrics.default"] == "counts"
