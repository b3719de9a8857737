"""The doctor reports damaged and missing leaves and commit objects: it never raises."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakevilla as lv
from lakevilla.global_log import leaves
from tests.support.inside import inside
from tests.support.places import Place, make_place


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Place:
    return make_place("local", request)


def damage(path: Path, how: str) -> None:
    match how:
        case "missing":
            path.unlink()
        case "cut":
            path.write_bytes(path.read_bytes()[:-5])
        case "edited":
            path.write_bytes(path.read_bytes() + b" ")
        case "another":
            other = next(p for p in sorted(path.parent.glob("*.json")) if p != path)
            path.write_bytes(other.read_bytes())


@pytest.mark.parametrize("map_name", ["tables", "names"])
@pytest.mark.parametrize("how", ["missing", "cut", "edited", "another"])
def test_a_damaged_leaf_is_reported_and_tables_of_other_leaves_are_checked(
    place: Place, monkeypatch: pytest.MonkeyPatch, how: str, map_name: str
) -> None:
    monkeypatch.setattr(leaves, "INLINE_BYTES", 400)
    monkeypatch.setattr(leaves, "LEAF_BYTES", 400)
    with place.connect() as lake:
        for number in range(12):
            lake.create_table(f"t{number}", [{"id": 1}])
            lake.register(
                f"a_name_that_is_as_long_as_names_of_tables_often_are_{number:02}", f"t{number}"
            )
        assert lake.doctor().ok
        held = inside(lake).held
    assert held is not None
    refs = (held.head.tables if map_name == "tables" else held.head.names).refs
    assert len(refs) > 2
    last = refs[-1]
    sound = Path(place.root, "t0/_delta_log", f"{0:020}.json")
    sound.write_bytes(b"{")  # damages a table of another leaf
    damage(Path(place.root, last.key), how)
    report = place.connect().doctor()
    assert not report.ok
    assert [f.severity for f in report.findings if f.key == last.key] == ["error"]
    assert [f.table for f in report.findings if f.table is not None] == ["t0"]
    assert len(report.findings) == 2


@pytest.mark.parametrize("how", ["missing", "cut", "edited", "another"])
@pytest.mark.parametrize("back", [0, 3])
def test_a_damaged_commit_object_is_reported_once(place: Place, how: str, back: int) -> None:
    with place.connect() as lake:
        lake.create_table("t", [{"id": 0}])
        for number in range(5):
            lake.run(lambda txn, number=number: txn.append("t", [{"id": number}]))
        assert lake.doctor().findings == ()
        path = sorted(Path(place.root, "_lakevilla/commits").glob("*.json"))[-1 - back]
        damage(path, how)
        # A client that has cached the object reports it as one that has not.
        for client in (lake, place.connect()):
            report = client.doctor()
            assert not report.ok
            told = [(f.severity, f.kind, f.key) for f in report.findings]
            assert told == [("error", "corrupt_object", f"_lakevilla/commits/{path.name}")]


def test_a_damaged_commit_object_of_an_unpublished_commit_is_reported_once(place: Place) -> None:
    with place.connect() as lake:
        lake.create_table("t", [{"id": 0}])
        lake.run(lambda txn: txn.append("t", [{"id": 1}]))
    newest = sorted(Path(place.root, "t/_delta_log").glob("*.json"))[-1]
    newest.unlink()
    path = sorted(Path(place.root, "_lakevilla/commits").glob("*.json"))[-1]
    damage(path, "edited")
    report = place.connect().doctor()
    keys = [f.key for f in report.findings]
    assert keys == [f"_lakevilla/commits/{path.name}"]
    with pytest.raises(lv.CorruptObject):
        place.connect().snapshot().read("t")
