"""Tables as clients without LakeVilla see them, in either format."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar, cast

from lakevilla.store.effects import List, Parallel, Program, Sleep
from lakevilla_testing.tables import delta_reader, iceberg_reader
from lakevilla_testing.tables.bare import BareTable, UnreadableTable
from lakevilla_testing.tables.delta_reader import LoggedTable
from lakevilla_testing.tables.iceberg_reader import IcebergTable
from lakevilla_testing.world.programs import as_program
from lakevilla_testing.world.rows import Row
from lakevilla_testing.world.store import SimulatedStore

T = TypeVar("T")


def read_table(location: str, version: int | None = None) -> Program[BareTable | None]:
    """Return the table at a version, or the newest; None if it is absent. Raises ``Unreadable``."""
    logged = yield from delta_reader.read_log(location, version)
    if logged is not None:
        return logged
    return (yield from iceberg_reader.read_metadata(location, version))


def read_rows(table: BareTable) -> Program[list[Row]]:
    """Return the rows of the live files, in no particular order."""
    if isinstance(table, IcebergTable):
        return (yield from iceberg_reader.read_rows(table))
    assert isinstance(table, LoggedTable), table
    return (yield from delta_reader.read_rows(table))


def named_objects(table: BareTable) -> Program[set[str]]:
    """Return the paths, relative to the table, that any existing version names."""
    if isinstance(table, IcebergTable):
        return (yield from iceberg_reader.named_objects(table))
    assert isinstance(table, LoggedTable), table
    return table.named


def table_rows(store: SimulatedStore, location: str, version: int | None = None) -> list[Row]:
    """Return all rows of a table, read at once from the store."""
    table = run_now(store, read_table(location, version))
    if table is None:
        raise UnreadableTable(f"{location}: there is no table")
    return run_now(store, read_rows(table))


def run_now(
    store: SimulatedStore, program: Program[T], pass_by: Callable[[float], None] | None = None
) -> T:
    """Run a program against the present store, without faults or other clients.

    ``pass_by`` advances the clock when the program sleeps.
    """
    answer: Any = None
    failure: Exception | None = None
    while True:
        try:
            effect = program.send(answer) if failure is None else program.throw(failure)
        except StopIteration as stop:
            return cast(T, stop.value)
        answer, failure = None, None
        if isinstance(effect, Parallel):
            answer = []
            for part in effect.parts:
                try:
                    answer.append(run_now(store, as_program(part), pass_by))
                except Exception as error:
                    failure = failure or error
        elif isinstance(effect, List):
            listed = store.list(effect.prefix, effect.start_after, effect.until)
            answer = sorted(listed, key=lambda info: info.key)
        elif isinstance(effect, Sleep):
            if pass_by is not None:
                pass_by(effect.seconds)
        else:
            answer = store.apply(effect)
