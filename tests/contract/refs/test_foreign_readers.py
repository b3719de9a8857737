"""Readers without LakeVilla: which rows they see after merges, and which files they delete."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deltalake
import polars as pl
import pyarrow as pa
import pytest

import lakevilla as lv
from tests.contract.foreign_readers import FORMATS, Format, read_by_others
from tests.support.places import Place
from tests.support.refs.merged import NOBODY_SEES, QUIET, rows_of, steps


def read_by_all(path: Path, format: Format) -> dict[str, pa.Table]:
    """Read a table by deltalake or pyiceberg, by DuckDB's extensions and by polars."""
    found = read_by_others(path, format)
    if format == "delta":
        found["polars"] = pl.scan_delta(str(path)).collect().to_arrow()
    else:
        version = (path / "metadata" / "version-hint.text").read_text().strip()
        metadata = f"{path}/metadata/v{version}.metadata.json"
        found["polars"] = pl.scan_iceberg(metadata).collect().to_arrow()
    return found


@pytest.fixture(autouse=True)
def _planned_by_pyiceberg(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ignore a warning of polars, which has pyiceberg plan its scans."""
    monkeypatch.setenv("POLARS_ICEBERG_PLANNER", "pyiceberg")


@pytest.mark.parametrize("format", FORMATS)
def test_foreign_readers_see_the_rows_of_the_lake_and_none_of_a_branch(
    local_place: Place, format: Format
) -> None:
    with local_place.connect() as lake:
        for step in steps(lake, format):
            for name in lake:
                check(lake, name, format, step)


def check(lake: lv.Lake, name: str, format: Format, step: str) -> None:
    path = Path(lake.root) / name
    expected = rows_of(lake.read(name))
    assert all(row[0] < NOBODY_SEES for row in expected), step
    for reader, rows in read_by_all(path, format).items():
        assert rows_of(rows) == expected, (step, name, reader)
    if format == "delta":
        options: dict[str, Any] = {"dry_run": False, "enforce_retention_duration": False}
        # deltalake deletes all files that no entry needs, except in directories such as _lakevilla.
        hours = 0 if step in QUIET else 24
        deltalake.DeltaTable(str(path)).vacuum(retention_hours=hours, full=True, **options)
        assert rows_of(lake.read(name)) == expected, (step, name)
