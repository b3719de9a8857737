"""Random changes of random schemas: an older file's rows are those that the spec prescribes."""

from __future__ import annotations

import datetime
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from tests.support.iceberg_by_hand import File, Table, column
from tests.support.places import Place

#: The seed changes every day; a failure names it.
TODAY = datetime.datetime.now(datetime.UTC).date().toordinal()

PLAIN = {
    "int": pa.int32(),
    "long": pa.int64(),
    "string": pa.string(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
}
Fields = list[dict[str, Any]]


class Maker:
    """Makes types in the spec's notation, changes of them, and values."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.last = 0

    def number(self) -> int:
        self.last += 1
        return self.last

    def fields(self, count: int, depth: int = 0) -> Fields:
        made = [column(self.number(), f"n{n}", self.type(depth)) for n in range(count)]
        self.random.shuffle(made)
        return made

    def type(self, depth: int) -> Any:
        drawn = self.random.random() if depth < 2 else 1.0
        if drawn < 0.3:
            return {"type": "struct", "fields": self.fields(self.random.randint(1, 3), depth + 1)}
        if drawn < 0.45:
            element = self.number()
            kind = self.type(depth + 1)
            return {
                "type": "list",
                "element-id": element,
                "element": kind,
                "element-required": False,
            }
        if drawn < 0.55:
            ids = {"key-id": self.number(), "value-id": self.number()}
            kind = self.type(depth + 1)
            return {"type": "map", "key": "string", "value": kind, "value-required": False, **ids}
        return self.random.choice(list(PLAIN))

    def changed(self, fields: Fields) -> Fields:
        """Drop, rename (also to a name used before), widen, add and reorder fields."""
        found = []
        for one in fields:
            if self.random.random() < 0.15 and len(fields) > 1:
                continue
            name = one["name"]
            if self.random.random() < 0.3:
                name = f"n{self.random.randrange(6)}"
            found.append({**one, "name": name, "type": self.widened(one["type"])})
        if self.random.random() < 0.5:
            kind = self.random.choice(list(PLAIN))
            found.append(column(self.number(), f"n{self.random.randrange(6)}", kind))
        self.random.shuffle(found)
        by_name = {one["name"]: one for one in found}
        return list(by_name.values()) or fields

    def widened(self, kind: Any) -> Any:
        if isinstance(kind, str):
            return "long" if kind == "int" and self.random.random() < 0.4 else kind
        parts = {part: self.widened(kind[part]) for part in ("element", "value") if part in kind}
        if kind["type"] == "struct":
            parts["fields"] = self.changed(kind["fields"])
        return {**kind, **parts}

    def value(self, kind: Any) -> Any:
        drawn = self.random
        if drawn.random() < 0.2:
            return None
        match kind if isinstance(kind, str) else kind["type"]:
            case "struct":
                return {one["name"]: self.value(one["type"]) for one in kind["fields"]}
            case "list":
                return [self.value(kind["element"]) for _ in range(drawn.randrange(3))]
            case "map":
                return [(key, self.value(kind["value"])) for key in "ab"[: drawn.randrange(3)]]
            case "string":
                return f"text {drawn.randrange(9)}"
            case "double":
                return drawn.random()
            case "boolean":
                return drawn.random() < 0.5
        return drawn.randrange(9)


def arrow(kind: Any) -> pa.DataType:
    """Return the Arrow type of a file's column, with the ids of its parts."""
    if isinstance(kind, str):
        return PLAIN[kind]
    if kind["type"] == "struct":
        return pa.struct(arrow_fields(kind["fields"]))

    def part(name: str, of: Any) -> pa.Field:
        metadata = {"PARQUET:field_id": str(kind[f"{name}-id"])}
        return pa.field(name, arrow(of), name != "key", metadata)

    if kind["type"] == "list":
        return pa.list_(part("element", kind["element"]))
    return pa.map_(part("key", "string"), part("value", kind["value"]))


def arrow_fields(fields: Fields) -> list[pa.Field]:
    return [
        pa.field(one["name"], arrow(one["type"]), metadata={"PARQUET:field_id": str(one["id"])})
        for one in fields
    ]


def followed(value: Any, before: Any, after: Any) -> Any:
    """Return a value of type ``before`` as one of type ``after``; equal ids mean equal parts."""
    if value is None or isinstance(after, str):
        return value
    if after["type"] == "struct":
        return row_of(value, before["fields"], after["fields"])
    if after["type"] == "list":
        return [followed(one, before["element"], after["element"]) for one in value]
    return [(key, followed(one, before["value"], after["value"])) for key, one in value]


def row_of(row: dict[str, Any], before: Fields, after: Fields) -> dict[str, Any]:
    there = {one["id"]: one for one in before}
    found = {}
    for one in after:
        old = there.get(one["id"])
        value = None if old is None else row[old["name"]]
        found[one["name"]] = None if old is None else followed(value, old["type"], one["type"])
    return found


def in_order(rows: Sequence[Any]) -> list[str]:
    return sorted(map(repr, rows))


@pytest.mark.parametrize("case", range(24))
def test_rows_of_an_older_file_follow_random_schema_changes_as_the_spec_says(
    place: Place, case: int
) -> None:
    seed = TODAY * 1000 + case
    maker = Maker(seed)
    before = maker.fields(maker.random.randint(1, 4))
    held = [{one["name"]: maker.value(one["type"]) for one in before} for _ in range(6)]
    after = maker.changed(maker.changed(before))
    rows = pa.Table.from_pylist(held, schema=pa.schema(arrow_fields(before)))
    Table(Path(place.uri("t")), after).add(File("a.parquet", rows)).write()
    expected = in_order([row_of(row, before, after) for row in held])
    with place.connect() as lake:
        assert in_order(lake.snapshot().read("t").to_pylist()) == expected, f"seed {seed}"
        lake.table("t").optimize()
        lake.run(lambda txn: txn.append("t", [dict.fromkeys(one["name"] for one in after)]))
        lake.table("t").optimize()
        nothing = repr(dict.fromkeys(one["name"] for one in after))
        found = in_order(lake.snapshot().read("t").to_pylist())
        assert found == sorted([*expected, nothing]), f"seed {seed}"
