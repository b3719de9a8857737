"""Copies of what a state needs and its table has removed, in a directory that a ref owns.

See docs/design/0037-upkeep.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import msgspec
from blake3 import blake3

from lakevilla.errors import VersionNotFound
from lakevilla.formats.base import TableSnapshot
from lakevilla.formats.delta.deletion_vectors import vector_key
from lakevilla.formats.files import DataFile, DeleteFile, DeletionVector, data_files, file_key
from lakevilla.global_log.refs import RefEntry
from lakevilla.ids import uuid7
from lakevilla.lake.context import Context
from lakevilla.lake.file_names import branch_directory, branch_of, file_path
from lakevilla.lake.table_log import open_tail
from lakevilla.lake.tail import Tail
from lakevilla.store.effects import Program, copy_all, list_objects

#: How Delta ends the prefix of a vector's file.
_VECTOR_NAME = 20


def unsafe_objects(
    context: Context, location: str, snapshot: TableSnapshot
) -> Program[dict[str, int]]:
    """What a state needs and the table has not any more: keys of objects, with their sizes.

    Told from the log as it is known here, as those who clean up tell it. What lies in a directory
    of branches they leave alone.
    """
    return (yield from removed_since((yield from open_tail(context, location)), snapshot))


def removed_since(tail: Tail, snapshot: TableSnapshot) -> Program[dict[str, int]]:
    """As ``unsafe_objects``, by a log that was looked at."""
    location = tail.location
    live: set[str] = set()
    if tail.tip >= 0:
        live = set(_objects(location, data_files((yield from tail.snapshot.files()))))
    needed = _objects(location, data_files((yield from snapshot.files())))
    return {
        key: size
        for key, size in needed.items()
        if key not in live and _is_below(location, key) and not _is_owned(location, key)
    }


@dataclass
class Copies:
    """Where the objects of a state lie from now on: copies of what is ``unsafe``.

    Their names tell the source, so who begins anew finds what was copied before.
    """

    location: str
    entry: RefEntry
    unsafe: dict[str, int]
    copies: dict[str, str] = field(default_factory=dict)

    def file(self, file: DataFile) -> DataFile:
        key = file_key(self.location, file.path)
        if key in self.unsafe:
            deletes = tuple(_naming(one, file.path) for one in file.deletes)
            file = msgspec.structs.replace(
                file, path=self._copy(key), raw_path=None, deletes=deletes
            )
        if file.deletion_vector is not None:
            vector = self._vector(file.deletion_vector)
            file = msgspec.structs.replace(file, deletion_vector=vector)
        if file.deletes:
            deletes = tuple(self._deletes(one) for one in file.deletes)
            file = msgspec.structs.replace(file, deletes=deletes)
        return file

    def _copy(self, key: str) -> str:
        path = f"{self._directory}/{self._name(key)}"
        self.copies[key] = f"{self.location}/{path}"
        return path

    @property
    def _directory(self) -> str:
        return branch_directory(self.location, self.entry.life)[len(self.location) + 1 :]

    def _name(self, key: str) -> str:
        """As whoever wrote on a branch would call it: gc knows it by that once the tag has gone."""
        digest = blake3(key.encode()).digest(length=24)
        txn = uuid7(max(self.entry.created_ms, 0), int.from_bytes(digest[:10]) % 2**74)
        own = file_path("", txn, True, digest[16:].hex())
        return own if key.endswith(".parquet") else f"{own[:-8]}.{key.rpartition('.')[2]}"

    def _vector(self, vector: DeletionVector) -> DeletionVector:
        if vector.storage_type != "u":
            return vector
        key = vector_key(self.location, vector)
        if key not in self.unsafe:
            return vector
        name = key.rpartition("/")[2]
        self.copies[key] = f"{self.location}/{self._directory}/{name}"
        tail = vector.path_or_inline[-_VECTOR_NAME:]
        return msgspec.structs.replace(vector, path_or_inline=f"{self._directory}{tail}")

    def _deletes(self, file: DeleteFile) -> DeleteFile:
        key = file_key(self.location, file.path)
        if key not in self.unsafe:
            return file
        return msgspec.structs.replace(file, path=self._copy(key))


def _naming(delete: DeleteFile, path: str) -> DeleteFile:
    """An Iceberg file of positions names data files by their paths; the copy has another."""
    if delete.kind != "position":
        return delete
    return msgspec.structs.replace(delete, names=delete.names or path)


def store_copies(moved: Copies) -> Program[int]:
    """Have the store copy what is not there yet. Raises ``VersionNotFound``."""
    if not moved.copies:
        return 0
    listed = yield from list_objects(branch_directory(moved.location, moved.entry.life))
    there = {info.key for info in listed}
    wanted = [(source, key) for source, key in moved.copies.items() if key not in there]
    missing = yield from copy_all(wanted)
    if missing is not None:
        raise VersionNotFound(f"{missing} was removed", table=moved.location)
    return len(wanted)


def _objects(location: str, files: list[DataFile]) -> dict[str, int]:
    """The keys of all objects that files are made of."""
    found: dict[str, int] = {}
    for file in files:
        found[file_key(location, file.path)] = file.size
        vector = file.deletion_vector
        if vector is not None and vector.storage_type != "i":
            found[vector_key(location, vector)] = vector.size_in_bytes
        found.update({file_key(location, one.path): one.size for one in file.deletes})
    return found


def _is_below(location: str, key: str) -> bool:
    return key.startswith(f"{location}/")


def _is_owned(location: str, key: str) -> bool:
    return branch_of(key.removeprefix(f"{location}/")) is not None
