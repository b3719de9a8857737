"""Declarations of functions, and code that they share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lakevilla.sql.expressions.tree import Expr, Literal
from lakevilla.sql.expressions.types import is_integer

#: The operand types that a call wants, and its result type. A wanted type of None: unchanged.
Resolution = tuple[Sequence[str | None], str]


@dataclass(frozen=True, slots=True)
class Function:
    """An operator or function.

    Attributes
    ----------
    usage : str
        Its spelling.
    gives : str
        Type of the result, for people.
    meaning : str
        Its effect, where that is not plain.
    least, most : int, int or None
        Number of operands; None for any.
    unifies : bool
        Its operands are converted to their common type before ``resolve`` gets them.
    resolve : Callable
        From operands and their types to the wanted types and the result type; a wrong type raises
        ``WrongTypes``.
    called : bool
        Written as ``name(...)`` rather than as an operator.
    raises : bool
        Whether it may raise on some row.
    spark, duckdb : str
        The engine's own spelling, for the documentation; empty where it is the same.
    """

    usage: str
    gives: str
    meaning: str
    least: int
    most: int | None
    resolve: Callable[[Sequence[Expr], Sequence[str]], Resolution]
    unifies: bool = False
    called: bool = True
    raises: bool = False
    spark: str = ""
    duckdb: str = ""


class WrongTypes(Exception):
    """The operands have types that the function does not accept; ``str()`` names accepted ones."""


def fixed(wanted: Sequence[str], gives: str) -> Callable[..., Resolution]:
    def resolve(args: Sequence[Expr], types: Sequence[str]) -> Resolution:
        whole = [*wanted, *[wanted[-1]] * (len(types) - len(wanted))][: len(types)]
        if any(type_ not in (want, "void") for type_, want in zip(types, whole, strict=True)):
            raise WrongTypes(", ".join(wanted))
        return whole, gives

    return resolve


def constant_integer(arg: Expr, least: int) -> int:
    if isinstance(arg, Literal) and is_integer(arg.type) and arg.value is not None:
        value = int(arg.value)
        if value >= least:
            return value
    raise WrongTypes(f"a constant integer of at least {least}")


def constant_text(arg: Expr, what: str) -> str:
    if isinstance(arg, Literal) and arg.type == "string" and arg.value is not None:
        return arg.value
    raise WrongTypes(what)


def dates(args: Sequence[Expr], types: Sequence[str], at: int) -> None:
    """Refuse an operand that is no date or timestamp, nor a text that contains one."""
    text = isinstance(args[at], Literal) and types[at] == "string"
    if types[at] not in (*MOMENTS, "void") and not text:
        raise WrongTypes("a date or timestamp")


#: Types with a calendar date.
MOMENTS = ("date", "timestamp", "timestamp_ntz")
