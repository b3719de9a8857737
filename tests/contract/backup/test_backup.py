"""Backups: copies of a lake as of one global version, in a directory of their own."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

import lakevilla as lv
from lakevilla.global_log.commits import digest_of
from lakevilla.maintenance.backup import copying
from lakevilla.store.base import (
    Condition,
    Failure,
    GetOutcome,
    Missing,
    Refused,
    Store,
    Stored,
    Token,
    WrappedStore,
)
from tests.support.backups import MAIN, beside, fill, rows_of, sell, shown
from tests.support.inside import inside
from tests.support.places import Place, make_place
from tests.support.stores import interrupted

MANIFESTS = "_lakevilla_backup/manifests"


def data_files(root: str) -> list[Path]:
    return [path for path in Path(root).rglob("*.parquet") if "_lakevilla" not in str(path)]


def test_a_restored_lake_shows_what_the_lake_showed(shared_place: Place) -> None:
    with shared_place.connect() as lake:
        fill(lake)
        before = shown(lake)
        made = lake.backup(beside(lake.root, "copy"))
        sell(lake, "jam")
    assert (made.tables, made.refs) == (2, ("closing", "etl"))
    root = beside(shared_place.root, "restored")
    assert lv.restore(made.target, root).ok
    with lv.connect(root) as restored:
        assert shown(restored) == before
        closing = next(ref for ref in restored.refs() if ref.name == "closing")
        assert (closing.protected, closing.metadata) == (True, {"by": "audit"})
        assert restored.recover(confirm_head=True).ok
        assert restored.verify().ok
        assert restored.doctor().ok


def test_a_restored_branch_merges_what_was_done_on_it(shared_place: Place) -> None:
    with shared_place.connect() as lake:
        fill(lake)
        lake.on("etl").create_table("new", [{"id": 1}])
        lake.on("etl").drop_table("sales/orders")
        made = lake.backup(beside(lake.root, "copy"))
        lake.merge("etl", on_conflict="theirs")
        merged = shown(lake)[MAIN]
    root = beside(shared_place.root, "restored")
    lv.restore(made.target, root)
    with lv.connect(root) as restored:
        restored.merge("etl", on_conflict="theirs")
        assert shown(restored)[MAIN] == merged


def test_a_restored_lake_can_be_written_and_keeps_its_tags(shared_place: Place) -> None:
    with shared_place.connect() as lake:
        fill(lake)
        made = lake.backup(beside(lake.root, "copy"))
    root = beside(shared_place.root, "restored")
    lv.restore(made.target, root)
    with lv.connect(root) as restored:
        restored.recover(confirm_head=True)
        before = shown(restored)
        sell(restored, "jam")
        restored.gc()
        restored.maintain()
        assert shown(restored)["closing"] == before["closing"]
        assert ("jam", 6) in rows_of(restored, "stock")


def test_a_backup_on_a_server_is_restored_beside_and_in_place(
    request: pytest.FixtureRequest,
) -> None:
    place = make_place("remote", request)
    options = {"storage_options": place.storage_options}
    with place.connect() as lake:
        fill(lake)
        before = shown(lake)
        made = lake.backup(f"{lake.root}-copy", verify="hashes")
        assert lake.backup(f"{lake.root}-copy").copied_files == 0
        sell(lake, "jam")
    lv.restore(made.target, f"{place.root}-restored", name=made.name, **options)
    lv.restore(made.target, place.root, name=made.name, in_place=True, **options)
    for root in (place.root, f"{place.root}-restored"):
        with lv.connect(root, **options) as restored:
            assert shown(restored) == before


@pytest.mark.parametrize("part_bytes", [100, copying._PART_BYTES], ids=["in parts", "whole"])
def test_a_backup_in_another_store_passes_through_the_client(
    monkeypatch: pytest.MonkeyPatch, part_bytes: int
) -> None:
    monkeypatch.setattr(copying, "_PART_BYTES", part_bytes)
    with lv.connect(f"memory://shop{part_bytes}") as lake:
        fill(lake)
        before = shown(lake)
        made = lake.backup(f"memory://shop-backup{part_bytes}", verify="hashes")
    lv.restore(made.target, f"memory://shop-restored{part_bytes}")
    with lv.connect(f"memory://shop-restored{part_bytes}") as restored:
        assert shown(restored) == before


def test_a_second_backup_copies_only_what_is_new(shared_place: Place) -> None:
    target = beside(shared_place.root, "copy")
    with shared_place.connect() as lake:
        fill(lake)
        lake.backup(target)
        assert lake.backup(target).copied_files == 0
        lake.run(lambda txn: txn.append("stock", [{"sku": "egg", "qty": 1}]))
        assert lake.backup(target).copied_files == 1


def test_a_backup_of_unchanged_files_sends_no_request_for_each(shared_place: Place) -> None:
    target = beside(shared_place.root, "copy")
    counts = []
    with shared_place.connect() as lake:
        lake.create_table("stock", [{"id": 0}])
        for files in (1, 20):
            for number in range(files):
                lake.run(lambda txn, number=number: txn.append("stock", [{"id": number}]))
            lake.backup(target)
            with inside(lake).requests.counting() as requests:
                lake.backup(target)
            counts.append(requests.total)
    # A longer log may take a request or two more; twenty files may not take one each.
    assert counts[1] <= counts[0] + 4, counts


def test_each_backup_of_a_directory_can_be_restored(shared_place: Place) -> None:
    target = beside(shared_place.root, "copy")
    names, seen = [], []
    with shared_place.connect() as lake:
        fill(lake)
        for _ in range(2):
            names.append(lake.backup(target).name)
            seen.append(shown(lake))
            sell(lake, "tea")
    for number, name in enumerate(names):
        root = beside(shared_place.root, f"restored{number}")
        lv.restore(target, root, name=name)
        with lv.connect(root) as restored:
            assert shown(restored) == seen[number]
    with pytest.raises(lv.InvalidOperation, match=r"has no backup 'other'; it has 0000"):
        lv.restore(target, beside(shared_place.root, "none"), name="other")


def test_a_backup_is_of_one_version_while_other_clients_commit(shared_place: Place) -> None:
    """Between any two copies another client moves one piece of stock into an order."""
    with shared_place.connect() as lake, shared_place.connect() as other:
        fill(lake)
        target = beside(lake.root, "copy")
        with interrupted(lake, lambda key: "/states/" in key, lambda: sell(other, "tea")):
            lake.backup(target)
    root = beside(shared_place.root, "restored")
    lv.restore(target, root)
    with lv.connect(root) as restored:
        assert ("tea", 4) in rows_of(restored, "stock")
        assert len(rows_of(restored, "sales/orders")) == 2


class BeforeCopies(WrappedStore):
    """Call ``meanwhile`` once, before the first copy."""

    def __init__(self, inner: Store, meanwhile: Callable[[], object]) -> None:
        super().__init__(inner)
        self._left = [meanwhile]

    def copy_object(self, source: str, key: str) -> Stored | Missing | Failure:
        while self._left:
            self._left.pop()()
        return self.inner.copy_object(source, key)


def test_a_backup_keeps_what_it_copies_from_vacuum_and_gc(shared_place: Place) -> None:
    def cleans_up() -> None:
        settings = lv.Settings(max_age_seconds=1, outcome_retention_seconds=1)
        with shared_place.connect(settings=settings) as other:
            other.run(lambda txn: txn.delete("stock", where="true"))
            other.table("stock").vacuum(
                retention_hours=0, enforce_retention_duration=False, dry_run=False
            )
            other.gc()

    with shared_place.connect() as lake:
        lake.create_table("stock", [{"sku": "tea", "qty": 5}])
        target = beside(lake.root, "copy")
        inside(lake).store = BeforeCopies(inside(lake).store, cleans_up)
        lake.backup(target, verify="hashes")
        assert rows_of(lake, "stock") == []
    root = beside(shared_place.root, "restored")
    lv.restore(target, root)
    with lv.connect(root) as restored:
        assert rows_of(restored, "stock") == [("tea", 5)]


def test_a_backup_leaves_no_tag_in_the_lake(shared_place: Place) -> None:
    with shared_place.connect() as lake:
        fill(lake)
        lake.backup(beside(lake.root, "copy"))
        assert [ref.name for ref in lake.refs()] == ["closing", "etl"]


@pytest.mark.parametrize(
    ("target", "message"),
    [
        ("{root}", "is the lake itself"),
        ("{root}/backups", "one inside the other"),
        ("{parent}", "one inside the other"),
        ("{other}", "is not empty, and no backup of a lake: it has note.txt"),
    ],
)
def test_a_backup_to_a_wrong_place_is_refused(
    local_place: Place, target: str, message: str
) -> None:
    other = Path(beside(local_place.root, "other"))
    other.mkdir()
    (other / "note.txt").write_text("mine")
    with local_place.connect() as lake:
        fill(lake)
        place = target.format(root=lake.root, parent=Path(lake.root).parent, other=other)
        with pytest.raises(lv.InvalidOperation, match=message):
            lake.backup(place)
        assert [ref.name for ref in lake.refs()] == ["closing", "etl"]


def test_a_backup_to_the_directory_of_another_lake_is_refused(local_place: Place) -> None:
    target = beside(local_place.root, "copy")
    with lv.connect(beside(local_place.root, "first")) as first:
        fill(first)
        first.backup(target)
    with local_place.connect() as lake:
        fill(lake)
        with pytest.raises(lv.InvalidOperation, match="has the backups of another lake, that at"):
            lake.backup(target)


def test_a_backup_of_a_lake_with_a_lost_file_is_refused_by_name(shared_place: Place) -> None:
    with shared_place.connect() as lake:
        fill(lake)
        lost = data_files(lake.root)[0]
        lost.unlink()
        target = beside(lake.root, "copy")
        with pytest.raises(lv.VersionNotFound, match=lost.name):
            lake.backup(target)
        assert not (Path(target) / MANIFESTS).exists()
        assert [ref.name for ref in lake.refs()] == ["closing", "etl"]


def test_a_file_that_is_cut_in_the_backup_is_copied_again(shared_place: Place) -> None:
    with shared_place.connect() as lake:
        fill(lake)
        made = lake.backup(beside(lake.root, "copy"))
        data_files(made.target)[0].write_bytes(b"PAR1")
        assert lake.backup(made.target).copied_files == 1


def lose(path: Path) -> None:
    path.unlink()


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[:-1])


def flip(path: Path) -> None:
    body = bytearray(path.read_bytes())
    body[len(body) // 2] ^= 1
    path.write_bytes(bytes(body))


@pytest.mark.parametrize("damage", [lose, cut, flip])
@pytest.mark.parametrize("what", ["data", "states", "manifests"])
def test_a_damaged_backup_is_refused_before_anything_is_written(
    local_place: Place, what: str, damage: Callable[[Path], None]
) -> None:
    with local_place.connect() as lake:
        fill(lake)
        made = lake.backup(beside(lake.root, "copy"))
    own = Path(made.target) / "_lakevilla_backup" / what
    damage(data_files(made.target)[0] if what == "data" else next(own.iterdir()))
    root = Path(beside(local_place.root, "restored"))
    errors = (lv.CorruptObject, lv.InvalidOperation)
    with pytest.raises(errors, match=r"missing|damaged|bytes|no backup|blake3"):
        lv.restore(made.target, str(root), verify="hashes")
    assert not [path for path in root.rglob("*.json") if "/probe/" not in str(path)]


def test_a_manifest_of_a_newer_version_is_refused_by_name(local_place: Place) -> None:
    with local_place.connect() as lake:
        fill(lake)
        made = lake.backup(beside(lake.root, "copy"))
    path = Path(made.target) / MANIFESTS / f"{made.name}.json"
    body = json.dumps({**json.loads(path.read_bytes()), "format": 99}).encode()
    name = f"{made.name.rpartition('-')[0]}-{digest_of(body)}"
    path.with_name(f"{name}.json").write_bytes(body)
    path.unlink()
    with pytest.raises(lv.UnsupportedFormat, match="format version 99"):
        lv.restore(made.target, beside(local_place.root, "restored"))


@pytest.mark.parametrize("delete", [True, False])
@pytest.mark.parametrize("read", range(4))
def test_a_branch_that_is_merged_after_the_tag_is_in_the_backup_once(
    local_place: Place, read: int, *, delete: bool
) -> None:
    """Main of the tag lacks the changes, so the branch has to be there, or a newer main."""
    with local_place.connect() as lake:
        fill(lake)
        lake.on("etl").run(lambda txn: txn.append("stock", [{"sku": "oil", "qty": 1}]))

    class Merging(WrappedStore):
        """Merge the branch before a read after the tag was made."""

        left = -1

        def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
            outcome = self.inner.put(key, body, condition)
            if self.left == -1 and key.endswith("HEAD.json") and b"lakevilla-backup/" in body:
                self.left = read
            return outcome

        def get(
            self, key: str, known: Token | None = None, byte_range: tuple[int, int] | None = None
        ) -> GetOutcome | Failure:
            if self.left == 0:
                with local_place.connect() as other:
                    other.merge("etl", delete=delete)
            if self.left >= 0:
                self.left = -2 if self.left == 0 else self.left - 1
            return self.inner.get(key, known, byte_range)

    with local_place.connect() as lake:
        store = inside(lake).store = Merging(inside(lake).store)
        target = lake.backup(beside(lake.root, "copy")).target
        assert store.left == -2
        assert not [ref for ref in lake.refs() if ref.name.startswith("lakevilla-backup/")]
    root = beside(local_place.root, "restored")
    lv.restore(target, root)
    with lv.connect(root) as restored:
        restored.recover(confirm_head=True)
        if "etl" in shown(restored):
            restored.merge("etl")
        assert ("oil", 1) in rows_of(restored, "stock")
