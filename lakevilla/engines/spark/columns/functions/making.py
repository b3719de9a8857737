"""How Spark's functions are made into calls of the language's: what makers share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TypeAlias

from lakevilla.engines.spark.columns.coercion import Typed, common, converted
from lakevilla.engines.spark.columns.nodes import AS_TEXT, refused
from lakevilla.engines.spark.columns.session_terms import SessionTerms
from lakevilla.sql.expressions.tree import Call, Expr
from lakevilla.sql.expressions.values import value_of


@dataclass(frozen=True, slots=True)
class Language:
    """What functions need to know: the session's terms, and what time it is."""

    terms: SessionTerms
    now: datetime

    def call(self, name: str, args: Sequence[Typed], type_: str) -> Typed:
        return self.plain(name, [arg.expr for arg in args], type_)

    @staticmethod
    def plain(name: str, args: Sequence[Expr], type_: str) -> Typed:
        return Typed(Call(name, tuple(args)), type_)

    def met(self, args: Sequence[Typed], what: str) -> tuple[list[Expr], str]:
        """Operands in the type that Spark brings them to."""
        type_ = common(list(args), what, self.terms)
        return [converted(arg, type_, what, self.terms) for arg in args], type_


Maker: TypeAlias = Callable[[Language, list[Typed]], Typed]


def check_count(what: str, args: Sequence[Typed], *counts: int) -> None:
    if len(args) not in counts:
        raise refused(f"{what}() of {len(args)} operands", AS_TEXT)


def wants(what: str, arg: Typed, *types: str) -> Typed:
    if arg.type not in (*types, "void"):
        raise refused(f"{what}() of {arg.type}", f"it takes {' or '.join(types)}: cast the operand")
    return arg


def constant_of(what: str, arg: Typed, *types: type) -> object:
    constant = arg.constant
    value = None if constant is None else value_of(constant)
    if not isinstance(value, types) or isinstance(value, bool):
        raise refused(f"{what}() whose operands are not constant", AS_TEXT)
    return value


def exactly(name: str, types: Sequence[str], gives: str = "string", to: str | None = None) -> Maker:
    """A function whose operands have exactly these types; ``int`` for any integer."""

    def make(lang: Language, args: list[Typed]) -> Typed:
        check_count(name, args, len(types))
        for arg, want in zip(args, types, strict=True):
            if want == "int":
                wants(name, arg, "byte", "short", "integer")
            else:
                wants(name, arg, want)
        return lang.call(to or name, args, gives)

    return make
