"""Walking a tree: its columns, and other columns in their place."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from lakevilla.sql.expressions.tree import Call, Case, Cast, Column, Expr, Literal

TRUE = Literal("boolean", "true")


def children(expr: Expr) -> Iterator[Expr]:
    """The direct operands of a node."""
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
    """The columns of a tree, each once, in order of appearance."""
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
    """The tree with ``replace(column)`` in the place of each column."""
    if isinstance(expr, Column):
        return replace(expr)
    if isinstance(expr, Call):
        return Call(expr.name, tuple(substitute(arg, replace) for arg in expr.args))
    if isinstance(expr, Cast):
        return Cast(substitute(expr.arg, replace), expr.type)
    if isinstance(expr, Case):
        return Case(
            tuple((substitute(w, replace), substitute(t, replace)) for w, t in expr.branches),
            None if expr.otherwise is None else substitute(expr.otherwise, replace),
        )
    return expr


def all_of(trees: Sequence[Expr]) -> Expr | None:
    """All of them at once; None if there are none."""
    if len(trees) < 2:
        return trees[0] if trees else None
    return Call("and", tuple(trees))
