"""What callers give to the verbs that apply one state to another."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import cast, get_args

from lakevilla.api.arguments import check_choice, check_columns_by, check_number
from lakevilla.api.client.client import LakeClient
from lakevilla.api.history import milliseconds
from lakevilla.errors import InvalidOperation
from lakevilla.global_log.refs import MAIN, parsed
from lakevilla.lake.frozen.states import StateName
from lakevilla.settings import shown
from lakevilla.sublogs.operations import OnConflict, OnEqual
from lakevilla.transaction.verbs.applying.asked import Settle

#: A state of the lake as its caller names it.
StateLike = int | datetime | str


def state_name(client: LakeClient, argument: str, state: object) -> StateName:
    """A state by what a caller gives: a global version, an aware time, or a ref.

    Raises ``InvalidOperation``.
    """
    match state:
        case datetime():
            stamp = milliseconds(state)
            if stamp > client.context.now_ms():
                raise InvalidOperation(
                    f"{argument} is {state.isoformat()}, which is in the future: give a time at "
                    "which the lake was"
                )
            return "time", stamp
        case str():
            return None if state == MAIN else ("ref", state)
        case bool():
            pass
        case int():
            return "version", check_number(argument, state)
    raise InvalidOperation(
        f"{argument} is a global version, an aware datetime or the name of a ref, not "
        f"{shown(state)}"
    )


def check_commit(state: object) -> tuple[StateName, StateName]:
    """The states before and after a commit: of the lake, or of a branch (``etl@57``).

    Raises ``InvalidOperation``.
    """
    name, version = parsed(state) if isinstance(state, str) else ("", None)
    if not name or version is None:
        number = check_version(state)
        return ("version", number - 1), ("version", number)
    return ("ref", f"{name}@{version - 1}"), ("ref", f"{name}@{version}")


def check_version(state: object) -> int:
    """A commit of the lake, by the global version that it made. Raises ``InvalidOperation``."""
    version = check_number("version", state)
    if version < 1:
        raise InvalidOperation(
            "version is that of a commit in lake.history(), from 1 on: before it there was nothing"
        )
    return version


def settled(on_conflict: object, on_equal: object) -> Settle:
    """What counts where both sides have changed the same. Raises ``InvalidOperation``."""
    check_choice("on_conflict", on_conflict, *get_args(OnConflict))
    check_choice("on_equal", on_equal, *get_args(OnEqual))
    return Settle(cast("OnConflict", on_conflict), cast("OnEqual", on_equal))


def keys_by_location(resolve: Callable[[str], str], keys: object) -> dict[str, tuple[str, ...]]:
    """The key columns of each table, by its location. Raises ``InvalidOperation``."""
    if keys is None:
        return {}
    if not isinstance(keys, Mapping):
        raise InvalidOperation(
            f"keys is a mapping of tables to the columns that tell their rows apart, such as "
            f"{{'stock': ['sku']}}, not {shown(keys)}"
        )
    found = {}
    for table, columns in keys.items():
        if not isinstance(table, str):
            raise InvalidOperation(f"keys: {shown(table)} is no name of a table")
        names = check_columns_by(f"keys of {table}", columns)
        if not names or len(set(names)) < len(names):
            raise InvalidOperation(f"keys of {table}: name at least one column, and each once")
        found[resolve(table)] = tuple(names)
    return found
