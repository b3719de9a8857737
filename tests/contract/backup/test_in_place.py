"""A lake that is set back to a backup in place, while clients of the old one run (note 84)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import lakevilla as lv
from tests.support.backups import MAIN, beside, fill, rows_of, sell, shown
from tests.support.places import Place

HEAD = "_lakevilla/HEAD.json"
#: The errors of a client that knows the lake as it was before.
NEVER = (lv.CorruptObject, lv.ConflictError, lv.TransactionAborted, lv.CommitOutcomeUnknown)


def head_of(root: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((Path(root) / HEAD).read_bytes())
    return found


def backed_up(place: Place) -> tuple[str, dict[str, dict[str, list[tuple[object, ...]]]]]:
    """Fill a lake and back it up; return the backup, and what the lake showed."""
    with place.connect() as lake:
        fill(lake)
        made = lake.backup(beside(lake.root, "copy"))
        return made.target, shown(lake)


def test_a_lake_in_place_shows_what_it_showed_at_the_backup(shared_place: Place) -> None:
    target, before = backed_up(shared_place)
    with shared_place.connect() as lake:
        sell(lake, "jam")
        lake.drop_table("sales/orders")
        lake.create_table("later", [{"id": 1}])
    with pytest.raises(lv.InvalidOperation, match="is not empty"):
        lv.restore(target, shared_place.root)
    report = lv.restore(target, shared_place.root, in_place=True)
    assert [f.table for f in report.findings if f.kind == "not_in_backup"] == ["later"]
    with shared_place.connect() as lake:
        after = shown(lake)
        assert after[MAIN].pop("later") == [(1,)]
        assert after == before
        lake.recover(confirm_head=True)
        assert lake.verify().ok
        assert lake.doctor().ok


def test_other_clients_read_the_restored_rows_as_a_new_version(shared_place: Place) -> None:
    target, _ = backed_up(shared_place)
    with shared_place.connect() as lake:
        sell(lake, "jam")
        count = len(lake.table("stock").versions())
        lv.restore(target, shared_place.root, in_place=True)
    assert shared_place.seen("stock") == [{"sku": "jam", "qty": 7}, {"sku": "tea", "qty": 4}]
    with shared_place.connect() as lake:
        assert len(lake.table("stock").versions()) == count + 1


def test_a_commit_of_another_client_after_the_backup_stays_in_the_log(
    shared_place: Place,
) -> None:
    target, before = backed_up(shared_place)
    shared_place.write("stock", [{"sku": "nut", "qty": 3}])
    lv.restore(target, shared_place.root, in_place=True)
    with shared_place.connect() as lake:
        assert rows_of(lake, "stock") == before[MAIN]["stock"]
        versions = lake.table("stock").versions()
        with_nut = lake.table("stock").read(version=versions[1].version)
        assert "nut" in with_nut["sku"].to_pylist()


def test_a_transaction_of_the_old_lake_never_commits(shared_place: Place) -> None:
    target, before = backed_up(shared_place)
    with shared_place.connect() as old:
        begun = old.transaction()
        begun.append("stock", [{"sku": "late", "qty": 1}])
        old_id = head_of(old.root)["lake_id"]
        lv.restore(target, shared_place.root, in_place=True)
        with pytest.raises(NEVER):
            begun.commit()
    now = head_of(shared_place.root)
    assert now["lake_id"] != old_id
    assert old_id in now["former"]
    with shared_place.connect() as lake:
        assert shown(lake) == before


def test_a_key_that_was_used_before_raises_outcome_unknown(shared_place: Place) -> None:
    def keyed(lake: lv.Lake, key: str) -> None:
        with lake.transaction(idempotency_key=key) as txn:
            txn.append("stock", [{"sku": key, "qty": 1}])

    with shared_place.connect() as lake:
        fill(lake)
        keyed(lake, "before")
        target = lake.backup(beside(lake.root, "copy")).target
        keyed(lake, "after")
    lv.restore(target, shared_place.root, in_place=True)
    root = beside(shared_place.root, "restored")
    lv.restore(target, root)
    for place in (shared_place.root, root):
        with lv.connect(place) as lake:
            for key in ("before", "after"):
                with pytest.raises(lv.CommitOutcomeUnknown):
                    keyed(lake, key)


def test_the_number_of_head_is_above_all_that_were_given(shared_place: Place) -> None:
    target, _ = backed_up(shared_place)
    with shared_place.connect() as lake:
        for _ in range(3):
            sell(lake, "tea")
    last = head_of(shared_place.root)
    lv.restore(target, shared_place.root, in_place=True)
    again = head_of(shared_place.root)
    for number in ("replacement", "sequence"):
        assert again[number] > last[number]


@pytest.mark.parametrize(
    "lost", ["HEAD", "all of _lakevilla", "a data file", "a log", "a table", "everything"]
)
def test_a_restore_brings_back_what_is_lost(shared_place: Place, lost: str) -> None:
    target, before = backed_up(shared_place)
    root = Path(shared_place.root)
    match lost:
        case "HEAD":
            (root / HEAD).unlink()
        case "all of _lakevilla":
            shutil.rmtree(root / "_lakevilla")
        case "a data file":
            next((root / "stock").rglob("lv-*.parquet")).unlink()
        case "a log":
            log = "metadata" if shared_place.format == "iceberg" else "_delta_log"
            shutil.rmtree(root / "stock" / log)
        case "a table":
            shutil.rmtree(root / "stock")
        case "everything":
            shutil.rmtree(root)
    lv.restore(target, shared_place.root, in_place=True)
    with shared_place.connect() as lake:
        assert shown(lake) == before
        lake.recover(confirm_head=True)
        assert lake.verify().ok


def test_nothing_of_the_old_lake_is_deleted(shared_place: Place) -> None:
    target, _ = backed_up(shared_place)
    with shared_place.connect() as lake:
        sell(lake, "jam")

    def objects() -> set[str]:
        return {
            str(path)
            for path in Path(shared_place.root).rglob("*")
            if path.is_file() and not {"probe", "inbox"} & set(path.parts)
        }

    before = objects()
    lv.restore(target, shared_place.root, in_place=True)
    assert before <= objects()


def test_a_table_that_took_the_place_of_another_one_becomes_that_again(
    shared_place: Place,
) -> None:
    target, before = backed_up(shared_place)
    with shared_place.connect() as lake:
        lake.create_table("stock", [{"other": 1}], or_replace=True)
    lv.restore(target, shared_place.root, in_place=True)
    with shared_place.connect() as lake:
        assert shown(lake) == before


def test_a_tag_of_a_log_that_is_lost_shows_no_other_state(shared_place: Place) -> None:
    """The log that is made anew has a version of the same number."""
    target, _ = backed_up(shared_place)
    with shared_place.connect() as lake:
        lake.tag("later", at="closing")
    log = "metadata" if shared_place.format == "iceberg" else "_delta_log"
    shutil.rmtree(Path(shared_place.root) / "stock" / log)
    lv.restore(target, shared_place.root, in_place=True)
    with shared_place.connect() as lake:
        with pytest.raises(lv.VersionNotFound, match="stock can't be read in tag 'later'"):
            lake.on("later").read("stock")
        assert lake.on("later").read("sales/orders").num_rows == 1


def test_a_branch_that_went_on_stays(shared_place: Place) -> None:
    target, _ = backed_up(shared_place)
    with shared_place.connect() as lake:
        lake.on("etl").run(lambda txn: txn.append("stock", [{"sku": "oil", "qty": 1}]))
    report = lv.restore(target, shared_place.root, in_place=True)
    assert [f.kind for f in report.findings].count("ref_kept") == 2
    with shared_place.connect() as lake:
        assert ("oil", 1) in rows_of(lake.on("etl"), "stock")


def test_a_branch_stays_where_another_table_has_taken_the_place_of_one(
    shared_place: Place,
) -> None:
    target, _ = backed_up(shared_place)
    with shared_place.connect() as lake:
        lake.on("etl").run(lambda txn: txn.append("sales/orders", [{"sku": "oil", "qty": 1}]))
        lake.create_table("stock", [{"other": 1}], or_replace=True)
    lv.restore(target, shared_place.root, in_place=True)
    with shared_place.connect() as lake:
        assert ("oil", 1) in rows_of(lake.on("etl"), "sales/orders")


def test_a_name_that_another_table_has_by_now_stays_with_that(shared_place: Place) -> None:
    with shared_place.connect() as lake:
        lake.create_table("first", [{"id": 1}])
        lake.rename_table("first", "named")
        target = lake.backup(beside(lake.root, "copy")).target
        lake.rename_table("named", "again")
        lake.create_table("named", [{"id": 2}])
    lv.restore(target, shared_place.root, in_place=True)
    with shared_place.connect() as lake:
        assert (rows_of(lake, "named"), rows_of(lake, "again")) == ([(2,)], [(1,)])


def test_a_lake_restored_beside_takes_no_backup_in_the_directory_of_the_first(
    local_place: Place,
) -> None:
    """It has higher numbers, so its backup would be the newest one of the first lake."""
    target, _ = backed_up(local_place)
    root = beside(local_place.root, "drill")
    lv.restore(target, root)
    with lv.connect(root) as drill:
        drill.recover(confirm_head=True)
        drill.run(lambda txn: txn.delete("stock", where="true"))
        with pytest.raises(lv.InvalidOperation, match="the backups of another lake"):
            drill.backup(target)
    with local_place.connect() as lake:
        sell(lake, "jam")
        before = shown(lake)
        lake.backup(target)
    lv.restore(target, local_place.root, in_place=True)
    with local_place.connect() as lake:
        assert shown(lake)[MAIN] == before[MAIN]
        lake.backup(target)  # at the same root, the lake goes on with its directory


def test_another_lake_is_not_set_back_to_the_backup(local_place: Place) -> None:
    target, _ = backed_up(local_place)
    root = beside(local_place.root, "other")
    with lv.connect(root) as other:
        other.create_table("stock", [{"id": 1}])
        head = head_of(root)
        with pytest.raises(lv.InvalidOperation, match="has another lake"):
            lv.restore(target, root, in_place=True)
        assert head_of(root) == head
        assert rows_of(other, "stock") == [(1,)]


@pytest.mark.parametrize("versions", [1, 6])
def test_refs_come_back_where_another_client_has_made_a_log_anew(
    local_place: Place, versions: int
) -> None:
    target, before = backed_up(local_place)
    shutil.rmtree(Path(local_place.root) / "stock")
    for number in range(versions):
        rows = pa.table({"sku": [f"new {number}"], "qty": pa.array([number], pa.int64())})
        write_deltalake(f"{local_place.root}/stock", rows, mode="append")
    lv.restore(target, local_place.root, in_place=True)
    with local_place.connect() as lake:
        assert shown(lake) == before
        lake.recover(confirm_head=True)
        lake.gc()
        lake.merge("etl", on_conflict="theirs")
        assert ("ham", 2) in rows_of(lake, "stock")


def test_a_rebuilt_head_keeps_the_files_of_a_restored_branch(local_place: Place) -> None:
    """They are in the directory of an epoch that the branch had under another id."""
    target, before = backed_up(local_place)
    shutil.rmtree(Path(local_place.root) / "stock")
    lv.restore(target, local_place.root, in_place=True)
    with local_place.connect() as lake:
        lake.recover(confirm_head=True)
    lv.restore(target, local_place.root, in_place=True)
    with local_place.connect() as lake:
        lake.recover(confirm_head=True)
        lake.gc()
        assert shown(lake)["etl"] == before["etl"]
