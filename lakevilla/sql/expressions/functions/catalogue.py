"""All operators and functions by name, and the table of them in the documentation."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from difflib import get_close_matches
from typing import Any

from lakevilla.errors import InvalidOperation
from lakevilla.sql.expressions.functions.core import CORE, NUMBER_MEANINGS, NUMBERS
from lakevilla.sql.expressions.functions.declaring import Function, Resolution, WrongTypes
from lakevilla.sql.expressions.functions.nested import JSON, JSON_MEANINGS, NESTED, NESTED_MEANINGS
from lakevilla.sql.expressions.functions.shorthand import ALIASES, REFUSED, SHORTHANDS
from lakevilla.sql.expressions.functions.temporal import DATE_MEANINGS, DATES
from lakevilla.sql.expressions.functions.text import TEXT, TEXT_MEANINGS
from lakevilla.sql.expressions.tree import Expr

FUNCTIONS: dict[str, Function] = {**CORE, **NUMBERS, **TEXT, **DATES, **NESTED, **JSON}

#: The meaning of each function of the families, for operands that are not NULL.
MEANINGS: dict[str, Callable[..., Any]] = {
    **NUMBER_MEANINGS,
    **TEXT_MEANINGS,
    **DATE_MEANINGS,
    **NESTED_MEANINGS,
    **JSON_MEANINGS,
}

#: Calls that may raise on some row; the rest never do (casts are judged by their types).
RAISING = frozenset(name for name, function in FUNCTIONS.items() if function.raises)


def resolve(name: str, args: Sequence[Expr], types: Sequence[str]) -> Resolution:
    """Return the wanted operand types and the result type of a call.

    Raises
    ------
    InvalidOperation
        Wrong number or types of operands, or no such function.
    """
    function = FUNCTIONS.get(name)
    if function is None:
        raise InvalidOperation(missing(name))
    if len(args) < function.least or (function.most is not None and len(args) > function.most):
        raise InvalidOperation(f"{name} takes other operands: write {function.usage}")
    try:
        return function.resolve(args, types)
    except WrongTypes as wrong:
        raise InvalidOperation(
            f"{function.usage} does not take ({', '.join(types)}): it takes {wrong}"
        ) from None


def missing(name: str) -> str:
    """Return the message for a function that does not exist."""
    if (reason := REFUSED.get(name.lower())) is not None:
        return f"function {name}() is not available: {reason}"
    called = {n for n, f in FUNCTIONS.items() if f.called} | SHORTHANDS.keys()
    near = get_close_matches(name.lower(), called | ALIASES.keys(), n=3, cutoff=0.7)
    hint = f"did you mean {' or '.join(near)}? " if near else ""
    return (
        f"function {name}() is not available; {hint}docs/expressions.md lists the {len(called)} "
        "that there are"
    )


def documentation() -> str:
    """Return the table of operators and functions, in Markdown."""
    rows = ["| write | gives | meaning | Spark | DuckDB |", "|---|---|---|---|---|"]
    rows += [_row(f.usage, f.gives, f.meaning, f.spark, f.duckdb) for f in FUNCTIONS.values()]
    rows += [
        _row(s.usage, "", s.meaning, s.spark, s.duckdb) for s in SHORTHANDS.values() if s.meaning
    ]
    return "\n".join(rows) + "\n"


def _row(usage: str, gives: str, meaning: str, spark: str, duckdb: str) -> str:
    def code(text: str) -> str:
        return f"`{text}`".replace("|", "\\|") if text else ""

    return f"| {code(usage)} | {gives} | {meaning} | {_spelled(spark)} | {_spelled(duckdb)} |"


def _spelled(text: str) -> str:
    """Return the spelling as code; the text that follows it as prose."""
    for mark in ("; ", ", with ", ", of "):
        head, found, rest = text.partition(mark)
        if found:
            return f"`{head}`{found}{rest}"
    return f"`{text}`" if text not in ("", "none") else text
