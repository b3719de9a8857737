"""The files of a table in bins of about equal bytes, one for each task."""

from __future__ import annotations

import heapq
from collections.abc import Sequence

import pyarrow as pa

from lakevilla.engines.base import TableInput
from lakevilla.engines.spark.tasks import Bins
from lakevilla.engines.staged import to_ipc

#: A task reads about so many bytes, or less where that leaves cores without work; as Spark does.
_MOST_BYTES = 128 * 1024 * 1024
_LEAST_BYTES = 4 * 1024 * 1024


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


def without_statistics(files: pa.Table) -> pa.Table:
    """The files as tasks need them: statistics have served their turn when files were chosen."""
    stats = files.schema.get_field_index("stats")
    return files.set_column(stats, "stats", pa.nulls(files.num_rows, pa.string()))


def in_bins(table: TableInput, tasks: int) -> Bins:
    """The files for about ``tasks`` tasks at a time; one bin of no files if there are none."""
    sizes = table.files.column("size").to_pylist()
    bins = balanced(sizes, most_bytes(sum(sizes), tasks))
    files = without_statistics(table.files)
    parts = tuple(to_ipc(files.take(pa.array(one, pa.int64()))) for one in bins)
    return Bins(table.layout, parts, table.verify)
