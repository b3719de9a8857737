"""Pipelines of dlt on a lake in a directory of its own."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import dlt
import pytest

import lakevilla as lv
from lakevilla.dlt import lakevilla

Make = Callable[..., dlt.Pipeline]


@pytest.fixture(autouse=True)
def _dlt_at(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep dlt's files in the test's directory, and send nothing."""
    for name in [name for name in os.environ if "__" in name]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("DLT_DATA_DIR", str(tmp_path / "dlt"))
    monkeypatch.setenv("RUNTIME__DLTHUB_TELEMETRY", "false")
    monkeypatch.setenv("RUNTIME__LOG_LEVEL", "ERROR")
    monkeypatch.chdir(tmp_path)


@pytest.fixture
def root(tmp_path: Path) -> str:
    return str(tmp_path / "lake")


@pytest.fixture
def lake(root: str) -> Iterator[lv.Lake[Any]]:
    with lv.connect(root) as lake:
        yield lake


@pytest.fixture
def make(root: str, tmp_path: Path) -> Make:
    """Return a function that makes a pipeline; another machine has another directory."""

    def made(
        name: str = "shop", machine: str = "here", dataset: str = "shop_data", **options: Any
    ) -> dlt.Pipeline:
        return dlt.pipeline(
            name,
            pipelines_dir=str(tmp_path / machine),
            destination=lakevilla(root, **options),
            dataset_name=dataset,
        )

    return made


@pytest.fixture
def pipeline(make: Make) -> dlt.Pipeline:
    return make()
