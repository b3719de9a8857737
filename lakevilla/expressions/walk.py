"""Walking a tree: its columns, its conjuncts, and other columns in their place."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from lakevilla.expressions.tree import Call, Case, Cast, Column, Expr, Literal

__all__ = ["TRUE", "children", "columns", "conjunction", "conjuncts", "substitute"]

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


def conjuncts(expr: Expr) -> tuple[Expr, ...]:
    """The terms that must all be true for ``expr`` to be true."""
    if isinstance(expr, Call) and expr.name == "and":
        return tuple(term for arg in expr.args for term in conjuncts(arg))
    return () if expr == TRUE else (expr,)


def conjunction(terms: Iterable[Expr]) -> Expr:
    """True where all the terms are; ``true`` for none."""
    flat = tuple(part for term in terms for part in conjuncts(term))
    if len(flat) < 2:
        return flat[0] if flat else TRUE
    return Call("and", flat)


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
