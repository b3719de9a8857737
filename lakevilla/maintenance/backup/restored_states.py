"""The states of a backup, as tables at the root of the restored lake."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
import pyarrow as pa
from blake3 import blake3

from lakevilla.errors import CorruptObject, StoreError
from lakevilla.formats.base import TableSnapshot
from lakevilla.formats.files import DataFile, data_files, files_from_structs, is_elsewhere
from lakevilla.global_log.head import TableState
from lakevilla.global_log.refs import KeptTable
from lakevilla.lake.context import Context
from lakevilla.lake.frozen.frozen import name_in_vectors, uri_at
from lakevilla.lake.kept_state import (
    Definition,
    definition_and_files,
    kept_object,
    made_of,
    store_kept,
)
from lakevilla.maintenance.backup.files import Moved, Needed, need, needed_by
from lakevilla.maintenance.backup.manifest import Manifest, StateRef
from lakevilla.store.base import Found
from lakevilla.store.effects import Program, get, some_at_once


@dataclass
class RestoredStates:
    """The states that a manifest names, read once, and as tables at the root of ``context``.

    ``needed`` are the objects of all states, by their keys in the backup; ``copies`` has the keys
    that they get below the root, once ``place`` was called. ``ids`` has the new ids of the lake's
    tables, by location, where they are not those of the backup: of tables that are made anew, or
    take the place of another one. ``anew`` are the tables without a log at the root, ``remade``
    these and those that an earlier call has made, ``joined`` all that HEAD had lacked.
    ``unchanged`` are those that name files of other tables, as a clone keeps them, and still have
    their state.
    """

    context: Context
    source: str
    manifest: Manifest
    parts: dict[tuple[str, str], tuple[Definition, list[DataFile]]] = field(default_factory=dict)
    ids: dict[str, str] = field(default_factory=dict)
    anew: set[str] = field(default_factory=set)
    remade: set[str] = field(default_factory=set)
    joined: set[str] = field(default_factory=set)
    unchanged: set[str] = field(default_factory=set)
    needed: dict[str, Needed] = field(default_factory=dict)
    copies: dict[str, Needed] = field(default_factory=dict)

    def load(self) -> Program[None]:
        """Read all states. Raises ``CorruptObject``."""
        wanted = self.manifest.states()
        yield from some_at_once(
            self._load(location, state) for (location, _), state in sorted(wanted.items(), key=_key)
        )

    def place(self) -> None:
        """Settle where the objects are to be stored; ``ids`` and ``unchanged`` are known."""
        for location, state in self.tables().items():
            self._moved(location, state)
        for saved in self.manifest.refs:
            for tables in (saved.tables, saved.since):
                for location, state in tables.items():
                    self._moved(location, state)

    def tables(self) -> dict[str, StateRef]:
        """Return the states of the lake's tables that are to be restored."""
        found = self.manifest.tables.items()
        return {location: state for location, state in found if location not in self.unchanged}

    def names_others(self, location: str, state: StateRef) -> bool:
        """Return whether a state names files in the directories of other tables."""
        return any(is_elsewhere(file.path) for file in self.parts[location, state.hash][1])

    def as_it_was(self, location: str, state: StateRef) -> TableSnapshot:
        """Return a state at the root of the old lake."""
        definition, files = self.parts[location, state.hash]
        entry = TableState(state.table_id, 0, format=state.format, view=state.view)
        return made_of(self.context, location, entry, definition, files)

    def id_of(self, location: str, state: StateRef) -> str:
        """Return the id that a table of the backup has at this root."""
        own = self.manifest.tables.get(location)
        is_own = own is not None and own.table_id == state.table_id
        return self.ids.get(location, state.table_id) if is_own else state.table_id

    def of(self, location: str, state: StateRef) -> TableSnapshot:
        """Return a state as a table at this root, with files in its own directory alone."""
        definition, files = self._moved(location, state)
        table_id = self.id_of(location, state)
        name = "table-uuid" if state.format == "iceberg" else "id"
        definition = msgspec.structs.replace(
            definition, metadata={**definition.metadata, name: table_id}
        )
        entry = TableState(table_id, 0, format=state.format, view=state.view)
        return made_of(self.context, location, entry, definition, files)

    def _load(self, location: str, state: StateRef) -> Program[None]:
        key = f"{self.source}/{state.key}"
        found = yield from get(key)
        if not isinstance(found, Found) or blake3(found.body).hexdigest(length=16) != state.hash:
            what = "was damaged" if isinstance(found, Found) else "is missing"
            raise CorruptObject(
                f"{key}, a state of table {location}, {what}: {Manifest.REMEDY}",
                key=key,
                table=location,
            )
        definition, listed = definition_and_files(found.body)
        files = data_files(listed)
        need(self.needed, needed_by(self.manifest.root, location, files))
        self.parts[location, state.hash] = definition, files

    def _moved(self, location: str, state: StateRef) -> tuple[Definition, list[DataFile]]:
        """Return a definition and files as they are at this root, and note the copies."""
        definition, files = self.parts[location, state.hash]
        old, new = self.manifest.root, self.context.root
        there = self.as_it_was(location, state)
        moved = Moved(old, new, location)
        files = [moved.file(one, _called(there, one)) for one in files]
        self.copies |= {key: self.needed[source] for key, source in moved.copies.items()}
        return _moved_definition(new, location, state, definition), files


def _key(item: tuple[tuple[str, str], StateRef]) -> tuple[str, str]:
    return item[0]


def _called(there: TableSnapshot, file: DataFile) -> str | None:
    """Return the path by which the deletes of an Iceberg file name it in the old lake."""
    return name_in_vectors(there, file) if file.deletes else None


def _moved_definition(
    root: str, location: str, state: StateRef, definition: Definition
) -> Definition:
    """Return the definition of a table at another root: Iceberg's metadata names its place."""
    if state.format != "iceberg":
        return definition
    metadata: dict[str, Any] = {**definition.metadata, "location": uri_at(root, location)}
    return msgspec.structs.replace(definition, metadata=metadata)


def keep_state(
    states: RestoredStates,
    epoch: str,
    location: str,
    state: StateRef,
    through: int | None = None,
) -> Program[KeptTable]:
    """Store a state for a ref, in the ref's own directory.

    ``through``: for a branch, the version of its base, after which it has commits of its own.
    """
    snapshot = states.of(location, state)
    files: pa.Table = files_from_structs(data_files((yield from snapshot.files())))
    digest, body = kept_object(snapshot, files)
    kept = KeptTable(epoch, digest, through, states.id_of(location, state))
    if not (yield from store_kept(kept, body)):
        raise StoreError(f"could not store {kept.key}: restore again")
    return kept
