"""A load package is one transaction: whole or not at all, and once."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import dlt
import pytest
from dlt.load import Load
from dlt.pipeline.exceptions import PipelineStepFailed

import lakevilla as lv
from lakevilla.dbapi.dlt import loading
from tests.integrations.dlt.pipelines import rows_of

Make = Callable[..., dlt.Pipeline]

SHOP = [{"id": 1, "items": [{"sku": "tea"}, {"sku": "jam"}]}, {"id": 2, "items": [{"sku": "ink"}]}]


def loads(lake: lv.Lake[Any]) -> int:
    return lake.read("shop_data/_dlt_loads").num_rows


def packed(pipeline: dlt.Pipeline, rows: Any, **options: Any) -> Path:
    """Extract and normalize a package; return its directory."""
    pipeline.extract(rows, **options)
    pipeline.normalize()
    [load_id] = pipeline.list_normalized_load_packages()
    return Path(pipeline.working_dir) / "load" / "normalized" / load_id


def load_at_once(pipelines: list[dlt.Pipeline]) -> None:
    """Load the packages of pipelines in threads; raise the first error of any."""
    errors: list[BaseException] = []

    def load(pipeline: dlt.Pipeline) -> None:
        try:
            pipeline.activate()
            pipeline.load()
        except BaseException as error:  # the test raises it
            errors.append(error)

    threads = [threading.Thread(target=load, args=(one,)) for one in pipelines]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for error in errors:
        raise error


def test_a_package_is_one_commit_of_all_its_tables(pipeline: dlt.Pipeline, lake: Any) -> None:
    pipeline.run(SHOP, table_name="orders")
    [commit] = lake.history()
    assert {table.removeprefix("shop_data/") for table in commit.tables} == {
        *("orders", "orders__items", "_dlt_loads", "_dlt_version", "_dlt_pipeline_state")
    }
    assert commit.metadata["dlt.load_id"] == lake.read("shop_data/_dlt_loads")["load_id"][0].as_py()


def test_a_reader_sees_no_state_between_two_packages(pipeline: dlt.Pipeline, lake: Any) -> None:
    for n in range(3):
        pipeline.run([{"n": n, "parts": [n] * n}], table_name="t")
    for version in range(1, lake.history()[0].version + 1):
        with lake.snapshot(version=version) as past:
            roots = past.read("shop_data/t")["n"].to_pylist()
            assert past.read("shop_data/_dlt_loads").num_rows == len(roots)
            parts = past.read("shop_data/t__parts").num_rows if max(roots) else 0
            assert parts == sum(roots)


def test_a_package_with_a_failing_job_shows_nothing_until_it_is_repaired(
    pipeline: dlt.Pipeline, lake: Any
) -> None:
    package = packed(pipeline, SHOP, table_name="orders")
    [file] = (package / "new_jobs").glob("orders__items.*.parquet")
    whole = file.read_bytes()
    file.write_bytes(b"no parquet")
    with pytest.raises(PipelineStepFailed, match="no Parquet file"):
        pipeline.load()
    assert not lake.exists() or not lake.tables()
    [file] = package.glob("*/orders__items.*.parquet")
    file.write_bytes(whole)
    pipeline.load()
    assert [row["sku"] for row in rows_of(pipeline, "orders__items")] == ["ink", "jam", "tea"]
    assert len(lake.history()) == 1


def test_a_package_that_has_lost_a_file_is_refused(
    pipeline: dlt.Pipeline, lake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*given: Any) -> None:
        raise OSError("no store")

    package = packed(pipeline, SHOP, table_name="orders")
    with monkeypatch.context() as broken, pytest.raises(PipelineStepFailed, match="no store"):
        broken.setattr(loading, "_note_load", failing)
        pipeline.load()
    [file] = (package / "completed_jobs").glob("orders__items.*.parquet")
    file.unlink()
    with pytest.raises(PipelineStepFailed, match="has lost the file of job orders__items"):
        pipeline.load()
    assert not lake.exists() or not lake.history()


def test_a_row_that_does_not_fit_leaves_the_whole_package_out(
    pipeline: dlt.Pipeline, lake: Any
) -> None:
    pipeline.run([{"n": 1}], table_name="t")
    with lake.transaction() as txn:
        txn.alter("shop_data/t", add_constraints={"small": "n < 10"})
    with pytest.raises(PipelineStepFailed, match="small"):
        pipeline.run([[{"n": 99}], [{"m": 1}]], table_name="t")
    assert lake.read("shop_data/t")["n"].to_pylist() == [1]
    assert loads(lake) == 1
    with lake.transaction() as txn:
        txn.alter("shop_data/t", drop_constraints=["small"])
    pipeline.load()
    assert loads(lake) == 2


def test_a_package_that_is_loaded_again_does_nothing(
    pipeline: dlt.Pipeline, lake: Any, tmp_path: Path
) -> None:
    package = packed(pipeline, SHOP, table_name="orders")
    kept = tmp_path / "kept"
    shutil.copytree(package, kept)
    pipeline.load()
    put_back(kept, package)
    pipeline.load()
    assert len(lake.history()) == 1
    assert len(rows_of(pipeline, "orders")) == 2


def test_another_package_of_the_same_load_id_is_refused(
    make: Make, lake: Any, tmp_path: Path
) -> None:
    here, there = make(), make(machine="there")
    package = packed(here, [{"n": 1}], table_name="t")
    other = packed(there, [{"n": 2}], table_name="t")
    here.load()
    other.rename(other.with_name(package.name))
    with pytest.raises(PipelineStepFailed, match="of another load package"):
        there.load()
    assert rows_of(here, "t") == [{"n": 1}]


def test_a_package_is_loaded_again_after_its_load_was_rolled_back(
    pipeline: dlt.Pipeline, lake: Any, tmp_path: Path
) -> None:
    pipeline.run([{"n": 0}], table_name="t")
    before = lake.history()[0].version
    package = packed(pipeline, [{"n": 1}], table_name="t")
    kept = tmp_path / "kept"
    shutil.copytree(package, kept)
    pipeline.load()
    lake.rollback(before)
    assert rows_of(pipeline, "t") == [{"n": 0}]
    put_back(kept, package)
    pipeline.load()
    assert rows_of(pipeline, "t") == [{"n": 0}, {"n": 1}]


@pytest.mark.parametrize("disposition", ["append", "merge"])
def test_two_pipelines_load_into_one_table_at_once(make: Make, lake: Any, disposition: Any) -> None:
    make("first").run([{"id": 0, "by": "x"}], table_name="t", primary_key="id")
    pipelines = [make(f"p{n}", machine=f"m{n}") for n in range(3)]
    for n, pipeline in enumerate(pipelines):
        packed(
            pipeline,
            [{"id": 0 if disposition == "merge" else n, "by": f"p{n}", "parts": [n]}],
            table_name="t",
            write_disposition=disposition,
            primary_key="id",
        )
    load_at_once(pipelines)
    rows = lake.read("shop_data/t")
    assert rows.num_rows == (1 if disposition == "merge" else 4)
    assert loads(lake) == 4
    parts = lake.read("shop_data/t__parts")["_dlt_parent_id"].to_pylist()
    with_parts = [row for row in rows.to_pylist() if row["by"] != "x"]
    assert sorted(parts) == sorted(row["_dlt_id"] for row in with_parts)


def put_back(kept: Path, package: Path) -> None:
    """Make a package that was loaded pending again, as a backup of its directory would."""
    shutil.rmtree(package.parent.with_name("loaded") / package.name)
    shutil.copytree(kept, package)


def test_two_packages_at_once_add_the_same_columns(make: Make, lake: Any) -> None:
    make("first").run([{"id": 0}], table_name="t")
    pipelines = [make(f"p{n}", machine=f"m{n}") for n in range(3)]
    for n, pipeline in enumerate(pipelines):
        packed(pipeline, [{"id": n, "note": "x", f"own_{n}": n}], table_name="t")
    load_at_once(pipelines)
    found = lake.read("shop_data/t")
    assert {"note", "own_0", "own_1", "own_2"} <= set(found.schema.names)
    assert found.num_rows == loads(lake) == 4


def test_failed_jobs_are_left_out_where_the_user_says_so(pipeline: dlt.Pipeline, lake: Any) -> None:
    package = packed(pipeline, SHOP, table_name="orders")
    [file] = (package / "new_jobs").glob("orders__items.*.parquet")
    file.write_bytes(b"no parquet")
    info = pipeline.load(raise_on_failed_jobs=False)
    assert info.has_failed_jobs
    assert lake.read("shop_data/orders").num_rows == 2
    assert loads(lake) == 1


KILLED = """
import os, signal, sys
import dlt
from dlt.common.storages.load_package import PackageStorage
from lakevilla.dlt import lakevilla
root, directory, place = sys.argv[1:]
pipeline = dlt.pipeline(
    "shop", pipelines_dir=directory, destination=lakevilla(root), dataset_name="shop_data"
)
def dying(*args, **kwargs):
    os.kill(os.getpid(), signal.SIGKILL)
completed = []
def counted(self, load_id, file_name, of=PackageStorage.complete_job):
    moved = of(self, load_id, file_name)
    completed.append(file_name)
    if len(completed) == 2:
        dying()
    return moved
if place == "jobs":
    PackageStorage.complete_job = counted
elif place == "transaction":
    from lakevilla.dbapi.dlt import loading
    loading._note_load = dying
elif place == "archive":
    from dlt.common.storages import LoadStorage
    LoadStorage.complete_load_package = dying
pipeline.load(workers=1)
"""


@pytest.mark.parametrize("place", ["jobs", "transaction", "archive"])
def test_a_package_is_whole_after_a_kill(
    pipeline: dlt.Pipeline, lake: Any, root: str, place: str
) -> None:
    packed(pipeline, SHOP, table_name="orders", write_disposition="merge", primary_key="id")
    directory = str(Path(pipeline.working_dir).parent)
    command = [sys.executable, "-c", KILLED, root, directory, place]
    died = subprocess.run(command, capture_output=True, text=True, env=os.environ, check=False)
    assert died.returncode == -signal.SIGKILL, died.stderr
    assert len(lake.history() if lake.exists() else []) == (1 if place == "archive" else 0)
    pipeline.load()
    assert len(lake.history()) == 1
    assert len(rows_of(pipeline, "orders")) == 2
    assert [row["sku"] for row in rows_of(pipeline, "orders__items")] == ["ink", "jam", "tea"]
    assert loads(lake) == 1


def test_a_client_refuses_a_package_that_is_not_being_loaded(pipeline: dlt.Pipeline) -> None:
    pipeline.run([{"n": 1}], table_name="t")
    with pipeline.destination_client() as client:
        with pytest.raises(lv.InvalidOperation, match="is not loading package"):
            client.complete_load("1700000000.1")


def test_jobs_write_nothing(
    pipeline: dlt.Pipeline, lake: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def seen(self: Load, load_id: str, *args: Any, **kwargs: Any) -> None:
        assert not lake.exists()
        complete(self, load_id, *args, **kwargs)

    complete = Load.complete_package
    monkeypatch.setattr(Load, "complete_package", seen)
    pipeline.run(SHOP, table_name="orders")
    assert loads(lake) == 1
