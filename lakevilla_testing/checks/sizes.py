"""Checks of the table sizes in HEAD: each size, compared with the files of its time.

The truth is taken from the files themselves: their bytes, and the rows that they hold.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Collection, Mapping

import pyarrow as pa
import pyarrow.parquet as pq

from lakevilla.formats.files import file_key
from lakevilla.formats.sizes import UNKNOWN, Size
from lakevilla.global_log.head import Head
from lakevilla.global_log.head_log import is_head
from lakevilla.global_log.history import Timeline
from lakevilla.lake.context import Context
from lakevilla.lake.past import past_at
from lakevilla.store.codec import decode
from lakevilla_testing.checks.invariants import Violated
from lakevilla_testing.checks.past import (
    bodies_that_were,
    heads_that_were,
    path_and_deleted,
    state_of,
)
from lakevilla_testing.tables.reader import run_now
from lakevilla_testing.world.rows import decode_rows
from lakevilla_testing.world.store import SimulatedStore


def sizes_are_right(
    store: SimulatedStore,
    context: Context,
    source: random.Random,
    *,
    count: int,
    passing: Collection[str] = (),
) -> Counter[str]:
    """Check the newest HEAD, and ``count`` earlier ones, drawn from ``source``.

    The past is checked as well: today's report on an older version. Returns the number of compared
    sizes, and the number of those that HEAD did not know.
    """
    held = run_now(store, context.head())
    if held is None:
        return Counter()
    written = bodies_that_were(store)
    compared = Counter[str]()
    every = _heads(store)
    for head in [*source.sample(every, min(count, len(every))), every[-1]]:
        compared += _compared(store, head, head, written, passing)
    timeline = Timeline.of(held.head)
    kept = heads_that_were(store, run_now(store, timeline.newest(None)))
    for sequence in sorted(source.sample(sorted(kept), min(count, len(kept)))):
        reported = run_now(store, past_at(timeline, sequence)).head
        compared += _compared(store, kept[sequence], reported, written, passing)
    return compared


def _compared(
    store: SimulatedStore,
    head: Head,
    reported: Head,
    written: Mapping[str, bytes],
    passing: Collection[str],
) -> Counter[str]:
    """Compare the sizes of ``head``'s tables that ``reported`` states with the files."""
    compared = Counter[str]()
    for table, files in state_of(store, head, passing).items():
        state = reported.tables.get(table)
        size = UNKNOWN if state is None or state.size is None else state.size
        found = [path_and_deleted(file) for file in files]
        bodies = [written[file_key(table, path)] for path, _ in found]
        rows = sum(len(decode_rows(body)) for body in bodies)
        for _, deleted in found:
            if isinstance(deleted, str):
                deleted = _rows_in(written[file_key(table, deleted)])
            rows -= deleted
        true = Size(len(files), rows, sum(map(len, bodies)))
        for what in ("files", "rows", "bytes"):
            known, real = getattr(size, what), getattr(true, what)
            if known not in (None, real):
                raise Violated(
                    f"{table} had {real} {what} at global version {head.sequence} (HEAD "
                    f"{head.replacement}), and is told to have had {known}"
                )
        compared["sizes told" if size.is_exact else "sizes not told"] += 1
    return compared


def _rows_in(body: bytes) -> int:
    return int(pq.read_metadata(pa.BufferReader(body)).num_rows)


def _heads(store: SimulatedStore) -> list[Head]:
    return [
        decode(mutation.key, mutation.after.body, Head)
        for mutation in store.journal
        if is_head(mutation.key) and mutation.after is not None
    ]
