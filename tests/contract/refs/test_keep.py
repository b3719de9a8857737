"""``lake.keep``: a tag can be read, whichever files foreign clients have deleted."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import deltalake
import pytest
from typer.testing import CliRunner

import lakevilla as lv
from lakevilla.cli.app import app
from lakevilla.formats.iceberg.catalog.object_store_catalog import ObjectStoreCatalog
from lakevilla.store.runner import Requests
from tests.contract.foreign_readers import read_by_others
from tests.property.position_deletes import delete_positions
from tests.support.foreign_changes import delete_by_vector
from tests.support.inside import inside
from tests.support.places import Place
from tests.support.stores import unpublished
from tests.support.tables import accounts, values
from tests.support.traces import cost


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[lv.Lake]:
    with lv.connect(str(tmp_path)) as lake:
        yield lake


def shop(lake: lv.Lake, **options: Any) -> None:
    rows = [{"sku": sku, "qty": qty, "shop": "n"} for sku, qty in (("tea", 5), ("jam", 2))]
    lake.create_table("stock", rows, **options)
    lake.run(lambda txn: txn.append("stock", [{"sku": "oil", "qty": 1, "shop": "s"}]))
    lake.create_table("orders", [{"id": 1}])
    lake.tag("closing")
    lake.run(lambda txn: txn.update("stock", {"qty": "qty + 10"}, where="shop = 'n'"))


def clean_up(lake: lv.Lake, options: dict[str, str] | None = None) -> None:
    """Run VACUUM without retention, and delete the log below a checkpoint."""
    table = deltalake.DeltaTable(lake.table("stock").uri, storage_options=options)
    table.vacuum(retention_hours=0, enforce_retention_duration=False, dry_run=False)
    table.update_incremental()
    table.create_checkpoint()
    if options is None:
        last = f"{table.version():020}"
        for path in Path(lake.table("stock").uri, "_delta_log").glob("*.json"):
            if path.name[:20].isdigit() and path.name[:20] < last:
                path.unlink()


def rows(lake: lv.Lake, name: str | None = None) -> list[dict[str, Any]]:
    at = lake if name is None else lake.on(name)
    return at.read("stock").sort_by("sku").to_pylist()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"partition_by": "shop"},
        {"properties": {"delta.columnMapping.mode": "name"}},
        {"properties": {"delta.enableChangeDataFeed": "true"}},
    ],
    ids=["plain", "partitioned", "column mapping", "change feed"],
)
def test_a_kept_tag_survives_vacuum_and_the_clean_up_of_the_log(
    lake: lv.Lake, options: dict[str, Any]
) -> None:
    shop(lake, **options)
    before, now = rows(lake, "closing"), rows(lake)
    report = lake.keep("closing")
    assert report.ok
    assert [(one.kind, one.table) for one in report.findings] == [("kept", "stock")]
    clean_up(lake)
    with lv.connect(lake.root) as other:
        assert rows(other, "closing") == before
        assert rows(other) == now
        assert other.doctor(files=True).ok
        assert other.on("closing").sql("SELECT sum(qty) AS n FROM stock").to_pylist() == [{"n": 8}]
        assert other.diff("closing").rows("stock", keys=["sku"]).num_rows > 0
        other.rollback("closing")
        assert rows(other) == before
        found = deltalake.DeltaTable(other.table("stock").uri)
        if "delta.columnMapping.mode" not in options.get("properties", {}):
            assert found.to_pyarrow_table().num_rows == 3


@pytest.mark.parametrize("kind", ["tag", "branch"])
def test_keep_refuses_a_truncated_file_and_keeps_the_ref_once_the_file_is_restored(
    lake: lv.Lake, kind: str
) -> None:
    shop(lake)
    if kind == "branch":
        lake.branch("night", at="closing")
        lake.delete_ref("closing")
    ref = "closing" if kind == "tag" else "night"
    before = rows(lake, ref)
    now = {Path(uri) for uri in deltalake.DeltaTable(lake.table("stock").uri).file_uris()}
    (removed,) = set(Path(lake.root, "stock").glob("*.parquet")) - now
    body = removed.read_bytes()
    removed.write_bytes(body[:-40])
    for _ in range(2):  # a second attempt finds the copy of the first
        report = lake.keep(ref)
        assert not report.ok
        assert any(removed.name in one.message for one in report.findings)
    removed.write_bytes(body)
    with lv.connect(lake.root) as other:
        assert other.keep(ref).ok
        clean_up(other)
        assert rows(other, ref) == before
        assert other.doctor(files=True).ok


def test_a_tag_that_is_not_kept_is_lost_by_the_same_clean_up(lake: lv.Lake) -> None:
    shop(lake)
    (note,) = [one for one in lake.doctor().findings if one.kind == "ref_at_risk"]
    assert "needs 1 files" in note.message
    clean_up(lake)
    with (
        lv.connect(lake.root) as other,
        pytest.raises((lv.VersionNotFound, lv.StoreError, lv.CorruptObject)),
    ):
        rows(other, "closing")
    report = lake.keep("closing")
    assert not report.ok
    assert [(one.kind, one.table) for one in report.findings] == [("ref_lost", "stock")]


def test_rows_deleted_by_a_deletion_vector_stay_deleted_in_a_kept_tag(local_place: Place) -> None:
    local_place.write("bank", accounts(3))
    delete_by_vector(local_place, row=2)
    place = Path(local_place.root, "bank")
    old = [*place.glob("*.bin"), *place.glob("*.parquet")]
    assert len(old) == 2
    with local_place.connect() as lake:
        lake.register("bank")
        lake.tag("closing")
        lake.table("bank").optimize()  # the deletion vector and the data file are deleted
        assert lake.keep("closing").ok
    for path in old:
        path.unlink()
    with local_place.connect() as lake:
        assert values(lake.on("closing").read("bank")) == [0, 1]
        assert lake.doctor(files=True).ok
        lake.rollback("closing")
        assert values(lake.read("bank")) == [0, 1]


def test_a_kept_iceberg_tag_survives_the_loss_of_all_files_that_the_table_does_not_need(
    lake: lv.Lake,
) -> None:
    shop(lake, format="iceberg", partition_by="shop")
    before, now = rows(lake, "closing"), rows(lake)
    assert lake.keep("closing").ok
    place = Path(lake.root, "stock")
    files = set(place.rglob("*.parquet"))
    live = {Path(uri) for uri in iceberg_files(lake)}
    for path in files - live:
        if "_lakevilla" not in path.parts:
            path.unlink()
    with lv.connect(lake.root) as other:
        assert rows(other, "closing") == before
        assert rows(other) == now
        other.rollback("closing")
        assert rows(other) == before
        assert other.doctor(files=True).ok


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("kind", ["tag", "branch"])
def test_rows_deleted_by_position_stay_deleted_in_a_kept_ref(
    lake: lv.Lake, kind: str, seed: int
) -> None:
    """The seeds choose the form: one delete file for all or for each, with or without bounds."""
    lake.create_table("stock", [{"id": n, "qty": n} for n in range(4)], format="iceberg")
    lake.run(lambda txn: txn.append("stock", [{"id": n, "qty": n} for n in range(4, 8)]))
    table = ObjectStoreCatalog("tests", warehouse=lake.root).load_table(("stock",))
    delete_positions(table, [1, 2, 6], Random(seed))
    getattr(lake, kind)("closing")
    lake.run(lambda txn: txn.delete("stock", where="id < 4"))  # the file of ids 4 to 7 stays
    assert lake.keep("closing").ok
    forget(lake)
    with lv.connect(lake.root) as other:
        assert sorted(other.on("closing").read("stock")["id"].to_pylist()) == [0, 3, 4, 5, 7]
        assert sorted(other.read("stock")["id"].to_pylist()) == [4, 5, 7]
        assert other.doctor(files=True).ok
        if kind == "branch":
            etl = other.on("closing")
            etl.run(lambda txn: txn.update("stock", {"qty": "qty + 1"}, where="id = 3"))
            assert etl.sql("SELECT sum(qty) AS n FROM stock").to_pylist() == [{"n": 20}]
            return
        other.rollback("closing")
        assert sorted(other.read("stock")["id"].to_pylist()) == [0, 3, 4, 5, 7]
        for rows in read_by_others(f"{lake.root}/stock", "iceberg").values():
            assert sorted(rows["id"].to_pylist()) == [0, 3, 4, 5, 7]


def test_a_kept_iceberg_tag_survives_that_pyiceberg_expires_its_snapshot(lake: lv.Lake) -> None:
    shop(lake, format="iceberg")
    before = rows(lake, "closing")
    assert lake.keep("closing").ok
    table = ObjectStoreCatalog("tests", warehouse=lake.root).load_table(("stock",))
    old = [one.snapshot_id for one in table.metadata.snapshots][:-1]
    table.maintenance.expire_snapshots().by_ids(old).commit()
    assert len(table.refresh().metadata.snapshots) == 1
    forget(lake)  # pyiceberg does not delete the files
    with lv.connect(lake.root) as other:
        assert rows(other, "closing") == before
        assert other.doctor(files=True).ok


def iceberg_files(lake: lv.Lake) -> list[str]:
    from pyiceberg.table import StaticTable

    metadata = max(
        Path(lake.root, "stock", "metadata").glob("*.metadata.json"),
        key=lambda path: json.loads(path.read_text())["last-sequence-number"],
    )
    table = StaticTable.from_metadata(str(metadata))
    snapshot = table.current_snapshot()
    assert snapshot is not None
    entries = [
        one for m in snapshot.manifests(table.io) for one in m.fetch_manifest_entry(table.io)
    ]
    return [one.data_file.file_path.removeprefix("file://") for one in entries]


def test_a_tag_is_kept_on_a_bucket(shared_place: Place) -> None:
    with shared_place.connect() as lake:
        shop(lake)
        before = rows(lake, "closing")
        assert lake.keep("closing").ok
        lake["stock"].vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
        assert rows(lake, "closing") == before
        assert lake.doctor(files=True).ok


def test_keep_costs_five_writes_for_one_file_and_none_when_repeated(
    local_place: Place,
) -> None:
    with local_place.connect() as lake:
        shop(lake)
        found = cost(lake, lambda: lake.keep("closing"))
        # A copied file, the kept state, the base; HEAD twice: for the directory and the base.
        assert found.put == 5
        again = cost(lake, lambda: lake.keep("closing"))
        assert again.put == 0
        assert isinstance(again, Requests)


def test_deleting_a_kept_tag_frees_its_space(lake: lv.Lake) -> None:
    shop(lake)
    lake.keep("closing")
    lake.tag("second", at="closing")
    lake.delete_ref("closing")
    lake.gc()
    before = rows(lake, "second")
    clean_up(lake)
    lake.gc()
    assert rows(lake, "second") == before
    lake.delete_ref("second")
    lake.gc()
    lake.gc()
    assert not list(Path(lake.root, "stock", "_lakevilla", "b").rglob("*.parquet"))
    assert not list(Path(lake.root, "_lakevilla", "branches").rglob("*.parquet"))


def test_deleting_a_kept_tag_keeps_files_that_main_has_since_a_rollback(lake: lv.Lake) -> None:
    shop(lake)
    before = rows(lake, "closing")
    lake.keep("closing")
    clean_up(lake)
    lake.rollback("closing")
    lake.delete_ref("closing")
    lake.gc()
    lake["stock"].vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
    clean_up(lake)
    assert rows(lake) == before
    assert lake.doctor(files=True).ok


def test_keep_refuses_main_missing_refs_and_branches_with_unmerged_keys(lake: lv.Lake) -> None:
    shop(lake)
    lake.branch("etl")
    lake.on("etl").run(lambda txn: txn.append("orders", [{"id": 2}]), idempotency_key="night")
    with pytest.raises(lv.InvalidOperation, match=r"'night', which is not merged yet.*keep it"):
        lake.keep("etl")
    with pytest.raises(lv.RefNotFound):
        lake.keep("closed")
    with pytest.raises(lv.InvalidOperation, match="main"):
        lake.keep("main")


@pytest.mark.parametrize("merged", [False, True], ids=["not merged", "merged before"])
@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_a_kept_branch_can_be_used_whatever_files_foreign_clients_delete(
    lake: lv.Lake, format: str, merged: bool
) -> None:
    shop(lake, format=format)
    lake.delete_ref("closing")
    lake.branch("etl")
    etl = lake.on("etl")
    if merged:
        etl.run(lambda txn: txn.append("orders", [{"id": 2}]))
        lake.merge("etl")
    etl.run(lambda txn: txn.append("stock", [{"sku": "rye", "qty": 7, "shop": "e"}]))
    etl.run(lambda txn: txn.update("stock", {"qty": "qty + 1"}, where="sku = 'oil'"))
    before = rows(lake, "etl")
    lake.run(lambda txn: txn.update("stock", {"qty": "qty + 20"}, where="sku = 'tea'"))
    report = lake.keep("etl")
    assert ("kept", "stock") in [(one.kind, one.table) for one in report.findings]
    assert lake.keep("etl").findings == ()
    assert not [one for one in lake.doctor().findings if "'etl'" in one.message]
    forget(lake)
    assert rows(lake, "etl") == before  # by a client that had opened the branch before
    with lv.connect(lake.root) as other:
        assert rows(other, "etl") == before
        assert other.doctor(files=True).ok
        etl = other.on("etl")
        etl.run(lambda txn: txn.append("stock", [{"sku": "ham", "qty": 9, "shop": "e"}]))
        now = {row["sku"]: row["qty"] for row in rows(other)}
        other.merge("etl", keys={"stock": ["sku"]}, delete=True)
        want = now | {"rye": 7, "oil": 2, "ham": 9}
        assert {row["sku"]: row["qty"] for row in rows(other)} == want
        other.gc()
        other["stock"].vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False)
        assert {row["sku"]: row["qty"] for row in rows(other)} == want
        assert other.read("orders").num_rows == (2 if merged else 1)
        assert other.doctor(files=True).ok
        assert not list(Path(lake.root, "_lakevilla", "branches").rglob("*.parquet"))


def forget(lake: lv.Lake) -> None:
    """Delete all files that the table does not need, except LakeVilla's own."""
    place = Path(lake.root, "stock")
    if Path(place, "_delta_log").exists():
        clean_up(lake)
        return
    live = {Path(uri) for uri in iceberg_files(lake)}
    for path in set(place.rglob("*.parquet")) - live:
        if "_lakevilla" not in path.parts:
            path.unlink()


def test_a_transaction_on_a_branch_is_run_again_if_the_branch_is_kept_meanwhile(
    lake: lv.Lake,
) -> None:
    shop(lake)
    lake.branch("etl", at="closing")
    etl = lake.on("etl")
    runs = []

    def work(txn: lv.Transaction) -> None:
        txn.update("stock", {"qty": "qty + 1"}, where="sku = 'tea'")
        if not runs:
            lake.keep("etl")
            clean_up(lake)
        runs.append(txn.id)

    etl.run(work)
    assert len(runs) == 2
    assert [row["qty"] for row in rows(lake, "etl")] == [2, 1, 6]


@pytest.mark.parametrize("format", ["delta", "iceberg"])
def test_a_branch_of_a_kept_tag_can_be_written_tagged_compared_and_merged(
    lake: lv.Lake, format: str
) -> None:
    shop(lake, format=format)
    before, now = rows(lake, "closing"), rows(lake)
    lake.keep("closing")
    if format == "delta":
        clean_up(lake)
    lake.branch("etl", at="closing")
    with lv.connect(lake.root) as other:
        etl = other.on("etl")
        assert rows(other, "etl") == before
        etl.run(lambda txn: txn.append("stock", [{"sku": "rye", "qty": 7, "shop": "e"}]))
        etl.run(lambda txn: txn.update("stock", {"qty": "qty + 1"}, where="sku = 'oil'"))
        etl.run(lambda txn: txn.append("orders", [{"id": 2}]))
        there = rows(other, "etl")
        assert [row["qty"] for row in there] == [2, 2, 7, 5]
        other.tag("reached", at="etl")
        assert rows(other, "reached") == there
        assert rows(other, "etl@" + str(other.refs("branch")[0].version - 1))[2]["qty"] == 7
        assert other.diff("closing", "etl").rows("stock", keys=["sku"]).num_rows == 3
        assert other.doctor(files=True).ok
        other.merge("etl", keys={"stock": ["sku"]})
        want = {row["sku"]: row["qty"] for row in now} | {"rye": 7, "oil": 2}
        assert {row["sku"]: row["qty"] for row in rows(other)} == want
        etl.run(lambda txn: txn.append("stock", [{"sku": "ham", "qty": 9, "shop": "e"}]))
        other.merge("etl", delete=True)
        other.delete_ref("closing")
        other.gc()
        assert rows(other, "reached") == there
        assert {row["sku"]: row["qty"] for row in rows(other)} == want | {"ham": 9}
        assert other.doctor(files=True).ok


def test_a_branch_of_a_kept_tag_has_what_was_unpublished_at_the_tag_once(lake: lv.Lake) -> None:
    lake.create_table("stock", [{"sku": "tea", "qty": 5}])
    with unpublished(lake):
        lake.run(lambda txn: txn.append("stock", [{"sku": "oil", "qty": 1}]), wait="decided")
        lake.tag("closing")
    lake.run(lambda txn: txn.update("stock", {"qty": "qty + 1"}, where="true"))
    lake.keep("closing")
    lake.branch("etl", at="closing")
    with lv.connect(lake.root) as other:
        assert [row["qty"] for row in rows(other, "etl")] == [1, 5]
        other.on("etl").run(lambda txn: txn.update("stock", {"qty": "7"}, where="sku = 'oil'"))
        assert [row["qty"] for row in rows(other, "etl")] == [7, 5]


def test_keep_does_nothing_for_an_unchanged_table(lake: lv.Lake) -> None:
    lake.create_table("stock", [{"sku": "tea", "qty": 5}])
    lake.tag("closing")
    assert lake.keep("closing").findings == ()
    assert not Path(lake.root, "stock", "_lakevilla", "b").exists()


def test_the_keep_command_keeps_a_tag(lake: lv.Lake) -> None:
    shop(lake)
    result = CliRunner().invoke(app, ["keep", lake.root, "closing"])
    assert result.exit_code == 0, result.output
    assert "table stock is kept separately" in result.stdout.replace("\n", " ")


def test_maintain_keeps_tags_that_are_three_days_old(
    lake: lv.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop(lake)
    before = rows(lake, "closing")
    lake.maintain(["keep"])
    assert not Path(lake.root, "stock", "_lakevilla", "b").exists()
    clock = inside(lake).clock
    now = clock.now()
    monkeypatch.setattr(clock, "now", lambda: now + 4 * 24 * 3600)
    assert lake.maintain(["keep"]).findings[0].message == "1 tables kept separately"
    clean_up(lake)
    with lv.connect(lake.root) as other:
        assert rows(other, "closing") == before


def test_keeping_a_tag_warns_of_files_that_a_clone_has_from_other_tables(tmp_path: Path) -> None:
    with lv.connect(tmp_path / "lake") as lake:
        lake.create_table("s/t", [{"id": 1}])
        lake.clone("s", "a")
        lake.tag("closing", tables=["a/t"])
        report = lake.keep("closing")
        [finding] = report.findings
        assert (finding.severity, finding.kind) == ("warning", "ref_at_risk")
        assert "clone 'a'" in finding.message


def test_a_kept_branch_of_a_table_with_row_ids_is_sound(local_place: Place) -> None:
    """Its state has no mark of the ids that the table has assigned: none is missing."""
    with local_place.connect() as lake:
        rows = [{"id": number, "v": 0} for number in range(5)]
        lake.create_table("t", rows, format="iceberg", properties={"format-version": "3"})
        lake.branch("b")
        lake.on("b").run(lambda txn: txn.append("t", [{"id": 9, "v": 0}]))
        lake.run(lambda txn: txn.update("t", {"v": "1"}, where="id = 4"))
        assert [one.kind for one in lake.keep("b").findings] == ["kept"]
        assert [one.message for one in lake.doctor(files=True).findings] == []
        assert lake.verify().ok
        assert lake.on("b").read("t").num_rows == 6
