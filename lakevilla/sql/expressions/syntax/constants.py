"""Constants that a text writes in other ways than the language takes them."""

from __future__ import annotations

import re

from lakevilla.sql.expressions.functions.casing import lower, upper
from lakevilla.sql.expressions.tree import Call, Expr, Literal

_BY_HOURS = re.compile(r":\d\d(\.\d+)?[+-]\d\d$")
_CASES = {"lower": lower, "upper": upper}


def with_minutes(moment: str) -> str:
    """A moment whose zone is written in hours alone, as DuckDB and PostgreSQL show it."""
    return f"{moment}:00" if _BY_HOURS.search(moment) else moment


def pattern(tree: Expr) -> Expr:
    """A pattern that is put together of constants, ``:start || '%'``, as one constant."""
    if not isinstance(tree, Call) or tree.name not in ("||", *_CASES):
        return tree
    parts = [pattern(arg) for arg in tree.args]
    texts = [part.value for part in parts if isinstance(part, Literal) and part.type == "string"]
    known = [text for text in texts if text is not None]
    if len(known) < len(parts):
        return tree
    return Literal("string", "".join(known) if tree.name == "||" else _CASES[tree.name](known[0]))
