"""Mappings as parameters: structs of single parameters, written out in the text.

So a query has scalars alone as its parameters, which a redo, a saved transaction and every engine
know. A mapping of texts is a struct; ``INSERT`` makes a map of it where the column is one.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count, pairwise

from lakevilla.sql.expressions.syntax.late import TokenType
from lakevilla.sql.statements.select import Dialect, tokens_of
from lakevilla.sql.statements.words import quoted, word_of

#: What the engine computes. Conditions and assignments are expressions, which have no structs.
_BY_THE_ENGINE = frozenset({"SELECT", "WITH", "FROM", "VALUES", "INSERT"})


def with_nested(
    text: str, params: dict[str, object], dialect: Dialect
) -> tuple[str, dict[str, object]]:
    """A query or an INSERT and its parameters, none of which is or holds a mapping."""
    nested = {name for name, value in params.items() if _holds_mapping(value)}
    if not nested or dialect != "duckdb":
        return text, params
    tokens = tokens_of(text)
    if not tokens or word_of(tokens[0]) not in _BY_THE_ENGINE:
        return text, params
    values = dict(params)
    pieces, position = [], 0
    written: dict[str, str] = {}
    for colon, name in pairwise(tokens):
        if (
            colon.token_type is TokenType.COLON
            and name.start == colon.end + 1
            and name.text in nested
        ):
            if name.text not in written:
                written[name.text] = _written(values.pop(name.text), name.text, values)
            pieces += [text[position : colon.start], written[name.text]]
            position = name.end + 1
    return "".join([*pieces, text[position:]]), values


def _holds_mapping(value: object) -> bool:
    if isinstance(value, Mapping):
        return True
    return isinstance(value, list | tuple) and any(map(_holds_mapping, value))


def _written(value: object, name: str, values: dict[str, object]) -> str:
    """The value in SQL, with a new parameter for each scalar in it."""
    if isinstance(value, Mapping):
        if _is_struct(value):
            fields = (f"{_field(key)} := {_written(value[key], name, values)}" for key in value)
            return f"struct_pack({', '.join(fields)})"
        keys = ", ".join(_written(key, name, values) for key in value)
        items = ", ".join(_written(item, name, values) for item in value.values())
        return f"map([{keys}], [{items}])"
    if isinstance(value, list | tuple) and _holds_mapping(value):
        return f"[{', '.join(_written(item, name, values) for item in value)}]"
    if value is None:
        return "NULL"
    one = next(f"{name}__{n}" for n in count(len(values)) if f"{name}__{n}" not in values)
    values[one] = value
    return f":{one}"


def _is_struct(value: Mapping[object, object]) -> bool:
    """Whether the keys are names of fields: texts that differ in more than their case."""
    names = {key.lower() for key in value if isinstance(key, str) and key}
    return 0 < len(value) == len(names)


def _field(key: object) -> str:
    return quoted(str(key), "duckdb")
