"""One statement of a shell: run, and shown."""

from __future__ import annotations

import time

from lakevilla.cli.shell.desk import Desk
from lakevilla.cli.sql.ending import (
    Interrupted,
    after_interrupt,
    described,
    made_by_itself,
    tag_of,
)
from lakevilla.cli.sql.values import used_by
from lakevilla.results import CommitResult, OperationResult


def run_statement(desk: Desk, text: str, *, expanded: bool = False) -> None:
    """Run one statement and show what comes of it.

    Raises
    ------
    Interrupted
    LakeVillaError
        As ``Session.sql``.
    """
    began = time.perf_counter()
    session = desk.session
    try:
        result = session.sql(text, used_by(text, desk.values))
        seconds = time.perf_counter() - began
    except KeyboardInterrupt:
        raise Interrupted(after_interrupt(desk.lake, session, text)) from None
    finally:
        desk.names.forget(columns=_defines(text))
    try:
        if result is None or isinstance(result, OperationResult | CommitResult):
            desk.screen.line(described(result, text, made_by_itself(session)))
        else:
            desk.screen.rows(result, expanded=expanded)
        if desk.choices.timing:
            desk.screen.line(f"time: {_time(seconds)}")
    except KeyboardInterrupt:
        raise Interrupted("stopped: the statement is done, its answer is cut short") from None


def _defines(text: str) -> bool:
    """Whether a statement may have changed columns."""
    return tag_of(text).split()[0] in ("CREATE", "DROP", "ALTER", "ROLLBACK", "MERGE")


def _time(seconds: float) -> str:
    if seconds < 1:
        return f"{seconds * 1000:.1f} ms"
    if seconds < 60:
        return f"{seconds:.2f} s"
    return f"{int(seconds // 60)} min {seconds % 60:.0f} s"
