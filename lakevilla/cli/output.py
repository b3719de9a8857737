"""What commands print: tables for people, JSON for programs, errors on stderr."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any

import pyarrow as pa
from rich import box
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from lakevilla.errors import LakeVillaError
from lakevilla.results import Report

__all__ = ["Output", "plain"]

_SEVERITY_STYLE = {"note": "dim", "warning": "yellow", "error": "red"}


class Output:
    """Prints results in one of two forms.

    Parameters
    ----------
    as_json : bool
        One JSON value on stdout and nothing else.
    """

    def __init__(self, as_json: bool) -> None:
        self.as_json = as_json
        self.console = Console()
        self.errors = Console(stderr=True)

    def value(self, value: object, text: str) -> None:
        """One result: ``value`` as JSON, ``text`` for people."""
        if self.as_json:
            _print_json(value)
        else:
            self.console.print(text)

    def rows(self, columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> None:
        """Rows under column heads; as JSON a list of objects."""
        rows = list(rows)
        if self.as_json:
            _print_json(rows)
            return
        table = Table(*columns, box=box.SIMPLE_HEAD)
        for row in rows:
            table.add_row(*(_cell(row.get(column)) for column in columns))
        self.console.print(table)

    def frame(self, frame: pa.Table) -> None:
        """The rows of a query."""
        self.rows(frame.schema.names, frame.to_pylist())

    def report(self, report: Report) -> None:
        """What recover, gc or doctor found and did."""
        if self.as_json:
            _print_json({"ok": report.ok, "findings": report.findings})
            return
        for finding in report.findings:
            style = _SEVERITY_STYLE[finding.severity]
            about = "  ".join(filter(None, (finding.table, finding.txn_id, finding.key)))
            self.console.print(
                f"[{style}]{finding.severity:8}[/]{escape(finding.kind)}: "
                f"{escape(finding.message)}" + (f" [dim]({escape(about)})[/]" if about else "")
            )
        self.console.print(
            "[green]well[/]" if report.ok else f"[red]{len(report.findings)} findings[/]"
        )

    def error(self, error: LakeVillaError) -> None:
        """An error, on stderr in either form: stdout holds results only."""
        if self.as_json:
            about = {"table": error.table, "txn_id": error.txn_id}
            body = {"error": error.kind, "message": error.message, **about}
            print(json.dumps(body), file=sys.stderr)
        else:
            self.errors.print(f"[red]{error.kind}[/]: {escape(error.message)}", soft_wrap=True)


def plain(value: Any) -> Any:
    """A value as JSON has it: decimals and times as text, structs as objects."""
    match value:
        case None | bool() | int() | float() | str():
            return value
        case bytes():
            return value.hex()
        case Decimal():
            return str(value)
        case datetime() | date() | time():
            return value.isoformat()
        case Mapping():
            return {str(key): plain(item) for key, item in value.items()}
        case _ if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = dataclasses.fields(value)
            return {item.name: plain(getattr(value, item.name)) for item in fields}
        case Iterable():
            return [plain(item) for item in value]
        case _:
            return str(value)


def _print_json(value: object) -> None:
    print(json.dumps(plain(value)))


def _cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, str):
        return escape(value)
    if isinstance(value, Mapping | list | tuple):
        return escape(json.dumps(plain(value)))
    return escape(str(plain(value)))
