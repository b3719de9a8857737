"""The expression tree: one language, one meaning, on every engine.

Nodes are tagged msgspec structs, so a tree is its own on-store form. Operators
and functions are ``Call`` nodes with lower-case names; ``FUNCTIONS`` (in
``functions``) says which there are and what they mean.
"""

from __future__ import annotations

from typing import Union

import msgspec


class Literal(msgspec.Struct, frozen=True, tag_field="node", tag="lit", omit_defaults=True):
    """A typed constant. ``type`` is a Delta type name (``long``, ``decimal(10,2)``,
    ``timestamp``, ``timestamp_ntz``, ``date``, ``binary``, ``void`` ...); ``value`` its
    canonical text, None for NULL.
    """

    type: str
    value: str | None = None


class Column(msgspec.Struct, frozen=True, tag_field="node", tag="col", omit_defaults=True):
    """A column, by its path of names; ``table`` is the alias in a merge.

    ``ids`` are those of its field, in a tree that outlives the schema whose name it
    is: see ``fields.py``.
    """

    path: tuple[str, ...]
    table: str | None = None
    ids: tuple[str, ...] = ()


class Call(msgspec.Struct, frozen=True, tag_field="node", tag="call"):
    """An operator or function."""

    name: str
    args: tuple[Expr, ...]


class Cast(msgspec.Struct, frozen=True, tag_field="node", tag="cast"):
    """A cast to a Delta type; one that fails raises."""

    arg: Expr
    type: str


class Case(msgspec.Struct, frozen=True, tag_field="node", tag="case", omit_defaults=True):
    """``CASE WHEN c THEN v ... ELSE e END``."""

    branches: tuple[tuple[Expr, Expr], ...]
    otherwise: Expr | None = None


Expr = Union[Literal, Column, Call, Cast, Case]
