"""Which objects a state of a table is made of, and those that were replaced a short time ago."""

from __future__ import annotations

from collections.abc import Iterable

import pyarrow as pa
import pyarrow.compute as pc

from lakevilla.errors import CorruptObject
from lakevilla.formats.delta.checkpoint.columns import decode_paths, vector_columns
from lakevilla.formats.delta.checkpoint.file_list import batches_of
from lakevilla.formats.delta.checkpoint.parts import fetch
from lakevilla.formats.delta.deletion_vectors import vector_key
from lakevilla.formats.delta.snapshot import DeltaSnapshot
from lakevilla.formats.files import DeletionVector, file_key
from lakevilla.store.effects import Program


def live_objects(snapshot: DeltaSnapshot) -> Program[set[str]]:
    """See ``formats.base.TableFormat.objects_of``."""
    files = yield from snapshot.files()
    return _keys(snapshot.location, files["path"].to_pylist(), files["deletion_vector"].to_pylist())


def named_objects(snapshot: DeltaSnapshot, removed_since_ms: int) -> Program[set[str]]:
    """See ``formats.base.TableFormat.named_objects``."""
    location = snapshot.location
    keys = yield from live_objects(snapshot)
    for file in snapshot.tail.fold().removes.values():
        # One without a time is still to be published: it is being removed now.
        if file.deletion_timestamp is None or file.deletion_timestamp >= removed_since_ms:
            keys.add(file_key(location, file.path))
            if file.deletion_vector is not None:
                keys.update(_vectors(location, [file.deletion_vector]))
    checkpoint = snapshot.checkpoint
    if checkpoint is None:
        return keys
    for window, batches in batches_of(checkpoint, "remove"):
        for (_, group, _), fetched in zip(window, (yield from fetch(window)), strict=True):
            for batch in batches(fetched, group):
                times = batch.field("deletionTimestamp").cast(pa.int64())
                late = pc.fill_null(pc.greater_equal(times, removed_since_ms), True)
                keys |= _of_checkpoint(location, batch.filter(late), fetched.part.key)
    return keys


def _of_checkpoint(location: str, rows: pa.StructArray, key: str) -> set[str]:
    try:
        paths = decode_paths(rows.field("path").cast(pa.string()))[0]
    except UnicodeDecodeError as error:
        raise CorruptObject(f"checkpoint part {key} has a broken path: {error}", key=key) from None
    index = rows.type.get_field_index("deletionVector")
    column = None if index < 0 else rows.field("deletionVector")
    return _keys(location, paths.to_pylist(), vector_columns(column, len(rows))[1].to_pylist())


def _keys(
    location: str, paths: Iterable[str], vectors: Iterable[dict[str, object] | None]
) -> set[str]:
    keys = {file_key(location, path) for path in paths}
    found = [DeletionVector(**vector) for vector in vectors if vector is not None]  # type: ignore[arg-type]
    return keys | _vectors(location, found)


def _vectors(location: str, vectors: Iterable[DeletionVector]) -> set[str]:
    return {vector_key(location, vector) for vector in vectors if vector.storage_type != "i"}
