"""Which of the parameters of a text one of its statements uses."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import pairwise

from lakevilla.engines.sql.remembered import remembered
from lakevilla.engines.sql.script.cutting import script_tokens
from lakevilla.engines.sql.select import Dialect
from lakevilla.expressions.syntax.late import TokenType

_NAME = re.compile(r"[A-Za-z_]\w*")


def used_in(text: str, names: Iterable[str], dialect: Dialect) -> frozenset[str]:
    """The names of those that the text marks by ``:name``."""
    known = frozenset(names)
    return known & _marked(text, dialect) if known else known


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
