"""Refs that one client protects or deletes while another client replaces HEAD."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import lakevilla as lv
from lakevilla.global_log import leaves
from lakevilla.lake.context import Context
from lakevilla.lake.tables import registration
from lakevilla.lake.tables.discovery import FoundTable
from lakevilla.store.base import Condition, Failure, Refused, Stored, WrappedStore
from lakevilla.store.effects import Program
from tests.support.inside import inside
from tests.support.stores import interrupted, is_head
from tests.support.tables import accounts, values


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[lv.Lake]:
    with lv.connect(tmp_path / "lake") as lake:
        lake.create_table("t", accounts(1))
        yield lake


@pytest.fixture
def other(lake: lv.Lake) -> Iterator[lv.Lake]:
    with lv.connect(lake.root) as other:
        yield other


def names(lake: lv.Lake) -> list[str]:
    return [ref.name for ref in lake.refs()]


def test_a_branch_that_is_protected_during_its_merge_is_not_deleted(
    lake: lv.Lake, other: lv.Lake
) -> None:
    """Protecting the branch conflicts with the merge, which runs again and finds it protected."""
    lake.branch("b")
    lake.on("b").run(lambda txn: txn.append("t", accounts(1, 7)))
    runs: list[int] = []

    def check(txn: lv.Transaction) -> bool:
        runs.append(1)
        if len(runs) == 1:
            other.protect("b")
        return True

    lake.merge("b", delete=True, checks=[check])
    assert len(runs) == 2
    assert values(lake.read("t"), "balance") == [7, 100]
    assert names(other) == ["b"]
    other.on("b").run(lambda txn: txn.append("t", accounts(1, 8)))


def closes_a_branch(key: str) -> bool:
    return "/branches/" in key and key.endswith("HEAD.json")


def test_a_branch_that_is_protected_right_before_it_is_closed_is_not_deleted(
    lake: lv.Lake, other: lv.Lake
) -> None:
    lake.branch("b")
    with (
        interrupted(lake, closes_a_branch, lambda: other.protect("b")),
        pytest.raises(lv.InvalidOperation, match="'b' is protected"),
    ):
        lake.delete_ref("b")
    other.on("b").run(lambda txn: txn.append("t", accounts(1, 8)))
    other.protect("b", on=False)
    with interrupted(lake, closes_a_branch, lambda: other.protect("b")):
        lake.merge("b", delete=True)
    assert [(ref.name, ref.protected) for ref in lake.refs()] == [("b", True)]


def test_protecting_a_tag_that_is_deleted_meanwhile_raises(lake: lv.Lake, other: lv.Lake) -> None:
    lake.tag("closing")
    with (
        interrupted(lake, is_head, lambda: other.delete_ref("closing")),
        pytest.raises(lv.RefNotFound, match="closing"),
    ):
        lake.protect("closing")
    assert names(lake) == []


def test_unregister_is_refused_on_a_head_that_was_set_back(lake: lv.Lake) -> None:
    """Tags in the newest HEAD keep the table, so its claim must stay."""
    head = Path(lake.root, "_lakevilla/HEAD.json")
    claim = Path(lake.root, "t/_lakevilla/lake.json")
    older = head.read_bytes()
    lake.tag("closing")
    lake.tag("opening")
    newest = head.read_bytes()
    head.write_bytes(older)
    claimed = claim.read_bytes()
    with lv.connect(lake.root) as late, pytest.raises(lv.CorruptObject, match="set back"):
        late.unregister("t")
    assert claim.read_bytes() == claimed
    head.write_bytes(newest)
    with lv.connect(lake.root) as restored:
        assert sorted(names(restored)) == ["closing", "opening"]
        assert restored.on("closing").read("t").num_rows == 1


def test_tables_are_found_in_a_lake_with_leaves_that_another_client_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaves, "INLINE_BYTES", 300)
    monkeypatch.setattr(leaves, "LEAF_BYTES", 300)
    settings = lv.Settings(cache_bytes=0)
    root = tmp_path / "many"
    with lv.connect(root, settings=settings) as lake, lv.connect(root, settings=settings) as other:
        for number in range(4):
            lake.create_table(f"t{number}", accounts(1))
        write_deltalake(str(root / "found"), pa.table({"id": [1]}))
        register_found = registration.register_found

        def later(context: Context, found: Sequence[FoundTable]) -> Program[list[FoundTable]]:
            other.create_table("new", accounts(1))
            return (yield from register_found(context, found))

        monkeypatch.setattr(registration, "register_found", later)
        lake.register(discover=True)
        assert {"found", "new"} < {table.name for table in other.tables()}


class DiesAtHead(WrappedStore):
    """A store whose client dies before it replaces the lake's HEAD."""

    class Death(BaseException):
        pass

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        if key == "_lakevilla/HEAD.json":
            raise self.Death
        return self.inner.put(key, body, condition)


def test_recover_removes_a_deleted_branch_though_another_client_commits_meanwhile(
    lake: lv.Lake, other: lv.Lake
) -> None:
    lake.branch("b")
    with lv.connect(lake.root) as dying:
        inside(dying).store = DiesAtHead(inside(dying).store)
        with pytest.raises(DiesAtHead.Death):
            dying.delete_ref("b")
    commit = lambda: other.run(lambda txn: txn.append("t", accounts(1, 2)))  # noqa: E731
    with interrupted(lake, is_head, commit):
        report = lake.recover()
    assert [one.kind for one in report.findings] == ["ref_ended"]
    held = inside(other).run(inside(other).context.head())
    assert held is not None
    assert list(held.head.refs) == []
