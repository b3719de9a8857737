"""Copies of objects: by the store itself, or through this machine from one store to another."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence

from lakevilla.errors import StoreError
from lakevilla.store.base import ANY, Found, Missing, Unknown
from lakevilla.store.effects import Program, copy_all, get, parallel, put, put_file, stat
from lakevilla.store.location import is_external, parse_location
from lakevilla.store.scratch import on_scratch, scratch_root

#: The size of one request, and that of the largest object that is copied in memory.
_PART_BYTES = 16 * 1024 * 1024
#: The number of objects that are copied at the same time from one store to another.
_AT_ONCE = 4


def copy_objects(root: str, wanted: Sequence[tuple[str, str]]) -> Program[str | None]:
    """Copy sources to keys; a missing source ends this, and is returned.

    Where both are in one store, that copies them itself.
    """
    stores = {_store_of(root, key) for pair in wanted[:1] for key in pair}
    if len(stores) < 2:
        return (yield from copy_all(wanted))
    for first in range(0, len(wanted), _AT_ONCE):
        some = wanted[first : first + _AT_ONCE]
        found = yield from parallel([_copied(source, key) for source, key in some])
        for (source, _), done in zip(some, found, strict=True):
            if not done:
                return source
    return None


def _store_of(root: str, key: str) -> object:
    return parse_location(key if is_external(key) else root).store


def _copied(source: str, key: str) -> Program[bool]:
    """Copy one object through this machine; return whether it exists."""
    info = yield from stat(source)
    if isinstance(info, Missing):
        return False
    if info.size <= _PART_BYTES:
        found = yield from get(source)
        if not isinstance(found, Found):
            return False
        outcome = yield from put(key, found.body, ANY)
        if isinstance(outcome, Unknown):
            raise StoreError(f"could not store {key} ({outcome.reason}): try again")
        return True
    directory = scratch_root()
    with on_scratch(directory):
        handle, path = tempfile.mkstemp(prefix="lakevilla-backup-", dir=directory)
    try:
        with on_scratch(directory), os.fdopen(handle, "wb") as file:
            for start in range(0, info.size, _PART_BYTES):
                part = yield from get(source, byte_range=(start, start + _PART_BYTES))
                if not isinstance(part, Found):
                    return False
                file.write(part.body)
        yield from put_file(key, path)
    finally:
        os.unlink(path)
    return True
