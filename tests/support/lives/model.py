"""What a lake and its refs show: tables as rows by id, as pure values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

#: The rows of a table: a value by id.
Rows = Mapping[int, int]
#: The tables of one state, by name.
Tables = Mapping[str, Rows]


@dataclass(frozen=True)
class Branch:
    """A branch: its state when it was made or last merged or rebased, and its state now.

    ``keys``: the idempotency keys that count as committed there; ``own``: those of them that the
    lake does not know.
    """

    base: Tables
    now: Tables
    keys: frozenset[str] = frozenset()
    own: frozenset[str] = frozenset()


@dataclass
class Model:
    """What each client must see."""

    main: Tables = field(default_factory=dict)
    keys: frozenset[str] = frozenset()
    branches: dict[str, Branch] = field(default_factory=dict)
    tags: dict[str, Tables] = field(default_factory=dict)
    #: Tables that a clone shows, by name, and whether they were written to.
    clones: dict[str, bool] = field(default_factory=dict)
    #: The states of the lake's versions, as far as clients have noted them.
    past: dict[int, Tables] = field(default_factory=dict)
    #: The states of versions of branches, by the time when the branch was made.
    past_of: dict[str, dict[int, Tables]] = field(default_factory=dict)

    def at(self, place: str) -> Tables:
        """Return the tables of a branch, or of the lake (``""``)."""
        return self.branches[place].now if place else self.main

    def keys_at(self, place: str) -> frozenset[str]:
        return self.branches[place].keys if place else self.keys

    def put(self, place: str, tables: Tables) -> None:
        if place:
            self.branches[place] = replace(self.branches[place], now=tables)
        else:
            self.main = tables

    def note_key(self, place: str, key: str) -> None:
        if not place:
            self.keys |= {key}
            return
        branch = self.branches[place]
        self.branches[place] = replace(branch, keys=branch.keys | {key}, own=branch.own | {key})


def changed(tables: Tables, name: str, rows: Rows) -> Tables:
    return {**tables, name: rows}


def without(tables: Tables, name: str) -> Tables:
    return {one: rows for one, rows in tables.items() if one != name}


def carried(base: Tables, now: Tables, onto: Tables) -> Tables:
    """Return ``onto`` after the changes from ``base`` to ``now``, row by row."""
    found = dict(onto)
    for name, rows in now.items():
        before = base.get(name, {})
        if rows == before or name not in onto:
            continue
        gone = before.keys() - rows.keys()
        set_anew = {one: v for one, v in rows.items() if before.get(one) != v}
        kept = {one: v for one, v in onto[name].items() if one not in gone}
        found[name] = {**kept, **set_anew}
    return found
