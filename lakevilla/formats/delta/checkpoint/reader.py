"""Read checkpoints, also those in parts."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from lakevilla.errors import CorruptObject
from lakevilla.formats.delta.actions import (
    Action,
    Sidecar,
    change_of,
    check_definition,
    parse_actions,
)
from lakevilla.formats.overlay import EMPTY_TAIL, Overlay
from lakevilla.store.base import Found, Token
from lakevilla.store.effects import Get, Program, get, parallel

# -------------------- reader
#
# Checkpoints of every kind: classic, multi-part, v2 with and without sidecars.
#
# Opening a checkpoint reads what a snapshot needs at once: protocol, metadata,
# application versions and domains. Its file list is read when it is requested, in
# batches, and pruned during the read.


#: Rows decoded at once: larger batches are no faster and hold more memory.
BATCH_ROWS = 16_384

# The actions that are not files, each with a field that it always has.
_SMALL = {
    "protocol": "protocol.minReaderVersion",
    "metaData": "metaData.id",
    "txn": "txn.appId",
    "domainMetadata": "domainMetadata.domain",
    "sidecar": "sidecar.path",
}


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """A table's state at a version, its files still unread.

    ``inline`` holds the files of a JSON checkpoint without sidecars. ``kept`` is the
    file list once it was read, if it is short: all snapshots above the checkpoint share it.
    """

    version: int
    metadata: dict[str, Any]
    protocol: dict[str, Any]
    applications: Mapping[str, int]
    domains: Mapping[str, str]
    parts: tuple[Part, ...]
    inline: Overlay = EMPTY_TAIL
    kept: list[pa.Table] = field(default_factory=list, compare=False)

    @property
    def rows(self) -> int:
        """The number of actions in its Parquet parts: files and removals, and few others."""
        return sum(part.footer.num_rows for part in self.parts)


def open_checkpoint(location: str, version: int, keys: Sequence[str]) -> Program[Checkpoint]:
    """Read the parts of a checkpoint that a snapshot needs. Raises ``CorruptObject``."""
    if keys[0].endswith(".json"):
        return (yield from _open_json(location, version, keys[0]))
    parts = yield from parallel([open_part(key) for key in keys])
    for part in parts:
        if part.columns(("add",)) and not part.columns(("add.path",)):
            raise damaged(f"checkpoint part {part.key} has add actions without a path", part.key)
    wanted = []
    for part in parts:
        for group in part.row_groups:
            columns = [name for name, field in _SMALL.items() if part.holds(group, field)]
            if columns:
                wanted.append((part, group, columns))
    actions: list[Action] = []
    for (_, group, columns), fetched in zip(wanted, (yield from fetch(wanted)), strict=True):
        for batch in fetched.batches(group, columns, BATCH_ROWS):
            actions.extend(_small_actions(batch, columns, fetched.part.key))
    return (yield from _assemble(location, version, keys[0], actions, tuple(parts), EMPTY_TAIL))


def _open_json(location: str, version: int, key: str) -> Program[Checkpoint]:
    outcome = yield from get(key)
    if not isinstance(outcome, Found):
        raise CorruptObject(f"checkpoint {key} is missing; remove what points at it", key=key)
    actions = parse_actions(outcome.body, key)
    inline = EMPTY_TAIL.with_change(change_of(actions, key))
    return (yield from _assemble(location, version, key, actions, (), inline))


def _assemble(
    location: str,
    version: int,
    key: str,
    actions: Sequence[Action],
    parts: tuple[Part, ...],
    inline: Overlay,
) -> Program[Checkpoint]:
    protocol = next((a.protocol for a in actions if a.protocol is not None), None)
    metadata = next((a.meta_data for a in actions if a.meta_data is not None), None)
    if protocol is None or metadata is None:
        raise damaged(f"checkpoint {key} has no protocol or no metaData action", key)
    check_definition(metadata, protocol, key)
    sidecars = [a.sidecar for a in actions if a.sidecar is not None]
    files = yield from parallel([open_part(_sidecar_key(location, car)) for car in sidecars])
    domains = [a.domain_metadata for a in actions if a.domain_metadata is not None]
    return Checkpoint(
        version=version,
        metadata=metadata,
        protocol=protocol,
        applications={a.txn.app_id: a.txn.version for a in actions if a.txn is not None},
        domains={d.domain: d.configuration for d in domains if not d.removed},
        parts=(*parts, *files),
        inline=inline,
    )


def _sidecar_key(location: str, sidecar: Sidecar) -> str:
    if "/" in sidecar.path:
        return sidecar.path
    return f"{location}/_delta_log/_sidecars/{sidecar.path}"


def _small_actions(batch: pa.RecordBatch, names: Sequence[str], key: str) -> Iterator[Action]:
    for name in names:
        column = batch.column(batch.schema.get_field_index(name))
        if column.null_count == len(column):
            continue
        for row in column.filter(pc.is_valid(column)).to_pylist():
            try:
                yield msgspec.convert({name: _as_json(row)}, Action)
            except msgspec.ValidationError as error:
                what = f"checkpoint part {key} has a broken {name} action: {error}"
                raise damaged(what, key) from None


# Fields that are maps (a domain's configuration is text): Arrow shows them as lists of
# pairs, and an empty map as any empty list.
_MAPS = frozenset({"configuration", "options", "tags"})


def _as_json(row: dict[str, Any]) -> dict[str, Any]:
    """Return a Parquet struct in the form of the JSON action: without nulls, maps as objects."""
    action: dict[str, Any] = {}
    for name, value in row.items():
        if value is None:
            continue
        if name in _MAPS and isinstance(value, list):
            value = dict(value)
        elif isinstance(value, dict):
            value = _as_json(value)
        action[name] = value
    return action


# -------------------- parts
#
# Parquet parts of a checkpoint, read through effects in byte ranges.
#
# A small part arrives whole with the request for its footer. Of a large part only
# the required column chunks are fetched: for the table's metadata, row groups that hold nothing
# but files are skipped by their null counts, and the statistics of row groups that
# partition pruning empties are never fetched.


#: The size of the first request for a part, counted from its end: all of a small
#: checkpoint, the footer of a large one.
FIRST_BYTES = 512 * 1024

# Two ranges closer than this are fetched as one: a request costs more than these bytes.
_MERGE_GAP = 256 * 1024

_BUFFER_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Part:
    """A Parquet object: its footer, and its body where it was fetched whole."""

    key: str
    size: int
    token: Token
    footer: pq.FileMetaData
    body: bytes | None = None
    #: The dotted paths of the leaf columns, in file order.
    paths: tuple[str, ...] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        schema = self.footer.schema
        paths = tuple(schema.column(index).path for index in range(self.footer.num_columns))
        object.__setattr__(self, "paths", paths)

    @property
    def row_groups(self) -> range:
        return range(self.footer.num_row_groups)

    def columns(self, prefixes: Iterable[str]) -> list[int]:
        """Return the indices of the leaf columns below ``prefixes`` (dotted), in file order."""
        wanted = frozenset(prefixes)
        below = tuple(f"{prefix}." for prefix in wanted)
        return [
            index
            for index, path in enumerate(self.paths)
            if path in wanted or path.startswith(below)
        ]

    def holds(self, row_group: int, prefix: str) -> bool:
        """Return whether a row group may hold a value below ``prefix``, by its null counts."""
        group = self.footer.row_group(row_group)
        for index in self.columns((prefix,)):
            statistics = group.column(index).statistics
            if statistics is None or not statistics.has_null_count:
                return True
            # A leaf below a repeated field counts its empty lists as nulls too, so a
            # null count below the number of values means that values exist.
            if statistics.null_count < group.column(index).num_values:
                return True
        return False


def open_part(key: str) -> Program[Part]:
    """Read a part's footer, and all of it if it is small. Raises ``CorruptObject``."""
    outcome = yield from get(key, byte_range=(-FIRST_BYTES, 0))
    if not isinstance(outcome, Found):
        raise damaged(f"checkpoint part {key} is missing or empty", key)
    tail, size = outcome.body, outcome.size
    if len(tail) < 12 or tail[-4:] != b"PAR1":
        raise _corrupt(key, "it does not end as a parquet file does")
    footer_bytes = int.from_bytes(tail[-8:-4], "little") + 8
    if footer_bytes > size:
        raise _corrupt(key, "its footer is longer than the file")
    if footer_bytes > len(tail):
        more = yield from get(key, byte_range=(size - footer_bytes, size))
        if not isinstance(more, Found) or len(more.body) != footer_bytes:
            raise _corrupt(key, "its footer cannot be read")
        tail = more.body
    try:
        footer = pq.read_metadata(pa.BufferReader(_footer_file(tail[-footer_bytes:])))
    except (pa.ArrowException, OSError, ValueError) as error:
        raise _corrupt(key, str(error)) from None
    return Part(key, size, outcome.token, footer, tail if len(tail) == size else None)


def _footer_file(footer: bytes) -> bytes:
    # A parquet file that consists of a footer alone is enough for its metadata.
    return b"PAR1" + footer


class Fetched:
    """The fetched bytes of a part at their offsets, as a file that pyarrow can read."""

    def __init__(self, part: Part, pieces: Sequence[tuple[int, bytes]]) -> None:
        self.part = part
        self._starts = [start for start, _ in pieces]
        self._bodies = [body for _, body in pieces]
        self._position = 0
        self.closed = False

    def batches(
        self, row_group: int, columns: Sequence[str], batch_rows: int
    ) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a row group whose ``columns`` were fetched."""
        try:
            source = pa.PythonFile(self, mode="r")
            # With a buffer, a column chunk is not copied whole before it is decoded.
            reader = pq.ParquetFile(
                source,
                metadata=self.part.footer,
                pre_buffer=False,
                buffer_size=_BUFFER_BYTES,
                page_checksum_verification=True,
                # In milliseconds, to which writers cut bounds; in nanoseconds a time after 2262
                # would overflow.
                coerce_int96_timestamp_unit="ms",
            )
            yield from reader.iter_batches(
                batch_rows, row_groups=[row_group], columns=list(columns), use_threads=False
            )
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _corrupt(self.part.key, str(error)) from None

    # The methods that pyarrow requires of a file.

    def read(self, size: int = -1) -> bytes:
        end = self.part.size if size < 0 else min(self._position + size, self.part.size)
        index = bisect.bisect_right(self._starts, self._position) - 1
        body = self._bodies[index] if index >= 0 else b""
        start = self._position - self._starts[index] if index >= 0 else 0
        chunk = body[start : start + end - self._position]
        self._position += len(chunk)
        return chunk

    def seek(self, offset: int, whence: int = 0) -> int:
        base = (0, self._position, self.part.size)[whence]
        self._position = base + offset
        return self._position

    def tell(self) -> int:
        return self._position

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def writable(self) -> bool:
        return False

    def flush(self) -> None:
        pass

    def close(self) -> None:
        self.closed = True


def fetch(wanted: Sequence[tuple[Part, int, Sequence[str]]]) -> Program[list[Fetched]]:
    """Return the bytes of (part, row group, columns), all in one round of requests."""
    plans: list[list[tuple[int, int]]] = []
    requests: list[Get] = []
    for part, row_group, columns in wanted:
        ranges = [] if part.body is not None else _ranges(part, row_group, columns)
        plans.append(ranges)
        requests.extend(Get(part.key, None, span) for span in ranges)
    answers = iter((yield from parallel(cast("list[Get | Program[object]]", requests))))
    result = []
    for (part, _, _), ranges in zip(wanted, plans, strict=True):
        if part.body is not None:
            result.append(Fetched(part, [(0, part.body)]))
            continue
        pieces = []
        for start, end in ranges:
            outcome = next(answers)
            if not isinstance(outcome, Found) or len(outcome.body) != end - start:
                raise _corrupt(part.key, "part of it is missing or was overwritten")
            if outcome.token != part.token:
                raise _corrupt(
                    part.key, "it was overwritten while it was read; open the table again"
                )
            pieces.append((start, outcome.body))
        result.append(Fetched(part, pieces))
    return result


def _ranges(part: Part, row_group: int, columns: Sequence[str]) -> list[tuple[int, int]]:
    group = part.footer.row_group(row_group)
    spans: list[tuple[int, int]] = []
    for index in part.columns(columns):
        chunk = group.column(index)
        start = chunk.data_page_offset
        if chunk.has_dictionary_page and chunk.dictionary_page_offset is not None:
            start = min(start, chunk.dictionary_page_offset)
        spans.append((start, min(start + chunk.total_compressed_size, part.size)))
    merged: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if merged and start - merged[-1][1] <= _MERGE_GAP:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def damaged(what: str, key: str) -> CorruptObject:
    """Return the error for a checkpoint that can't be read.

    Without the checkpoint, readers need an older one and the log entries since, which clean-up may
    have deleted.
    """
    return CorruptObject(
        f"{what}; restore it from a copy; readers do without it, once it is removed, only where an "
        "older checkpoint or entry 0, and all log entries since, are still there",
        key=key,
    )


def _corrupt(key: str, why: str) -> CorruptObject:
    return damaged(f"checkpoint part {key} cannot be read: {why}", key)
