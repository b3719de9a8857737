"""A commit that is decided and not published, and whose commit object is lost (note 19)."""

from __future__ import annotations

import contextlib
import shutil
from pathlib import Path

import pyarrow as pa
import pytest

import lakevilla as lv
from tests.support.inside import inside
from tests.support.places import Place, fill
from tests.support.stores import Closed, interrupted, is_entry
from tests.support.tables import accounts, add, contents


@pytest.fixture
def place(shared_place: Place) -> Place:
    fill(shared_place, {"bank": accounts(4), "other": accounts(1)})
    with shared_place.connect() as lake:
        lake.register({"bank": "bank", "other": "other"})
    return shared_place


def left(lake: lv.Lake) -> tuple[str, Path]:
    """Decide two commits without publishing to ``bank``; return id and object of the first."""
    inner = inside(lake).store
    inside(lake).store = Closed(inner, is_entry("bank"))
    with lake.transaction() as first:
        add(first, 1, 5)
        first.append("other", [{"id": 8, "balance": 8}])
    with lake.transaction() as second:
        add(second, 1, 7)
        add(second, 2, 7)
        second.append("bank", [{"id": 9, "balance": 9}])
    inside(lake).store = inner
    (found,) = (Path(lake.root) / "_lakevilla" / "commits").glob(f"{first.id}-*.json")
    return first.id, found


def voids(report: lv.Report) -> list[lv.Finding]:
    return [finding for finding in report.findings if finding.kind == "voided"]


def everywhere(place: Place, table: str = "bank") -> dict[int, int]:
    """Return the rows; clients with and without LakeVilla must read the same ones, once each."""
    with place.connect() as lake:
        ours = lake.snapshot().read(table).sort_by("id").to_pylist()
    assert ours == place.seen(table)
    assert len({row["id"] for row in ours}) == len(ours)
    return {row["id"]: row["balance"] for row in ours}


def goes_on(place: Place) -> None:
    """Assert that recover finds no problem, and that a new commit is published."""
    with place.connect() as lake:
        assert lake.recover().ok
        with lake.transaction() as txn:
            add(txn, 0, 1)
        assert txn.result is not None
        assert txn.result.versions is not None
        assert txn.result.versions["bank"] is not None


def test_recover_voids_the_lost_commit_and_reports_it_and_later_commits_are_published(
    place: Place,
) -> None:
    with place.connect() as lake:
        lost, found = left(lake)
    found.unlink()
    key = found.relative_to(place.root).as_posix()
    before = contents(place.root)
    with place.connect() as lake:
        # Other verbs void no commit, since a client may still have a copy of the object.
        with pytest.raises(lv.CorruptObject, match="lakevilla recover") as caught:
            lake.run(lambda txn: add(txn, 0, 1))
        assert caught.value.key == key
        assert key in {finding.key for finding in lake.doctor().findings}
        assert contents(place.root) == before
        report = lake.recover()
    (void,) = voids(report)
    assert not report.ok
    assert (void.severity, void.table, void.txn_id, void.key) == ("error", "bank", lost, key)
    goes_on(place)
    assert everywhere(place) == {0: 101, 1: 107, 2: 107, 3: 100, 9: 9}
    assert everywhere(place, "other") == {0: 100, 8: 8}, "there it was published"


def test_maintain_reports_a_lost_commit_and_voids_nothing_until_it_is_restored(
    place: Place,
) -> None:
    with place.connect() as lake:
        _, found = left(lake)
    key, body = found.relative_to(place.root).as_posix(), found.read_bytes()
    found.unlink()
    with place.connect() as lake:
        report = lake.maintain()
        assert key in {finding.key for finding in report.findings if finding.severity == "error"}
        assert voids(report) == []
    found.write_bytes(body)
    goes_on(place)
    assert everywhere(place) == {0: 101, 1: 112, 2: 107, 3: 100, 9: 9}


def test_recover_voids_nothing_if_a_client_with_the_commit_in_memory_publishes_first(
    place: Place,
) -> None:
    """The owner's log entry is written before the one by which recover would void the commit."""
    with place.connect() as owner, place.connect() as helper:
        _, found = left(owner)
        found.unlink()
        with interrupted(helper, is_entry("bank"), owner.recover):
            report = helper.recover()
        assert voids(report) == []
    goes_on(place)
    assert everywhere(place) == {0: 101, 1: 112, 2: 107, 3: 100, 9: 9}


def test_a_client_with_the_lost_commit_in_memory_can_not_publish_it_after_recover(
    place: Place,
) -> None:
    """The owner's log entry is refused, as recover's is there; no commit is published twice."""
    reports = []
    with place.connect() as owner, place.connect() as helper:
        lost, found = left(owner)
        found.unlink()
        with interrupted(owner, is_entry("bank"), lambda: reports.append(helper.recover())):
            owner.recover()
        assert [void.txn_id for void in voids(reports[0])] == [lost]
    goes_on(place)
    assert everywhere(place) == {0: 101, 1: 107, 2: 107, 3: 100, 9: 9}


def test_an_interrupted_recovery_is_finished_by_the_next_one(place: Place) -> None:
    """The first recover writes its log entry and not HEAD; the second continues from the entry."""
    with place.connect() as lake:
        lost, found = left(lake)
    found.unlink()
    with place.connect() as helper:

        def stop() -> None:
            raise KeyboardInterrupt

        with (
            pytest.raises(KeyboardInterrupt),
            interrupted(helper, lambda key: key == "_lakevilla/HEAD.json", stop),
        ):
            helper.recover()
    with place.connect() as lake:
        assert [void.txn_id for void in voids(lake.recover())] == [lost]
    goes_on(place)
    assert everywhere(place) == {0: 101, 1: 107, 2: 107, 3: 100, 9: 9}


def test_a_table_whose_creation_was_in_the_lost_commit_is_not_created(place: Place) -> None:
    with place.connect() as lake:
        lake.unregister("bank")
    for path in sorted(Path(place.uri("bank")).rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    Path(place.uri("bank")).rmdir()
    schema = pa.schema([("id", pa.int64()), ("balance", pa.int64())])
    with place.connect() as lake:
        inside(lake).store = Closed(inside(lake).store, is_entry("bank"))
        with lake.transaction() as txn:
            txn.create_table("bank", schema)
            txn.append("other", [{"id": 8, "balance": 8}])
    (found,) = (Path(place.root) / "_lakevilla" / "commits").glob(f"{txn.id}-*.json")
    found.unlink()
    with place.connect() as lake:
        (void,) = voids(lake.recover())
        assert void.txn_id == txn.id
        assert lake.recover().ok
        lake.create_table("bank", schema)
        with lake.transaction() as later:
            later.append("bank", [{"id": 1, "balance": 1}])
    assert everywhere(place) == {1: 1}
    assert everywhere(place, "other") == {0: 100, 8: 8}


MADE_AND_GONE = {
    "recover": lambda lake: lake.recover(),
    "a commit through HEAD": lambda lake: lake.run(lambda txn: txn.append("new", ACCOUNT)),
    "a commit by log entry": lambda lake: lake.run(
        lambda txn: txn.append("new", ACCOUNT), features=lv.Feature.NONE
    ),
}
ACCOUNT = [{"id": 1, "balance": 1}]


@pytest.mark.parametrize("how", MADE_AND_GONE)
def test_a_table_whose_directory_was_deleted_is_not_created_again_without_its_files(
    place: Place, how: str
) -> None:
    with place.connect() as lake:
        lake.create_table("new", accounts(2))
        (made,) = [one for one in lake.history() if "new" in one.tables]
    shutil.rmtree(place.uri("new"))
    with place.connect() as lake:
        with contextlib.suppress(lv.ForeignConflict):
            MADE_AND_GONE[how](lake)
        with pytest.raises(lv.TableNotFound):
            lake.read("new")
        told = [one for one in lake.doctor().findings if one.txn_id == made.txn_id]
        assert [one.kind for one in told] == ["voided"]
        assert "were deleted by another client" in told[0].message
        lake.create_table("new", accounts(1))
    assert everywhere(place, "new") == {0: 100}


@pytest.mark.parametrize("how", MADE_AND_GONE)
def test_an_append_whose_file_was_deleted_before_its_new_table_is_published_is_void(
    place: Place, how: str
) -> None:
    with place.connect() as lake:
        inner = inside(lake).store
        inside(lake).store = Closed(inner, is_entry("new"))
        lake.create_table("new", accounts(1))
        with lake.transaction() as lost:
            lost.append("new", [{"id": 8, "balance": 8}])
        with lake.transaction() as behind:
            behind.append("new", [{"id": 9, "balance": 9}])
        inside(lake).store = inner
    (gone,) = Path(place.uri("new")).rglob(f"*{lost.id}*.parquet")
    gone.unlink()
    with place.connect() as lake:
        with contextlib.suppress(lv.ForeignConflict):
            MADE_AND_GONE[how](lake)
        told = [one.txn_id for one in lake.doctor().findings if one.kind == "voided"]
        assert told == [lost.id]
    assert everywhere(place, "new") == {0: 100, 9: 9} | ({} if how == "recover" else {1: 1})
