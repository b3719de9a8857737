"""Deletion never leaves the lake, whatever its HEAD says (docs/design/0052)."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import lakevilla as lv
from lakevilla.store.backends.object_store import open_store
from lakevilla.store.base import ANY, Failure, Found, Store, WrappedStore
from tests.support.inside import inside
from tests.support.places import Place

Work = Callable[[lv.Lake], object]
UPKEEP: list[Work] = [
    lambda lake: lake.gc(),
    lambda lake: lake.maintain(),
    lambda lake: lake.recover(),
]
AT_ONCE = lv.Settings(reuse_after_seconds=0)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    place = Place(str(tmp_path / "lake"))
    with place.connect() as lake:
        lake.create_table("t", [{"a": 1}])
    return place


@pytest.fixture
def docs(tmp_path: Path) -> Path:
    """Return a user's directory that has nothing to do with the lake."""
    docs = tmp_path / "docs"
    (docs / "sub").mkdir(parents=True)
    (docs / "a.txt").write_text("precious")
    (docs / "sub" / "b.jpg").write_text("precious")
    (docs / "c.parquet").write_text("precious")
    return docs


@pytest.fixture
def far(place: Place, tmp_path: Path) -> Path:
    """Register a table outside the root as ``far``; return its directory."""
    other = Place(str(tmp_path / "elsewhere"))
    other.write("t", [{"id": 1}])
    with place.connect() as lake:
        lake.register("far", other.uri("t"))
    return Path(other.uri("t"))


def files_below(directory: Path) -> list[str]:
    return sorted(str(path.relative_to(directory)) for path in directory.rglob("*.*"))


def plant(place: Place, location: str, **state: Any) -> None:
    """Add a table to HEAD, as an attacker who can write to the store could."""
    path = Path(place.root, "_lakevilla/HEAD.json")
    head = json.loads(path.read_text())
    head["tables"][location] = {"table_id": "x", "published": 0, **state}
    path.write_text(json.dumps(head))


def quietly(work: Work, lake: lv.Lake) -> object:
    try:
        return work(lake)
    except lv.LakeVillaError as error:
        return error


EMPTYING = {"dropped": True, "emptying": True, "emptied_ms": 1}


@pytest.mark.parametrize(
    "state", [EMPTYING, {**EMPTYING, "emptying": False}, {"dropped": True}, {}]
)
@pytest.mark.parametrize("name", ["docs", "sub/..", "lake", "", "lake/t", "lake/../docs"])
def test_maintenance_deletes_no_file_outside_the_root_only_because_head_names_the_place(
    place: Place, docs: Path, tmp_path: Path, name: str, state: dict[str, Any]
) -> None:
    plant(place, f"{tmp_path}/{name}".rstrip("/"), **state)
    before = files_below(docs), files_below(Path(place.root, "t"))
    for work in UPKEEP:
        with place.connect() as lake:
            quietly(work, lake)
    assert (files_below(docs), files_below(Path(place.root, "t"))) == before
    assert not (docs / "_lakevilla").exists()


def test_gc_reports_places_outside_the_root_that_it_has_skipped(place: Place, docs: Path) -> None:
    plant(place, str(docs), **EMPTYING)
    plant(place, f"{docs}/sub")
    with place.connect(settings=AT_ONCE) as lake:
        report = lake.gc()
    messages = [one.message for one in report.findings if one.table == f"{docs}/sub"]
    assert "skipped" in messages[0]


def test_gc_keeps_a_directory_below_the_root_that_was_never_a_table(place: Place) -> None:
    docs = Path(place.root, "docs")
    docs.mkdir()
    (docs / "a.txt").write_text("precious")
    plant(place, "docs", **EMPTYING)
    with place.connect() as lake:
        report = lake.gc()
    assert (docs / "a.txt").read_text() == "precious"
    assert [one.key for one in report.findings if one.kind == "left"] == ["docs/a.txt"]


@pytest.mark.parametrize("name", ["_lakevilla", "t/_lakevilla", "t/_delta_log"])
def test_the_lakes_own_directories_can_not_be_tables(place: Place, name: str) -> None:
    plant(place, name, **EMPTYING)
    with place.connect() as lake:
        lake.gc()
    assert place.connect().read("t").num_rows == 1


def test_a_head_with_another_lakes_id_does_not_get_that_lakes_table(
    place: Place, tmp_path: Path
) -> None:
    other = Place(str(tmp_path / "other"))
    with other.connect() as lake:
        lake.create_table("t", [{"a": 1}])
    claim = json.loads(Path(other.root, "t/_lakevilla/lake.json").read_text())
    path = Path(place.root, "_lakevilla/HEAD.json")
    head = json.loads(path.read_text())
    head["lake_id"] = claim["lake_id"]
    path.write_text(json.dumps(head))
    plant(place, f"{other.root}/t", **{**EMPTYING, "table_id": claim["table_id"]})
    for work in UPKEEP:
        with place.connect() as lake:
            quietly(work, lake)
    assert other.connect().read("t").num_rows == 1


# ------------------------------------------------------- tables outside the root


def test_dropping_a_table_outside_the_root_with_data_keeps_foreign_files(
    place: Place, far: Path
) -> None:
    (far / "README.txt").write_text("mine")
    with place.connect() as lake, pytest.warns(lv.LakeVillaWarning, match=r"README\.txt was left"):
        lake.drop_table("far", delete_data=True)
    assert files_below(far) == ["README.txt"]


@pytest.mark.parametrize("at", ["_delta_log/00000000000000000000.json", "_lakevilla/lake.json"])
def test_gc_finishes_an_interrupted_deletion_of_a_table_outside_the_root(
    place: Place, far: Path, at: str
) -> None:
    with place.connect(settings=AT_ONCE) as lake:
        inside(lake).store = DiesAt(inside(lake).store, f"{far}/{at}")
        with pytest.raises(KeyboardInterrupt):
            lake.drop_table("far", delete_data=True)
    assert (far / "_lakevilla/lake.json").exists()
    with place.connect(settings=AT_ONCE) as lake:
        assert [one.kind for one in lake.gc().findings if one.table == str(far)] == ["half_deleted"]
    assert files_below(far) == []
    plain = [one for one in place.connect().doctor().findings if one.kind == "half_deleted"]
    assert plain == []


class DiesAt(WrappedStore):
    """A store whose client dies right before it deletes a given object."""

    def __init__(self, inner: Store, key: str) -> None:
        super().__init__(inner)
        self._key = key

    def delete(self, key: str) -> Failure | None:
        if key == self._key:
            raise KeyboardInterrupt
        return super().delete(key)


def test_a_table_outside_the_root_without_its_claim_is_not_deleted(place: Place, far: Path) -> None:
    (far / "_lakevilla/lake.json").unlink()
    before = files_below(far)
    with place.connect() as lake:
        with pytest.raises(lv.InvalidOperation, match="is outside of the lake"):
            lake.drop_table("far", delete_data=True)
        assert lake.read("far").num_rows == 1
        # recover must not restore the claim by HEAD alone: a forged HEAD could delete the table.
        report = lake.recover()
        assert "register" in next(o.message for o in report.findings if o.kind == "lake_file")
        assert files_below(far) == before
        lake.register("far", str(far))
        lake.drop_table("far", delete_data=True)
    assert files_below(far) == []


def test_a_table_outside_the_root_whose_claim_names_another_table_loses_no_file(
    place: Place, far: Path
) -> None:
    path = far / "_lakevilla/lake.json"
    claim = json.loads(path.read_text())
    path.write_text(json.dumps({**claim, "table_id": "another"}))
    before = files_below(far)
    with place.connect() as lake:
        with pytest.raises(lv.InvalidOperation, match="names another table"):
            lake.drop_table("far", delete_data=True)
        with pytest.raises(lv.InvalidOperation, match="names another table"):
            lake.table("far").vacuum(dry_run=False)
        report = lake.gc()
        assert {one.kind for one in report.findings if one.table == str(far)} == {"elsewhere"}
    assert files_below(far) == before


def test_a_replaced_table_outside_the_root_can_be_dropped_with_its_data(
    place: Place, far: Path
) -> None:
    with place.connect() as lake:
        lake.create_table("far", [{"b": 1}], or_replace=True)
        lake.drop_table("far", delete_data=True)
    assert files_below(far) == []


# ----------------------------------------------------------------- other stores


def in_memory(root: str, location: str, **state: Any) -> None:
    """Create a lake in memory whose HEAD names a place outside its root."""
    with lv.connect(root) as lake:
        lake.create_table("t", [{"a": 1}])
    store = open_store(root)
    outcome = store.get("_lakevilla/HEAD.json")
    assert isinstance(outcome, Found)
    head = json.loads(outcome.body)
    head["tables"][location] = {"table_id": "x", "published": 0, **state}
    store.put("_lakevilla/HEAD.json", json.dumps(head).encode(), ANY)


@pytest.mark.parametrize("state", [EMPTYING, {}])
@pytest.mark.parametrize("scheme", ["", "file://"])
def test_a_lake_in_memory_never_opens_a_path_of_the_local_disk(
    request: pytest.FixtureRequest, far: Path, scheme: str, state: dict[str, Any]
) -> None:
    root = f"memory://never-{abs(hash(request.node.nodeid))}"
    in_memory(root, f"{scheme}{far}", **state)
    before = files_below(far)
    for work in [*UPKEEP, lambda lake: lake.read(f"{scheme}{far}")]:
        with lv.connect(root) as lake:
            quietly(work, lake)
    assert files_below(far) == before
    with lv.connect(root) as lake, pytest.raises(lv.InvalidOperation, match="this machine's disk"):
        lake.read(f"file://{far}")
    with lv.connect(root) as lake:
        assert lake.read("t").num_rows == 1


def test_another_store_is_opened_only_if_the_caller_has_named_it(
    request: pytest.FixtureRequest,
) -> None:
    name = abs(hash(request.node.nodeid))
    with lv.connect(f"memory://other-{name}") as other:
        other.create_table("t", [{"a": 1}])
        other.unregister("t")
    root, uri = f"memory://one-{name}", f"memory://other-{name}/t"
    with lv.connect(root) as lake:
        lake.register("far", uri)
        assert lake.read("far").num_rows == 1
    with lv.connect(root) as lake, pytest.raises(lv.InvalidOperation, match="stores="):
        lake.read("far")
    with lv.connect(root) as lake:
        assert not lake.gc().ok
    with lv.connect(root, settings=lv.Settings(stores=(f"memory://other-{name}",))) as lake:
        assert lake.read("far").num_rows == 1
        assert lake.gc().ok
        lake.drop_table("far", delete_data=True)
    assert open_store(f"memory://other-{name}").list("t") == []
