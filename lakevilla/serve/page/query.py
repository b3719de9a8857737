"""The view of a query: one SELECT, with limits on its rows, its bytes, and its time."""

from __future__ import annotations

import threading
from typing import Any

from lakevilla.errors import InvalidOperation, LakeVillaError
from lakevilla.serve.page.rows import MOST_ROWS, Rows, rows_of
from lakevilla.serve.page.shown import Body, Params, Shown
from lakevilla.serve.page.text import for_pages
from lakevilla.serve.refusal import Refusal
from lakevilla.sql.statements.script.refs import without_pasts
from lakevilla.sql.statements.select import query_of

#: A query gives back so many bytes, and runs for so many seconds.
MOST_BYTES, SECONDS = 8 << 20, 10.0
#: So many queries of pages run at once in this process.
_AT_ONCE = 2
_running = threading.BoundedSemaphore(_AT_ONCE)


def query(shown: Shown, params: Params) -> Body:
    """Show the first rows of a SELECT over the tables of a state.

    A statement that reads anything but tables of the lake is refused by the language itself. What
    a link of a page elsewhere brings is shown, and not run.
    """
    sql = params.text("sql")
    values: dict[str, Any] = {
        "sql": sql,
        "rows": None,
        "wrong": "",
        "held": bool(sql) and params.from_elsewhere,
    }
    if sql.strip() and not params.from_elsewhere:
        try:
            values["rows"] = _found(shown, sql)
        except LakeVillaError as error:
            values["wrong"] = for_pages(error.message)
    return Body("query.html", "Query", values)


def _found(shown: Shown, sql: str) -> Rows:
    if shown.main.settings.sql_uris:
        raise InvalidOperation(
            "this gateway's lake was opened with sql_uris, by which SQL reads any place: start the "
            "gateway without it to query here"
        )
    if not _running.acquire(blocking=False):
        message = f"{_AT_ONCE} queries are running: send it again in a few seconds"
        raise Refusal(429, "TooManyRequestsException", message, retry_seconds=5)
    try:
        return rows_of(
            shown.lake.sql(
                with_limit(sql, MOST_ROWS + 1),
                version=shown.version,
                max_rows=MOST_ROWS + 1,
                max_bytes=MOST_BYTES,
                timeout_seconds=SECONDS,
            )
        )
    finally:
        _running.release()


def with_limit(sql: str, most: int) -> str:
    """Return a SELECT with a limit of its rows, if it has none of its own."""
    text = sql.strip().rstrip(";")
    understood, _ = without_pasts(text, "duckdb")
    has_limit = query_of(understood, "duckdb").args.get("limit") is not None
    # On a line of its own: the text may end with a comment.
    return text if has_limit else f"{text}\nLIMIT {most}"
