"""Executors that die, and workers whose Python was sent along: one result, from their own copy."""

from __future__ import annotations

import shutil
import sys
import venv
from importlib.metadata import distribution
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement

import lakevilla
from tests.integration.spark.test_sessions import spark_home

pytestmark = [
    pytest.mark.xdist_group("spark"),  # one session at a time
]


def test_an_executor_that_is_killed_leaves_one_result_and_no_orphan(
    driven: Any, tmp_path: Path
) -> None:
    home = spark_home(tmp_path / "spark")
    result, _ = driven("clusters.py", "lost", str(tmp_path / "lake"), SPARK_HOME=str(home))
    assert result["killed in append"] == 2
    assert result["appended"] == [400, 400]
    assert result["killed in merge"] >= 1
    assert result["merged"] == [600, 600, 400]
    assert result["doctor"]
    assert result["orphans"] == []


@pytest.mark.skipif(sys.platform != "linux", reason="executors are found by /proc")
@pytest.mark.timeout(600)
def test_executors_that_come_and_go_make_one_result(driven: Any, tmp_path: Path) -> None:
    """By dynamic allocation, which ends an executor while the other has a task of the job."""
    home = spark_home(tmp_path / "spark")
    root = str(tmp_path / "lake")
    result, _ = driven("clusters.py", "elastic", root, SPARK_HOME=str(home), timeout=580)
    counts = result["executors"]  # one that ends may still be there beside two that begin
    first = counts.index(0, 1)
    assert max(counts[:first]) >= 2, "the first job had two"
    assert max(counts[first:]) >= 2, "they had all left, and came again"
    assert counts[-1] == 0
    assert result["merged"] == [600, 600, 400]
    assert result["doctor"]
    assert result["orphans"] == []


def test_a_packed_environment_is_all_that_workers_need(driven: Any, tmp_path: Path) -> None:
    """As ``venv-pack`` makes it, and ``--archives`` brings it."""
    venv_pack = pytest.importorskip("venv_pack")
    packed = tmp_path / "packed"
    venv.create(packed, with_pip=False)
    (site,) = packed.glob("lib/python*/site-packages")
    shutil.copytree(Path(lakevilla.__file__).parent, site / "lakevilla")
    for name in needed("lakevilla"):
        copy_distribution(name, site)
    archive = str(tmp_path / "env.tar.gz")
    venv_pack.pack(prefix=str(packed), output=archive, compress_level=1)
    result, _ = driven(
        "clusters.py",
        "packed",
        str(tmp_path / "lake"),
        archive,
        SPARK_HOME=str(spark_home(tmp_path / "spark")),
    )
    assert (result["updated"], result["rows"]) == (33, 100)
    assert all("/env/lib/python" in place for place in result["places"])


def needed(name: str, found: dict[str, None] | None = None) -> list[str]:
    """Return what a distribution needs to be installed, by name; its extras aside."""
    found = {} if found is None else found
    for text in distribution(name).requires or ():
        one = Requirement(text)
        applies = one.marker is None or one.marker.evaluate({"extra": ""})
        if applies and one.name not in found:
            found[one.name] = None
            needed(one.name, found)
    return list(found)


def copy_distribution(name: str, site: Path) -> None:
    """An installed distribution of this environment."""
    files = distribution(name).files or []
    for file in files:
        source = Path(str(file.locate()))
        if ".." in file.parts or not source.is_file():
            continue  # a script
        target = site / file
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(source, target)
