"""Where the statements of ``lakevilla sql`` come from, and those that read the past."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from datetime import datetime
from typing import Any

import lakevilla as lv
from lakevilla.cli.output import Output
from lakevilla.cli.sql.ending import Interrupted
from lakevilla.cli.sql.placing import placed
from lakevilla.cli.sql.script import Script, ScriptRun, read_script
from lakevilla.cli.sql.values import Values, refuse_unused, used_by
from lakevilla.engines.limits import StatementLimits, limited
from lakevilla.errors import InvalidOperation


def scripts_of(query: str | None, files: list[str] | None) -> list[Script]:
    """The texts to run. Raises ``InvalidOperation`` where there is none, or too many."""
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
    """Run the queries over one older state of the lake."""
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
    """Run the statements up to the first error; False if Ctrl-C has ended one."""
    try:
        run = ScriptRun(lake, output, limit, values, write=write, atomic=atomic, limits=limits)
        run.run(scripts)
    except Interrupted as interrupted:
        output.aside(str(interrupted))
        return False
    return True
