"""Whether a statement is one SELECT of tables and nothing else, as DuckDB itself reads it.

``engines.sql.select`` refuses what is none by a parser that is not DuckDB's. Here DuckDB's own
tree is asked, which is the one that runs. What it holds that is not known to be harmless only
means that the statement has a database of its own: nothing is refused here.

The tree also tells whether DuckDB would lose rows of the statement.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from lakevilla.engines.duckdb import late as duckdb
from lakevilla.engines.duckdb.sqltext import quote_text
from lakevilla.sql.statements.select import PURE_TABLE_FUNCTIONS, is_reaching

#: A table's name as a statement has it, part by part.
Parts: TypeAlias = tuple[str, ...]

# The text is no parameter: for the first one DuckDB imports pandas, which takes long.
_SERIALIZED = "SELECT json_serialize_sql({}, skip_null := true, skip_empty := true)"
#: What is no expression in a tree: queries, tables, modifiers and orders.
_KNOWN = frozenset(
    {
        "SELECT_NODE",
        "SET_OPERATION_NODE",
        "RECURSIVE_CTE_NODE",
        "CTE_NODE",
        "BASE_TABLE",
        "JOIN",
        "SUBQUERY",
        "EMPTY",
        "EMPTY_FROM",
        "EXPRESSION_LIST",
        "TABLE_FUNCTION",
        "PIVOT",
        "ORDER_MODIFIER",
        "LIMIT_MODIFIER",
        "LIMIT_PERCENT_MODIFIER",
        "DISTINCT_MODIFIER",
        "ORDER_DEFAULT",
        "ASCENDING",
        "DESCENDING",
    }
)
#: Databases and schemas that are there without us.
_TAKEN = frozenset({"temp", "system", "memory", "main", "information_schema", "pg_catalog"})
#: Comparisons that count NULL as a value; IS TRUE and IS NOT FALSE are such.
_OF_NULL = frozenset({"COMPARE_DISTINCT_FROM", "COMPARE_NOT_DISTINCT_FROM"})
#: What may be, or become, an OR or its opposite.
_JOINING = frozenset({"CONJUNCTION_OR", "OPERATOR_NOT", "CASE_EXPR"})


@dataclass(frozen=True, slots=True)
class Admission:
    """What DuckDB's tree of a statement says.

    Attributes
    ----------
    within : frozenset of str, optional
        Names, in small letters, that it gives to its own queries (by WITH). None if DuckDB finds
        anything but one SELECT of the tables that it was given, each of one or two parts, and of
        its own queries.
    loses_nulls : bool
        It may have ``x IS DISTINCT FROM 1 OR x = 2``, by which DuckDB leaves out rows that are
        meant; see ``above``. Which comparisons get to which scan is not known before it runs.
    """

    within: frozenset[str] | None
    loses_nulls: bool


def admission_of(
    cursor: duckdb.DuckDBPyConnection, sql: str, references: frozenset[Parts]
) -> Admission:
    """Whether a statement over ``references`` is one SELECT, and what it compares."""
    tree = _tree_of(cursor, sql)
    if tree is None:
        return Admission(None, loses_nulls=True)
    nodes = list(_nodes(tree))
    kinds = {kind for node in nodes if isinstance(kind := node.get("type"), str)}
    loses = not (kinds.isdisjoint(_OF_NULL) or kinds.isdisjoint(_JOINING))
    return Admission(_names_within(nodes, references), loses)


def _tree_of(cursor: duckdb.DuckDBPyConnection, sql: str) -> Any:
    """DuckDB's tree of one SELECT; None if it is something else."""
    try:
        row = cursor.execute(_SERIALIZED.format(quote_text(sql))).fetchone()
    except duckdb.Error:
        return None
    assert row is not None
    found: Any = json.loads(row[0])
    if found["error"] or len(found["statements"]) != 1:
        return None
    return found["statements"][0]


def _names_within(
    nodes: Sequence[dict[str, Any]], references: frozenset[Parts]
) -> frozenset[str] | None:
    given = {tuple(part.lower() for part in parts) for parts in references}
    if any(len(parts) > 2 or (len(parts) == 2 and parts[0] in _TAKEN) for parts in given):
        return None
    within = frozenset(
        one["key"].lower() for node in nodes for one in node.get("cte_map", {}).get("map", ())
    )
    named = given | {(name,) for name in within}
    return within if all(_is_harmless(node, named) for node in nodes) else None


def _nodes(tree: Any) -> Iterator[dict[str, Any]]:
    """All dictionaries of a tree."""
    todo = [tree]
    while todo:
        one = todo.pop()
        if isinstance(one, dict):
            yield one
            todo.extend(one.values())
        elif isinstance(one, list):
            todo.extend(one)


def _is_harmless(node: dict[str, Any], named: set[Parts]) -> bool:
    kind = node.get("type")
    function = node.get("function_name")
    if isinstance(function, str) and is_reaching(function):
        return False
    if "class" in node or not isinstance(kind, str) or kind.endswith("_TYPE_INFO"):
        return True
    if kind == "TABLE_FUNCTION":
        called = node["function"]
        return called.get("function_name") in PURE_TABLE_FUNCTIONS and not (
            called.get("schema") or called.get("catalog")
        )
    if kind == "BASE_TABLE":
        parts = (node.get("catalog_name"), node.get("schema_name"), node.get("table_name"))
        return "at_clause" not in node and tuple(p.lower() for p in parts if p) in named
    return kind in _KNOWN
