"""Branches under ``gc``, ``drop_table``, ``doctor`` and ``verify``."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

import lakevilla as lv
from lakevilla.global_log import leaves
from lakevilla.store.base import WrappedStore
from tests.support.inside import inside
from tests.support.tables import values

_NO_WAIT = lv.Settings(max_age_seconds=0, outcome_retention_seconds=0, reuse_after_seconds=0)
_ROWS = [{"id": number} for number in range(3)]


class _Died(BaseException):
    """The client dies."""


class _DiesAtHeads(WrappedStore):
    def delete(self, key: str) -> None:
        if key.endswith("HEAD.json"):
            raise _Died
        self.inner.delete(key)


def _connect(root: Path) -> lv.Lake:
    return lv.connect(str(root), settings=_NO_WAIT)


def _of_branches(root: Path) -> set[str]:
    """Return the files of all branches, in their own directories and in tables' directories."""
    files = (path.relative_to(root).as_posix() for path in root.rglob("*"))
    ours = (one for one in files if "_lakevilla/branches/" in one or "_lakevilla/b/" in one)
    return {one for one in ours if one.endswith((".json", ".parquet"))}


def _small_leaves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leaves, "INLINE_BYTES", 300)
    monkeypatch.setattr(leaves, "LEAF_BYTES", 300)


def _lake_with_leaves(root: Path) -> lv.Lake:
    lake = _connect(root)
    for number in range(4):
        lake.create_table(f"t{number}", _ROWS)
    lake.branch("b")
    with lake.on("b") as branch:
        branch.create_table("new", _ROWS)
    return lake


def test_gc_works_while_a_tag_keeps_leaves_of_a_deleted_branch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _small_leaves(monkeypatch)
    with _lake_with_leaves(tmp_path) as lake:
        lake.tag("T", at="b")
        with lake.on("b") as branch:
            branch.create_table("new2", _ROWS)
        lake.delete_ref("b")
    for number in range(3):
        with _connect(tmp_path) as lake:
            lake.create_table(f"t0{number}", _ROWS)  # replaces a leaf of the lake
            assert lake.gc().ok
            assert lake.on("T").read("new").num_rows == 3
    with _connect(tmp_path) as lake:
        lake.delete_ref("T")
        assert lake.gc().ok
        assert lake.gc().ok
    assert _of_branches(tmp_path) == set()


def test_gc_finishes_a_gc_that_died_before_it_deleted_the_head_of_a_branch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _small_leaves(monkeypatch)
    with _lake_with_leaves(tmp_path) as lake:
        lake.delete_ref("b")
        inside(lake).store = _DiesAtHeads(inside(lake).store)
        with pytest.raises(_Died):
            lake.gc()
    assert _of_branches(tmp_path) != set()
    with _connect(tmp_path) as lake:
        assert lake.gc().ok
    assert _of_branches(tmp_path) == set()


def test_gc_warns_of_a_deleted_branch_with_a_missing_leaf_and_keeps_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _small_leaves(monkeypatch)
    with _lake_with_leaves(tmp_path) as lake:
        lake.delete_ref("b")
    for path in tmp_path.glob("_lakevilla/branches/*/leaves/*"):
        path.unlink()
    before = _of_branches(tmp_path)
    with _connect(tmp_path) as lake:
        report = lake.gc()
    assert not report.ok
    assert "warning" in [one.severity for one in report.findings]
    assert _of_branches(tmp_path) == before


def test_gc_keeps_a_branchs_table_inside_a_table_of_the_lake_until_no_ref_has_it(
    tmp_path: Path,
) -> None:
    with _connect(tmp_path) as lake:
        lake.create_table("o", _ROWS)
        lake.branch("b")
        with lake.on("b") as branch:
            branch.create_table("t/inner", _ROWS)
        lake.create_table("t", _ROWS)
        time.sleep(0.02)
        lake.gc()
        with lake.on("b") as branch:
            assert branch.read("t/inner").num_rows == 3
        lake.tag("T", at="b")
        lake.delete_ref("b")
        lake.gc()
        assert lake.on("T").read("t/inner").num_rows == 3
        lake.delete_ref("T")
        lake.gc()
        lake.gc()
        assert lake.read("t").num_rows == 3
    assert _of_branches(tmp_path) == set()


@pytest.mark.parametrize("kind", ["branch", "tag"])
def test_drop_table_with_data_keeps_a_table_of_a_ref_inside_the_directory(
    tmp_path: Path, kind: str
) -> None:
    with _connect(tmp_path) as lake:
        lake.create_table("o", _ROWS)
        lake.branch("b")
        with lake.on("b") as branch:
            branch.create_table("t/inner", _ROWS)
        if kind == "tag":
            lake.tag("T", at="b")
            lake.delete_ref("b")
        lake.create_table("t", _ROWS)
        lake.drop_table("t", delete_data=True)
        if kind == "tag":
            assert lake.on("T").read("t/inner").num_rows == 3
        else:
            with lake.on("b") as branch:
                assert branch.read("t/inner").num_rows == 3


def test_gc_warns_of_a_deleted_branch_with_a_damaged_head_and_keeps_its_files(
    tmp_path: Path,
) -> None:
    with _connect(tmp_path) as lake:
        lake.create_table("o", _ROWS)
        lake.branch("b")
        with lake.on("b") as branch:
            branch.create_table("new", _ROWS)
    (head,) = tmp_path.glob("_lakevilla/branches/*/HEAD.json")
    sound = head.read_bytes()
    head.write_bytes(b"{")
    with _connect(tmp_path) as lake:
        lake.delete_ref("b")
        before = _of_branches(tmp_path)
        for _ in range(2):
            report = lake.gc()
            assert not report.ok
            key = head.relative_to(tmp_path).as_posix()
            assert [one.key for one in report.findings if one.severity == "warning"] == [key]
        assert _of_branches(tmp_path) == before
    head.write_bytes(sound)  # restored from a copy
    with _connect(tmp_path) as lake:
        assert lake.gc().ok
    assert _of_branches(tmp_path) == set()


@pytest.mark.parametrize("verb", ["doctor", "verify"])
def test_doctor_and_verify_report_a_missing_leaf_of_refs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    _small_leaves(monkeypatch)
    with _connect(tmp_path) as lake:
        lake.create_table("t", _ROWS)
        for number in range(6):
            lake.tag(f"T{number}")
        held = inside(lake).held
        assert held is not None
        key = held.head.refs.refs[0].key
    (tmp_path / key).unlink()
    with _connect(tmp_path) as lake:
        report = getattr(lake, verb)()
    assert not report.ok
    assert key in [one.key for one in report.findings]


def test_doctor_reports_the_missing_state_of_the_last_merge(tmp_path: Path) -> None:
    with _connect(tmp_path) as lake:
        lake.create_table("t", _ROWS)
        lake.branch("b")
        with lake.on("b") as branch, branch.transaction() as txn:
            txn.append("t", _ROWS)
        lake.merge("b")
        held = inside(lake).held
        assert held is not None
        synced = held.head.refs["b"].synced
        assert synced is not None
        assert lake.doctor().ok
    (tmp_path / synced.key).unlink()
    with _connect(tmp_path) as lake:
        report = lake.doctor()
    assert not report.ok
    assert [one.key for one in report.findings if one.severity == "error"] == [synced.key]


def test_doctor_reports_the_missing_base_of_a_deleted_clone_that_a_tag_shows(
    tmp_path: Path,
) -> None:
    with _connect(tmp_path) as lake:
        lake.create_table("s/t", _ROWS)
        lake.clone("s", "a")
        lake.tag("T")
        held = inside(lake).run(inside(lake).context.head())
        assert held is not None
        base = held.head.refs["a"].base
        lake.drop_table("a/t")
        lake.delete_ref("a")
        assert lake.doctor().ok
    (tmp_path / base.key).unlink()
    with _connect(tmp_path) as lake:
        report = lake.doctor()
    assert not report.ok
    assert base.key in [one.key for one in report.findings if one.severity == "error"]


def test_gc_deletes_files_of_a_deleted_branch_in_a_deleted_tables_directory(
    tmp_path: Path,
) -> None:
    with _connect(tmp_path) as lake:
        lake.create_table("other", _ROWS)
        lake.branch("b")
        with lake.on("b") as branch:
            branch.create_table("t", _ROWS)
        lake.create_table("t", _ROWS)
        lake.drop_table("t", delete_data=True)
        lake.gc()
        assert lake.on("b").read("t").num_rows == 3
        lake.delete_ref("b")
        lake.gc()
        lake.gc()
        assert _of_branches(tmp_path) == set()


@pytest.mark.usefixtures("marks_in_small_files")
def test_gc_keeps_the_vectors_of_a_rebased_branchs_earliest_epoch(tmp_path: Path) -> None:
    marked = {"delta.enableDeletionVectors": "true"}
    with _connect(tmp_path) as lake:
        lake.create_table("t", [{"id": n} for n in range(100)], properties=marked)
        lake.create_table("u", [{"id": 1}])
        lake.branch("etl")
        lake.on("etl").run(lambda txn: txn.delete("t", where="id = 0"))
        for number in (2, 3):
            lake.run(lambda txn, n=number: txn.append("u", [{"id": n}]))
            lake.rebase("etl")
        lake.gc()
    with _connect(tmp_path) as lake:
        assert values(lake.on("etl").read("t")) == list(range(1, 100))
        lake.merge("etl", delete=True)
        assert values(lake.read("t")) == list(range(1, 100))
