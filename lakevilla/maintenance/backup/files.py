"""The objects that a state of a table needs, and where a restored lake stores them.

An object below the lake's root has the same key below a backup's directory, and again below the
root of a lake that is restored there. Only a table at another root may not name files in the
directories of other tables by their old URIs: it gets such files as copies of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

import msgspec
from blake3 import blake3

from lakevilla.formats.delta.actions import encode_path
from lakevilla.formats.delta.deletion_vectors import vector_end, vector_key
from lakevilla.formats.files import (
    HASH_TAG,
    DataFile,
    DeleteFile,
    DeletionVector,
    file_key,
    is_elsewhere,
)
from lakevilla.lake.frozen.frozen import key_below, uri_at
from lakevilla.store.content import HashedFile


@dataclass(frozen=True, slots=True)
class Needed:
    """An object of a table: ``size`` and ``hash`` are None where the table does not tell them.

    ``least``: the size that an object of vectors has at least, as the table says where these are.
    """

    key: str
    table: str
    size: int | None = None
    hash: str | None = None
    least: int = 0

    def fits(self, size: int | None) -> bool:
        """Return whether an object of this size may be it; None: there is none."""
        return size is not None and self.size in (None, size) and size >= self.least

    @property
    def said(self) -> str:
        """Return what the table says of its size."""
        return f"at least {self.least}" if self.size is None else str(self.size)

    def hashed(self, directory: str = "") -> HashedFile | None:
        """Return it as a file whose bytes can be compared, if its hash is known."""
        if self.hash is None or self.size is None:
            return None
        key = f"{directory}/{self.key}" if directory else self.key
        return HashedFile(key, self.size, self.hash, self.table)


def needed_by(root: str, location: str, files: Iterable[DataFile]) -> Iterator[Needed]:
    """Yield the objects of files, by their keys below the root, or by URI if they are elsewhere."""
    for file in files:
        key = key_below(root, file_key(location, file.path))
        yield Needed(key, location, file.size, (file.tags or {}).get(HASH_TAG))
        for one in file.deletes:
            yield Needed(key_below(root, file_key(location, one.path)), location, one.size)
        vector = file.deletion_vector
        if vector is not None and vector.storage_type != "i":
            # The log has the size of the vector, which may be one of several in the object.
            key, least = key_below(root, vector_key(location, vector)), vector_end(vector)
            yield Needed(key, location, least=least)


def need(needed: dict[str, Needed], objects: Iterable[Needed]) -> None:
    """Add objects to those that are needed, with all that is known of each."""
    for one in objects:
        known = needed.get(one.key, one)
        told = one if known.size is None else known
        needed[one.key] = replace(told, least=max(known.least, one.least))


@dataclass
class Moved:
    """The files of a table at another root; ``copies`` has their keys there and in the backup.

    ``root`` is the root of the lake that was backed up, ``new_root`` that of the restored one.
    """

    root: str
    new_root: str
    location: str
    copies: dict[str, str] = field(default_factory=dict)

    def file(self, file: DataFile, called: str | None) -> DataFile:
        """Return a file as the restored table names it.

        ``called``: the path by which an Iceberg file's deletes name it, in the old lake.
        """
        vector = file.deletion_vector
        if self.root == self.new_root and not is_elsewhere(file.path):
            called = None  # it keeps the name by which its deletes call it
        return msgspec.structs.replace(
            file,
            path=self._path(file.path),
            raw_path=None,
            data_change=True,
            deletion_vector=None if vector is None else self._vector(vector),
            deletes=tuple(self._deletes(one, called) for one in file.deletes),
        )

    def _deletes(self, one: DeleteFile, called: str | None) -> DeleteFile:
        names = one.names if one.kind == "equality" else one.names or called
        return msgspec.structs.replace(one, path=self._path(one.path), names=names)

    def _path(self, path: str) -> str:
        key = key_below(self.root, file_key(self.location, path))
        if not is_elsewhere(path):
            self.copies[key] = key
            return path
        own = self._own(key)
        self.copies[f"{self.location}/{own}"] = key
        return own

    def _vector(self, vector: DeletionVector) -> DeletionVector:
        if vector.storage_type == "i":
            return vector
        key = key_below(self.root, vector_key(self.location, vector))
        if vector.storage_type == "u":
            self.copies[key] = key
            return vector
        own = self._own(key)
        self.copies[f"{self.location}/{own}"] = key
        uri = uri_at(self.new_root, f"{self.location}/{own}")
        return msgspec.structs.replace(vector, storage_type="p", path_or_inline=encode_path(uri))

    def _own(self, key: str) -> str:
        """Name a copy of another table's file: such files of two directories may share a name."""
        folder, _, name = key.rpartition("/")
        return f"{blake3(folder.encode()).hexdigest(length=8)}-{name}"
