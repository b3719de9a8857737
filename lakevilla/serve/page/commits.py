"""The views of one commit, and of what differs between two states of the lake."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lakevilla.api.applying.diff import Diff
from lakevilla.api.session.session import limits_of
from lakevilla.engines.statistics import limited
from lakevilla.errors import InvalidOperation, VersionNotFound
from lakevilla.results import HistoryEntry
from lakevilla.serve.page.history import described
from lakevilla.serve.page.rows import MOST_ROWS, rows_of
from lakevilla.serve.page.shown import MAIN, Body, Params, Shown

#: Where files have come and gone, rows are compared if no more of them are in these files.
_MOST_COMPARED = 200_000
#: Rows of so many tables are on the page of a commit; those of the others on pages of their own.
_TABLES = 3
#: Reading and comparing rows for a page ends after so many seconds.
SECONDS = 10.0


def commit(shown: Shown, params: Params) -> Body:
    """Show a commit: what it did to each table, and rows that it changed."""
    params.needed("version")
    version = params.number("version") or 0
    entry = _entry(shown, version)
    states = [_state(shown, one) for one in (version - 1, version)]
    values: dict[str, Any] = {
        "entry": entry,
        "what": described(entry),
        "before": states[0],
        "after": states[1],
        "tables": [],
        "differences": [],
        "others": 0,
        "lost": "",
    }
    try:
        diff = shown.main.diff(states[0], states[1])
    except VersionNotFound as error:
        values["lost"] = error.message
    else:
        values |= _differences(diff, params.text("table"))
    return Body("commit.html", f"Commit {version}", values)


def _entry(shown: Shown, version: int) -> HistoryEntry:
    found = shown.lake.history(1, until=version)
    if not found or found[0].version != version:
        raise VersionNotFound(f"global version {version} does not exist, or is not kept any more")
    return found[0]


def _state(shown: Shown, version: int) -> int | str:
    is_branch = shown.lake is not shown.main
    return f"{shown.name}@{version}" if is_branch and shown.name != MAIN else version


def _differences(diff: Diff[Any], table: str) -> Mapping[str, Any]:
    """Return what differs, with rows: of one table, or of the first ones."""
    found = diff.tables.to_pylist()
    chosen = [one for one in found if one["table"] == table] if table else found[:_TABLES]
    names = {one["table"] for one in chosen}
    return {
        "tables": found,
        "differences": [(one, *differing_rows(diff, one)) for one in chosen],
        "others": sum(one["table"] not in names for one in found),
    }


def differing_rows(
    diff: Diff[Any], one: Mapping[str, Any], keys: list[str] | None = None
) -> tuple[Any, str]:
    """Return the first rows that differ in a table, or why they are not shown."""
    is_compared = keys or (one["files_added"] and one["files_removed"])
    if is_compared and is_too_large(one):
        return None, "too many rows for a page: `lakevilla diff ROOT A B --rows TABLE`"
    try:
        with limited(limits_of({"timeout_seconds": SECONDS})):
            found = diff.rows(one["table"], keys, limit=MOST_ROWS + 1)
    except (InvalidOperation, VersionNotFound) as error:
        return None, error.message
    return rows_of(found, is_difference=True), ""


def is_too_large(one: Mapping[str, Any]) -> bool:
    """Return whether the files in which a table differs have more rows than a page compares."""
    counts = (one["file_rows_added"], one["file_rows_removed"])
    return None in counts or sum(counts) > _MOST_COMPARED
