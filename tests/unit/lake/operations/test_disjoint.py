"""Predicates that no row makes true together, as their constants show it."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakevilla.lake.operations.matching import are_disjoint
from lakevilla.sql.expressions.bind import bind
from lakevilla.sql.expressions.evaluate import evaluate
from lakevilla.sql.expressions.parse import parse_predicate

SCHEMA = pa.schema([("k", pa.int64()), ("n", pa.int32()), ("s", pa.string()), ("x", pa.float64())])


def disjoint(one: str, other: str) -> bool:
    found = {
        are_disjoint(parse_predicate(a), parse_predicate(b), SCHEMA)
        for a, b in ((one, other), (other, one))
    }
    assert len(found) == 1
    return found.pop()


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("k = 1", "k = 2"),
        ("k IN (1, 2, NULL)", "k IN (3, NULL)"),
        ("n IN (1, 2) AND s = 'a'", "k = 4 AND n = 3"),
        ("s = 'a'", "s IN ('b', 'A')"),
    ],
)
def test_predicates_that_allow_different_values_are_disjoint(one: str, other: str) -> None:
    assert disjoint(one, other)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("k = 1", "k IN (1, 2)"),
        ("k = 1", "n = 2"),
        ("k = 1", "k > 2"),
        ("k = 1 OR k = 2", "k = 3"),
        ("k = 1 OR k IS NULL", "k = 3"),
        ("x = 1.0", "x = 2.0"),
        ("x = 9007199254740992", "x = 9007199254740993"),
        ("n = '5'", "n = '05'"),
        ("k IN (1, n)", "k = 2"),
    ],
)
def test_predicates_that_one_row_may_fit_are_not(one: str, other: str) -> None:
    assert not disjoint(one, other)


@given(*[st.lists(st.integers(-3, 3), min_size=1, max_size=4)] * 2, st.integers(-4, 4))
def test_no_row_fits_two_disjoint_predicates(
    some: list[int], others: list[int], value: int
) -> None:
    texts = [f"k IN ({', '.join(map(str, one))})" for one in (some, others)]
    fits = [evaluate(bind(parse_predicate(one), SCHEMA), {"k": value}) for one in texts]
    assert not (all(fits) and disjoint(*texts))
