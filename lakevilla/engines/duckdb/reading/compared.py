"""Files that are compared with their hashes before they are read.

What is compared are whole files. Those of a store are copied to this machine first, in the
engine's private directory, so that the rows come from the very bytes that were compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from lakevilla.engines.base import DataAccess, TableInput
from lakevilla.engines.duckdb.database import Database
from lakevilla.engines.duckdb.file_system import literally
from lakevilla.engines.duckdb.reading.relation import Files
from lakevilla.formats.files import file_key, hashes
from lakevilla.store.content import ROUND_BYTES, HashedFile


def in_turn(
    data: DataAccess, database: Database, table: TableInput, files: Files
) -> Iterator[Files]:
    """Some of the files at a time, compared while they are the current ones: a scan keeps no more.

    A file without a hash is read as always.
    """
    for group in _groups(files):
        with compared(data, database, table, files.only(group)) as some:
            yield some


@contextmanager
def compared(
    data: DataAccess,
    database: Database,
    table: TableInput,
    files: Files,
    named: Callable[[str, int, str], str] | None = None,
) -> Iterator[Files]:
    """A block in which the chosen files are there, each compared with its hash if it has one.

    ``named`` gives the name of a copy, by its key, size and path, where names are given.
    """
    layout = table.layout
    keys, found = table.files["path"].to_pylist(), hashes(table.files)
    chosen = [
        (
            place,
            HashedFile(
                file_key(layout.location, keys[place]), files.sizes[place], content, layout.table
            ),
        )
        for place in files.chosen
        if (content := found[place]) is not None
    ]
    paths = list(files.paths)
    with data.compared([file for _, file in chosen], database.directory) as local:
        for (place, file), path in zip(chosen, local, strict=True):
            if data.local_path(file.key) is None:
                paths[place] = (
                    literally(path) if named is None else named(file.key, file.size, path)
                )
        yield replace(files, paths=tuple(paths), called={}, helpers=set())


def _groups(files: Files) -> Iterator[list[int]]:
    """Consecutive files of about one round; a larger one alone."""
    group: list[int] = []
    size = 0
    for place in files.chosen:
        if group and size + files.sizes[place] > ROUND_BYTES:
            yield group
            group, size = [], 0
        group.append(place)
        size += files.sizes[place]
    if group:
        yield group
