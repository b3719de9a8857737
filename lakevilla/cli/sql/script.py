"""Run scripts of statements, with values for their parameters."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NoReturn, TextIO

import lakevilla as lv
from lakevilla.cli.output import Output
from lakevilla.cli.sql.ending import (
    Interrupted,
    after_interrupt,
    described,
    made_by_itself,
    refuse_open,
    tag_of,
)
from lakevilla.engines.statistics import StatementLimits, limited
from lakevilla.errors import InvalidOperation, LakeVillaError
from lakevilla.results import CommitResult, OperationResult
from lakevilla.sql.expressions.syntax.slips import place_behind
from lakevilla.sql.statements.script.control import used_in
from lakevilla.sql.statements.script.cutting import ScriptStatement

# -------------------- script
#
# Run statements one after the other, up to the first error, and print their results.


_WRITES = frozenset(
    {
        *("INSERT", "UPDATE", "DELETE", "MERGE", "TRUNCATE", "CREATE", "DROP", "ALTER", "COMMENT"),
        *("OPTIMIZE", "VACUUM"),
    }
)
_COUNTS = ("rows_matched", "rows_inserted", "rows_updated", "rows_deleted")


@dataclass(frozen=True, slots=True)
class Script:
    """A text of statements; ``name`` is its file's name, or None for an argument."""

    text: str
    name: str | None = None


def read_script(path: str) -> Script:
    """Return the text of a file, or of stdin for ``-``.

    Raises
    ------
    InvalidOperation
        The file can't be read.
    """
    try:
        if path == "-":
            return Script(piped().read(), "stdin")
        return Script(Path(path).read_text(encoding="utf-8-sig"), path)
    except OSError as error:
        raise InvalidOperation(f"can't read {path}: {error.strerror}") from None
    except UnicodeDecodeError:
        what = "stdin" if path == "-" else path
        raise InvalidOperation(f"can't read {what}: it is not UTF-8") from None


class ScriptRun:
    """A run of scripts in one session.

    Parameters
    ----------
    lake, output
        The lake, and the printer of the results.
    limit : int, optional
        The most rows of a result.
    values : Mapping, optional
        The values of the parameters ``:name`` in the scripts.
    write : bool
        If False, all statements are one read-only transaction.
    atomic : bool
        If True, all statements are one transaction, which commits at the end.
    limits : Mapping, optional
        The limits of the statements, as ``Lake.session`` takes them.
    """

    def __init__(
        self,
        lake: lv.Lake[Any],
        output: Output,
        limit: int | None,
        values: Values | None = None,
        *,
        write: bool,
        atomic: bool,
        limits: Mapping[str, Any] | None = None,
    ) -> None:
        self._values = values or {}
        self._lake, self._output, self._limit = lake, output, limit
        self._write, self._atomic = write, atomic
        self._session = lake.session(**(limits or {}))
        self._versions: list[int] = []

    def run(self, scripts: Sequence[Script]) -> None:
        """Run all scripts; a transaction that is open at the end is undone.

        Raises
        ------
        LakeVillaError
            The error of the first statement that raises, with its file and line.
        Interrupted
        """
        # First split all scripts, so that an unclosed quote is found before any statement is run.
        cut = []
        for script in scripts:
            cut.append((script, self._cut(script)))
        is_script = len(scripts) > 1 or any(len(statements) > 1 for _, statements in cut)
        if not any(statements for _, statements in cut):
            raise InvalidOperation("there is no statement to run")
        refuse_unused((script.text for script in scripts), self._values)
        try:
            for script, statements in cut:
                for statement in statements:
                    with placed(script.name, statement.line, is_script, statement.column):
                        self._one(statement.text, is_alone=not (is_script or self._atomic))
            self._end()
        except (LakeVillaError, Interrupted):
            self._tell_fate(is_script)
            raise
        finally:
            self._session.close()

    def _cut(self, script: Script) -> list[ScriptStatement]:
        try:
            found = self._session.statements(script.text)
        except LakeVillaError:
            with placed(script.name, self._half(script.text)):
                raise
        for one in found:
            if one.text.startswith("\\"):
                with placed(script.name, one.line):
                    raise InvalidOperation(
                        f"{one.text.split()[0]} is a command of `lakevilla shell`, which takes "
                        "scripts by stdin, too; leave it out here"
                    )
        return found

    def _half(self, text: str) -> int:
        """Return the line on which the unfinished statement begins."""
        statement, first = "", 1
        for number, line in enumerate(text.splitlines(keepends=True), 1):
            if not statement.strip():
                statement, first = "", number
            statement += line
            if ";" in line and self._session.is_complete(statement):
                statement = ""
        return first

    def _one(self, text: str, *, is_alone: bool) -> None:
        if not self._write:
            if tag_of(text).split()[0] in _WRITES:
                raise InvalidOperation(
                    f"{tag_of(text)} writes: add --write, or write in `lakevilla shell`"
                )
            self._begin("BEGIN READ ONLY")
        elif self._atomic:
            self._begin("BEGIN")
        result = self._run(text)
        if result is not None and not isinstance(result, OperationResult | CommitResult):
            self._output.frame(result, self._limit)
            return
        version = made_by_itself(self._session)
        if isinstance(result, CommitResult):
            version = result.global_version
        if version is not None:
            self._versions.append(version)
        if self._write:
            self._tell(result, text, version, is_alone=is_alone)

    def _begin(self, text: str) -> None:
        if self._session.transaction is None:
            self._session.sql(text)

    def _run(self, text: str) -> Any:
        try:
            return self._session.sql(text, used_by(text, self._values))
        except KeyboardInterrupt:
            said = after_interrupt(self._lake, self._session, text, goes_on=False)
            raise Interrupted(said) from None

    def _tell(
        self,
        result: OperationResult | CommitResult | None,
        text: str,
        version: int | None,
        *,
        is_alone: bool,
    ) -> None:
        txn = self._session.last_transaction
        known: dict[str, object] = {"id": None if txn is None else txn.id}
        known["global_version"] = version
        if isinstance(result, OperationResult):
            known |= {name: getattr(result, name) for name in _COUNTS}
        if self._output.as_json:
            self._output.rows([], [known])
            return
        said = described(result, text, version)
        if is_alone and isinstance(result, OperationResult):
            counts = ", ".join(f"{known[name]} {name.replace('_', ' ')}" for name in _COUNTS)
            said = f"committed {known['id']} as global version {version}: {counts}"
        # In a format for programs, stdout has only rows.
        (self._output.line if self._output.form in ("table", "vertical") else self._output.aside)(
            said
        )

    def _end(self) -> None:
        """Commit the run's one transaction; refuse one that a script has begun and not ended."""
        txn = self._session.transaction
        if txn is None or not self._write:
            return
        if self._atomic:
            self._tell(self._run("COMMIT"), "COMMIT", None, is_alone=False)
            return
        refuse_open(self._session)

    def _tell_fate(self, is_script: bool) -> None:
        """Report what the statements before an error have committed, and what was rolled back."""
        if not (self._write and is_script):
            return
        if self._versions:
            versions = ", ".join(map(str, self._versions))
            self._output.aside(
                f"committed before that: global version{'s' * (len(self._versions) > 1)} {versions}"
            )
        elif self._session.transaction is None:
            self._output.aside("nothing was committed before that")
        txn = self._session.transaction
        if txn is not None:
            self._output.aside(f"rolled back transaction {txn.id}: nothing of it is stored")


# -------------------- sources
#
# The texts that ``lakevilla sql`` runs, and queries on a past state.


def scripts_of(query: str | None, files: list[str] | None) -> list[Script]:
    """Return the texts to run. Raises ``InvalidOperation`` if there is none, or too many."""
    if files:
        if query is not None:
            raise InvalidOperation("sql takes statements or files, not both: leave one of them out")
        return [read_script(file) for file in files]
    if query is None and (sys.stdin is None or sys.stdin.isatty()):
        raise InvalidOperation(
            "sql takes statements, or a file by -f; `lakevilla shell` is for typing them"
        )
    return [read_script("-")] if query in (None, "-") else [Script(query or "")]


def read_past(
    lake: lv.Lake[Any],
    scripts: list[Script],
    values: Values,
    version: int | None,
    when: datetime | None,
    output: Output,
    limit: int | None,
    limits: Mapping[str, Any],
) -> None:
    """Run the queries on one older state of the lake."""
    session = lake.session(**limits)
    refuse_unused((script.text for script in scripts), values)
    with lake.snapshot(version, when) as state:
        for script in scripts:
            for statement in session.statements(script.text):
                with placed(script.name, statement.line, column=statement.column):
                    with limited(StatementLimits(**limits)):
                        rows = state.sql(statement.text, used_by(statement.text, values))
                    output.frame(rows, limit)


def run_scripts(
    lake: lv.Lake[Any],
    scripts: list[Script],
    values: Values,
    output: Output,
    limit: int | None,
    limits: Mapping[str, Any],
    *,
    write: bool,
    atomic: bool,
) -> bool:
    """Run the statements up to the first error; return False if Ctrl-C has ended one."""
    try:
        run = ScriptRun(lake, output, limit, values, write=write, atomic=atomic, limits=limits)
        run.run(scripts)
    except Interrupted as interrupted:
        output.aside(str(interrupted))
        return False
    return True


# -------------------- values
#
# Values of the parameters ``:name``, from the command line and the shell.


Values = Mapping[str, object]


def values_of(given: Iterable[str] | None) -> dict[str, object]:
    """Parse values, and return them by name.

    Raises
    ------
    InvalidOperation
        An argument is not ``NAME=VALUE``, or a name is given twice.
    """
    found: dict[str, object] = {}
    for one in given or ():
        name, equals, text = one.partition("=")
        if not equals or not name.isidentifier():
            raise InvalidOperation(f"parameter {one!r} is not understood: write NAME=VALUE")
        if name in found:
            raise InvalidOperation(f"parameter {name} is given twice: leave one of them out")
        found[name] = value_of(text)
    return found


def value_of(text: str) -> object:
    """Return the JSON value of a text; a text that is not JSON, such as a date, stays a text."""
    try:
        return json.loads(text, parse_float=_number, parse_constant=_no_constant)
    except ValueError:
        return text
    except RecursionError:
        raise InvalidOperation(f"value {text[:40]!r}... is nested too deeply") from None


def used_by(text: str, values: Values) -> dict[str, object] | None:
    """Return those of the script's values that one statement names."""
    used = used_in(text, values, "duckdb")
    return {name: value for name, value in values.items() if name in used} or None


def refuse_unused(texts: Iterable[str], values: Values) -> None:
    """Refuse a value that no statement names, because its name is probably misspelt.

    Raises
    ------
    InvalidOperation
    """
    left = set(values)
    for text in texts:
        left -= used_in(text, left, "duckdb")
    if left:
        raise InvalidOperation(
            f"no statement has :{min(left)}: correct the name, or leave --param out"
        )


def _number(text: str) -> object:
    """Return a number as SQL reads it: with an exponent as a double, else as a decimal."""
    return float(text) if "e" in text.lower() else Decimal(text)


def _no_constant(text: str) -> NoReturn:
    raise ValueError(text)


# -------------------- placing
#
# Add, to errors, the file and the line of the statement that raised them.


_PLACED = "_lakevilla_placed"


@contextmanager
def placed(source: str | None, line: int, shown: bool = True, column: int = 1) -> Iterator[None]:
    """Add the file and the line to errors raised inside, unless they have them already.

    ``line`` and ``column`` are those of the statement's beginning; an error may name a place in the
    statement.
    """
    try:
        yield
    except LakeVillaError as error:
        if not getattr(error, _PLACED, False):
            place_behind(error, line, column)
            if source is not None:
                error.message = f"{source}:{line}: {error.message}"
            elif shown and line > 1:
                error.message = f"line {line}: {error.message}"
            setattr(error, _PLACED, True)
        raise


# -------------------- piped
#
# The input from a pipe.


def piped() -> TextIO:
    """Return stdin as UTF-8, like files, whatever the locale is; empty if stdin is closed.

    Bytes that are not UTF-8 raise ``UnicodeDecodeError`` when they are read.
    """
    if sys.stdin is None:
        return io.StringIO()
    if isinstance(sys.stdin, io.TextIOWrapper):
        sys.stdin.reconfigure(encoding="utf-8-sig", errors="strict")
    return sys.stdin
