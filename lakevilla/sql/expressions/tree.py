"""The tree of an expression, and walks over it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Union

import msgspec

# -------------------- tree
#
# The expression tree: one language, one meaning, on every engine.
#
# Nodes are tagged msgspec structs, so a tree is stored in its own form. Operators and functions are
# ``Call`` nodes with lower-case names; ``FUNCTIONS`` (in ``functions``) defines them and their
# meanings.


class Literal(msgspec.Struct, frozen=True, tag_field="node", tag="lit", omit_defaults=True):
    """A typed constant.

    ``type`` is a Delta type name (``long``, ``decimal(10,2)``, ``timestamp``, ``timestamp_ntz``,
    ``date``, ``binary``, ``void`` ...); ``value`` is its canonical text, None for NULL.
    """

    type: str
    value: str | None = None


class Column(msgspec.Struct, frozen=True, tag_field="node", tag="col", omit_defaults=True):
    """A column, by its path of names; ``table`` is the alias in a merge.

    ``ids`` are the ids of its field, in a tree that is kept longer than the schema that its name is
    from: see ``formats.layout``.
    """

    path: tuple[str, ...]
    table: str | None = None
    ids: tuple[str, ...] = ()


class Call(msgspec.Struct, frozen=True, tag_field="node", tag="call"):
    """An operator or function."""

    name: str
    args: tuple[Expr, ...]


class Cast(msgspec.Struct, frozen=True, tag_field="node", tag="cast", omit_defaults=True):
    """A cast to a Delta type; one that fails raises.

    ``implied``: a rule of types has made it, so texts for people leave it out.
    """

    arg: Expr
    type: str
    implied: bool = False


class Case(msgspec.Struct, frozen=True, tag_field="node", tag="case", omit_defaults=True):
    """A choice: ``CASE WHEN c THEN v ... ELSE e END``.

    ``implied``: only ``otherwise`` was written, and texts for people have that alone.
    """

    branches: tuple[tuple[Expr, Expr], ...]
    otherwise: Expr | None = None
    implied: bool = False


Expr = Union[Literal, Column, Call, Cast, Case]


# -------------------- walk
#
# Walks over a tree: its columns, and other expressions in their place.


TRUE = Literal("boolean", "true")


def children(expr: Expr) -> Iterator[Expr]:
    """Yield the direct operands of a node."""
    if isinstance(expr, Call):
        yield from expr.args
    elif isinstance(expr, Cast):
        yield expr.arg
    elif isinstance(expr, Case):
        for when, then in expr.branches:
            yield when
            yield then
        if expr.otherwise is not None:
            yield expr.otherwise


def columns(expr: Expr) -> tuple[Column, ...]:
    """Return the columns of a tree, each once, in order of appearance."""
    found: dict[Column, None] = {}
    pending = [expr]
    while pending:
        node = pending.pop()
        if isinstance(node, Column):
            found[node] = None
        else:
            pending += reversed(list(children(node)))
    return tuple(found)


def substitute(expr: Expr, replace: Callable[[Column], Expr]) -> Expr:
    """Return the tree with ``replace(column)`` in the place of each column."""
    if isinstance(expr, Column):
        return replace(expr)
    if isinstance(expr, Call):
        return Call(expr.name, tuple(substitute(arg, replace) for arg in expr.args))
    if isinstance(expr, Cast):
        return Cast(substitute(expr.arg, replace), expr.type, expr.implied)
    if isinstance(expr, Case):
        return Case(
            tuple((substitute(w, replace), substitute(t, replace)) for w, t in expr.branches),
            None if expr.otherwise is None else substitute(expr.otherwise, replace),
            expr.implied,
        )
    return expr


def all_of(trees: Sequence[Expr]) -> Expr | None:
    """Return the conjunction of all trees; None if there are none."""
    if len(trees) < 2:
        return trees[0] if trees else None
    return Call("and", tuple(trees))
