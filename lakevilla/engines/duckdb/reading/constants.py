"""Constants of predicates, rounded as DuckDB rounds them, and lists of them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import count, pairwise

import pyarrow as pa

from lakevilla.engines.base import TableInput
from lakevilla.engines.duckdb.sqltext import any_of, is_bytes, quote_text, sql_type
from lakevilla.sql.expressions.syntax.parameter_names import Token, TokenType
from lakevilla.sql.statements.select import tokens_of, word_of

# -------------------- constants
#
# The constant values of a file's rows in columns that the file lacks, from the log.
#
# Partition values in a log are text: here they become keys to group files by, and SQL constants.


_ESCAPED = re.compile(r"(?:\\u[0-9A-Fa-f]{4})+")
#: Serialised partition values of one file, in the order of ``Layout.partition_by``.
PartitionKey = tuple[str | None, ...]
#: Columns that a file lacks, and the serialised value of each for all the file's rows.
Constants = tuple[tuple[str, str | None], ...]


def constants_of(table: TableInput, keys: Sequence[PartitionKey]) -> list[Constants]:
    """Return the values of each file's rows in columns that the file may lack.

    Delta's partition columns are in no file. An Iceberg table's partition columns are in all files
    except those that were imported from elsewhere; the files' footers show which.
    """
    layout = table.layout
    if not layout.constants:
        return [tuple(zip(layout.partition_by, key, strict=True)) for key in keys]
    found: list[Constants] = []
    for values in table.files.column("partition_values").to_pylist():
        known = dict(values or ())
        found.append(tuple((c, known[key]) for c, key in layout.constants if key in known))
    return found


def constants_within(table: TableInput) -> tuple[frozenset[int], ...]:
    """Return the fields within columns, by id, for which each file's partition has a value."""
    within = table.layout.constants_within
    if not within:
        count: int = table.files.num_rows
        return (frozenset(),) * count
    values = table.files.column("partition_values").to_pylist()
    known: list[dict[str, str | None]] = [dict(one or ()) for one in values]
    return tuple(frozenset(number for number, key in within if key in one) for one in known)


def partition_keys(table: TableInput) -> list[PartitionKey]:
    layout = table.layout
    if not layout.partition_by:
        return [()] * table.files.num_rows
    names = [
        layout.physical.field(layout.schema.get_field_index(column)).name
        for column in layout.partition_by
    ]
    # "" is Delta's NULL, and a value that the log lacks is NULL, too: all NULLs have one key.
    return [
        tuple(dict(values or ()).get(name) or None for name in names)
        for values in table.files.column("partition_values").to_pylist()
    ]


def written_keys(table: TableInput) -> list[PartitionKey | None]:
    """Return the partitions of files of the table's present spec; None for an older spec."""
    keys = [field.key for field in table.layout.partition_fields]
    found: list[PartitionKey | None] = []
    for values in table.files.column("partition_values").to_pylist():
        known = dict(values or ())
        same = known.keys() == set(keys)
        found.append(tuple(known[key] for key in keys) if same else None)
    return found


def constant_sql(value: str | None, kind: pa.DataType) -> str:
    if value is None or (value == "" and not pa.types.is_string(kind)):
        return f"CAST(NULL AS {sql_type(kind)})"
    if pa.types.is_string(kind):
        return quote_text(value)
    if is_bytes(kind):
        return f"from_hex('{(binary_of(value) or b'').hex()}')"
    return f"CAST({quote_text(value)} AS {sql_type(kind)})"


def default_text(value: str | None, kind: pa.DataType) -> str:
    """Return the value of a column that a file lacks, as text: ``read_parquet`` wants one type."""
    if value is None or (value == "" and not pa.types.is_string(kind)):
        return "CAST(NULL AS VARCHAR)"
    if isinstance(kind, pa.UuidType):
        return quote_text((binary_of(value) or b"").hex())
    if is_bytes(kind):
        return quote_text("".join(f"\\x{byte:02X}" for byte in binary_of(value) or b""))
    return quote_text(value)


def binary_of(value: str | None) -> bytes | None:
    r"""Return the bytes of a serialised binary value: ``\u0001\u0002``, or its characters."""
    if not value:
        return None
    if _ESCAPED.fullmatch(value):
        return bytes(int(value[i + 2 : i + 6], 16) & 0xFF for i in range(0, len(value), 6))
    return value.encode()


# -------------------- rounding
#
# Numbers of a file that DuckDB would change silently, to fit the type of the table.


_DECIMAL = re.compile(r"DECIMAL\((?P<precision>\d+), *(?P<scale>\d+)\)")
#: The most digits of a DuckDB decimal. DuckDB reads decimals with more digits in a file as doubles,
#: with wrong values: https://github.com/duckdb/duckdb/pull/25058
_MOST_DIGITS = 38


def rounds(kind: str, wanted: pa.DataType) -> bool:
    """Return whether reading numbers of DuckDB's type ``kind`` as ``wanted`` may change them.

    They don't where they fit or the cast fails. A float may have less precision in the table: it is
    no exact number.
    """
    decimal = _DECIMAL.fullmatch(kind)
    if decimal is not None and int(decimal["precision"]) > _MOST_DIGITS:
        return True
    if not (pa.types.is_integer(wanted) or pa.types.is_decimal(wanted)):
        return False
    if kind in ("FLOAT", "DOUBLE"):
        return True
    scale = wanted.scale if pa.types.is_decimal(wanted) else 0
    return decimal is not None and int(decimal["scale"]) > scale


def has_decimals(kind: pa.DataType) -> bool:
    """Return whether the type, or one within it, is of decimals."""
    return any_of(kind, pa.types.is_decimal)


# -------------------- lists
#
# Lists as parameters: ``IN (:ids)`` and ``IN :ids`` as one parameter for each value.
#
# In the first, DuckDB compares with the list itself, and in the second it ignores NULLs.
# https://github.com/duckdb/duckdb/issues/15063


_QUERY = frozenset({"SELECT", "WITH", "FROM", "VALUES", "TABLE"})


def with_lists(sql: str, params: Mapping[str, object]) -> tuple[str, Mapping[str, object]]:
    """Return a query and its parameters, each list behind IN split into single values."""
    lists = {name: value for name, value in params.items() if isinstance(value, list | tuple)}
    if not lists:
        return sql, params
    values = dict(params)
    pieces, position = [], 0
    tokens = tokens_of(sql)
    for index, token in enumerate(tokens):
        end = _operand(tokens, index + 1) if word_of(token) == "IN" else None
        if end is None or not (named := set(_named(tokens[index + 1 : end])) & lists.keys()):
            continue
        for name in named:
            values.pop(name, None)
        negated = index > 0 and word_of(tokens[index - 1]) == "NOT"
        written = _listed(sql, tokens[index + 1 : end], lists, values, negated)
        pieces += [sql[position : token.end + 1], " ", written]
        position = tokens[end - 1].end + 1
    text = "".join([*pieces, sql[position:]])
    # Elsewhere in the text, a list is one value.
    values |= {name: value for name, value in lists.items() if name in _named(tokens_of(text))}
    return text, values


def _operand(tokens: Sequence[Token], index: int) -> int | None:
    """Return the end of the operand of IN, if it is a parameter or a list in parentheses."""
    kinds = [token.token_type for token in tokens[index : index + 2]]
    if kinds[:1] == [TokenType.COLON]:
        return index + 2
    is_query = word_of(tokens[index + 1]) in _QUERY if len(kinds) == 2 else True
    if kinds[:1] != [TokenType.L_PAREN] or is_query:
        return None
    depth = 0
    for end in range(index, len(tokens)):
        depth += tokens[end].token_type is TokenType.L_PAREN
        depth -= tokens[end].token_type is TokenType.R_PAREN
        if depth == 0:
            return end + 1
    return None


def _items(tokens: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """Yield the tokens between the commas of a list in parentheses, or a single parameter."""
    if tokens[0].token_type is TokenType.COLON:
        yield tokens
        return
    item: list[Token] = []
    depth = 0
    for token in tokens[1:-1]:
        depth += token.token_type in (TokenType.L_PAREN, TokenType.L_BRACKET)
        depth -= token.token_type in (TokenType.R_PAREN, TokenType.R_BRACKET)
        if token.token_type is TokenType.COMMA and depth == 0:
            yield item
            item = []
        else:
            item.append(token)
    yield item


def _name(item: Sequence[Token]) -> str | None:
    """Return the name of the parameter that an item consists of; None if it is no parameter."""
    is_one = len(item) == 2 and item[0].token_type is TokenType.COLON
    return item[1].text if is_one and item[1].start == item[0].end + 1 else None


def _named(tokens: Sequence[Token]) -> set[str]:
    """Return the names of parameters: each follows a colon."""
    return {name for pair in pairwise(tokens) if (name := _name(pair)) is not None}


def _listed(
    sql: str,
    operand: Sequence[Token],
    lists: Mapping[str, Sequence[object]],
    values: dict[str, object],
    negated: bool,
) -> str:
    """Return the list in parentheses, with new parameters for values of those that are lists."""
    written: list[str] = []
    for item in _items(operand):
        name = _name(item)
        if name is None or name not in lists:
            if item:
                written.append(sql[item[0].start : item[-1].end + 1])
            continue
        for value in lists[name]:
            one = next(f"{name}__{n}" for n in count(len(values)) if f"{name}__{n}" not in values)
            values[one] = value
            written.append(f":{one}")
    if written:
        return f"({', '.join(written)})"
    # An empty list has no value, not even NULL.
    return "(NULL) IS NOT FALSE" if negated else "(NULL) IS TRUE"
