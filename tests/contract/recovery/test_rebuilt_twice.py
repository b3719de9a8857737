"""A rebuilt or reset HEAD keeps refs and dropped tables, also if that happens twice."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

import lakevilla as lv
from lakevilla.global_log import head
from lakevilla.store.base import WrappedStore
from tests.support.inside import inside
from tests.support.places import Place, make_place
from tests.support.stores import unpublished
from tests.support.tables import values

HEAD = "_lakevilla/HEAD.json"
#: Settings with which garbage is deleted at once.
AT_ONCE = lv.Settings(max_age_seconds=0, outcome_retention_seconds=0, reuse_after_seconds=0)


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Place:
    return make_place("local", request)


def head_of(place: Place) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(place.root, HEAD).read_bytes())
    return found


def rebuild(place: Place) -> list[lv.Finding]:
    """Lose HEAD, rebuild and confirm it; return the findings of the rebuild."""
    Path(place.root, HEAD).unlink()
    with place.connect() as lake:
        findings = lake.recover(rebuild_head=True).findings
        assert lake.recover(confirm_head=True).ok
    return list(findings)


def with_refs(place: Place) -> None:
    """Create a lake with a tag, and a branch with a commit of its own."""
    with place.connect() as lake:
        lake.create_table("t", [{"id": 1}])
        lake.tag("closing")
        lake.branch("etl")
        with lake.on("etl") as branch:
            branch.run(lambda txn: txn.append("t", [{"id": 2}]))
        lake.run(lambda txn: txn.append("t", [{"id": 9}]))


def check_refs(place: Place) -> None:
    """Assert that both refs exist, also after gc, and that a new client can read them."""
    with place.connect(settings=AT_ONCE) as lake:
        assert {(ref.name, ref.kind) for ref in lake.refs()} == {
            ("closing", "tag"),
            ("etl", "branch"),
        }
        lake.gc()
    with place.connect() as lake:
        assert values(lake.on("closing").read("t")) == [1]
        assert values(lake.on("etl").read("t")) == [1, 2]


def test_refs_are_found_again_however_often_head_is_lost(place: Place) -> None:
    with_refs(place)
    for _ in range(3):
        found = {one.kind for one in rebuild(place)}
        assert "ref_found" in found
        check_refs(place)
    with place.connect() as lake:
        lake.on("etl").run(lambda txn: txn.append("t", [{"id": 3}]))
        lake.merge("etl")
        assert values(lake.read("t")) == [1, 2, 3, 9]


def test_refs_of_an_adopted_lake_are_found_again(place: Place, tmp_path: Path) -> None:
    with_refs(place)
    copy = Place(str(tmp_path / "copy"))
    shutil.copytree(place.root, copy.root)
    old = head_of(place)["lake_id"]
    with copy.connect() as lake:
        assert lake.doctor(adopt=True).ok
    assert head_of(copy)["former"] == [old]
    rebuild(copy)
    check_refs(copy)


def test_names_of_an_adopted_lake_are_found_again(place: Place, tmp_path: Path) -> None:
    with place.connect() as lake:
        lake.create_table("t", [{"id": 1}])
        lake.rename_table("t", "shop")
    copy = Place(str(tmp_path / "copy"))
    shutil.copytree(place.root, copy.root)
    with copy.connect() as lake:
        assert lake.doctor(adopt=True).ok
    rebuild(copy)
    with copy.connect() as lake:
        assert list(lake) == ["shop"]


def test_an_interrupted_adoption_is_finished_by_the_next_one(place: Place, tmp_path: Path) -> None:
    with place.connect() as lake:
        lake.create_table("t", [{"id": 1}])
    copy = Place(str(tmp_path / "copy"))
    shutil.copytree(place.root, copy.root)
    with copy.connect() as lake:
        with unpublished(lake, lambda key: key.endswith("lake.json")), pytest.raises(lv.StoreError):
            lake.doctor(adopt=True)
        assert lake.doctor(adopt=True).ok
        assert lake.recover().findings == ()


def test_an_adopted_lake_takes_no_table_that_another_lake_has_taken_over(
    place: Place, tmp_path: Path
) -> None:
    with place.connect() as lake:
        lake.create_table("inner/t", [{"id": 1}])
        lake.unregister("inner/t")
    moved = Place(str(tmp_path / "moved"))
    shutil.move(place.root, moved.root)
    with lv.connect(f"{moved.root}/inner") as inner:
        inner.register("t")
    with moved.connect() as lake:
        lake.doctor(adopt=True)
    with lv.connect(f"{moved.root}/inner") as inner:
        assert inner.recover().findings == ()


@pytest.mark.parametrize("how", ["rebuilt", "reset"])
def test_a_merged_branch_keeps_the_base_of_its_epoch_in_a_rebuild(place: Place, how: str) -> None:
    with place.connect() as lake:
        lake.create_table("t", [{"id": 1}])
        lake.branch("etl")
        for number in (2, 3):
            lake.on("etl").run(lambda txn, n=number: txn.append("t", [{"id": n}]))
        lake.merge("etl")
        lake.on("etl").run(lambda txn: txn.append("t", [{"id": 4}]))
    if how == "rebuilt":
        rebuild(place)
    else:
        with place.connect() as lake:
            lake.recover(reset_head=head_of(place)["replacement"])
            assert lake.recover(confirm_head=True).ok
    with place.connect(settings=AT_ONCE) as lake:
        lake.gc()
    with place.connect() as lake:
        (ref,) = lake.refs()
        assert ref.merged is not None
        assert values(lake.on("etl").read("t")) == [1, 2, 3, 4]
        assert values(lake.on("etl@2").read("t")) == [1, 2]
        lake.on("etl").run(lambda txn: txn.append("t", [{"id": 5}]), idempotency_key="five")
        lake.merge("etl")
        assert values(lake.read("t")) == [1, 2, 3, 4, 5]  # no row is merged twice
        assert lake.doctor().ok


def test_a_kept_tag_keeps_its_protection_and_metadata_in_a_reset(place: Place) -> None:
    with place.connect() as lake:
        lake.create_table("t", [{"id": 1}])
        lake.tag("closing", protected=True, metadata={"year": "2026"})
        lake.run(lambda txn: txn.delete("t", where="true"))
        assert lake.keep("closing").ok
        findings = lake.recover(reset_head=head_of(place)["replacement"]).findings
        assert "ref_found" not in {one.kind for one in findings}
        (ref,) = lake.refs()
        assert (ref.protected, dict(ref.metadata)) == (True, {"year": "2026"})
        assert lake.recover(confirm_head=True).ok
    with place.connect(settings=AT_ONCE) as lake:
        lake.table("t").vacuum(0, dry_run=False, enforce_retention_duration=False)
        lake.gc()
    with place.connect() as lake:
        assert values(lake.on("closing").read("t")) == [1]


def test_a_tag_that_was_kept_after_the_chosen_head_keeps_its_protection(place: Place) -> None:
    with place.connect() as lake:
        lake.create_table("t", [{"id": 1}])
        lake.tag("closing", protected=True)
        lake.run(lambda txn: txn.delete("t", where="true"))
        older = Path(place.root, HEAD).read_bytes()
        assert lake.keep("closing").ok
    Path(place.root, HEAD).write_bytes(older)
    with place.connect() as lake:
        lake.recover(reset_head=head_of(place)["replacement"])
        assert [ref.protected for ref in lake.refs()] == [True]
        assert lake.recover(confirm_head=True).ok
    with place.connect(settings=AT_ONCE) as lake:
        lake.gc()
    with place.connect() as lake:
        assert values(lake.on("closing").read("t")) == [1]


def test_a_rebuild_reports_a_branch_whose_own_head_is_lost_too(place: Place) -> None:
    with_refs(place)
    (own,) = Path(place.root, "_lakevilla/branches").glob("*/HEAD.json")
    body = own.read_bytes()
    own.unlink()
    Path(place.root, HEAD).unlink()
    with place.connect() as lake:
        findings = lake.recover(rebuild_head=True).findings
        lost = [one.message for one in findings if one.kind == "ref_lost"]
        assert len(lost) == 1
        assert "'etl'" in lost[0]
        own.write_bytes(body)
        lake.recover(rebuild_head=True, force=True)
        assert lake.recover(confirm_head=True).ok
    check_refs(place)


def test_a_kept_tag_is_readable_after_a_rebuild(place: Place) -> None:
    with place.connect() as lake:
        lake.create_table("t", [{"id": 1}])
        lake.tag("closing")
        lake.run(lambda txn: txn.delete("t", where="true"))
        assert lake.keep("closing").ok
    rebuild(place)
    with place.connect(settings=AT_ONCE) as lake:
        lake.table("t").vacuum(0, dry_run=False, enforce_retention_duration=False)
        lake.gc()
    with place.connect() as lake:
        assert values(lake.on("closing").read("t")) == [1]


@pytest.mark.parametrize("how", ["reset", "forced"])
def test_a_copied_lake_is_not_rebuilt_before_it_is_adopted(
    place: Place, tmp_path: Path, how: str
) -> None:
    with_refs(place)
    copy = Place(str(tmp_path / "copy"))
    shutil.copytree(place.root, copy.root)
    before = head_of(copy)
    wanted: dict[str, Any] = (
        {"reset_head": before["replacement"]}
        if how == "reset"
        else {"rebuild_head": True, "force": True}
    )
    with copy.connect() as lake:
        with pytest.raises(lv.InvalidOperation, match="--adopt"):
            lake.recover(**wanted)
        assert head_of(copy) == before
        assert lake.doctor(adopt=True).ok
        assert values(lake.read("t")) == [1, 9]


def test_a_dropped_table_stays_dropped_in_a_reset_and_register_revives_it(place: Place) -> None:
    with place.connect() as lake:
        lake.create_table("other", [{"id": 1}])
        lake.create_table("t", [{"id": 1}])
        lake.drop_table("t")
        findings = lake.recover(reset_head=head_of(place)["replacement"]).findings
        assert [one.table for one in findings if one.kind == "dropped"] == ["t"]
    with place.connect() as lake:
        assert [table.name for table in lake.tables()] == ["other"]
        lake.register("t")
        assert values(lake.read("t")) == [1]


def test_a_table_recreated_after_the_chosen_head_is_in_the_lake_after_a_reset(place: Place) -> None:
    with place.connect(settings=AT_ONCE) as lake:
        lake.create_table("t", [{"id": 1}])
        lake.drop_table("t", delete_data=True)
        older = Path(place.root, HEAD).read_bytes()
        lake.create_table("t", [{"id": 2}])
    Path(place.root, HEAD).write_bytes(older)
    with place.connect() as lake:
        lake.recover(reset_head=head_of(place)["replacement"])
        assert values(lake.read("t")) == [2]


@pytest.mark.parametrize("paged", [False, True])
def test_a_half_deleted_table_does_not_return_in_a_reset(
    place: Place, monkeypatch: pytest.MonkeyPatch, paged: bool
) -> None:
    if paged:  # a page, too, records that the table was dropped
        monkeypatch.setattr(head, "PAGE_LENGTH", 4)
        monkeypatch.setattr(head, "COMMITS_IN_HEAD", 8)

    class Died(BaseException):
        """The client dies."""

    with place.connect(settings=AT_ONCE) as lake:
        lake.create_table("other", [{"id": 1}])
        lake.create_table("t", [{"id": 1}])
        store = inside(lake).store

        class Dying(WrappedStore):
            def delete(self, key: str) -> Any:
                if key.startswith("t/_delta_log"):
                    raise Died
                return self.inner.delete(key)

        monkeypatch.setattr(inside(lake), "store", Dying(store))
        with pytest.raises(Died):
            lake.drop_table("t", delete_data=True)
    with place.connect(settings=AT_ONCE) as lake:
        for number in range(2, 16):
            lake.run(lambda txn, n=number: txn.append("other", [{"id": n}]))
        assert list(Path(place.root, "_lakevilla/pages").glob("*")) or not paged
        lake.recover(reset_head=head_of(place)["replacement"])
        assert lake.recover(confirm_head=True).ok
        with pytest.raises(lv.InvalidOperation, match="delete_data"):
            lake.register("t")
        assert [table.name for table in lake.tables()] == ["other"]
        lake.drop_table("t", delete_data=True)  # finishes the deletion
    assert not list(Path(place.root, "t").rglob("*.parquet"))
