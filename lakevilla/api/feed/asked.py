"""What callers of the feed pass, refused where it can mean nothing, and what it means."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from inspect import iscoroutinefunction
from typing import Protocol

from lakevilla.api.arguments import check_columns, check_number, check_patterns
from lakevilla.api.client.client import LakeClient
from lakevilla.api.feed.chosen import ALL, Chosen, is_pattern
from lakevilla.api.history import milliseconds
from lakevilla.errors import InvalidOperation, TableNotFound, VersionNotFound
from lakevilla.global_log.head import Head
from lakevilla.global_log.history import Timeline
from lakevilla.global_log.refs import MAIN
from lakevilla.global_log.repo import load_names, load_tables
from lakevilla.settings import MOST_SECONDS, shown
from lakevilla.store.effects import Program


class StopSignal(Protocol):
    """What a ``threading.Event`` answers."""

    def is_set(self) -> bool: ...

    def wait(self, timeout: float | None = None) -> object: ...


@dataclass(frozen=True, slots=True)
class AskedColumns:
    """The columns asked for: of all tables alike, or of some by location."""

    of_all: Sequence[str] | None = None
    of_some: Mapping[str, Sequence[str]] = field(default_factory=dict)

    def of(self, location: str) -> Sequence[str] | None:
        return self.of_some.get(location, self.of_all)


def moving(client: LakeClient, verb: str) -> LakeClient:
    """The client, if it is the lake's or a branch's. Raises ``InvalidOperation``."""
    if client.at is None:
        return client.current()
    base = client.at.base
    whose = "the branch that it is of has" if base.origin else f'lake.on("{MAIN}") has'
    raise InvalidOperation(
        f"{verb}: {base.kind} {client.at.name!r} is one state of the lake and has no later "
        f"versions: {whose} those that came after it, by {verb}({base.sequence})"
    )


def number_of(
    client: LakeClient, head: Head | None, verb: str, argument: str, value: object
) -> int:
    """A global version, or the newest that is not later than an aware time.

    Raises
    ------
    InvalidOperation
        It is neither, or a time to come; the name or the rows of a table are meant for another
        verb.
    VersionNotFound
        The lake has no such version.
    """
    if isinstance(value, datetime):
        stamp = milliseconds(value)
        if stamp > client.context.now_ms():
            raise InvalidOperation(
                f"{verb}: {argument} is {value.isoformat()}, which is to come: give a time of the "
                "past, or a global version"
            )
        return 0 if head is None else client.run(_by(Timeline.of(head), stamp))
    _refuse_table(verb, argument, value)
    number = check_number(argument, value)
    newest = 0 if head is None else head.sequence
    if number > newest:
        raise VersionNotFound(
            f"{verb}: {argument} is global version {number}, and the lake's newest is {newest}: "
            "ask for an older one (if it was seen here before, this is another lake, or an older "
            "copy of it)"
        )
    return number


def _by(timeline: Timeline, stamp_ms: int) -> Program[int]:
    """The newest version that is not later, as ``snapshot`` has it: never one within a pair."""
    return (yield from timeline.settled((yield from timeline.by(stamp_ms))))


def _refuse_table(verb: str, argument: str, value: object) -> None:
    """Refuse a table's name, or rows, where a version is wanted."""
    is_name = isinstance(value, str)
    is_rows = isinstance(value, list | tuple | Mapping) or hasattr(value, "__arrow_c_stream__")
    if not (is_name or is_rows):
        return
    table = value if is_name else getattr(value, "name", "NAME")
    raise InvalidOperation(
        f"{verb}: {argument} is a global version, not {'a table' if is_name else 'rows'}: the feed "
        f"tells of all tables by version, and lake.{verb}(0, tables=[{table!r}]) of one; the "
        f"changes of one table are txn.changes({table!r}, since)"
    )


def chosen_of(client: LakeClient, head: Head | None, tables: object) -> Chosen:
    """The tables asked for: names are looked up now, patterns whenever a table is met.

    Raises
    ------
    TableNotFound
        There is no table of a name.
    InvalidOperation
        They are no names.
    """
    if isinstance(tables, str):
        raise InvalidOperation(f"tables is a list of names, not a string: tables=[{tables!r}]")
    given = check_patterns("tables", tables)
    if given is None:
        return ALL
    patterns = tuple(text for text in given if is_pattern(text))
    locations = [_location(client, head, text) for text in given if not is_pattern(text)]
    return Chosen(frozenset(locations), patterns)


def columns_of(client: LakeClient, head: Head | None, columns: object) -> AskedColumns:
    """The columns asked for. Raises as ``chosen_of``."""
    if not isinstance(columns, Mapping):
        return AskedColumns(check_columns(columns))
    by_location = {}
    for name, some in columns.items():
        names = check_columns(some)
        if names is not None:
            by_location[_location(client, head, name)] = names
    return AskedColumns(None, by_location)


def _location(client: LakeClient, head: Head | None, name: str) -> str:
    """The location of a table that the lake has, or had."""
    location = client.resolve(client.names(head, name), name, head)
    client.run(load_tables(head, [location]))
    if head is None or location not in head.tables:
        client.run(load_names(head))
        raise TableNotFound(
            f"tables: the lake has no table {name!r}; `tables()` lists those that it has, and a "
            "pattern such as 'sales/*' also stands for tables to come",
            table=name,
        )
    return location


def check_seconds(name: str, value: object) -> float:
    """A time to wait, which is more than none.

    Raises
    ------
    InvalidOperation
    """
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    if not is_number or not 0 < value <= MOST_SECONDS:  # type: ignore[operator]
        raise InvalidOperation(
            f"{name} must be a number of seconds, more than 0 and at most {MOST_SECONDS:.12g}, not "
            f"{shown(value)}"
        )
    return float(value)  # type: ignore[arg-type]


def check_stop(stop: object) -> None:
    """Refuse what can't be asked whether it is set, or waited for."""
    verbs = [getattr(stop, name, None) for name in ("is_set", "wait")]
    if stop is not None and not all(callable(v) and not iscoroutinefunction(v) for v in verbs):
        raise InvalidOperation(f"stop must be a threading.Event, not {shown(stop)}")
