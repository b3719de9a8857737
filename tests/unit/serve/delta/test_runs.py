"""The runs of files that manifests have."""

from __future__ import annotations

import pyarrow as pa
import pytest

from lakevilla.formats.files import FILES_SCHEMA
from lakevilla.serve.delta import state


def files(numbers: list[int]) -> pa.Table:
    rows = [{"path": f"{n}.parquet", "size": 1, "modification_time": n // 100} for n in numbers]
    return state._ordered(pa.Table.from_pylist(rows, schema=FILES_SCHEMA))


def runs(numbers: list[int]) -> list[tuple[str, ...]]:
    return [tuple(run["path"].to_pylist()) for run in state._runs(files(numbers))]


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state, "_FILES", 40)
    monkeypatch.setattr(state, "_MOST_FILES", 100)


def test_runs_have_all_files_and_none_is_too_long() -> None:
    found = runs(list(range(2000)))
    assert sorted(path for run in found for path in run) == sorted(
        f"{n}.parquet" for n in range(2000)
    )
    assert max(map(len, found)) <= 100
    assert 20 < len(found) < 100


@pytest.mark.parametrize("place", [0, 777, 1999])
def test_a_file_that_went_changes_the_runs_about_it_alone(place: int) -> None:
    before = set(runs(list(range(2000))))
    after = set(runs([n for n in range(2000) if n != place]))
    assert len(before - after) <= 4


def test_new_files_change_the_last_run_alone() -> None:
    before, after = runs(list(range(2000))), runs(list(range(2050)))
    assert before[:-1] == after[: len(before) - 1]
