"""How a function is declared, and what declarations share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lakevilla.sql.expressions.tree import Expr, Literal
from lakevilla.sql.expressions.types import is_integer

#: Operand types a call wants, and the type it gives. None as a wanted type: as it is.
Resolution = tuple[Sequence[str | None], str]


@dataclass(frozen=True, slots=True)
class Function:
    """An operator or function.

    Attributes
    ----------
    usage : str
        How it is written.
    gives : str
        Type of the result, for people.
    meaning : str
        What it does, where that is not plain.
    least, most : int, int or None
        Number of operands; None for any.
    unifies : bool
        Its operands are brought to their common type before ``resolve`` sees them.
    resolve : Callable
        From operands and their types to the types wanted and the type given; a wrong
        type raises ``WrongTypes``.
    called : bool
        Written as ``name(...)`` rather than as an operator.
    raises : bool
        Whether it may raise on some row.
    spark, duckdb : str
        How the engine itself writes it, for people; empty where it is written alike.
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
    """The operands have types that the function does not take; ``str()`` says what it takes."""


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
    """Refuse an operand that is no date or timestamp, nor text that says one."""
    text = isinstance(args[at], Literal) and types[at] == "string"
    if types[at] not in (*MOMENTS, "void") and not text:
        raise WrongTypes("a date or timestamp")


#: Types with a calendar's date.
MOMENTS = ("date", "timestamp", "timestamp_ntz")
