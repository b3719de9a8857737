"""The files of a table in bins of about equal bytes, one for each task.

A file that is larger than a bin is cut into parts, where whoever reads it can take a part of it: a
task finds the row groups of its part in the footer, which it reads anyway.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from lakevilla.arrow.made import array
from lakevilla.engines.base import FilePart, TableInput
from lakevilla.engines.staged import to_ipc
from lakevilla.formats.files import FILES_SCHEMA
from lakevilla.formats.layout import Layout

#: A task reads about so many bytes, or less where that leaves cores without work; as Spark does.
_MOST_BYTES = 128 * 1024 * 1024
_LEAST_BYTES = 4 * 1024 * 1024
#: Beside a file's own columns: which part of it, and of how many, is read.
_PART = (pa.field("part", pa.int32()), pa.field("parts", pa.int32()))


@dataclass(frozen=True, slots=True)
class Bins:
    """The files of a table, some for each task: an Arrow IPC stream a task, by its number.

    ``verify`` is that of the table's ``TableInput``.
    """

    layout: Layout
    files: tuple[bytes, ...]
    verify: bool = False

    def of(self, batches: Iterable[pa.RecordBatch]) -> Iterator[TableInput]:
        """What is in the bins whose numbers are the rows: whole files, then each part alone."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self.within(number)

    def within(self, number: int) -> list[TableInput]:
        """What is in one bin; of a bin without files one of none."""
        return inputs_of(self.layout, self.files[number], verify=self.verify)


def inputs_of(layout: Layout, files: bytes, *, verify: bool = False) -> list[TableInput]:
    """The files of an Arrow IPC stream: the whole ones together, then each part alone.

    Of one without files an input of none.
    """
    listed = pa.ipc.open_stream(files).read_all()
    own, counts = listed.select(FILES_SCHEMA.names), listed["parts"].to_pylist()
    whole = [place for place, count in enumerate(counts) if count is None]
    found = []
    if whole or not counts:
        found.append(TableInput(layout, own.take(array(whole, pa.int64())), verify))
    for place, (part, count) in enumerate(zip(listed["part"].to_pylist(), counts, strict=True)):
        if count is not None:
            found.append(TableInput(layout, own.slice(place, 1), verify, (FilePart(part, count),)))
    return found


def listed(files: pa.Table, parts: Sequence[FilePart | None] = ()) -> bytes:
    """Files as ``inputs_of`` reads them, without statistics: they have served their turn."""
    stats = files.schema.get_field_index("stats")
    files = files.set_column(stats, "stats", pa.nulls(files.num_rows, pa.string()))
    cut = parts or [None] * files.num_rows
    numbers = [None if part is None else part.number for part in cut]
    counts = [None if part is None else part.count for part in cut]
    for field, values in zip(_PART, (numbers, counts), strict=True):
        files = files.append_column(field, array(values, field.type))
    return to_ipc(files)


def bytes_of(inputs: Iterable[TableInput]) -> int:
    """About so many bytes are read."""
    size = 0
    for table in inputs:
        parts = table.parts or [None] * table.files.num_rows
        for one, part in zip(table.files["size"].to_pylist(), parts, strict=True):
            size += one if part is None else one // part.count
    return size


def most_bytes(whole: int, tasks: int) -> int:
    """So many bytes are one task's, if ``whole`` are to be done by about ``tasks`` at a time."""
    return min(_MOST_BYTES, max(_LEAST_BYTES, -(-whole // tasks)))


def balanced(sizes: Sequence[int], limit: int) -> list[list[int]]:
    """Things of these sizes, by place, in bins of about ``limit``; one empty bin of none."""
    count = max(1, min(len(sizes), -(-sum(sizes) // limit)))
    # The largest first, each into the bin with the fewest bytes so far.
    bins: list[list[int]] = [[] for _ in range(count)]
    loads = [(0, number) for number in range(count)]
    for place in sorted(range(len(sizes)), key=lambda place: -sizes[place]):
        load, number = heapq.heappop(loads)
        bins[number].append(place)
        heapq.heappush(loads, (load + sizes[place], number))
    return [sorted(one) for one in bins]


def in_bins(table: TableInput, tasks: int) -> Bins:
    """The files for about ``tasks`` tasks at a time; one bin of no files if there are none.

    A file is cut only if it is larger than any task's share. A smaller one has a row group or two,
    so most of its parts would be tasks that find nothing to do; and where it is rewritten each
    part becomes a file. One that is compared with its hash before it is read is not cut.
    """
    sizes = table.files.column("size").to_pylist()
    limit = most_bytes(sum(sizes), tasks)
    pieces = list(_pieces(sizes, 0 if table.verify else _MOST_BYTES))
    bins = balanced([size for _, _, size in pieces], limit)
    parts = []
    for one in bins:
        some = [pieces[place] for place in one]
        files = table.files.take(array([place for place, _, _ in some], pa.int64()))
        parts.append(listed(files, [part for _, part, _ in some]))
    return Bins(table.layout, tuple(parts), table.verify)


def _pieces(sizes: Sequence[int], limit: int) -> Iterator[tuple[int, FilePart | None, int]]:
    """Files by place, or parts of up to ``limit`` bytes of those that are larger, and sizes."""
    for place, size in enumerate(sizes):
        count = -(-size // limit) if limit else 1
        if count <= 1:
            yield place, None, size
        for part in range(count if count > 1 else 0):
            yield place, FilePart(part, count), size // count
