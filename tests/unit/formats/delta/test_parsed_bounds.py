"""Bounds that a checkpoint has only as typed columns, as other writers store them."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from lakevilla.formats.base import Change
from lakevilla.formats.files import DataFile
from lakevilla.sql.expressions.bind import bind
from lakevilla.sql.expressions.parse import parse_predicate
from tests.support.delta_by_hand import Tables, data_file

PROPERTIES = {
    "delta.checkpoint.writeStatsAsStruct": "true",
    "delta.checkpoint.writeStatsAsJson": "false",
}
UTC_MOMENT = pa.timestamp("us", "UTC")
SCHEMA = pa.schema([("at", UTC_MOMENT), ("s", pa.struct([("at", UTC_MOMENT)])), ("d", pa.date32())])


def checkpointed(tables: Tables, *instants: str) -> None:
    """Make version 1 of a table, with a file for each timestamp, which all rows of the file
    have.
    """
    state = tables.create(SCHEMA, properties=PROPERTIES)
    files = []
    for instant in instants:
        bound = {"at": instant, "s": {"at": instant}, "d": instant[:10]}
        stats = {"numRecords": 1, "minValues": bound, "maxValues": bound, "nullCount": {}}
        files.append(DataFile(instant[:4], 1, 1, {}, json.dumps(stats)))
    state = tables.commit(state, Change(adds=tuple(files)))
    tables.run(tables.format.checkpoint(state))


def checkpoint(tables: Tables, version: int) -> str:
    return str(tables.log() / f"{version:020}.checkpoint.parquet")


def found(tables: Tables, where: str) -> list[str]:
    state = tables.open()
    return tables.paths(state, bind(parse_predicate(where), state.layout.schema))


@pytest.mark.parametrize("column", ["at", "s.at"])
def test_int96_bounds_of_a_checkpoint_keep_their_values(tables: Tables, column: str) -> None:
    """As nanoseconds, those after 2262 and before 1677 would be other times."""
    checkpointed(tables, "9999-12-31T00:00:00.000Z", "2024-01-02T03:04:05.678Z", "0001-01-02T00:00")
    path = checkpoint(tables, 1)
    pq.write_table(pq.read_table(path), path, use_deprecated_int96_timestamps=True)
    assert found(tables, f"{column} > '9000-01-01'") == ["9999"]
    assert found(tables, f"{column} < '1600-01-01'") == ["0001"]
    assert found(tables, f"{column} = '2024-01-02 03:04:05.678'") == ["2024"]


def test_int96_bounds_are_written_to_the_next_checkpoint_as_utc(tables: Tables) -> None:
    checkpointed(tables, "9999-12-31T00:00:00.000Z")
    path = checkpoint(tables, 1)
    pq.write_table(pq.read_table(path), path, use_deprecated_int96_timestamps=True)
    state = tables.open()
    (text,) = tables.files(state).column("stats").to_pylist()
    assert json.loads(text)["maxValues"]["s"] == {"at": "9999-12-31T00:00:00.000Z"}
    tables.run(tables.format.checkpoint(tables.commit(state, Change(adds=(data_file("b"),)))))
    rows = pq.read_table(checkpoint(tables, 2)).to_pylist()
    known = [row["add"]["stats_parsed"] for row in rows if row["add"]]
    ends = [one["maxValues"]["at"] for one in known if one["maxValues"]]
    assert ends == [datetime(9999, 12, 31, tzinfo=UTC)]


@pytest.mark.parametrize("unit", ["ms", "us", "96 bits"])
def test_bounds_beyond_the_year_9999_are_ignored(tables: Tables, unit: str) -> None:
    """No row has such a time, so the writer meant another one: the file is read."""
    checkpointed(tables, "9999-12-31T00:00:00.000Z")
    path = checkpoint(tables, 1)
    table = pq.read_table(path)
    shifted = pa.table([far(column) for column in table.columns], table.schema.names)
    how: dict[str, Any] = {"coerce_timestamps": unit}
    if unit == "96 bits":
        how = {"use_deprecated_int96_timestamps": True}
    pq.write_table(shifted, path, **how)
    for where in ("at < '2000-01-01'", "s.at = '2000-01-01'", "d < '2000-01-01'"):
        assert found(tables, where) == ["9999"]
    state = tables.open()
    tables.run(tables.format.checkpoint(tables.commit(state, Change(adds=(data_file("b"),)))))
    assert tables.paths(tables.open()) == ["9999", "b"]


def far(column: Any) -> pa.Array:
    """Move all dates and times of the column, at any depth, some twenty thousand years into the
    future.
    """
    values = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    kind, years = values.type, 20_000 * 365
    if pa.types.is_struct(kind):
        inner = [far(values.field(place)) for place in range(kind.num_fields)]
        names = [field.name for field in kind]
        return pa.StructArray.from_arrays(inner, names, mask=values.is_null())
    if pa.types.is_date(kind):
        return pc.add(values.cast(pa.int32()), pa.scalar(years, pa.int32())).cast(kind)
    if pa.types.is_timestamp(kind):
        return pc.add(values.cast(pa.int64()), years * 86_400_000_000).cast(kind)
    return values
