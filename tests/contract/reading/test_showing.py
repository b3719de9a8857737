"""Rows for people: ``lv.show`` in a shell, and tables in a notebook."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from IPython.core.formatters import DisplayFormatter

import lakevilla as lv
from lakevilla.api.showing import rows_html


class Shell:
    """A shell of IPython as far as a formatter sees it: with IPython's own formatters."""

    def __init__(self) -> None:
        self.display_formatter = DisplayFormatter()

    def html(self, value: object) -> Any:
        data, _ = self.display_formatter.format(value)
        return data.get("text/html")


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Shell:
    shell = Shell()
    monkeypatch.setattr("IPython.get_ipython", lambda: shell)
    return shell


def test_show_prints_rows_and_counts_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    lv.show(pa.table({"sku": ["tea", None], "qty": [5, 12]}))
    assert capsys.readouterr().out.split("\n") == [
        *(" sku   qty", "───────────", " tea     5", " NULL   12", "")
    ]
    lv.show(pa.table({"n": range(30)}), limit=3)
    assert capsys.readouterr().out.endswith(" 2\nthe first 3 rows of 30\n")


def test_show_reads_no_more_of_a_stream_than_it_prints(capsys: pytest.CaptureFixture[str]) -> None:
    taken = []

    def batches() -> Iterator[pa.RecordBatch]:
        for number in range(5):
            taken.append(number)
            yield pa.RecordBatch.from_pylist([{"n": number}] * 2)

    schema = pa.schema([("n", pa.int64())])
    lv.show(pa.RecordBatchReader.from_batches(schema, batches()), limit=2)
    assert taken == [0, 1]
    assert capsys.readouterr().out.endswith("the first 2 rows; there are more\n")


def test_show_takes_a_table_of_the_lake_and_refuses_other_objects(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with lv.connect("memory://showing") as lake:
        lake.create_table("stock", [{"sku": "tea"}])
        lv.show(lake["stock"])
    assert " tea\n" in capsys.readouterr().out
    with pytest.raises(lv.InvalidOperation, match="gives Arrow"):
        lv.show("stock")  # type: ignore[arg-type]


def test_a_notebook_shows_an_arrow_table_once_a_lake_is_connected(shell: Shell) -> None:
    rows = pa.table({"sku": ["<b>", None], "qty": [5, 1]})
    assert shell.html(rows) is None
    lv.connect("memory://notebook")
    found = shell.html(rows)
    assert "<caption>2 rows, 2 columns</caption>" in found
    assert "<td>&lt;b&gt;</td><td>5</td>" in found
    assert "<td>NULL</td>" in found


def test_a_form_that_the_user_has_chosen_for_arrow_tables_stays(shell: Shell) -> None:
    formatter = shell.display_formatter.formatters["text/html"]
    formatter.for_type(pa.Table, lambda rows: "mine")
    lv.connect("memory://notebook")
    assert shell.html(pa.table({"n": [1]})) == "mine"


def test_a_notebook_shows_the_beginning_of_a_large_table() -> None:
    long = rows_html(pa.table({"n": range(1234)}))
    assert "<caption>1,234 rows, 1 column; the first 100 rows</caption>" in long
    assert long.count("<tr>") == 101
    wide = rows_html(pa.table({f"c{n}": [n] for n in range(300)}))
    assert wide.count("<td>") == 100
    assert "300 columns, of which the first 100 are shown" in wide
