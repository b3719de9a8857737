"""Very deeply nested JSON in a lake or table is reported as damage, never as ``RecursionError``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, Literal

import pyarrow as pa
import pytest

import lakevilla as lv

DEEP = '{"a":' * 200_000 + "1" + "}" * 200_000
#: Nested so deeply that a parser accepts it and a recursive walk over it fails, or vice versa.
MIDDLE = '{"a":' * 600 + "1" + "}" * 600


def lake_of(root: Path, kind: Literal["delta", "iceberg"]) -> None:
    rows = pa.table({"a": [1, 2], "s": [{"x": 1}, {"x": 2}]})
    with lv.connect(str(root)) as lake:
        lake.create_table("t", rows, format=kind)
        lake.run(lambda txn: txn.update("t", {"a": "a + 1"}, "a = 2"))


def everything(root: Path) -> None:
    """Call the verbs that read a table's JSON: each succeeds or raises a ``LakeVillaError``."""
    asked: list[Callable[[lv.Lake[Any]], object]] = [
        lambda lake: lake.read("t", where="a = 1"),
        lambda lake: lake.table("t").history(),
        lambda lake: lake.history(),
        lambda lake: lake.sql("SELECT * FROM lakevilla_files"),
        lambda lake: lake.sql("SELECT * FROM lakevilla_statistics"),
        lambda lake: lake.doctor(files=True),
        lambda lake: lake.run(lambda txn: txn.update("t", {"a": "a + 1"}, "a = 1")),
    ]
    for ask in asked:
        try:
            with lv.connect(str(root)) as lake:
                ask(lake)
        except lv.LakeVillaError:
            pass


def with_value(document: Any, name: str, text: str) -> str:
    """Return the JSON of a document in which each ``name`` has the value written as ``text``."""
    mark = "\x01here"

    def marked(value: Any) -> Any:
        if isinstance(value, dict):
            return {k: mark if k == name else marked(v) for k, v in value.items()}
        return [marked(one) for one in value] if isinstance(value, list) else value

    return json.dumps(marked(document)).replace(json.dumps(mark), text)


def damage(file: Path, name: str, text: str) -> None:
    documents = [json.loads(line) for line in file.read_text().splitlines()]
    file.write_text("\n".join(with_value(one, name, text) for one in documents))


@pytest.mark.parametrize("text", [DEEP, MIDDLE], ids=["deep", "middle"])
@pytest.mark.parametrize(
    "name",
    ["stats", "schemaString", "configuration", "partitionValues", "tags", "commitInfo", "other"],
)
def test_deeply_nested_values_in_a_delta_log_raise_no_recursion_error(
    tmp_path: Path, name: str, text: str
) -> None:
    lake_of(tmp_path, "delta")
    is_text = name in ("stats", "schemaString")
    for file in sorted(Path(tmp_path, "t", "_delta_log").glob("*.json")):
        damage(file, name, json.dumps(text) if is_text else text)
    everything(tmp_path)


@pytest.mark.parametrize("text", [DEEP, MIDDLE], ids=["deep", "middle"])
@pytest.mark.parametrize(
    "name", ["schemas", "properties", "snapshots", "summary", "refs", "fields", "partition-specs"]
)
def test_deeply_nested_values_in_iceberg_metadata_raise_no_recursion_error(
    tmp_path: Path, name: str, text: str
) -> None:
    lake_of(tmp_path, "iceberg")
    for file in sorted(Path(tmp_path, "t", "metadata").glob("*.json")):
        damage(file, name, text)
    everything(tmp_path)


@pytest.mark.parametrize("text", [DEEP, MIDDLE], ids=["deep", "middle"])
@pytest.mark.parametrize("name", ["commits", "tables", "format", "lake_id", "where", "other"])
def test_deeply_nested_values_in_the_lakes_own_objects_raise_no_recursion_error(
    tmp_path: Path, name: str, text: str
) -> None:
    lake_of(tmp_path, "delta")
    for file in sorted(Path(tmp_path, "_lakevilla").rglob("*")):
        if file.is_file():
            try:
                damage(file, name, text)
            except ValueError:
                continue  # the object is no JSON
    everything(tmp_path)


def test_objects_that_are_deeply_nested_as_a_whole_raise_no_recursion_error(tmp_path: Path) -> None:
    lake_of(tmp_path, "delta")
    bodies = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    for file, body in bodies.items():
        if file.suffix == ".json":
            file.write_text(DEEP)
            everything(tmp_path)
            for other, whole in bodies.items():
                other.parent.mkdir(parents=True, exist_ok=True)
                other.write_bytes(whole)
            assert file.read_bytes() == body
