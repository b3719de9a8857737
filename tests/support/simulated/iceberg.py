"""Open Iceberg tables of a simulated store by pyiceberg."""

from __future__ import annotations

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.io import FileIO, InputFile, OutputFile
from pyiceberg.serializers import FromByteStream
from pyiceberg.table import StaticTable

from lakevilla.formats.iceberg.manifests.avro import MemoryInput
from lakevilla_testing.tables.iceberg_reader import metadata_key, uri_of
from lakevilla_testing.world.store import SimulatedStore

__all__ = ["opened"]


def opened(store: SimulatedStore, location: str, version: int) -> StaticTable:
    """Return a version of a table (0 is ``v1.metadata.json``)."""
    io = _StoreIO(store)
    uri = uri_of("") + metadata_key(location, version)
    metadata = FromByteStream.table_metadata(io.new_input(uri).open())
    return StaticTable((location,), metadata, uri, io, NoopCatalog("none"))


class _StoreIO(FileIO):
    def __init__(self, store: SimulatedStore) -> None:
        super().__init__({})
        self._store = store

    def new_input(self, location: str) -> InputFile:
        return MemoryInput(location, self._store.objects[location.removeprefix(uri_of(""))].body)

    def new_output(self, location: str) -> OutputFile:
        raise NotImplementedError

    def delete(self, location: str | InputFile | OutputFile) -> None:
        raise NotImplementedError
