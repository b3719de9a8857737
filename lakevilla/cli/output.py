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
from rich.tree import Tree

from lakevilla.errors import LakeVillaError
from lakevilla.results import HistoryEntry, QueuePlace, Report, TableHistoryEntry, TransactionInfo

__all__ = ["Output", "plain"]

_SEVERITY_STYLE = {"note": "dim", "warning": "yellow", "error": "red"}
#: Characters in a line that is not cut.
_NO_LIMIT = 100_000
_STATE_STYLE = {"running": "green", "waiting": "yellow", "unreadable": "red"}


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
            _print_json(report)
            return
        for finding in report.findings:
            style = _SEVERITY_STYLE[finding.severity]
            about = "  ".join(filter(None, (finding.table, finding.txn_id, finding.key)))
            self.console.print(
                f"[{style}]{finding.severity:8}[/]{escape(finding.kind)}: "
                f"{escape(finding.message)}" + (f" [dim]({escape(about)})[/]" if about else "")
            )
        if report.queues or report.cycles:
            self._tree(_queues(report))
        self.console.print(
            "[green]well[/]" if report.ok else f"[red]{len(report.findings)} findings[/]"
        )

    def transactions(self, infos: Sequence[TransactionInfo]) -> None:
        """Running and saved transactions; an id is shown whole, for ``lakevilla abort``."""
        if self.as_json:
            _print_json(infos)
            return
        if not infos:
            self.console.print("no transaction is in a queue, and none is saved")
            return
        tree = Tree("transactions")
        for info in infos:
            style = _STATE_STYLE.get(info.state, "dim")
            started = info.started.isoformat(sep=" ", timespec="seconds")
            branch = tree.add(
                f"{info.id}  [{style}]{info.state}[/]  since {started}  ({escape(info.owner)})"
            )
            branch.add(f"last seen {info.last_seen.isoformat(sep=' ', timespec='seconds')}")
            if info.tables:
                branch.add(f"in {escape(', '.join(info.tables))}")
            if info.waits_for:
                branch.add(f"→ {escape(', '.join(info.waits_for))}")
        self._tree(tree)

    def history(self, entries: Sequence[HistoryEntry]) -> None:
        """The lake's commits; an id is shown whole, for ``Lake.outcome``."""
        if self.as_json:
            _print_json(entries)
            return
        if not entries:
            self.console.print("no commits yet")
            return
        tree = Tree("commits")
        for entry in entries:
            when = entry.timestamp.isoformat(sep=" ", timespec="milliseconds")
            who = f"  {entry.txn_id}" if entry.txn_id else ""
            branch = tree.add(f"[bold]{entry.version}[/]  {when}  {entry.kind}{who}")
            told = {done.table for done in entry.operations}
            for done in entry.operations:
                branch.add(_operation(done.operation, done.parameters, done.metrics, done.table))
            rest = [table for table in entry.tables if table not in told]
            if rest:
                branch.add(escape(", ".join(rest)))
            if entry.metadata:
                branch.add(f"[dim]{_cell(entry.metadata)}[/]")
        self._tree(tree)

    def table_history(self, entries: Sequence[TableHistoryEntry]) -> None:
        """The entries of one table's log."""
        if self.as_json:
            _print_json(entries)
            return
        tree = Tree("log entries")
        for entry in entries:
            when = entry.timestamp.isoformat(sep=" ", timespec="milliseconds")
            branch = tree.add(f"[bold]{entry.version}[/]  {when}")
            branch.add(_operation(entry.operation, entry.parameters, entry.metrics))
            if entry.txn_ids:
                branch.add(", ".join(map(escape, entry.txn_ids)))
            if entry.metadata:
                branch.add(f"[dim]{_cell(entry.metadata)}[/]")
        self._tree(tree)

    def _tree(self, tree: Tree) -> None:
        """Lines stay whole: the terminal may break them, and a pipe gets them as they are."""
        Console(width=_NO_LIMIT).print(tree)

    def error(self, error: LakeVillaError) -> None:
        """An error, on stderr in either form: stdout holds results only."""
        if self.as_json:
            about = {"table": error.table, "txn_id": error.txn_id}
            body = {"error": error.kind, "message": error.message, **about}
            print(json.dumps(body), file=sys.stderr)
        else:
            self.errors.print(f"[red]{error.kind}[/]: {escape(error.message)}", soft_wrap=True)


def _operation(
    name: str, parameters: Mapping[str, object], metrics: Mapping[str, object], table: str = ""
) -> str:
    about = "  ".join(_cell(some) for some in (parameters, metrics) if some)
    return f"{escape(table)}{': ' if table else ''}{escape(name)}" + (
        f"  [dim]{about}[/]" if about else ""
    )


def _queues(report: Report) -> Tree:
    """Who is in which queue, in order, and behind whom."""
    tree = Tree("queues")
    for queue in report.queues:
        branch = tree.add(f"[bold]{escape(queue.table)}[/]")
        for txn in queue.reserved_by:
            branch.add(f"reserved by {escape(txn)}")
        for place in queue.places:
            branch.add(_place(place))
    for cycle in report.cycles:
        tree.add(f"[yellow]cycle[/]: {' ↔ '.join(map(escape, cycle))}")
    return tree


def _place(place: QueuePlace) -> str:
    who = escape(place.txn_id or place.key)
    owner = f" ({escape(place.owner)})" if place.owner else ""
    behind = f" → {', '.join(map(escape, place.waits_for))}" if place.waits_for else ""
    access = f"{place.access} " if place.access else ""
    style = _STATE_STYLE.get(place.state, "dim")
    return f"{place.number}  {access}{who}  [{style}]{place.state}[/]{owner}{behind}"


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
