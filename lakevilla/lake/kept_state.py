"""States of tables that refs keep separate from the tables' logs (docs/design/0037-upkeep.md).

Such a state is one Parquet object: its rows are the list of the table's files, its footer has the
table's definition. It is read without the log, like a table that one commit creates.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
from blake3 import blake3

from lakevilla.arrow.nesting import JsonDecoder
from lakevilla.errors import VersionNotFound
from lakevilla.formats.base import Change, TableSnapshot
from lakevilla.formats.delta.snapshot import DeltaSnapshot
from lakevilla.formats.files import FILES_SCHEMA, DataFile, data_files
from lakevilla.global_log.head import TableState
from lakevilla.global_log.refs import KeptTable
from lakevilla.lake.context import Context
from lakevilla.store.base import ABSENT, Found, Unknown
from lakevilla.store.effects import Program, get_immutable, put

_FOOTER = b"lakevilla.kept"


class Definition(msgspec.Struct, frozen=True):
    """The definition of a table: its state without its files."""

    format: int
    metadata: dict[str, Any]
    protocol: dict[str, Any]
    domains: tuple[dict[str, Any], ...]


_definitions = JsonDecoder(Definition)


def kept_object(snapshot: TableSnapshot, files: pa.Table) -> tuple[str, bytes]:
    """Return hash and body of the object that keeps a state, with ``files`` as its files."""
    footer = {_FOOTER: msgspec.json.encode(_definition_of(snapshot))}
    sink = pa.BufferOutputStream()
    pq.write_table(files.replace_schema_metadata(footer), sink, compression="zstd")
    body: bytes = sink.getvalue().to_pybytes()
    return blake3(body).hexdigest(length=16), body


def _definition_of(snapshot: TableSnapshot) -> Definition:
    domains = snapshot.domains if isinstance(snapshot, DeltaSnapshot) else {}
    return Definition(
        1,
        dict(snapshot.metadata),
        dict(snapshot.protocol),
        tuple({"domain": name, "configuration": text} for name, text in domains.items()),
    )


def store_kept(kept: KeptTable, body: bytes) -> Program[bool]:
    """Store a kept state, whose name has its hash; return False if the outcome is unknown."""
    return not isinstance((yield from put(kept.key, body, ABSENT)), Unknown)


def kept_snapshot(
    context: Context, location: str, state: TableState, kept: KeptTable
) -> Program[TableSnapshot]:
    """Return the state of a table from the object in which it is kept.

    Raises
    ------
    VersionNotFound
        The object is damaged, or missing.
    """
    outcome = yield from get_immutable(kept.key)
    if not isinstance(outcome, Found):
        raise VersionNotFound(f"{kept.key} is missing")
    if blake3(outcome.body).hexdigest(length=16) != kept.hash:
        raise VersionNotFound(f"{kept.key} was damaged: restore it from a copy")
    try:
        definition, files = definition_and_files(outcome.body)
    except (pa.ArrowException, OSError, ValueError, KeyError, TypeError) as error:
        raise VersionNotFound(
            f"{kept.key} keeps no state of table {location} ({error}): restore it from a copy"
        ) from None
    return made_of(context, location, state, definition, data_files(files))


def definition_and_files(body: bytes) -> tuple[Definition, pa.Table]:
    """Return what an object keeps: a table's definition, and the list of its files."""
    found = pq.read_table(pa.BufferReader(body))
    definition = _definitions.decode(found.schema.metadata[_FOOTER])
    return definition, found.replace_schema_metadata(None).cast(FILES_SCHEMA)


def with_files(
    context: Context,
    location: str,
    state: TableState,
    snapshot: TableSnapshot,
    files: Sequence[DataFile],
) -> TableSnapshot:
    """Return a table's state with ``files`` in place of its own files."""
    return made_of(context, location, state, _definition_of(snapshot), files)


def made_of(
    context: Context,
    location: str,
    state: TableState,
    definition: Definition,
    files: Sequence[DataFile],
) -> TableSnapshot:
    """Return the state of a table that has a definition and these files."""
    blank = context.formats[state.format].blank(location, location, catalog=state.catalog)
    change = Change(
        adds=tuple(files),
        metadata=definition.metadata,
        protocol=definition.protocol or None,
        domains=definition.domains,
    )
    return blank.apply(change)
