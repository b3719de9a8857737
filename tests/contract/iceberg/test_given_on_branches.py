"""Commits of Iceberg clients on a branch: decided in its HEAD, merged, and answered truly."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

import lakevilla as lv
from lakevilla.api.given import TableChange, give
from lakevilla.errors import RefNotFound
from tests.contract.iceberg.test_given import (
    MORE,
    OTHERS,
    Silent,
    append,
    delete_a_row,
    ids,
    lake,
    overwrite_all,
)
from tests.support.iceberg_client import IcebergClient
from tests.support.iceberg_deletes import data_files, deleting, deleting_by_value
from tests.support.inside import inside
from tests.support.stores import InterruptedStore

__all__ = ["lake"]


@pytest.fixture
def etl(lake: lv.Lake) -> lv.Lake:
    lake.branch("etl")
    return lake.on("etl")


@pytest.fixture
def client(etl: lv.Lake) -> IcebergClient:
    return IcebergClient(etl)


def snapshot_of(change: TableChange) -> int:
    (found,) = [one["snapshot"] for one in change.updates if one["action"] == "add-snapshot"]
    return int(found["snapshot-id"])


def test_changes_of_two_tables_are_one_version_of_the_branch(
    lake: lv.Lake, etl: lv.Lake, client: IcebergClient
) -> None:
    changes = [client.request(client.load(name), append) for name in ("t", "u")]
    lake.run(lambda txn: txn.append("t", [{"id": 7, "v": "y"}]))
    answer = give(etl, changes)
    assert (answer.outcome, set(answer.tables)) == ("done", {"t", "u"})
    assert answer.tables["t"].current_id == snapshot_of(changes[0])
    assert len(etl.history()) == 1
    assert (ids(etl), ids(etl, "u"), ids(lake)) == ([1, 2, 3, 4], [1, 2, 3, 4], [1, 2, 3, 7])
    lake.merge("etl", delete=True)
    assert (ids(lake), ids(lake, "u")) == ([1, 2, 3, 4, 7], [1, 2, 3, 4])
    assert sorted(IcebergClient(lake).load("t").scan().to_arrow()["id"].to_pylist()) == ids(lake)
    assert not lake.doctor().findings


@pytest.mark.parametrize("change", [append, delete_a_row, overwrite_all])
def test_lakevilla_and_clients_go_on_from_each_other_on_a_branch(
    etl: lv.Lake, client: IcebergClient, change: Callable[..., object]
) -> None:
    etl.run(lambda txn: txn.update("t", {"v": "'x'"}, where="id = 1"))
    change(client.load("t"))
    etl.run(lambda txn: txn.delete("t", where="id = 3"))
    append(client.load("t"), OTHERS)
    assert client.load("t").scan().to_arrow()["id"].to_pylist().count(9) == 1
    assert sorted(client.load("t").scan().to_arrow()["id"].to_pylist()) == ids(etl)
    assert {one.outcome for one in client.answers} == {"done"}


def test_a_request_is_done_once_whatever_came_on_top_of_it(
    etl: lv.Lake, client: IcebergClient
) -> None:
    change = client.request(client.load("t"), append)
    settings = lv.Settings(retry_limit=1, retry_base_seconds=0.001)
    with lv.connect(etl.root, settings=settings) as gateway:
        branch = gateway.on("etl")
        branch.tables()
        inside(branch).store = Silent(inside(branch).store)
        assert give(branch, [change]).outcome == "unknown"
    assert give(etl, [change]).outcome == "done"
    etl.run(lambda txn: txn.update("t", {"v": "'x'"}, where="id = 4"))
    assert give(etl, [change]).outcome == "done"
    assert ids(etl) == [1, 2, 3, 4]


def test_a_request_that_many_commits_hide_is_not_refused(
    etl: lv.Lake, client: IcebergClient
) -> None:
    """The commits are one object by then, which does not tell whose they were."""
    change = client.request(client.load("t"), append)
    assert give(etl, [change]).outcome == "done"
    for _ in range(18):
        etl.run(lambda txn: txn.append("t", [{"id": 9, "v": "z"}]))
    etl.run(lambda txn: txn.delete("t", where="id = 4"))
    assert give(etl, [change]).outcome == "unknown"
    assert ids(etl).count(9) == 18


def test_a_client_with_an_old_state_of_a_branch_is_refused(
    etl: lv.Lake, client: IcebergClient
) -> None:
    first, second = (client.request(client.load("t"), overwrite_all) for _ in range(2))
    assert give(etl, [first]).outcome == "done"
    assert give(etl, [second]).outcome == "conflict"
    etl.run(lambda txn: txn.append("t", [{"id": 9, "v": "z"}]))
    assert give(etl, [second]).outcome == "conflict"
    assert ids(etl) == [4, 9]


@pytest.mark.parametrize("table", ["t", "u"])
def test_a_state_of_a_branch_is_compared_in_the_head_that_is_replaced(
    etl: lv.Lake, client: IcebergClient, table: str
) -> None:
    """``t`` is written, and ``u`` relied on."""
    changes = [client.request(client.load("t"), append), client.request(client.load("u"), append)]
    changes[1] = replace(changes[1], updates=())

    def append_by_lakevilla() -> None:
        with lv.connect(etl.root) as other:
            other.on("etl").run(lambda txn: txn.append(table, [{"id": 9, "v": "z"}]))

    def is_head(key: str) -> bool:
        return key.endswith("HEAD.json")

    store = InterruptedStore(inside(etl).store, is_head, append_by_lakevilla)
    inside(etl).store = store
    assert give(etl, changes).outcome == "conflict"
    assert store.happened
    assert ids(etl) == [1, 2, 3, 9] if table == "t" else [1, 2, 3]


@pytest.mark.parametrize("table", ["t", "u"])
def test_a_request_of_a_branch_that_was_rebased_is_not_refused(
    lake: lv.Lake, etl: lv.Lake, client: IcebergClient, table: str
) -> None:
    """If only ``u`` has moved, the state below the commits on ``t`` has the id that it had."""
    change = client.request(client.load("t"), append)
    assert give(etl, [change]).outcome == "done"
    lake.run(lambda txn: txn.append(table, [{"id": 7, "v": "y"}]))
    lake.rebase("etl")
    assert give(etl, [change]).outcome == "unknown"
    wanted = [1, 2, 3, 4, 7] if table == "t" else [1, 2, 3, 4]
    assert ids(lake.on("etl")) == wanted
    append(IcebergClient(lake.on("etl")).load("t"), MORE)
    assert ids(lake.on("etl")) == sorted([*wanted, 4])


def test_a_request_of_a_branch_that_was_merged_takes_no_effect_again(
    lake: lv.Lake, etl: lv.Lake, client: IcebergClient
) -> None:
    change, late = (client.request(client.load("t"), append) for _ in range(2))
    assert give(etl, [change]).outcome == "done"
    lake.merge("etl", delete=True)
    for one in (change, late):
        with pytest.raises(RefNotFound):
            give(etl, [one])
    assert ids(lake) == [1, 2, 3, 4]
    lake.branch("etl")
    assert give(lake.on("etl"), [change]).outcome == "unknown"


def test_a_client_goes_on_after_a_merge_that_keeps_the_branch(
    lake: lv.Lake, etl: lv.Lake, client: IcebergClient
) -> None:
    append(client.load("t"))
    lake.merge("etl")
    change = client.request(client.load("t"), delete_a_row)
    assert give(etl, [change]).outcome == "done"
    lake.merge("etl", delete=True)
    assert ids(lake) == [1, 3, 4]


def test_files_that_a_clean_up_of_the_lake_would_delete_are_refused(
    lake: lv.Lake, etl: lv.Lake, client: IcebergClient
) -> None:
    main = IcebergClient(lake)
    change = main.request(main.load("t"), append)
    answer = give(etl, [change])
    assert answer.outcome == "invalid"
    assert "store it below the location that a load tells" in answer.message
    assert ids(etl) == [1, 2, 3]


def test_a_table_that_was_made_on_the_branch_is_written(
    lake: lv.Lake, etl: lv.Lake, client: IcebergClient
) -> None:
    etl.create_table("new", MORE, format="iceberg")
    assert client.load("new").scan().to_arrow()["id"].to_pylist() == [4]
    append(client.load("new"), OTHERS)
    assert ids(etl, "new") == [4, 9]
    lake.merge("etl", delete=True)
    assert ids(lake, "new") == [4, 9]
    assert not Path(lake.root, "new/data").exists()


def test_a_table_of_version_3_gets_row_ids_by_the_merge(lake: lv.Lake) -> None:
    rows = MORE.slice(0, 1)
    lake.create_table("w", rows, format="iceberg", properties={"format-version": "3"})
    lake.branch("etl")
    lake.on("etl").run(lambda txn: txn.append("w", OTHERS))
    shown = give(lake.on("etl"), [TableChange("w")]).tables["w"]
    assert shown.next_row_id == 2
    change = [{"action": "set-properties", "updates": {"owner": "ann"}}]
    assert give(lake.on("etl"), [TableChange("w", (), change)]).outcome == "done"
    lake.merge("etl", delete=True)
    assert ids(lake, "w") == [4, 9]
    assert lake.verify().ok


# -- deletes of rows ---------------------------------------------------------------------


def test_position_deletes_of_several_files_become_marks_of_the_branch(
    lake: lv.Lake, etl: lv.Lake, client: IcebergClient
) -> None:
    """They lie in one file, and are no part of the branch: a merge carries marks alone."""
    append(client.load("t"), OTHERS)
    table = client.load("t")
    files = data_files(table)
    request = deleting(table, {file: [0] for file in files})
    wanted = [one for one in ids(etl) if one not in (1, 9)]
    answer = give(etl, [request])
    assert (answer.outcome, ids(etl)) == ("done", wanted)
    assert answer.tables["t"].current_id == snapshot_of(request)
    assert give(etl, [request]).outcome == "done", "asked again"
    shown = client.load("t")
    assert sorted(shown.scan().to_arrow()["id"].to_pylist()) == wanted
    named = {one.file_path for task in shown.scan().plan_files() for one in task.delete_files}
    assert len(named) == 2
    assert all(one.endswith("-deletes.parquet") and "/lv-h-" in one for one in named)
    again = deleting(shown, {files[0]: [0, 1]})
    etl.run(lambda txn: txn.append("t", [{"id": 7, "v": "y"}]))
    assert give(etl, [again]).outcome == "conflict"
    lake.merge("etl", delete=True)
    assert ids(lake) == sorted([*wanted, 7])
    assert not lake.doctor().findings


def test_equality_deletes_are_refused_by_name_on_a_branch(
    etl: lv.Lake, client: IcebergClient
) -> None:
    answer = give(etl, [deleting_by_value(client.load("t"), "id", [2])])
    assert answer.outcome == "unsupported"
    assert "equality deletes" in answer.message
    assert ids(etl) == [1, 2, 3]


def test_deletes_that_can_not_be_read_are_refused_on_a_branch(
    lake: lv.Lake, etl: lv.Lake, client: IcebergClient
) -> None:
    table = client.load("t")
    request = deleting(table, {file: [0] for file in data_files(table)})
    (file,) = Path(lake.root, "t/_lakevilla/b").rglob("*-deletes.parquet")
    file.write_bytes(b"no file of Parquet")
    answer = give(etl, [request])
    assert (answer.outcome, ids(etl)) == ("invalid", [1, 2, 3])


def test_deletes_that_would_bring_rows_back_are_refused_on_a_branch(
    etl: lv.Lake, client: IcebergClient
) -> None:
    """The request deletes as many rows of the file as are deleted, and others."""
    (path,) = data_files(client.load("t"))
    assert give(etl, [deleting(client.load("t"), {path: [0]})]).outcome == "done"
    left = ids(etl)
    answer = give(etl, [deleting(client.load("t"), {path: [1]}, alone=True)])
    assert (answer.outcome, ids(etl)) == ("unsupported", left)
    assert "would come back" in answer.message
