"""The version hint for other readers, if its writer dies before it or writes it too late."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

import lakevilla as lv
from lakevilla.store.base import Condition, Failure, Refused, Stored, WrappedStore
from tests.support.inside import inside
from tests.support.places import Place
from tests.support.stores import Closed, Dying


@pytest.fixture
def lake(place: Place) -> Iterator[lv.Lake]:
    with place.connect() as lake:
        lake.create_table("t", [{"id": 1}])
        lake.create_table("beside", [{"id": 1}], format="delta")
        yield lake


def hint(place: Place) -> Path:
    return Path(place.uri("t")) / "metadata" / "version-hint.text"


def append(lake: lv.Lake, row: int) -> None:
    with lake.transaction() as txn:
        txn.append("t", [{"id": row}])


def told(report: lv.Report) -> list[tuple[str, str]]:
    return [(finding.severity, finding.kind) for finding in report.findings]


class DyingAtTheHint(WrappedStore):
    """A store of a process that dies after the metadata file, before the hint."""

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        if key.endswith("version-hint.text"):
            raise Dying.Death
        return super().put(key, body, condition)


def test_a_hint_that_a_dead_client_has_not_written_is_written_by_recovery(
    lake: lv.Lake, place: Place
) -> None:
    dead = place.connect()
    inside(dead).store = DyingAtTheHint(inside(dead).store)
    with pytest.raises(Dying.Death):
        append(dead, 2)
    assert (hint(place).with_name("v2.metadata.json")).exists()
    assert hint(place).read_text() == "1"
    with place.connect() as other:
        assert told(other.doctor()) == [("warning", "unannounced")]
        assert other.recover() == lv.Report(True)
        assert hint(place).read_text() == "2"
        assert other.doctor().ok


def test_recovery_corrects_an_outdated_hint(lake: lv.Lake, place: Place) -> None:
    append(lake, 2)
    append(lake, 3)
    hint(place).write_text("2")
    assert lake.recover() == lv.Report(True)
    assert hint(place).read_text() == "3"


def test_recovery_corrects_a_hint_that_it_has_itself_set_back(lake: lv.Lake, place: Place) -> None:
    """Another client commits and writes its hint just before recovery writes an older number."""

    class Overtaken(WrappedStore):
        def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
            if key.endswith("version-hint.text") and body == b"1":
                with place.connect() as other:
                    append(other, 2)
                assert hint(place).read_text() == "2"
            return super().put(key, body, condition)

    hint(place).unlink()
    inside(lake).store = Overtaken(inside(lake).store)
    assert lake.recover() == lv.Report(True)
    assert hint(place).read_text() == "2"


def test_recovery_reports_a_hint_that_the_store_refuses(lake: lv.Lake, place: Place) -> None:
    hint(place).unlink()
    inside(lake).store = Closed(inside(lake).store, lambda key: key.endswith("version-hint.text"))
    report = lake.recover()
    assert report.ok
    assert told(report) == [("warning", "unannounced")]
