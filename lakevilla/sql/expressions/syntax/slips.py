"""Slips of users: the place and the likely cause of an error, for its message."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, TypeGuard

from lakevilla.errors import InvalidOperation, LakeVillaError
from lakevilla.sql.expressions.syntax.parameter_names import exp

# -------------------- slips
#
# Likely meanings of texts by users who know another language: the end of an error message.


#: A text or a name in quotes; what remains of a text without these contains no quote.
_QUOTED = re.compile(r"'(?:[^']|'')*'|\"(?:[^\"]|\"\")*\"|`[^`]*`")
_BARE_MOMENT = re.compile(r"\b\d{4}-\d{1,2}-\d{1,2}([T ]\d{1,2}:)?")

#: A text that can't be a sum: its signs are within words, or after them.
_WORDS = re.compile(r"\w+(?:(?:[.,;:!?%]?\s|[-':])\w+)*[.!?%]?")

_LONG = 200
#: The messages about a text that was read as SQL.
_MISREAD = re.compile("there is no column|cannot read|cannot be assigned")

#: Words at which parsing stopped, and advice for each.
_INSTEAD = {
    "&&": "write and",
    "where": "leave out the word where",
    "~": "write regexp_like(a, 'pattern')",
    "order by": "an expression has no order: sort the result",
    "limit": "an expression has no limit: limit the result",
    "group by": "an expression is of one row: group by a query, in sql(...)",
}

_PLAIN = (
    "write one expression, strings in '...', names plain, in \"...\" or backticks, parameters as "
    ":name"
)


@contextmanager
def naming_quotes(assignments: object) -> Iterator[None]:
    """Add advice on quotes to an error about a value that was meant as a text, and was
    read as SQL.
    """
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
    """Return whether a value consists of words alone, of which the error names one."""
    if not isinstance(value, str) or len(value) > _LONG or not _WORDS.fullmatch(value):
        return False
    return any(re.search(rf"\b{word}\b", message) for word in re.findall(r"\w+", value))


def what_to_write(sql: str, near: str) -> str:
    """Return advice for a text that can't be read, by the word at which parsing stopped."""
    if near.lower() in _INSTEAD:
        return _INSTEAD[near.lower()]
    rest = _QUOTED.sub("", sql)
    if "'" in rest:
        return "a quote is not closed; within a text it is doubled, as in 'Ben''s'"
    if _BARE_MOMENT.search(rest):
        return (
            "write a timestamp in quotes, as in timestamp '2024-01-31 12:00:00', "
            "or pass it in params"
        )
    if sql.rstrip().lower().endswith((" and", " or", " not", "=", "<", ">", ",")):
        return "something is missing at its end"
    return _PLAIN


def instead_of(name: str) -> str:
    """Return advice for a column name that is a value in other languages; "" for other names."""
    word = name.lower()
    if word in ("none", "nil", "nat"):
        return "a value that is missing is written null, and found by `is null`"
    if word in ("nan", "inf", "infinity"):
        written = {"nan": "NaN"}.get(word, "Infinity")
        return f"write cast('{written}' as double), or pass the float in params"
    return ""


# -------------------- grouping
#
# Tests next to tests: where databases read one text in two ways, it needs parentheses.
#
# ``a = b is null`` is ``(a = b) is null`` in DuckDB, PostgreSQL and Spark, and ``a = (b is null)``
# in sqlglot's own dialect; ``a = b in (true)`` is read in two ways by Spark and DuckDB.
# Whichever is meant, the other reading silently changes other rows.
# docs/upstream.md, "A test after a comparison is grouped with its right side"


def written(node: Any) -> Any:
    """Mark parentheses that are in the text: sqlglot adds more where it has grouped."""
    if isinstance(node, exp.Paren):
        node.meta["written"] = True
    return node


def ambiguous(node: Any) -> bool:
    """Return whether a test has a test as its operand that is not in parentheses."""
    if type(node) not in _tests():
        return False
    operands = (node.this, node.args.get("expression"), node.args.get("low"), node.args.get("high"))
    return any(map(_is_test, operands))


def _is_test(operand: Any) -> bool:
    while isinstance(operand, exp.Not) or (
        isinstance(operand, exp.Paren) and "written" not in operand.meta
    ):
        operand = operand.this  # IS NOT NULL is one test
    return type(operand) in _tests() or isinstance(operand, exp.Escape)


@lru_cache(1)
def _tests() -> frozenset[type]:
    return frozenset(
        {
            *(exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ),
            *(exp.Is, exp.In, exp.Between, exp.Like, exp.ILike, exp.RegexpLike),
        }
    )


# -------------------- places
#
# Places where parsing stopped, converted to places in the text that the author has written.
#
# A parser counts from where it began to read, which is a condition within a statement within a
# script. The code that has the longer text moves the place into it.


_UNREAD = "_unread"


@dataclass(frozen=True, slots=True)
class UnreadPlace:
    """A line and a column in ``text``, both from 1; ``column`` is 0 where it is not known."""

    text: str
    line: int
    column: int

    def __str__(self) -> str:
        return f" at line {self.line}" + (f", column {self.column}" if self.column else "")


def note_place(error: LakeVillaError, place: UnreadPlace) -> LakeVillaError:
    """Note on the error the place that its message contains; return the error."""
    setattr(error, _UNREAD, place)
    return error


def place_within(error: LakeVillaError, text: str) -> None:
    """Move the place into a longer ``text`` that contains the text that was read.

    If it is not clear where the longer text contains it, the place is removed.
    """
    known: UnreadPlace | None = getattr(error, _UNREAD, None)
    if known is None or known.text == text:
        return
    start = text.find(known.text)
    if start < 0 or text.find(known.text, start + 1) >= 0:
        _tell(error, known, None)
        return
    before = text[:start]
    _moved(error, known, text, before.count("\n") + 1, start - before.rfind("\n"))


def place_behind(error: LakeVillaError, line: int, column: int) -> None:
    """Move the place into a text in which the text that was read begins at this line and column."""
    known: UnreadPlace | None = getattr(error, _UNREAD, None)
    if known is not None and (line, column) != (1, 1):
        _moved(error, known, known.text, line, column)


def _moved(error: LakeVillaError, known: UnreadPlace, text: str, line: int, column: int) -> None:
    own = known.column + column - 1 if known.line == 1 and known.column else known.column
    _tell(error, known, UnreadPlace(text, known.line + line - 1, own))


def _tell(error: LakeVillaError, known: UnreadPlace, place: UnreadPlace | None) -> None:
    said = "" if place is None else str(place)
    error.message = error.message.replace(str(known), said, 1)
    error.args = (error.message, *error.args[1:])
    setattr(error, _UNREAD, place)
