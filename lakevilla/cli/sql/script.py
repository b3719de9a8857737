"""Statements one after the other, up to the first error, and what is printed of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
from lakevilla.cli.sql.piped import piped
from lakevilla.cli.sql.placing import placed
from lakevilla.cli.sql.values import Values, refuse_unused, used_by
from lakevilla.errors import InvalidOperation, LakeVillaError
from lakevilla.results import CommitResult, OperationResult
from lakevilla.sql.statements.script.cutting import ScriptStatement

_WRITES = frozenset(
    {
        *("INSERT", "UPDATE", "DELETE", "MERGE", "TRUNCATE", "CREATE", "DROP", "ALTER", "COMMENT"),
        *("OPTIMIZE", "VACUUM"),
    }
)
_COUNTS = ("rows_matched", "rows_inserted", "rows_updated", "rows_deleted")


@dataclass(frozen=True, slots=True)
class Script:
    """A text of statements; ``name`` is that of its file, None for an argument."""

    text: str
    name: str | None = None


def read_script(path: str) -> Script:
    """The text of a file, or of stdin for ``-``.

    Raises
    ------
    InvalidOperation
        It can't be read.
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
    """Runs scripts in one session.

    Parameters
    ----------
    lake, output
        Where, and how results are printed.
    limit : int, optional
        The most rows of a result.
    values : Mapping, optional
        Of the ``:name`` in the scripts.
    write : bool
        If False, all is one read-only transaction.
    atomic : bool
        All is one transaction, which commits at the end.
    limits : Mapping, optional
        Of its statements, as ``Lake.session`` takes them.
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
        """Run all of them; what is open at the end is undone.

        Raises
        ------
        LakeVillaError
            Of the first statement that raises, with its file and line.
        Interrupted
        """
        # Read as a whole first: a quote that is not closed is found before anything is done.
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
        """The line on which the statement begins that has no end."""
        held, first = "", 1
        for number, line in enumerate(text.splitlines(keepends=True), 1):
            if not held.strip():
                held, first = "", number
            held += line
            if ";" in line and self._session.is_complete(held):
                held = ""
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
        # Rows for programs are alone on stdout.
        (self._output.line if self._output.form in ("table", "vertical") else self._output.aside)(
            said
        )

    def _end(self) -> None:
        """Commit what is one transaction; a script that leaves one open has not ended it."""
        txn = self._session.transaction
        if txn is None or not self._write:
            return
        if self._atomic:
            self._tell(self._run("COMMIT"), "COMMIT", None, is_alone=False)
            return
        refuse_open(self._session)

    def _tell_fate(self, is_script: bool) -> None:
        """What the statements before an error have left."""
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
