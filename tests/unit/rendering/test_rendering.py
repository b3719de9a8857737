"""Output of rows: shortened for a terminal, complete for programs."""

from __future__ import annotations

import csv
import io
import json
from datetime import UTC, datetime
from decimal import Decimal

import pyarrow as pa
import pytest
from rich.cells import cell_len

from lakevilla.rendering import fitted, grid, lines_of
from lakevilla.values import FORMATS, Format, Look


def shown(frame: pa.Table, width: int | None = None) -> list[str]:
    return list(grid(frame, Look(width)).lines)


@pytest.mark.parametrize(
    ("widths", "room", "expected"),
    [
        ([3, 4, 5], 16, [3, 4, 5]),
        ([3, 40, 5], 30, [3, 18, 5]),  # the widest column is shortened
        ([20, 40, 5], 29, [10, 10, 5]),
        ([10] * 5, 40, [10, 10, None, None, 10]),
        ([100, 100], 9, [6, None]),  # at least the first column stays
        ([], 5, []),
    ],
)
def test_the_widest_columns_are_shortened_first_and_then_middle_columns_left_out(
    widths: list[int], room: int, expected: list[int | None]
) -> None:
    assert fitted(widths, room, 2) == expected


@pytest.mark.parametrize("columns", [1, 2, 7, 40])
@pytest.mark.parametrize("width", [1, 5, 20, 79, 80, 81, 200])
def test_table_output_is_not_wider_than_the_terminal(columns: int, width: int) -> None:
    row = {f"column_{n}": ["wörter " * n, "日本語" * n] for n in range(columns)}
    made = grid(pa.table(row), Look(width))
    assert len(made.hidden) < columns
    # Each column needs at least one character and the mark of the omission.
    assert max(cell_len(line) for line in made.lines) <= max(width, 7)


def test_output_without_a_terminal_is_not_shortened() -> None:
    frame = pa.table({"a": ["x" * 500], "b": [1]})
    assert "x" * 500 in shown(frame)[2]
    assert grid(frame, Look(None)).hidden == ()


def test_numbers_are_right_aligned_and_null_differs_from_the_text_null() -> None:
    frame = pa.table({"n": pa.array([1, 100, None]), "t": ["", "NULL", None]})
    assert shown(frame) == ["    n  t", "────────────", "    1", "  100  NULL", " NULL  NULL"]
    coloured = list(grid(frame, Look(colour=True)).lines)
    assert [line.count("\x1b[2m") for line in coloured[2:]] == [0, 0, 2]


def test_columns_with_the_same_name_are_both_shown() -> None:
    frame = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["x", "x"])
    assert shown(frame)[2].split() == ["1", "2"]
    assert list(lines_of(frame, "csv")) == ["x,x", "1,2"]


def test_control_characters_that_would_move_the_cursor_are_escaped() -> None:
    frame = pa.table({"a\nb": ["\x1b[2J", "one\ntwo"]})
    for form in ("table", "vertical", "markdown"):
        for line in lines_of(frame, form):
            assert "\x1b" not in line
            assert "\n" not in line


def test_a_terminal_without_box_characters_gets_ascii() -> None:
    frame = pa.table({"a": ["x" * 99]})
    for form in ("table", "vertical"):
        "\n".join(lines_of(frame, form, Look(40, ascii=True))).encode("ascii")


def test_csv_output_keeps_null_and_empty_text_distinct_for_other_readers() -> None:
    texts = ["plain", 'a "quote"', "a,b", "two\nlines", "", None, " "]
    frame = pa.table({"t": texts, "n": range(7)})
    written = "\n".join(lines_of(frame, "csv")) + "\n"
    rows = list(csv.reader(io.StringIO(written)))
    assert [row[0] for row in rows[1:]] == [text or "" for text in texts]
    assert written.splitlines()[6:8] == ['"",4', ",5"]


def test_json_output_represents_values_of_every_type() -> None:
    when = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
    row = {"d": Decimal("1.10"), "t": when, "l": [1, None], "f": float("nan"), "b": b"\xff"}
    frame = pa.Table.from_pylist([row, row])
    expected = {
        "d": "1.10",
        "t": when.isoformat(),
        "l": [1, None],
        "f": "NaN",
        "b": "ff",
    }
    (whole,) = lines_of(frame, "json")
    assert json.loads(whole) == [expected] * 2
    assert [json.loads(line) for line in lines_of(frame, "ndjson")] == [expected] * 2


def test_markdown_escapes_a_bar_within_a_cell() -> None:
    frame = pa.table({"a": ["x|y", None], "n": [1, 2]})
    assert list(lines_of(frame, "markdown")) == [
        "| a | n |",
        "| --- | ---: |",
        "| x\\|y | 1 |",
        "|  | 2 |",
    ]


def test_vertical_output_shows_every_value_unshortened() -> None:
    frame = pa.table({"id": [7], "comment": ["x" * 200]})
    lines = list(lines_of(frame, "vertical", Look(40)))
    assert lines[0].startswith("─[ 1 ]─")
    assert lines[1:] == ["id      │ 7", f"comment │ {'x' * 200}"]


@pytest.mark.parametrize("form", FORMATS)
def test_tables_without_rows_are_rendered_in_every_format(form: Format) -> None:
    assert all(
        isinstance(line, str) for line in lines_of(pa.table({"a": pa.array([], "i8")}), form)
    )


@pytest.mark.parametrize("form", FORMATS)
def test_a_timestamp_that_python_cannot_represent_is_shown_as_a_number(form: Format) -> None:
    frame = pa.table({"at": pa.array([10**18], pa.timestamp("us"))})
    assert str(10**18) in "\n".join(lines_of(frame, form))


def test_intervals_are_written_as_in_sql_and_maps_as_in_json() -> None:
    frame = pa.table(
        {
            "i": pa.array(
                [pa.MonthDayNano((14, 1, 3_723_500_000_000)), pa.MonthDayNano((0, -2, 0)), None]
            ),
            "m": pa.array([[("k", 1)], [], None], pa.map_(pa.string(), pa.int64())),
        }
    )
    assert list(lines_of(frame, "csv")) == [
        "i,m",
        '14 months 1 day 01:02:03.5,"{""k"": 1}"',
        "-2 days,{}",
        ",",
    ]
    assert json.loads(next(lines_of(frame, "ndjson"))) == {
        "i": "14 months 1 day 01:02:03.5",
        "m": {"k": 1},
    }


def test_a_map_with_a_duplicate_key_is_rendered_with_both_entries() -> None:
    frame = pa.table({"m": pa.array([[("k", 1), ("k", 2)]], pa.map_(pa.string(), pa.int64()))})
    assert json.loads(next(lines_of(frame, "ndjson"))) == {"m": [["k", 1], ["k", 2]]}


def test_json_output_keeps_non_ascii_letters() -> None:
    assert list(lines_of(pa.table({"a": ["漢ü"]}), "ndjson")) == ['{"a": "漢ü"}']
