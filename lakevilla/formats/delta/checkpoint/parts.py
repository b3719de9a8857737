"""Parquet parts of a checkpoint, read through effects in byte ranges.

A small part arrives whole with the request for its footer. Of a large one only
the column chunks that are asked for are fetched: row groups that hold nothing
but files are skipped for the table's metadata by their null counts, and the
statistics of row groups that partition pruning empties are never fetched.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import pyarrow as pa
import pyarrow.parquet as pq

from lakevilla.errors import CorruptObject
from lakevilla.store.base import Found, Token
from lakevilla.store.effects import Get, Program, get, parallel

#: What the first request for a part asks for, from its end: all of a small
#: checkpoint, the footer of a large one.
FIRST_BYTES = 512 * 1024

# Two ranges closer than this are fetched as one: a request costs more than the bytes.
_MERGE_GAP = 256 * 1024

_BUFFER_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Part:
    """A Parquet object: its footer, and its body where it came whole."""

    key: str
    size: int
    token: Token
    footer: pq.FileMetaData
    body: bytes | None = None

    @property
    def row_groups(self) -> range:
        return range(self.footer.num_row_groups)

    def columns(self, prefixes: Iterable[str]) -> list[int]:
        """Indices of the leaf columns below ``prefixes`` (dotted), in file order."""
        wanted = tuple(prefixes)
        schema = self.footer.schema
        return [
            index
            for index in range(self.footer.num_columns)
            if _below(schema.column(index).path, wanted)
        ]

    def holds(self, row_group: int, prefix: str) -> bool:
        """Whether a row group may hold a value below ``prefix``, by its null counts."""
        group = self.footer.row_group(row_group)
        for index in self.columns((prefix,)):
            statistics = group.column(index).statistics
            if statistics is None or not statistics.has_null_count:
                return True
            # A leaf below a repeated field counts its empty lists as nulls too, so a
            # count that falls short of the number of values means that there are some.
            if statistics.null_count < group.column(index).num_values:
                return True
        return False


def _below(path: str, prefixes: tuple[str, ...]) -> bool:
    return any(path == prefix or path.startswith(prefix + ".") for prefix in prefixes)


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
    # A parquet file with nothing but a footer is enough for its metadata.
    return b"PAR1" + footer


class Fetched:
    """Bytes of a part at their places, as a file that pyarrow can read."""

    def __init__(self, part: Part, pieces: Sequence[tuple[int, bytes]]) -> None:
        self.part = part
        self._starts = [start for start, _ in pieces]
        self._bodies = [body for _, body in pieces]
        self._position = 0
        self.closed = False

    def batches(
        self, row_group: int, columns: Sequence[str], batch_rows: int
    ) -> Iterator[pa.RecordBatch]:
        """The rows of a row group whose ``columns`` were fetched."""
        try:
            source = pa.PythonFile(self, mode="r")
            # Buffered, a column chunk is not copied whole before it is decoded.
            reader = pq.ParquetFile(
                source,
                metadata=self.part.footer,
                pre_buffer=False,
                buffer_size=_BUFFER_BYTES,
                page_checksum_verification=True,
                # As bounds are cut; in nanoseconds a time after 2262 would come out as another.
                coerce_int96_timestamp_unit="ms",
            )
            yield from reader.iter_batches(
                batch_rows, row_groups=[row_group], columns=list(columns), use_threads=False
            )
        except (pa.ArrowException, OSError, ValueError) as error:
            raise _corrupt(self.part.key, str(error)) from None

    # What pyarrow asks of a file.

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
    """The bytes of (part, row group, columns), all in one round of requests."""
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
                raise _corrupt(part.key, "part of it is gone or was overwritten")
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
    """What a checkpoint that can't be read is told by.

    Without it a table is read from what it was made of, which clean-up may have taken.
    """
    return CorruptObject(
        f"{what}; restore it from a copy; readers do without it, once it is removed, only where an "
        "older checkpoint or entry 0, and all log entries since, are still there",
        key=key,
    )


def _corrupt(key: str, why: str) -> CorruptObject:
    return damaged(f"checkpoint part {key} cannot be read: {why}", key)
