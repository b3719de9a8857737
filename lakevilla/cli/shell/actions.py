"""The shell's state, and the actions of its backslash commands."""

from __future__ import annotations

import fnmatch
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

import lakevilla as lv
from lakevilla.cli.command import MAIN
from lakevilla.cli.shell.lake_names import LakeNames, type_shown
from lakevilla.cli.shell.screen import Choices, Screen, Verb, help_lines, number, short, switched
from lakevilla.cli.sql.script import values_of
from lakevilla.display import size_text
from lakevilla.errors import InvalidOperation, TableNotFound
from lakevilla.values import FORMATS

# -------------------- actions
#
# The actions of the backslash commands.


#: The number of commits shown if the user gives none.
_COMMITS = 10

RunFile = Callable[[Path], None]


class Leave(Exception):
    """Raised when the user leaves the shell."""


def act(desk: Desk, line: str, run_file: RunFile) -> None:
    """Run a backslash command.

    Raises
    ------
    Leave
    InvalidOperation
        There is no command of that name, or its argument is wrong.
    """
    command, argument = short(line)
    if command.verb == "include":
        run_file(Path(argument or "").expanduser())
        return
    _DOING[command.verb](desk, argument)


def _leave(desk: Desk, argument: str | None) -> None:
    raise Leave


def _help(desk: Desk, argument: str | None) -> None:
    desk.screen.lines(help_lines())


# -- content of the lake ---------------------------------------------------------


def _tables(desk: Desk, pattern: str | None) -> None:
    wanted = "*" if pattern is None else _path(pattern)
    plain = wanted.partition("*")[0].partition("?")[0].partition("[")[0]
    found = [
        table
        for table in desk.lake.tables(plain or None, details=False)
        if fnmatch.fnmatchcase(table.name, wanted)
    ]
    if not found and pattern is not None:
        raise TableNotFound(f"there is no table like {pattern}: \\dt lists all")
    _show(
        desk,
        {
            "name": [table.name for table in found],
            "format": [table.format for table in found],
            "rows": [table.rows for table in found],
            "files": [table.files for table in found],
            "size": [None if table.bytes is None else size_text(table.bytes) for table in found],
        },
    )
    if desk.session.transaction is not None:
        desk.screen.aside("tables that the open transaction makes or drops are not shown here")


def _describe(desk: Desk, name: str | None) -> None:
    if name is None or any(mark in name for mark in "*?["):
        _tables(desk, name)
        return
    desk.names.forget(columns=True)
    try:
        table = desk.lake.table(_path(name))
    except TableNotFound:
        if desk.session.transaction is None:
            raise
        # The open transaction may have created the table.
        rows: Any = desk.session.sql(f"SELECT * FROM {name} LIMIT 0")
        _columns(desk, rows.schema, ())
        return
    _columns(desk, table.schema, table.partition_by)
    guarded = ", guarded" if table.guarded else ""
    desk.screen.lines(
        [
            f"{table.format} table at version {table.version}{guarded}: {table.uri}",
            *(f"CHECK {rule}: {text}" for rule, text in _rules(table.properties)),
        ]
    )


def _columns(desk: Desk, schema: Any, partitions: tuple[str, ...] | list[str]) -> None:
    fields = list(schema)
    shown: dict[str, list[Any]] = {
        "column": [field.name for field in fields],
        "type": [type_shown(field.type) for field in fields],
        "nullable": ["" if field.nullable else "not null" for field in fields],
    }
    if partitions:
        shown["partition"] = [
            partitions.index(field.name) + 1 if field.name in partitions else None
            for field in fields
        ]
    _show(desk, shown, counted=False)


def _rules(properties: Mapping[str, str]) -> list[tuple[str, str]]:
    """Return the constraints of a Delta table, which are some of its properties."""
    start = "delta.constraints."
    return [
        (name.removeprefix(start), text)
        for name, text in sorted(properties.items())
        if name.startswith(start)
    ]


def _refs(desk: Desk, argument: str | None) -> None:
    found = desk.lake.on(MAIN).refs() if desk.ref != MAIN else desk.lake.refs()
    _show(
        desk,
        {
            "here": ["*" if name == desk.ref else "" for name in (MAIN, *(r.name for r in found))],
            "name": [MAIN, *(ref.name for ref in found)],
            "kind": ["branch", *(ref.kind for ref in found)],
            "version": [None, *(ref.version for ref in found)],
            "created": [None, *(_when(ref.created) for ref in found)],
            "protected": [None, *(ref.protected for ref in found)],
        },
    )


def _log(desk: Desk, argument: str | None) -> None:
    found = desk.lake.history(_COMMITS if argument is None else number(argument, "\\log"))
    _show(
        desk,
        {
            "version": [entry.version for entry in found],
            "at": [_when(entry.timestamp) for entry in found],
            "kind": [entry.kind for entry in found],
            "tables": [", ".join(entry.tables) for entry in found],
            "transaction": [
                ", ".join(entry.members) if entry.members else entry.txn_id for entry in found
            ],
        },
    )


def _info(desk: Desk, argument: str | None) -> None:
    txn = desk.session.transaction
    state = "no transaction is open" if txn is None else f"transaction {txn.id} is {txn.state}"
    if txn is not None and (count := len(txn.operations)):
        state += f", with {count} write{'' if count == 1 else 's'}"
    desk.screen.lines([f"{desk.lake.root} at {desk.ref}", state])


# -- the lake, and the form of results -----------------------------------------------


def _on(desk: Desk, ref: str | None) -> None:
    desk.go_to(ref or MAIN)
    desk.screen.line(f"at {desk.ref}")


def _output(desk: Desk, file: str | None) -> None:
    target = None
    if file is not None:
        path = Path(file).expanduser()
        try:
            target = path.open("w", encoding="utf-8")
        except OSError as error:
            raise InvalidOperation(f"can't write {path}: {error.strerror}") from None
    before, desk.choices.target = desk.choices.target, target
    if before is not None:
        before.close()


def _timing(desk: Desk, argument: str | None) -> None:
    desk.choices.timing = switched(argument, desk.choices.timing, "\\timing")
    desk.screen.line(f"timing is {_on_or_off(desk.choices.timing)}")


def _expanded(desk: Desk, argument: str | None) -> None:
    desk.choices.expanded = switched(argument, desk.choices.expanded, "\\x")
    desk.screen.line(f"a line for each value is {_on_or_off(desk.choices.expanded)}")


def _pager(desk: Desk, argument: str | None) -> None:
    desk.choices.pager = switched(argument, desk.choices.pager, "\\pager")
    desk.screen.line(f"the pager is {_on_or_off(desk.choices.pager)}")


def _format(desk: Desk, name: str | None) -> None:
    if name is not None:
        found = next((form for form in FORMATS if form == name.lower()), None)
        if found is None:
            raise InvalidOperation(f"there is no format {name}: choose from {', '.join(FORMATS)}")
        desk.choices.form = found
    desk.screen.line(f"rows are written as {desk.choices.form}")


def _rows(desk: Desk, argument: str | None) -> None:
    if argument is not None:
        desk.choices.rows = number(argument, "\\rows")
    most = desk.choices.rows
    desk.screen.line(f"at most {most} rows are shown" if most else "all rows are shown")


def _set(desk: Desk, argument: str | None) -> None:
    if argument is not None:
        name, _, text = argument.replace("=", " ", 1).partition(" ")
        if not text.strip():
            raise InvalidOperation(f"\\set takes a name and a value: \\set {name} 5")
        desk.values |= values_of([f"{name}={text.strip()}"])
        return
    names = sorted(desk.values)
    _show(desk, {"name": names, "value": [repr(desk.values[name]) for name in names]})


def _when(instant: datetime) -> str:
    return instant.isoformat(sep=" ", timespec="seconds")


def _on_or_off(state: bool) -> str:
    return "on" if state else "off"


def _path(name: str) -> str:
    """Return a table's name in SQL, or a path, as a path without quotes."""
    return "/".join(part.strip('"') for part in name.replace(".", "/").split("/"))


def _show(desk: Desk, columns: Mapping[str, list[Any]], *, counted: bool = True) -> None:
    import pyarrow as pa

    desk.screen.rows(pa.table(dict(columns)), counted=counted)


_DOING: Mapping[Verb, Callable[[Desk, str | None], None]] = {
    "describe": _describe,
    "tables": _tables,
    "refs": _refs,
    "on": _on,
    "log": _log,
    "info": _info,
    "output": _output,
    "timing": _timing,
    "expanded": _expanded,
    "format": _format,
    "rows": _rows,
    "set": _set,
    "pager": _pager,
    "help": _help,
    "quit": _leave,
}


# -------------------- shell state
#
# The state of a shell: the lake, its ref, and the session that is open on it.


_LONGEST_NAME = 24


class Desk:
    """The state of a shell: a lake bound to one of its refs, and a session on it.

    ``values`` are the values of the parameters ``:name`` in statements.
    """

    def __init__(
        self,
        lake: lv.Lake[Any],
        ref: str | None,
        values: Mapping[str, object] | None = None,
        limits: Mapping[str, Any] | None = None,
    ) -> None:
        self._limits = dict(limits or {})
        self._whole = lake
        self.choices = Choices()
        self.screen = Screen(self.choices)
        self.values = dict(values or {})
        self.ref = MAIN
        self._open(ref or MAIN)

    def _open(self, ref: str) -> None:
        lake = self._whole if ref == MAIN else self._whole.on(ref)
        self.lake, self.ref = lake, ref
        self.names = LakeNames(lake)
        self.session = lake.session(**self._limits)

    def go_to(self, ref: str) -> None:
        """Bind the shell to another ref.

        Raises
        ------
        InvalidOperation
            A transaction is open.
        RefNotFound
        """
        if self.session.transaction is not None:
            raise InvalidOperation(
                "a transaction is open, and belongs to the ref on which it began: COMMIT or "
                "ROLLBACK it first"
            )
        before = self.session
        self._open(ref)
        before.close()

    @property
    def prompt(self) -> str:
        """``lake@ref*=>``: ``*`` if a transaction is open, ``!`` if it can only be rolled back."""
        name = self.lake.root.rstrip("/").rsplit("/", 1)[-1] or "lake"
        if len(name) > _LONGEST_NAME:
            name = name[: _LONGEST_NAME - 1] + "…"
        at = "" if self.ref == MAIN else f"@{self.ref}"
        txn = self.session.transaction
        mark = "" if txn is None else "*" if txn.state == "open" else "!"
        return f"{name}{at}{mark}=> "

    def close(self) -> None:
        """Undo the open transaction, if there is one, and report that."""
        txn = self.session.transaction
        self.session.close()
        if txn is not None:
            self.screen.aside(f"rolled back transaction {txn.id}: nothing of it is stored")
        if self.choices.target is not None:
            self.choices.target.close()
