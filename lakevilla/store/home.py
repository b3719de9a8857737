"""Homes: what a branch has of its own lies under the lake's own names, at another place.

A branch is a lake in a subdirectory (docs/design/0031-branches.md). Programs know one set of names,
``_lakevilla/HEAD.json`` and so on; ``at_home`` runs one where these lie in the branch's directory.
Bases, leaves and commit objects are known beyond the branch, so whoever names them says where they
lie, and they are left as they are.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Generator
from functools import partial
from typing import Any, TypeVar

from lakevilla.errors import LakeVillaError
from lakevilla.store.base import ObjectInfo
from lakevilla.store.effects import (
    Await,
    Effect,
    List,
    ListNames,
    Parallel,
    Program,
    Sleep,
    exchanged,
)

T = TypeVar("T")

HOMES_PREFIX = "_lakevilla/branches"

#: What is a branch's own. Sources of merges are read by engines, which know no homes.
_OWN = re.compile(r"_lakevilla/(?:HEAD\.json|(?:heads|pages|txns|keys)(?!/[^/]+/source-)(?:/.*)?)")


def home_of(life: str) -> str:
    """The directory of a life; the lake's own for ``""``."""
    return f"{HOMES_PREFIX}/{life}" if life else "_lakevilla"


def key_at(life: str, key: str) -> str:
    """Where the object that programs call ``key`` lies for a life."""
    if not life or _OWN.fullmatch(key) is None:
        return key
    return f"{home_of(life)}/{key.removeprefix('_lakevilla/')}"


def at_home(life: str, program: Program[T]) -> Program[T]:
    """A program as it runs at another home; as it is for ``""``."""
    return program if not life else _at_home(life, program)


def _at_home(life: str, program: Program[T]) -> Program[T]:
    def named(effect: Effect, answer: Any) -> Any:
        return [_named(life, info) for info in answer] if isinstance(effect, List) else answer

    try:
        return (yield from exchanged(program, partial(_moved, life), named))
    except LakeVillaError as failed:
        _name_its_place(life, failed)
        raise


def _moved(life: str, effect: Effect) -> Effect:
    match effect:
        case Sleep() | Await():
            return effect
        case Parallel(parts):
            return Parallel(
                tuple(
                    _at_home(life, part if isinstance(part, Generator) else _one(part))
                    for part in parts
                )
            )
        case List(prefix, start_after):
            after = None if start_after is None else key_at(life, start_after)
            return List(key_at(life, prefix), after)
        case ListNames(prefix):
            return ListNames(key_at(life, prefix))
    return dataclasses.replace(effect, key=key_at(life, effect.key))


def _name_its_place(life: str, error: LakeVillaError) -> None:
    """Let an error that is of an object of the branch's say where that lies."""
    key = getattr(error, "key", None)
    if isinstance(key, str) and key_at(life, key) != key:
        error.message = error.message.replace(key, key_at(life, key))
        error.args = (error.message,)
        error.key = key_at(life, key)  # type: ignore[attr-defined]


def _one(effect: Effect) -> Program[Any]:
    return (yield effect)


def _named(life: str, info: ObjectInfo) -> ObjectInfo:
    """An object by the name that programs know it by."""
    home = home_of(life)
    if not info.key.startswith(f"{home}/"):
        return info
    return dataclasses.replace(info, key=f"_lakevilla/{info.key.removeprefix(home + '/')}")
