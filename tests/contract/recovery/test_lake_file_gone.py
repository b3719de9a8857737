"""``lake.json`` and markers deleted by another client's clean-up (hazard 40)."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

import lakevilla as lv
from tests.contract.recovery.test_head_lost import filled, head_of
from tests.support.places import Place, make_place
from tests.support.tables import values


@pytest.fixture(params=["local", "iceberg"])
def place(request: pytest.FixtureRequest) -> Place:
    return make_place(request.param, request)


def clean_up(place: Place, table: str) -> None:
    """Delete a table's ``_lakevilla/``, as Trino's ``vacuum`` and ``remove_orphan_files`` do."""
    shutil.rmtree(Path(place.root, table, "_lakevilla"))


def test_a_deleted_claim_is_reported_by_doctor_and_restored_by_recover(place: Place) -> None:
    filled(place)
    clean_up(place, "a")
    with place.connect() as lake:
        (told,) = lake.doctor().findings
        assert (told.severity, told.kind, told.table) == ("error", "lake_file", "a")
        assert told.key == "a/_lakevilla/lake.json"
        assert "recover" in told.message
        report = lake.recover()
        assert report.ok
        assert [(f.kind, f.table) for f in report.findings] == [("lake_file", "a")]
        assert lake.doctor().findings == ()
        assert lake.recover().findings == ()


@pytest.mark.parametrize(
    "work",
    [
        lambda txn: txn.append("a", [{"id": 9}]),
        lambda txn: txn.update("a", {"id": "id + 10"}, where="id = 1"),
    ],
    ids=["append", "update"],
)
@pytest.mark.parametrize("features", [lv.Feature.R | lv.Feature.I, ~lv.Feature.NONE])
def test_transactions_stay_atomic_when_claim_and_markers_are_deleted_meanwhile(
    place: Place, work: Callable[[lv.Transaction], object], features: lv.Feature
) -> None:
    filled(place)
    with place.connect() as lake, place.connect() as reader:
        bound = reader.snapshot()
        assert values(bound.read("a")) == [1, 2, 3]
        with lake.transaction(features) as txn:
            work(txn)
            clean_up(place, "a")
            txn.append("sales/b", [{"id": 9}])
        assert values(bound.read("a")) == [1, 2, 3]
        assert values(lake.snapshot().read("sales/b")) == [1, 2, 3, 9]
        assert values(lake.snapshot().read("a")) in ([1, 2, 3, 9], [2, 3, 11])
        assert sorted(row["id"] for row in place.seen("a")) == values(lake.snapshot().read("a"))


def test_a_second_lake_does_not_get_a_table_whose_claim_was_restored(
    place: Place, tmp_path: Path
) -> None:
    filled(place)
    clean_up(place, "a")
    second = Place(str(tmp_path / "second"), format=place.format)
    with place.connect() as lake:
        lake.run(lambda txn: txn.append("a", [{"id": 4}]))
        assert lake.recover().ok
        with second.connect() as other, pytest.raises(lv.InvalidOperation, match="belongs to"):
            other.register("mine", place.uri("a"))
    # If the second lake registers the table before ``recover``, recover and doctor report it.
    clean_up(place, "a")
    with second.connect() as other, place.connect() as lake:
        other.register("mine", place.uri("a"))
        (told,) = [f for f in lake.recover().findings if f.kind != "published"]
        assert (told.severity, told.kind, told.table) == ("error", "lake_file", "a")
        assert second.root in told.message
        assert not lake.doctor().ok


def test_recover_restores_no_claim_of_a_table_that_is_unregistered_meanwhile(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    filled(place)
    from lakevilla.lake.tables import claims

    original = claims.claim_table
    clean_up(place, "a")
    with place.connect() as lake, place.connect() as other:

        def late(*args: object, **options: object) -> object:
            other.unregister("a")
            return original(*args, **options)  # type: ignore[arg-type]

        monkeypatch.setattr(claims, "claim_table", late)
        assert lake.recover().ok
    assert head_of(place)["tables"]["a"]["dropped"]
    claim = json.loads(Path(place.root, "a/_lakevilla/lake.json").read_text())
    assert claim["lake_id"] == ""
