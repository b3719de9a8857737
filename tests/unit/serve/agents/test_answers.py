"""Rows in the form in which an agent gets them."""

from __future__ import annotations

import datetime
from decimal import Decimal

import pyarrow as pa
import pytest

from lakevilla.errors import InvalidOperation
from lakevilla.serve.agents.answers import rows_of
from lakevilla.serve.agents.limits import AgentLimits


def test_an_answer_has_values_of_json() -> None:
    found = pa.table(
        [
            pa.array([Decimal("1.50")]),
            pa.array([datetime.date(2026, 11, 30)]),
            pa.array([float("nan")]),
            pa.array([b"\x00a"]),
            pa.array([[("a", 1)]], pa.map_(pa.string(), pa.int64())),
            pa.array([2**62], pa.timestamp("us")),
            pa.nulls(1),
        ],
        names=["decimal", "day", "number", "bytes", "map", "far", "decimal"],
    )
    answer = rows_of(found, AgentLimits())
    assert answer == {
        "columns": ["decimal", "day", "number", "bytes", "map", "far", "decimal"],
        "rows": [["1.50", "2026-11-30", "NaN", "0061", {"a": 1}, answer["rows"][0][5], None]],
    }
    assert isinstance(answer["rows"][0][5], str)


def test_an_answer_is_cut_after_its_rows_and_says_so() -> None:
    found = pa.table({"n": range(11)})
    answer = rows_of(found, AgentLimits(rows=10))
    assert answer["rows"] == [[n] for n in range(10)]
    assert "only the first 10 rows" in answer["note"]
    assert "note" not in rows_of(found, AgentLimits(rows=11))


def test_an_answer_is_cut_after_its_characters_and_says_so() -> None:
    found = pa.table({"text": ["x" * 30] * 10})
    answer = rows_of(found, AgentLimits(characters=100))
    assert len(answer["rows"]) == 2
    assert "only the first 2 rows" in answer["note"]
    with pytest.raises(InvalidOperation, match="select fewer columns"):
        rows_of(found, AgentLimits(characters=20))
