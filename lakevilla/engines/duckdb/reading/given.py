"""The files of tables for SQL of users, under names that only a statement over them knows."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable
from itertools import count

import pyarrow as pa

from lakevilla.engines.base import DataAccess, TableInput
from lakevilla.engines.duckdb.file_system import GivenFiles
from lakevilla.engines.duckdb.reading.relation import Files, read_files
from lakevilla.forked import lock
from lakevilla.formats.layout import Layout
from lakevilla.ids import Ids
from lakevilla.store.effects import Program

#: Of all tables together: of each some hundred bytes are held.
_MOST_FILES = 100_000
#: So much of what is deleted of a table's files counts as one file more.
_BYTES_OF_A_FILE = 256


class GivenTables:
    """``Files`` of tables as they were last asked for: the same object while a table is the same.

    With what is deleted of them: vectors and delete files never change, and a table of other
    ones is not the same. Threads need no lock for them: what one has put in the place of
    another's is as good.

    Names of files are held for longer: queries with other conditions leave other files of a
    table, and what was read of a file is found by its name alone.
    """

    def __init__(self, data: DataAccess, ids: Ids) -> None:
        self._data = data
        self.names = GivenFiles(data, ids.nonce)
        self._known: dict[str, tuple[Layout, pa.Table, Files]] = {}
        self._numbers = count()
        self._lock = lock()
        #: Those used last are the last.
        self._held: OrderedDict[str, None] = OrderedDict()

    def files(self, table: TableInput) -> Program[Files]:
        """The files of ``table``."""
        location = table.layout.location
        known = self._known.get(location)
        if known is not None and known[0] is table.layout and _same(known[1], table.files):
            return known[2]
        files = yield from self.apart(table)
        self._known.pop(location, None)
        self._known[location] = (table.layout, table.files, files)
        self._drop_oldest()
        self._hold(files.paths)
        return files

    def apart(self, table: TableInput) -> Program[Files]:
        """The files of ``table``, not held for whoever asks next."""
        name = f"table{next(self._numbers)}"
        return (yield from read_files(self._data, table, name, self.names))

    def _hold(self, names: Iterable[str]) -> None:
        with self._lock:
            for name in names:
                self._held[name] = None
                self._held.move_to_end(name)
            while len(self._held) > _MOST_FILES:
                self._held.popitem(last=False)

    def _drop_oldest(self) -> None:
        known = list(self._known.items())
        held = sum(_weight(files) for _, (_, _, files) in known)
        for location, (_, _, files) in known:
            if held <= _MOST_FILES:
                return
            self._known.pop(location, None)
            held -= _weight(files)

    def forget(self) -> None:
        """Hold no table's files any more."""
        self._known.clear()
        with self._lock:
            self._held.clear()


def _weight(files: Files) -> int:
    """As so many files it counts."""
    return len(files.paths) + files.deleted.nbytes // _BYTES_OF_A_FILE


def _same(one: pa.Table, other: pa.Table) -> bool:
    # A log with a checkpoint makes the table of its files anew for each who asks.
    return one is other or bool(one.equals(other))
