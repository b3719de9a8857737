"""Expressions that Spark's SELECT reads in its session's time zone, and the language in UTC.

Nothing else of Spark's SQL is compared with its meaning here. But because of these, a DELETE would
delete other rows than the SELECT of the same condition shows: the times differ by hours.
"""

from __future__ import annotations

from collections.abc import Iterable

from lakevilla.errors import InvalidOperation
from lakevilla.sql.expressions.bind import Schemas, TypedNode, typed_nodes
from lakevilla.sql.expressions.render import shown_sql
from lakevilla.sql.expressions.tree import Call, Case, Cast, Expr, Literal
from lakevilla.sql.expressions.values import parse_timestamp

__all__ = ["refuse_other_zone"]

#: Calls that only compare timestamps with each other, or return one of them.
_PASSING = frozenset(
    {"=", "<>", "<", "<=", ">", ">=", "<=>", "in", "is_null"}
    | {"coalesce", "nullif", "greatest", "least"}
)
#: Units with the same length in each zone; a day has 23 hours where clocks go forward.
_EXACT_UNITS = frozenset({"hour", "minute", "second", "microsecond"})
#: Types that become a timestamp in some zone.
_ZONELESS = frozenset({"string", "date", "timestamp_ntz"})


def refuse_other_zone(
    zone: str,
    trees: Iterable[Expr],
    written: Iterable[Expr],
    schemas: Schemas,
    alias: str | None = None,
) -> None:
    """Raise if one of the expressions means another timestamp, or another date, in ``zone``.

    Parameters
    ----------
    zone : str
        The session's, which is not UTC.
    trees, written, schemas, alias
        As in ``Meaning.check``.

    Raises
    ------
    InvalidOperation
    """
    for tree in trees:
        for typed in typed_nodes(tree, schemas, alias=alias):
            what = _of_zone(typed)
            if what is not None:
                raise InvalidOperation(
                    f"{what} is in the session's time zone {zone} in a SELECT of Spark, and in UTC "
                    "where rows are changed: write the zone into a constant (TIMESTAMP "
                    "'2024-02-29 12:00:00+01:00'), pass a datetime with a zone as a parameter, or "
                    "set spark.sql.session.timeZone to UTC"
                )


def _of_zone(typed: TypedNode) -> str | None:
    """Return the part of a node that depends on the zone, for a message; None if nothing does."""
    node, types = typed.node, typed.types
    if isinstance(node, Cast):
        pair = {types[0], node.type}
        depends = "timestamp" in pair and not pair.isdisjoint(_ZONELESS)
        return (
            f"a cast of {types[0]} to {node.type}" if depends and not _has_zone(node.arg) else None
        )
    if "timestamp" not in types:
        return None
    name = "case" if isinstance(node, Case) else node.name
    if name == "add_interval":
        unit = node.args[-1] if isinstance(node, Call) else None
        exact = isinstance(unit, Literal) and unit.value in _EXACT_UNITS
        return None if exact else "an interval of days with a timestamp"
    if isinstance(node, Case):
        values = [then for _, then in node.branches]
        operands = values if node.otherwise is None else [*values, node.otherwise]
    elif name in _PASSING:
        operands = list(node.args)
    else:
        return f"{name}() of a timestamp"
    if "timestamp_ntz" in types:
        return None  # a constant without a zone is like the column
    for one, type_ in zip(operands, types, strict=True):
        if type_ in ("timestamp", *_ZONELESS) and not _is_instant(one, type_):
            return f"{shown_sql(one)} with a timestamp"
    return None


def _is_instant(one: Expr, type_: str) -> bool:
    return _has_zone(one) if isinstance(one, Literal) else type_ == "timestamp"


def _has_zone(one: Expr) -> bool:
    """Return whether it is a constant that is the same timestamp in every zone, or NULL."""
    if not isinstance(one, Literal):
        return False
    if one.value is None:
        return True
    if one.type == "timestamp":
        return one.value.endswith("Z")
    try:
        return one.type == "string" and parse_timestamp(one.value).tzinfo is not None
    except (ValueError, InvalidOperation):
        return False
