"""Polars predicates translated into ours; a part with any unknown key is left out."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from lakevilla.api.reading.lazy_frame import translated
from lakevilla.sql.expressions.render import render_sql

SCHEMA = pa.schema(
    [("i", pa.int64()), ("f", pa.float32()), ("t", pa.timestamp("us", "UTC")), ("b", pa.bool_())]
)


def column(name: str) -> dict[str, Any]:
    return {"Column": name}


def scalar(kind: str, value: object) -> dict[str, Any]:
    return {"Literal": {"Scalar": {kind: value}}}


def binary(left: object, op: str, right: object) -> dict[str, Any]:
    return {"BinaryExpr": {"left": left, "op": op, "right": right}}


def function(kind: object, *operands: object) -> dict[str, Any]:
    return {"Function": {"input": list(operands), "function": {"Boolean": kind}}}


MORE = binary(column("i"), "Gt", scalar("Int64", 5))


@pytest.mark.parametrize(
    ("predicate", "expected"),
    [
        (MORE, "i > 5"),
        (binary(scalar("Int64", 5), "Gt", column("i")), "i < 5"),
        (binary(column("i"), "EqValidity", scalar("Int64", 5)), "i <=> 5"),
        (function("Not", column("b")), "not (b)"),
        (function({"IsBetween": {"closed": "Left"}}, column("i"), scalar("Int64", 1),
                  scalar("Int64", 2)), "i >= 1 and i < 2"),
        # The nearest 32-bit float, not the double.
        (binary(column("f"), "Eq", scalar("Float32", 0.1)),
         "f = cast('0.10000000149011612' as float)"),
        (binary(column("t"), "Lt", scalar("Datetime", [1500, "Milliseconds", {"inner": "UTC"}])),
         "t < timestamp '1970-01-01 00:00:01.500000Z'"),
        (binary(column("t"), "Lt", scalar("Datetime", [1, "Nanoseconds", {"inner": "UTC"}])), None),
        (binary(column("t"), "Lt", scalar("Datetime", [2**62, "Milliseconds", None])), None),
        (binary(column("f"), "Gt", scalar("Float64", None)), None),  # NaN, or infinite
        (binary(column("i"), "Xor", scalar("Int64", 5)), None),
        (binary(MORE, "And", {"New": 1}), "i > 5"),
        (binary(MORE, "Or", {"New": 1}), None),
        (function("Not", binary(MORE, "And", {"New": 1})), None),
        (function({"IsIn": {}}, column("i"), scalar("List", [1, 2, 3])), None),
        (binary(column("i"), "Gt", scalar("Int64", True)), None),
        (binary(column("gone"), "Gt", scalar("Int64", 5)), None),
        (column("i"), None),
        ({}, None),
        ([], None),
    ],
)  # fmt: skip
def test_a_polars_predicate_becomes_an_equivalent_or_weaker_predicate(
    predicate: object, expected: str | None
) -> None:
    found = translated(json.dumps(predicate), SCHEMA)
    assert (None if found is None else render_sql(found)) == expected
