"""The states of a lake that a gateway shows: its newest, a tag's, a branch's, one of its versions.

A state of a table that a metadata file of its log has is shown by that file. Where decided commits
lie above the log, as on a branch, the gateway makes the file that publishing them would make, under
a name of its own: a function of the state alone. So gateways that make it at once make the same.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from lakevilla.api.catalog.pages import ListedTable, TablePage
from lakevilla.api.catalog.tables import all_names, names_in
from lakevilla.api.execution.executor import Executor
from lakevilla.api.lake import Lake
from lakevilla.api.run import begin_transaction
from lakevilla.api.table import Table, table_of
from lakevilla.errors import TableNotFound
from lakevilla.formats.iceberg.metadata.file import Metadata
from lakevilla.formats.iceberg.snapshot import IcebergSnapshot
from lakevilla.global_log.refs import MAIN
from lakevilla.global_log.repo import load_tables
from lakevilla.lake.context import Context
from lakevilla.lake.state_files import state_file
from lakevilla.lake.tables.dotted_names import is_in_lake
from lakevilla.lake.view import View
from lakevilla.serve.refusal import Refusal
from lakevilla.store.effects import Program
from lakevilla.store.location import is_external

#: Words of the protocol's own paths, which are no states.
_TAKEN = frozenset({"config", "namespaces", "tables", "transactions", "views"})
_WORD = re.compile(r"(?!r-|v\d)[A-Za-z0-9][A-Za-z0-9_.-]*")
_VERSION = re.compile(r"v(\d{1,18})")


class State:
    """The lake in one of its states; read only, except for the lake itself and branches.

    Parameters
    ----------
    lake : Lake
        The lake, a tag or a branch.
    version : int, optional
        A global version of the lake.
    """

    def __init__(self, lake: Lake, version: int | None = None) -> None:
        self.lake, self._version = lake, version

    @property
    def is_branch(self) -> bool:
        """Return whether it is the newest state of a branch, where clients may commit."""
        return self.lake._client.branch is not None and self._version is None

    def tables(
        self, prefix: str | None = None, *, after: str | None = None, limit: int | None = None
    ) -> TablePage[ListedTable]:
        """Return the tables in the order of their names, all of them or a page."""
        with self._reading() as reading:
            return names_in(reading, prefix, after, limit)

    def all_tables(self, again: str | None) -> tuple[Sequence[ListedTable], str]:
        """Return all tables, and the token by which they are listed in the same state again."""
        with self._reading() as reading:
            return all_names(reading, again)

    def view(self, name: str) -> View:
        """Return a table's state.

        Raises
        ------
        TableNotFound, InvalidOperation
            There is none, or the name is no name of a table.
        """
        with self._reading() as reading:
            return reading.look(name)

    def table(self, name: str) -> Table:
        """Return a table's description. Of places outside of the root only tables are opened.

        Raises
        ------
        TableNotFound, InvalidOperation
            The lake has none in this state, or the name is no name of a table.
        """
        with self._reading() as reading:
            head, location = reading.state_of_lake(), reading.resolve(name)
            if head is not None and is_external(location):
                reading.run(load_tables(head, [location]))
            if is_external(location) and not is_in_lake(head, location):
                raise TableNotFound(f"table {name}: the lake has none of that name", table=name)
            return table_of(reading, name, reading.look(name))

    @contextmanager
    def _reading(self) -> Iterator[Executor]:
        with begin_transaction(self.lake._client, Executor, read_only=True) as reading:
            if self._version is not None:
                reading.bind_to(self._version, None)
            yield reading


def state_named(prefix: str | None) -> str:
    """Return the ref to which the state belongs that a word of a path names, as rights have it.

    Versions of the lake are the past of ``main``, and versions of a branch are the branch's.

    Raises
    ------
    Refusal
        The word names no state.
    """
    if prefix is None or _VERSION.fullmatch(prefix):
        return MAIN
    return _spelled(prefix).partition("@")[0]


def state_of(lake: Lake, prefix: str) -> State:
    """Return the state that a word of a path names.

    Raises
    ------
    RefNotFound, VersionNotFound, InvalidOperation
        The lake has no such state.
    Refusal
        The word names no state.
    """
    if version := _VERSION.fullmatch(prefix):
        return State(lake, int(version[1]))
    return State(lake.on(_spelled(prefix)))


def _spelled(prefix: str) -> str:
    """Return the name of a ref that a word of a path stands for."""
    if not prefix.startswith("r-"):
        return prefix
    try:
        return bytes.fromhex(prefix[2:]).decode()
    except ValueError:
        raise Refusal(404, "NoSuchWarehouseException", f"{prefix!r} names no state") from None


def names_version(name: str) -> bool:
    """Return whether a name is one by which a warehouse names a version: v57, or now."""
    return name == "now" or _VERSION.fullmatch(name) is not None


def prefix_of_state(lake: Lake, name: str) -> str:
    """Return the word by which paths name a state: a ref, a version, or ``now``.

    ``now`` is the newest version when it is asked for, and names that for good.
    """
    if name == "now":
        newest = lake.history(1)
        return f"v{newest[0].version if newest else 0}"
    is_version = _VERSION.fullmatch(name) and all(name != ref.name for ref in lake.refs())
    if is_version or (_WORD.fullmatch(name) and name not in _TAKEN):
        return name
    return f"r-{name.encode().hex()}"


def shown(context: Context, view: View) -> Program[tuple[Metadata, str] | None]:
    """Return the metadata of an Iceberg table's state and the URI of its file; None of others.

    Raises
    ------
    StoreError
        The file could not be stored.
    """
    if not isinstance(view.snapshot, IcebergSnapshot) or view.snapshot.catalog:
        return None
    found = yield from state_file(context, view)
    place = view.snapshot.definition.place
    return found, place.spelled(found.key.removeprefix(f"{view.location}/"))
