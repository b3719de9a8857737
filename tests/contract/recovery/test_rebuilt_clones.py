"""A rebuild that leaves out a table which was written at the place of a clone."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakevilla as lv
from lakevilla.global_log import leaves
from tests.support.places import Place, make_place
from tests.support.tables import values

COPY = "copies/a"


@pytest.fixture(params=["local", "iceberg"])
def place(request: pytest.FixtureRequest) -> Place:
    return make_place(request.param, request)


@pytest.fixture
def claim(place: Place) -> Path:
    """Return the claim of a table that was written where a clone shows it."""
    with place.connect() as lake:
        lake.create_table("a", [{"id": 1}])
        lake.clone("a", COPY)
        lake.clone("a", "unwritten/a")
        lake.run(lambda txn: txn.append(COPY, [{"id": 2}]))
    return Path(place.root, COPY, "_lakevilla/lake.json")


@pytest.mark.parametrize("damage", ["lost", "truncated"])
def test_a_clone_shows_no_older_rows_of_a_table_that_a_rebuild_has_left_out(
    place: Place, claim: Path, damage: str
) -> None:
    if damage == "lost":
        claim.unlink()
    else:
        claim.write_bytes(claim.read_bytes()[:20])
    with place.connect() as lake:
        lake.recover(rebuild_head=True, force=True)
        with pytest.raises(lv.TableNotFound):
            lake.read(COPY)
        assert values(lake.read("unwritten/a")) == [1]
    claim.unlink(missing_ok=True)  # a damaged claim is refused by `register`, which names it
    with place.connect() as lake:
        lake.register(COPY)
        assert values(lake.read(COPY)) == [1, 2]
        assert lake.recover(confirm_head=True).ok
        assert lake.doctor().ok


def test_a_clone_shows_no_older_rows_once_a_lost_table_is_restored_after_a_rebuild(
    place: Place, claim: Path
) -> None:
    lost = Path(place.root, COPY)
    lost.rename(Path(place.root).parent / "lost")
    with place.connect() as lake:
        lake.recover(rebuild_head=True, force=True)
        with pytest.raises(lv.TableNotFound):
            lake.read(COPY)
    Path(place.root, COPY).parent.mkdir(exist_ok=True)
    (Path(place.root).parent / "lost").rename(lost)
    with place.connect() as lake:
        lake.register(COPY)
        assert values(lake.read(COPY)) == [1, 2]


def test_a_rebuild_goes_on_though_what_a_clone_shows_is_lost(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(leaves, "INLINE_BYTES", 500)
    monkeypatch.setattr(leaves, "LEAF_BYTES", 500)
    with place.connect() as lake:
        for number in range(8):
            lake.create_table(f"t{number}", [{"id": number}])
        lake.clone("t0", COPY)
        lake.run(lambda txn: txn.append(COPY, [{"id": 9}]))
    Path(place.root, COPY, "_lakevilla/lake.json").unlink()
    kept = Path(place.root, "_lakevilla/leaves").rename(Path(place.root).parent / "leaves")
    with place.connect() as lake:
        report = lake.recover(rebuild_head=True, force=True)
        assert [one.table for one in report.findings if "the clone above" in one.message] == [COPY]
        assert [values(lake.read(f"t{number}")) for number in range(8)] == [[n] for n in range(8)]
    for leaf in kept.iterdir():
        leaf.rename(Path(place.root, "_lakevilla/leaves", leaf.name))
    with place.connect() as lake:
        with pytest.raises(lv.TableNotFound):
            lake.read(COPY)
        lake.register(COPY)
        assert values(lake.read(COPY)) == [0, 9]
