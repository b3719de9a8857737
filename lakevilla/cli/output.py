"""Print results: tables for users, JSON for programs, errors on stderr."""

from __future__ import annotations

import json
import os
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal

from rich import box
from rich.cells import cell_len, set_cell_size
from rich.console import Console
from rich.markup import escape
from rich.table import Table
from rich.tree import Tree

from lakevilla.display import shown_text
from lakevilla.errors import LakeVillaError, MergeConflict
from lakevilla.results import (
    HistoryEntry,
    QueuePlace,
    Report,
    TableHistoryEntry,
    TransactionInfo,
    Version,
)
from lakevilla.values import Format, Look, cell, json_text, plain

if TYPE_CHECKING:
    import pyarrow as pa

_SEVERITY_STYLE = {"note": "dim", "warning": "yellow", "error": "red"}
#: Fields of a version of the change feed that are printed in addition to its rows.
_VERSION_FIELDS = (
    *("version", "since", "timestamp", "txn_id", "kind", "members", "metadata"),
    *("entered", "left", "uris"),
)
#: The most rows in conflict that are printed for users, of each table.
_ROWS_IN_CONFLICT = 20
#: A width of lines at which nothing is cut.
_NO_LIMIT = 100_000
_GIVE = "give it by --param NAME=VALUE, in the shell by \\set NAME VALUE"
#: Python's names of arguments and calls in messages, and what to write on the command line.
_FOR_COMMANDS = {
    "in storage_options": "by --option",
    "storage_options": "--option",
    "boto3_session": "--profile",
    "connect with settings=lakevilla.Settings(sql_uris=True)": "pass --option sql_uris=true",
    "`tables()` lists the lake's tables, `discover()` those that are not in it yet": (
        "`lakevilla tables` lists the lake's tables, and those that are not in it yet"
    ),
    "give it in params, which has none": _GIVE,
    "give it in params, which has": f"{_GIVE}; there are",
    "`tables()`": "`lakevilla tables`",
    "`create_table`": "`lakevilla create`",
    "pass exist_ok=True or or_replace=True": "pass --exist-ok",
    "`lake.transactions()`": "`lakevilla txns`",
    "write by `lake.session()` or in `lake.transaction()`": (
        "pass --write, or write in `lakevilla shell`"
    ),
    'begin the transaction on the lake itself, which `lake.on("main")` gives, or with '
    "read_only=True": "leave out --on",
    '`lake.on("main")` is the lake itself': "leave out --on for the lake itself",
    "`protect_main(on=False)` lifts that": "`lakevilla unprotect ROOT main` lifts that",
    "see rows() of this error": "see the rows below",
    "leave it out by tables=": "name the other tables by --table",
    "leave it out, by tables=": "name the other tables by --table",
    "isolation='snapshot'": "--isolation snapshot",
    "on_conflict='ours' or 'theirs'": "--on-conflict ours or theirs",
    "on_conflict='ours'": "--on-conflict ours",
    "on_equal='keep'": "--on-equal keep",
    "members='all'": "--members all",
}
#: Patterns of calls in messages that name a ref or table, and the equivalent commands.
_CALLS_FOR_COMMANDS = {
    r"(branch '[^']*'.*)delete_ref\('([^']*)'\)": r"\1`lakevilla branch ROOT \2 --delete`",
    r"(clone '[^']*'.*)delete_ref\('([^']*)'\)": r"\1`lakevilla clone ROOT \2 --delete`",
    r"Settings\(format_limit=(\d+)\)": r"--option format_limit=\1",
    r"delete_ref\('([^']*)'\)": r"`lakevilla tag ROOT \1 --delete`",
    r"`rebase\('([^']*)'\)` on the lake": r"`lakevilla rebase ROOT \1`",
    r"protect\('([^']*)', on=False\)": r"`lakevilla unprotect ROOT \1`",
    r"read it by lake\.on\('([^']*)'\)": r"read it by --on \1",
    r"keys=\{'([^']*)': \[\.\.\.\]\}": r"--key \1=COLUMN",
    r"pass params=\{['\"](\w+)['\"]: [^}]*\}": r"pass --param \1=VALUE",
    r"connect with catalogs=\{'([^']*)': \.\.\.\}": r"pass --option catalog.\1.PROPERTY=VALUE",
    r"connect with files_outside=\['([^']*)'\]": r"pass --option files_outside=\1",
    r"connect with settings=Settings\(stores=\('([^']*)',\)\)": r"pass --option stores=\1",
    r"\bforce goes with": "--force goes with",
    r"\b(rebuild|reset|confirm)_head\b": r"--\1-head",
    r"by lake\.register\('name', '([^']*)'\)": r"by `lakevilla register ROOT NAME \1`",
    r"`register\('([^']*)'\)`": r"`lakevilla register ROOT \1`",
    r"`lake\.unregister\('([^']*)'\)`": r"`lakevilla unregister ROOT \1`",
}
#: The lines of a graph for encodings without box characters.
_ASCII = str.maketrans("│├─╯╮┤┼", "||-'.|+")
_STATE_STYLE = {"running": "green", "waiting": "yellow", "unreadable": "red"}


class Output:
    """A printer of results, for users or for programs."""

    def __init__(self, as_json: bool, form: Format = "table") -> None:
        self.as_json = as_json
        self.form: Format = "json" if as_json else form
        self.console = Console(emoji=False)
        self.errors = Console(stderr=True, emoji=False)

    def value(self, value: object, text: str) -> None:
        """Print one result: ``value`` as JSON, or ``text`` for users."""
        if self.as_json:
            _print_json(value)
        else:
            self.line(text)

    def line(self, text: str) -> None:
        """Print one line for users, without wrapping: the terminal may break the line."""
        self.console.print(shown_text(text), soft_wrap=True, markup=False, highlight=False)

    def cut(self, lines: Iterable[str]) -> None:
        """Print lines for users, cut to the width of a terminal; in a pipe they are whole."""
        width = self.console.width if self.is_narrow else None
        ascii_only = self.console.options.ascii_only
        for line in lines:
            text = line.translate(_ASCII) if ascii_only else line
            if width is not None and cell_len(text) > width:
                text = set_cell_size(text, width - 1) + ("~" if ascii_only else "…")
            self.line(text)

    def aside(self, text: str) -> None:
        """Print a remark on a result, on stderr, for users and programs."""
        self.errors.print(shown_text(text), soft_wrap=True, markup=False, highlight=False)

    def rows(self, columns: Sequence[str], rows: Iterable[Mapping[str, object]]) -> None:
        """Print rows below column heads; as JSON, a list of objects."""
        rows = list(rows)
        if self.as_json:
            _print_json(rows)
            return
        # A name or path must not be cut, so it continues on the next line.
        cells = ([_cell(row.get(column)) for column in columns] for row in rows)
        self.table(columns, cells, overflow="fold")

    def table(
        self,
        columns: Iterable[str],
        rows: Iterable[Sequence[str]],
        overflow: Literal["fold", "ellipsis"] = "ellipsis",
    ) -> None:
        """Print ready-made cells below column heads; in a pipe, lines are not cut."""
        table = Table(box=box.SIMPLE_HEAD)
        for column in columns:
            table.add_column(_safe(column), overflow=overflow)
        for row in rows:
            table.add_row(*row)
        (self.console if self.is_narrow else _endless()).print(table)

    @property
    def is_narrow(self) -> bool:
        """True if lines are cut: in a terminal, or if the user has set a width."""
        return self.console.is_terminal or "COLUMNS" in os.environ

    def look(self) -> Look:
        """Return the capabilities of the output: width, colours, characters."""
        return Look(
            width=self.console.width if self.is_narrow else None,
            colour=self.console.is_terminal and not self.console.no_color,
            ascii=self.console.options.ascii_only,
        )

    def frame(self, frame: pa.Table, limit: int | None = None) -> None:
        """Print the rows of a query; count those beyond ``limit`` on stderr."""
        from lakevilla.rendering import grid, lines_of

        shown = frame if limit is None else frame.slice(0, limit)
        hidden: tuple[str, ...] = ()
        if self.form == "table":
            made = grid(shown, self.look())
            lines, hidden = made.lines, made.hidden
        else:
            lines = lines_of(shown, self.form, self.look())
        for line in lines:
            print(line)
        if hidden:
            self.aside(
                f"no room for {len(hidden)} of {frame.num_columns} columns: "
                "choose some, or pass the output through a pipe, which has them all"
            )
        self.left_out(frame.num_rows - shown.num_rows, "row")

    def version(self, version: Version, limit: int | None) -> None:
        """Print one version of the change feed: as one line of JSON, or as its rows by table."""
        tables = dict(version.tables)
        if self.as_json:
            fields = {name: getattr(version, name) for name in _VERSION_FIELDS}
            rows = {
                name: {"rows": found.slice(0, limit).to_pylist(), "total": found.num_rows}
                for name, found in tables.items()
            }
            _print_json({**fields, "tables": rows})
            sys.stdout.flush()
            return
        when = version.timestamp.isoformat(sep=" ", timespec="milliseconds")
        txn = f"  {version.txn_id}" if version.txn_id else ""
        metadata = f"  {json.dumps(plain(version.metadata))}" if version.metadata else ""
        self.line(f"version {version.version}  {when}  {version.kind}{txn}{metadata}")
        if version.members:
            self.line(_of_members(version.members))
        for name in version.left:
            self.line(f"{name}: out of the lake")
        for name, found in tables.items():
            new = ", new in the lake" if name in version.entered else ""
            self.line(f"{name}: {found.num_rows} row{'' if found.num_rows == 1 else 's'}{new}")
            if found.num_rows:
                self.frame(found, limit)
        sys.stdout.flush()

    def left_out(self, count: int, what: str, most: bool = False) -> None:
        """Print the number of rows that are not shown; ``most``: it is only an upper limit."""
        if count > 0:
            self.aside(
                f"{'up to ' if most else ''}{count} more {what}{'' if count == 1 else 's'} "
                f"left out: a higher --limit shows {'it' if count == 1 else 'them'}"
            )

    def report(self, report: Report) -> None:
        """Print the findings and actions of ``recover``, ``gc`` or ``doctor``."""
        found = [replace(one, message=_for_commands(one.message)) for one in report.findings]
        report = replace(report, findings=tuple(found))
        if self.as_json:
            _print_json(report)
            return
        for finding in report.findings:
            style = _SEVERITY_STYLE[finding.severity]
            of = (finding.table, finding.txn_id, finding.key)
            # Don't print a table or key that the message already names.
            about = "  ".join(text for text in of if text and text not in finding.message)
            line = f"[{style}]{finding.severity:8}[/]{_safe(finding.kind)}: "
            line += _safe(finding.message) + (f" [dim]({_safe(about)})[/]" if about else "")
            # A program reads the lines of a pipe: a path must not be broken.
            self.console.print(line, soft_wrap=not self.console.is_terminal)
        if report.queues or report.cycles:
            self._tree(_queues(report))
        count = sum(one.severity != "note" for one in report.findings) or len(report.findings)
        self.console.print(
            "[green]well[/]" if report.ok else f"[red]{count} finding{'' if count == 1 else 's'}[/]"
        )

    def transactions(self, infos: Sequence[TransactionInfo]) -> None:
        """Print running and saved transactions; ids are not cut, since ``lakevilla abort`` needs
        them.
        """
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
                f"{info.id}  [{style}]{info.state}[/]  since {started}  ({_safe(info.owner)})"
            )
            branch.add(f"last seen {info.last_seen.isoformat(sep=' ', timespec='seconds')}")
            if info.tables:
                branch.add(f"in {_safe(', '.join(info.tables))}")
            if info.waits_for:
                branch.add(f"→ {_safe(', '.join(info.waits_for))}")
        self._tree(tree)

    def history(self, entries: Sequence[HistoryEntry]) -> None:
        """Print the lake's commits; ids are not cut, since ``Lake.outcome`` needs them."""
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
            if entry.members:
                branch.add(_of_members(entry.members))
            described = {done.table for done in entry.operations}
            for done in entry.operations:
                branch.add(_operation(done.operation, done.parameters, done.metrics, done.table))
            rest = [table for table in entry.tables if table not in described]
            if rest:
                branch.add(_safe(", ".join(rest)))
            if entry.metadata:
                branch.add(f"[dim]{_cell(entry.metadata)}[/]")
        self._tree(tree)

    def table_history(self, entries: Sequence[TableHistoryEntry]) -> None:
        """Print the entries of one table's log."""
        if self.as_json:
            _print_json(entries)
            return
        tree = Tree("log entries")
        for entry in entries:
            when = entry.timestamp.isoformat(sep=" ", timespec="milliseconds")
            branch = tree.add(f"[bold]{entry.version}[/]  {when}")
            branch.add(_operation(entry.operation, entry.parameters, entry.metrics))
            if entry.txn_ids:
                branch.add(", ".join(map(_safe, entry.txn_ids)))
            if entry.members:
                branch.add(_of_members(entry.members))
            if entry.metadata:
                branch.add(f"[dim]{_cell(entry.metadata)}[/]")
        self._tree(tree)

    def _tree(self, tree: Tree) -> None:
        """Print a tree without wrapping: a terminal may break the lines."""
        _endless().print(tree)

    def error(self, error: LakeVillaError) -> None:
        """Print an error on stderr, for users and programs: stdout has only results."""
        from lakevilla.api.execution.sources import without_frames

        if self.as_json:
            about = {"table": error.table, "txn_id": error.txn_id}
            body = {"error": error.kind, "message": _for_commands(without_frames(error)), **about}
            if rows := _rows_in_conflict(error):
                body["rows"] = plain(rows)
            print(json.dumps(body, allow_nan=False), file=sys.stderr)
        else:
            lines = "\n".join(map(_safe, _for_commands(without_frames(error)).split("\n")))
            self.errors.print(f"[red]{error.kind}[/]: {lines}", soft_wrap=True)
            for table, compared in _rows_in_conflict(error).items():
                for row in compared[:_ROWS_IN_CONFLICT]:
                    sides = "  ".join(f"{side} {json.dumps(plain(row[side]))}" for side in row)
                    self.aside(f"{table}: {sides}")
                if (more := len(compared) - _ROWS_IN_CONFLICT) > 0:
                    self.aside(f"{table}: {more} more; --json has all")


def _rows_in_conflict(error: LakeVillaError) -> dict[str, list[dict[str, Any]]]:
    """Return, by table, the rows in conflict: no later command could query them."""
    if not isinstance(error, MergeConflict):
        return {}
    compared = {name: rows for name, rows in error.by_table.items() if rows is not None}
    return {name: rows.to_pylist() for name, rows in compared.items()}


def _for_commands(message: str) -> str:
    """Return the library's message with commands in place of calls in Python."""
    for ours, theirs in _FOR_COMMANDS.items():
        message = message.replace(ours, theirs)
    for pattern, theirs in _CALLS_FOR_COMMANDS.items():
        message = re.sub(pattern, theirs, message)
    return message


def _of_members(ids: Sequence[str]) -> str:
    """Return the transactions that share a version, in their order."""
    return f"performed together: {', '.join(map(_safe, ids))}"


def _operation(
    name: str, parameters: Mapping[str, object], metrics: Mapping[str, object], table: str = ""
) -> str:
    about = "  ".join(_cell(some) for some in (parameters, metrics) if some)
    return f"{_safe(table)}{': ' if table else ''}{_safe(name)}" + (
        f"  [dim]{about}[/]" if about else ""
    )


def _queues(report: Report) -> Tree:
    """Return the queues' transactions in order, each with those for which it waits."""
    tree = Tree("queues")
    for queue in report.queues:
        branch = tree.add(f"[bold]{_safe(queue.table)}[/]")
        for txn in queue.reserved_by:
            branch.add(f"reserved by {_safe(txn)}")
        for place in queue.places:
            branch.add(_place(place))
    for cycle in report.cycles:
        tree.add(f"[yellow]cycle[/]: {' ↔ '.join(map(_safe, cycle))}")
    return tree


def _place(place: QueuePlace) -> str:
    who = _safe(place.txn_id or place.key)
    owner = f" ({_safe(place.owner)})" if place.owner else ""
    behind = f" → {', '.join(map(_safe, place.waits_for))}" if place.waits_for else ""
    access = f"{place.access} " if place.access else ""
    style = _STATE_STYLE.get(place.state, "dim")
    return f"{place.number}  {access}{who}  [{style}]{place.state}[/]{owner}{behind}"


def _safe(text: str) -> str:
    return escape(shown_text(text))


def _endless() -> Console:
    return Console(width=_NO_LIMIT, emoji=False)


def _print_json(value: object) -> None:
    print(json_text(value))


def _cell(value: object) -> str:
    """Return a field as text; empty for None."""
    return "" if value is None else escape(cell(value))
