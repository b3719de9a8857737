"""Damaged or missing metadata of a table: the newest is reported, old versions are not needed."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import CliRunner

import lakevilla as lv
from lakevilla.cli.app import app
from tests.support.places import Place, make_place


def lake_of(request: pytest.FixtureRequest, kind: str) -> Place:
    """Return a lake with a table of four versions; a Delta table has a checkpoint of the newest."""
    place = make_place(kind, request)
    properties = {} if kind == "iceberg" else {"delta.checkpointInterval": "3"}
    with place.connect() as lake:
        lake.create_table("t", [{"id": 0}], properties=properties)
        for number in range(3):
            lake.run(lambda txn, n=number: txn.append("t", [{"id": n + 1}]))
    return place


def cut(path: Path) -> None:
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])


def zeroed(path: Path) -> None:
    path.write_bytes(bytes(path.stat().st_size))


def newest(place: Place, pattern: str) -> Path:
    return max(Path(place.root).glob(pattern), key=lambda path: path.stat().st_mtime_ns)


@pytest.mark.parametrize("damage", [Path.unlink, cut, zeroed])
@pytest.mark.parametrize("pattern", ["t/metadata/snap-*.avro", "t/metadata/*-m0.avro"])
def test_doctor_reports_a_table_whose_manifests_are_lost(
    request: pytest.FixtureRequest, damage: Callable[[Path], object], pattern: str
) -> None:
    place = lake_of(request, "iceberg")
    path = newest(place, pattern)
    damage(path)
    with pytest.raises(lv.CorruptObject):
        place.connect().snapshot().read("t")
    # The table's metadata exists, so it is listed.
    assert [table.name for table in place.connect().tables()] == ["t"]
    for files in (False, True):
        report = place.connect().doctor(files=files)
        assert len(report.findings) == 1, report.findings
        (told,) = report.findings
        assert (told.severity, told.kind, told.table) == ("error", "corrupt_object", "t")
        assert told.key == f"t/metadata/{path.name}"
        assert "restore" in told.message
    shown = CliRunner().invoke(app, ["doctor", place.root, "--json"])
    assert shown.exit_code == 1
    assert [one["table"] for one in json.loads(shown.stdout)["findings"]] == ["t"]


@pytest.mark.parametrize("damage", [Path.unlink, cut, zeroed])
@pytest.mark.parametrize(
    ("kind", "old"),
    [
        ("iceberg", "t/metadata/v3.metadata.json"),
        ("local", f"t/_delta_log/{3:020}.json"),  # the checkpoint has the same content
        ("local", f"t/_delta_log/{2:020}.json"),
    ],
)
def test_a_damaged_old_version_of_a_table_does_not_affect_reads_and_writes(
    request: pytest.FixtureRequest, damage: Callable[[Path], object], kind: str, old: str
) -> None:
    place = lake_of(request, kind)
    damage(Path(place.root, old))
    assert place.connect().doctor(files=True).ok
    with place.connect() as lake:
        assert [table.name for table in lake.tables()] == ["t"]
        assert lake.snapshot().read("t").num_rows == 4
    for rights in (lv.Feature.R | lv.Feature.I, lv.Feature.R):
        with place.connect() as lake:
            with lake.transaction(rights) as txn:
                txn.append("t", [{"id": 7}])
            with lake.transaction(rights) as txn:
                txn.update("t", {"id": "id + 10"}, where="id = 7")
    ids = place.connect().snapshot().read("t")["id"].to_pylist()
    assert sorted(ids) == [0, 1, 2, 3, 17, 17]


@pytest.mark.parametrize(
    ("kind", "pattern"),
    [
        ("local", "t/_delta_log/*.checkpoint.parquet"),
        ("local", f"t/_delta_log/{3:020}.*"),
        ("iceberg", "t/metadata/snap-*.avro"),
        ("iceberg", "t/metadata/v4.metadata.json"),
    ],
)
def test_recover_reports_a_table_that_cannot_be_read_as_the_doctor_does(
    request: pytest.FixtureRequest, kind: str, pattern: str
) -> None:
    place = lake_of(request, kind)
    with place.connect() as lake:
        lake.create_table("whole", [{"id": 0}])
    for path in Path(place.root).glob(pattern):
        cut(path)
    told = [f for f in place.connect().doctor().findings if f.severity == "error"]
    assert [f.table for f in told] == ["t"]
    report = place.connect().recover()
    assert not report.ok
    assert list(report.findings) == told
    shown = CliRunner().invoke(app, ["recover", place.root])
    assert shown.exit_code == 1


def test_recover_reports_a_table_that_a_foreign_client_has_deleted(
    request: pytest.FixtureRequest,
) -> None:
    place = lake_of(request, "local")
    place.connect().gc()  # HEAD has no pending commits any more
    shutil.rmtree(Path(place.root, "t/_delta_log"))
    report = place.connect().recover()
    assert not report.ok
    assert [(f.kind, f.table) for f in report.findings] == [("table_lost", "t")]
