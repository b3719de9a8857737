"""What people write who know another language, and what they meant: the end of a message."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TypeGuard

from lakevilla.errors import InvalidOperation

#: A text, or a name in quotes; what is left of a text without these has no quote in it.
_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`")
_BARE_MOMENT = re.compile(r"\b\d{4}-\d{1,2}-\d{1,2}([T ]\d{1,2}:)?")

#: What a text may be that is no sum: signs stand in words, or behind them.
_WORDS = re.compile(r"\w+(?:(?:[.,;:!?%]?\s|[-':])\w+)*[.!?%]?")

_LONG = 200
#: What is said of a text that was read as SQL.
_MISREAD = re.compile("there is no column|cannot read|cannot be assigned")

#: Where reading stopped, and what stands there instead.
_INSTEAD = {
    "&&": "write and",
    "where": "leave out the word where",
    "~": "write regexp_like(a, 'pattern')",
    "order by": "an expression has no order: sort the rows that come back",
    "limit": "an expression has no limit: cut off the rows that come back",
    "group by": "an expression is of one row: group by a query, in sql(...)",
}

_PLAIN = (
    "write one expression, strings in '...', names plain, in \"...\" or backticks, parameters as "
    ":name"
)


@contextmanager
def naming_quotes(assignments: object) -> Iterator[None]:
    """Add to an error which quotes a value needs that was meant as a text, and is read as SQL."""
    try:
        yield
    except InvalidOperation as error:
        given = assignments.values() if isinstance(assignments, Mapping) else ()
        meant = (value for value in given if _may_be_meant(value, error.message))
        text = next(meant, None) if _MISREAD.search(error.message) else None
        if text is not None and "single quotes" not in error.message:
            written = "'" + text.replace("'", "''") + "'"
            error.message += (
                f"; a text has quotes of its own: write {written!r}, or use a parameter"
            )
            error.args = (error.message, *error.args[1:])
        raise


def _may_be_meant(value: object, message: str) -> TypeGuard[str]:
    """Whether a value is words alone, of which an error speaks."""
    if not isinstance(value, str) or len(value) > _LONG or not _WORDS.fullmatch(value):
        return False
    return any(re.search(rf"\b{word}\b", message) for word in re.findall(r"\w+", value))


def what_to_write(sql: str, near: str) -> str:
    """The advice for a text that can't be read, by the word where reading stopped."""
    if near.lower() in _INSTEAD:
        return _INSTEAD[near.lower()]
    rest = _QUOTED.sub("", sql)
    if "'" in rest:
        return "a quote is not closed; within a text it is doubled, as in 'Ben''s'"
    if _BARE_MOMENT.search(rest):
        return (
            "write a moment in quotes, as in timestamp '2024-01-31 12:00:00', or pass it in params"
        )
    if sql.rstrip().lower().endswith((" and", " or", " not", "=", "<", ">", ",")):
        return "something is missing at its end"
    return _PLAIN


def instead_of(name: str) -> str:
    """What a value of other languages is called here, if a column's name is one; else nothing."""
    word = name.lower()
    if word in ("none", "nil", "nat"):
        return "a value that is missing is written null, and found by `is null`"
    if word in ("nan", "inf", "infinity"):
        written = {"nan": "NaN"}.get(word, "Infinity")
        return f"write cast('{written}' as double), or pass the float in params"
    return ""
