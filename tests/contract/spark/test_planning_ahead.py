"""Spark's first process plans a read with its columns; the second one then needs no LakeVilla."""

from __future__ import annotations

import pickle
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pyspark.cloudpickle import dumps

import lakevilla as lv
from lakevilla.api.spark.source import tables
from lakevilla.api.spark.source.classes import data_source
from tests.support.places import Place
from tests.support.tables import values

#: The work of Spark's second process, in which LakeVilla can't be imported.
PLANNER = """
import pickle, sys
sys.modules["lakevilla"] = None
from pyspark.cloudpickle import dumps
from pyspark.sql.types import StructType
source, schema = pickle.load(open(sys.argv[1], "rb"))
reader = source.reader(StructType.fromJson(schema))
task = dumps((reader, source))
parts = reader.partitions()
with open(sys.argv[1], "wb") as file:
    pickle.dump((task, dumps(parts)), file)
"""


@pytest.fixture(params=["local", "iceberg"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    format = "iceberg" if request.param == "iceberg" else "delta"
    return Place(str(tmp_path / "lake"), format=format)


@pytest.fixture
def lake(place: Place) -> Any:
    with place.connect() as lake:
        lake.create_table("t", [{"id": 0}])
        for number in (1, 2):
            lake.run(lambda txn, number=number: txn.append("t", [{"id": number}]))
        yield lake


def loaded(place: Place, **options: str) -> tuple[Any, Any]:
    """Return what the first process passes to the second: the source, and its columns."""
    source = data_source(pickle.dumps({}))(
        options={"lake": place.root, "path": "t", "partitions": "3", **options}
    )
    return source, source.schema()


def ids(reader: Any, parts: Any) -> list[int]:
    return sorted(
        row["id"] for part in parts for batch in reader.read(part) for row in batch.to_pylist()
    )


def test_sparks_second_process_needs_no_lakevilla(
    place: Place, lake: lv.Lake, tmp_path: Path
) -> None:
    source, schema = loaded(place)
    lake.run(lambda txn: txn.delete("t", where="true"))  # the read is bound already
    carried = tmp_path / "carried"
    carried.write_bytes(dumps((source, schema.jsonValue())))
    subprocess.run([sys.executable, "-c", PLANNER, str(carried)], check=True, timeout=120)
    task, found = pickle.loads(carried.read_bytes())
    reader, _ = pickle.loads(task)
    parts = pickle.loads(found)
    assert ids(reader, parts) == [0, 1, 2]
    # Each task is sent its own part, and no part of another task.
    assert not any(part.value in task for part in parts)


def test_a_read_of_many_files_is_planned_only_when_it_runs(
    place: Place, lake: lv.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tables, "_FEW_FILES", 2)
    source, schema = loaded(place)
    assert source.planned is None
    reader = source.reader(schema)
    assert ids(reader, reader.partitions()) == [0, 1, 2]


def test_a_read_of_few_files_is_planned_ahead_although_the_log_has_a_checkpoint(
    place: Place, lake: lv.Lake
) -> None:
    if place.format == "iceberg":
        pytest.skip("its metadata says it")
    place.delta("t").create_checkpoint()
    lake.run(lambda txn: txn.append("t", [{"id": 3}]))
    source, schema = loaded(place)
    assert source.planned is not None
    reader = source.reader(schema)
    assert ids(reader, reader.partitions()) == [0, 1, 2, 3]


def test_a_read_with_other_columns_than_planned_is_planned_again(
    place: Place, lake: lv.Lake
) -> None:
    from pyspark.sql.types import LongType, StructType

    source, schema = loaded(place, where="id > 0")
    with pytest.raises(lv.InvalidOperation, match="there is no column other"):
        source.reader(StructType().add("other", LongType()))
    reader = source.reader(schema)
    assert ids(reader, reader.partitions()) == [1, 2]


def test_a_stream_is_not_planned_ahead(place: Place, lake: lv.Lake) -> None:
    source, _ = loaded(place, startingVersion="1")
    assert source.planned is None
    assert values(lake.snapshot().read("t")) == [0, 1, 2]
