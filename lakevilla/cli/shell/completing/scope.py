"""The tables that a statement speaks of, by the names that it uses for them."""

from __future__ import annotations

from collections.abc import Sequence

from lakevilla.cli.shell.completing.tokens import WrittenToken
from lakevilla.cli.shell.completing.words import BEFORE_TABLES, CLAUSES

_BETWEEN = frozenset({"IF", "NOT", "EXISTS", "LATERAL"})
#: Behind a table these are no alias.
_NO_ALIAS = (
    CLAUSES
    | {"LEFT", "RIGHT", "FULL", "INNER", "OUTER", "CROSS", "SEMI", "ANTI", "NATURAL", "GROUP"}
    | {"ORDER", "UNION", "INTERSECT", "AT", "VERSION", "TIMESTAMP", "ZORDER", "ADD", "DROP"}
    | {"RENAME", "ALTER", "PARTITIONED", "TABLESAMPLE", "PIVOT", "UNPIVOT", "ASOF", "POSITIONAL"}
)


def tables_in(tokens: Sequence[WrittenToken]) -> dict[str, str]:
    """Table by alias, or by the last part of its own name; as written, with dots."""
    found: dict[str, str] = {}
    place = 0
    while place < len(tokens):
        if not is_before_table(tokens, place):
            place += 1
            continue
        place += 1
        while place < len(tokens) and tokens[place].upper in _BETWEEN:
            place += 1
        while place < len(tokens) and _is_name(tokens[place]):
            name, place = _chain(tokens, place)
            alias, place = _alias(tokens, place)
            found[alias or name.rsplit(".", 1)[-1]] = name
            if place == len(tokens) or tokens[place].text != ",":
                break
            place += 1  # FROM lists several
    return found


def queries_in(tokens: Sequence[WrittenToken]) -> list[str]:
    """The names that WITH gives to queries."""
    return [
        token.name
        for token, following, after in zip(tokens, tokens[1:], tokens[2:], strict=False)
        if token.kind in ("word", "quoted") and following.upper == "AS" and after.text == "("
    ]


def is_before_table(tokens: Sequence[WrittenToken], place: int) -> bool:
    """Whether the name of a table follows this token."""
    word = tokens[place].upper
    if word == "USING":  # of MERGE; that of a join has columns in brackets
        return any(token.upper == "MERGE" for token in tokens[:place])
    if word == "UPDATE":  # also a clause of MERGE
        return place + 1 == len(tokens) or tokens[place + 1].upper != "SET"
    return word in BEFORE_TABLES


def _is_name(token: WrittenToken) -> bool:
    return token.kind == "quoted" or (token.kind == "word" and token.upper not in CLAUSES)


def _chain(tokens: Sequence[WrittenToken], place: int) -> tuple[str, int]:
    """A name with dots, and where it ends."""
    parts = [tokens[place].name]
    place += 1
    while place < len(tokens) and tokens[place].text == ".":
        place += 1
        if place < len(tokens) and tokens[place].kind in ("word", "quoted"):
            parts.append(tokens[place].name)
            place += 1
    return ".".join(parts), place


def _alias(tokens: Sequence[WrittenToken], place: int) -> tuple[str | None, int]:
    if place < len(tokens) and tokens[place].upper == "AS":
        place += 1
    if place < len(tokens):
        token = tokens[place]
        if token.kind == "quoted" or (token.kind == "word" and token.upper not in _NO_ALIAS):
            return token.name, place + 1
    return None, place
