"""JSON that is nested too deeply is malformed, and never causes a ``RecursionError``."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from lakevilla.arrow.nesting import DEPTH, JsonDecoder, document
from lakevilla.cli.sql.script import value_of
from lakevilla.errors import InvalidOperation
from lakevilla.formats.files import rows_in


class Rows(msgspec.Struct):
    rows: int = 0


def nested(depth: int, inner: str = "") -> str:
    return "[" * depth + inner + "]" * depth


def objects(depth: int) -> str:
    return '{"a":' * depth + "1" + "}" * depth


@pytest.mark.parametrize("text", [nested(DEPTH), objects(DEPTH), "[" + objects(DEPTH - 1) + ",1]"])
def test_a_document_with_the_maximal_number_of_levels_is_read(text: str) -> None:
    assert msgspec.json.encode(document(text)).decode() == text


@pytest.mark.parametrize("depth", [DEPTH + 1, 900, 3_000, 200_000])
@pytest.mark.parametrize("text", [nested, objects])
def test_a_document_with_more_levels_is_malformed(text: Any, depth: int) -> None:
    with pytest.raises(ValueError, match="nested deeper than"):
        document(text(depth))
    with pytest.raises(ValueError, match="nested deeper than"):
        document(f'[1, {{"a": {text(depth)}}}]')


def test_a_document_with_unknown_fields_nested_too_deeply_is_malformed() -> None:
    decoder = JsonDecoder(Rows)
    assert decoder.decode('{"rows": 1, "other": [[1]]}') == Rows(1)
    with pytest.raises(msgspec.DecodeError, match="nested deeper than"):
        decoder.decode(f'{{"rows": 1, "other": {nested(200_000)}}}')


def test_a_file_with_statistics_nested_too_deeply_has_no_row_count() -> None:
    assert rows_in(f'{{"numRecords":1,"minValues":{objects(200_000)}}}') is None


def test_a_command_line_value_nested_too_deeply_is_refused() -> None:
    with pytest.raises(InvalidOperation, match="nested too deeply"):
        value_of(nested(200_000))
