"""The files of a table in bins of about equal bytes, one for each task."""

from __future__ import annotations

import heapq

import pyarrow as pa

from lakevilla.engines.base import TableInput
from lakevilla.engines.spark.tasks import Bins
from lakevilla.engines.staged import to_ipc

#: A task reads about so many bytes, or less where that leaves cores without work; as Spark does.
_MOST_BYTES = 128 * 1024 * 1024
_LEAST_BYTES = 4 * 1024 * 1024


def in_bins(table: TableInput, tasks: int) -> Bins:
    """The files for about ``tasks`` tasks at a time; one bin of no files if there are none."""
    sizes = table.files.column("size").to_pylist()
    share = -(-sum(sizes) // tasks)
    limit = min(_MOST_BYTES, max(_LEAST_BYTES, share))
    count = max(1, min(len(sizes), -(-sum(sizes) // limit)))
    # The largest first, each into the bin with the fewest bytes so far.
    bins: list[list[int]] = [[] for _ in range(count)]
    loads = [(0, number) for number in range(count)]
    for place in sorted(range(len(sizes)), key=lambda place: -sizes[place]):
        load, number = heapq.heappop(loads)
        bins[number].append(place)
        heapq.heappush(loads, (load + sizes[place], number))
    # Statistics have served their turn when the files were chosen.
    stats = table.files.schema.get_field_index("stats")
    files = table.files.set_column(stats, "stats", pa.nulls(table.files.num_rows, pa.string()))
    parts = tuple(to_ipc(files.take(pa.array(sorted(one), pa.int64()))) for one in bins)
    return Bins(table.layout, parts, table.verify)
