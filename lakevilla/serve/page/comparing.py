"""The view of two states side by side: tables, rows, and what both sides have changed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lakevilla.api.session.session import limits_of
from lakevilla.engines.statistics import limited
from lakevilla.errors import InvalidOperation
from lakevilla.serve.page.commits import SECONDS, differing_rows, is_too_large
from lakevilla.serve.page.history import refs_of
from lakevilla.serve.page.rows import CHANGE, MOST_COLUMNS, MOST_ROWS
from lakevilla.serve.page.shown import MAIN, Body, Params, Shown, version_of
from lakevilla.serve.page.text import short

Row = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Both:
    """A row that both sides have changed; None where it is not there."""

    key: str
    base: str
    ours: str
    theirs: str
    is_equal: bool


def compare(shown: Shown, params: Params) -> Body:
    """Show what differs from state ``a`` to state ``b``, and rows of a chosen table.

    Of the lake and a branch, also the rows that both have changed since the branch began or was
    last merged, by their keys: a merge asks about those.
    """
    a, b = params.text("a") or shown.name, params.text("b") or MAIN
    table, keys = params.text("table"), _names(params.text("keys"))
    values: dict[str, Any] = {
        "a": a,
        "b": b,
        "table": table,
        "keys": ", ".join(keys),
        "tables": None,
        "differences": (),
        "both": None,
        "why": "",
        "base": None,
        "refs": [name for name, one in refs_of(shown.main).items() if one.kind != "clone"][:50],
    }
    if a != b:
        diff = shown.main.diff(_state(a), _state(b))
        found = diff.tables.to_pylist()
        chosen = [one for one in found if one["table"] == table]
        values["tables"] = found
        values["differences"] = [(one, *differing_rows(diff, one, keys)) for one in chosen]
        values["base"] = base = _base(shown, a, b)
        if base is not None and table and keys:
            values["both"], values["why"] = _both(shown, base, a if b == MAIN else b, table, keys)
    return Body("compare.html", f"{a} and {b}", values)


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _state(name: str) -> int | str:
    version = version_of(name)
    return name if version is None else version


def _base(shown: Shown, a: str, b: str) -> str | None:
    """Return the state of a branch from which it and the lake went on, if these are compared."""
    if MAIN not in (a, b):
        return None
    branch = a if b == MAIN else b
    entry = refs_of(shown.main).get(branch)
    if entry is None or entry.kind != "branch":
        return None
    return f"{branch}@{(entry.synced or entry.base).sequence}"


def _both(
    shown: Shown, base: str, branch: str, table: str, keys: Sequence[str]
) -> tuple[list[Both] | None, str]:
    """Return the rows that both sides have changed, or why that can't be said here."""
    sides: list[dict[str, dict[str, Row]]] = []
    for side in (MAIN, branch):
        diff = shown.main.diff(base, side)
        found = [one for one in diff.tables.to_pylist() if one["table"] == table]
        if any(is_too_large(one) for one in found):
            return None, "too many rows for a page"
        try:
            with limited(limits_of({"timeout_seconds": SECONDS})):
                rows = diff.rows(table, list(keys)).to_pylist() if found else []
        except InvalidOperation as error:
            return None, error.message
        sides.append(by_key(rows, keys))
    return changed_by_both(*sides)[:MOST_ROWS], ""


def by_key(rows: Sequence[Row], keys: Sequence[str]) -> dict[str, dict[str, Row]]:
    """Return the changed rows by their keys: as they were, and as they are."""
    found: dict[str, dict[str, Row]] = {}
    for row in rows:
        key = ", ".join(short(row[name]) for name in keys)
        side = "was" if row[CHANGE] in ("delete", "update_preimage") else "is"
        found.setdefault(key, {})[side] = {k: v for k, v in row.items() if k != CHANGE}
    return found


def changed_by_both(
    ours: Mapping[str, Mapping[str, Row]], theirs: Mapping[str, Mapping[str, Row]]
) -> list[Both]:
    """Return the rows that are changed on both sides, by their keys."""
    return [
        Both(
            key,
            _shown(mine.get("was")),
            _shown(mine.get("is")),
            _shown(theirs[key].get("is")),
            mine.get("is") == theirs[key].get("is"),
        )
        for key, mine in sorted(ours.items())
        if key in theirs
    ]


def _shown(row: Row | None) -> str:
    if row is None:
        return "no row"
    return ", ".join(f"{k}: {short(v, 80)}" for k, v in list(row.items())[:MOST_COLUMNS])
