"""Delta tables need none of the packages that Iceberg tables need."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pytest

from lakevilla.formats.iceberg.catalog.object_store_catalog import ObjectStoreCatalog

PROGRAM = """
import importlib.abc, sys

class Absent(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ("pyiceberg", "pyiceberg_core") and HIDDEN:
            raise ModuleNotFoundError(name)

HIDDEN = sys.argv[2] == "hidden"
sys.meta_path.insert(0, Absent())
if HIDDEN:
    import importlib.util
    find = importlib.util.find_spec
    importlib.util.find_spec = lambda name, *a: None if name == "pyiceberg" else find(name, *a)

import lakevilla as lv

with lv.connect(sys.argv[1]) as lake:
    if HIDDEN:
        lake.create_table("t", [{"id": 1}], partition_by=[])
    with lake.transaction() as txn:
        txn.update("t", {"id": "id + 1"}, where="true")
        print(txn.read("t").to_pylist())
    if HIDDEN:
        try:
            lake.create_table("i", [{"id": 1}], format="iceberg")
        except lv.InvalidOperation as error:
            print(error)
    print(any(name.startswith("pyiceberg") for name in sys.modules))
"""


def run(root: Path, how: str, program: str = PROGRAM) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", program, str(root), how],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.splitlines()


@pytest.mark.night
def test_delta_tables_are_used_without_pyiceberg_and_do_not_load_it(tmp_path: Path) -> None:
    rows, refused, loaded = run(tmp_path, "hidden")
    assert rows == "[{'id': 2}]"
    assert "pip install lakevilla[iceberg]" in refused
    assert loaded == "False"
    assert run(tmp_path, "there") == ["[{'id': 3}]", "False"]


REFUSED = (
    PROGRAM.partition("import lakevilla")[0]
    + """
import lakevilla as lv

lake = lv.connect(sys.argv[1])
for verb in (
    lambda: lake.snapshot().read("theirs"),
    lambda: lake.register("theirs"),
    lambda: lake.create_table("theirs", [{"id": 1}]),
):
    try:
        print(verb())
    except lv.LakeVillaError as error:
        print(error)
"""
)


def test_a_foreign_iceberg_table_is_not_taken_for_an_empty_directory_without_pyiceberg(
    tmp_path: Path,
) -> None:
    catalog = ObjectStoreCatalog("tests", warehouse=str(tmp_path))
    catalog.create_table(("theirs",), pa.schema([("id", pa.int64())]))
    *opened, created = run(tmp_path, "hidden", REFUSED)
    assert len(opened) == 2
    assert all("pip install lakevilla[iceberg]" in answer for answer in opened), opened
    assert "the directory of an Iceberg table" in created
    assert not (tmp_path / "theirs" / "_delta_log").exists()
