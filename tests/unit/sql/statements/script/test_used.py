"""Parameters of a script without a value, and values without a parameter."""

from __future__ import annotations

import pytest

from lakevilla.errors import InvalidOperation
from lakevilla.sql.statements.script.control import refuse_unmatched


@pytest.mark.parametrize(
    ("text", "names", "message"),
    [
        ("SELECT :sk", ["sku"], "parameter :sk has no value; give it in params, which has sku"),
        (
            "SELECT :a, :c",
            ["a", "b"],
            "parameter :c has no value; give it in params, which has a, b",
        ),
        ("SELECT ':sku'", ["sku"], "parameters not used: sku; write :sku, without quotes"),
    ],
)
def test_unmatched_parameters_are_reported_with_the_likely_mistake(
    text: str, names: list[str], message: str
) -> None:
    with pytest.raises(InvalidOperation, match=message):
        refuse_unmatched(text, names, "duckdb")


def test_a_colon_may_be_part_of_a_slice_if_all_values_are_used() -> None:
    refuse_unmatched("SELECT [1, 2][1:x], :a", ["a"], "duckdb")
