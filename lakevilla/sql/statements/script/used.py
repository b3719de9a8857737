"""Which of the parameters of a text one of its statements uses."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise

from lakevilla.errors import InvalidOperation
from lakevilla.sql.expressions.parse import refuse_unused
from lakevilla.sql.expressions.syntax.late import TokenType
from lakevilla.sql.statements.remembered import remembered
from lakevilla.sql.statements.script.cutting import script_tokens
from lakevilla.sql.statements.select import Dialect

_NAME = re.compile(r"[A-Za-z_]\w*")


def used_in(text: str, names: Iterable[str], dialect: Dialect) -> frozenset[str]:
    """The names of those that the text marks by ``:name``."""
    known = frozenset(names)
    return known & _marked(text, dialect) if known else known


def refuse_unmatched(text: str, names: Iterable[str], dialect: Dialect) -> None:
    """Raise for a value that no mark takes; where a mark has none, that is said, as it is meant."""
    known = frozenset(names)
    used = used_in(text, known, dialect)
    missing = sorted(_marked(text, dialect) - known)
    if used != known and missing:
        raise InvalidOperation(
            f"parameter :{missing[0]} has no value; give it in params, which has "
            f"{', '.join(sorted(known))}"
        )
    refuse_unused(known, used)


@remembered
def _marked(text: str, dialect: Dialect) -> frozenset[str]:
    tokens = script_tokens(text, dialect)
    return frozenset(
        name.text
        for colon, name in pairwise(tokens)
        if colon.token_type is TokenType.COLON
        and name.start == colon.end + 1
        and _NAME.fullmatch(name.text)
    )
