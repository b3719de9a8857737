"""Checks of reports on the past: each HEAD that ever existed, compared with today's report on it.

The truth is taken from the store's journal: the HEAD of that time, the log entries up to its
``published`` (of an Iceberg table: that metadata file), and the objects of the commits that were
pending in it. The report comes from ``lake.past``, which reads the newest HEAD alone.
"""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Mapping

from pyiceberg.manifest import DataFile, FileFormat

from lakevilla.errors import VersionNotFound
from lakevilla.formats.base import Change
from lakevilla.formats.delta.actions import parse_entry
from lakevilla.formats.files import DataFile as AddedFile
from lakevilla.formats.files import RemovedFile, data_files
from lakevilla.global_log.commits import commit_key, read_commit
from lakevilla.global_log.head import CommitSummary, Head
from lakevilla.global_log.head_log import is_head
from lakevilla.global_log.history import Timeline
from lakevilla.lake.context import Context
from lakevilla.lake.past import past_at, view_at
from lakevilla.store.base import ANY
from lakevilla.store.codec import decode
from lakevilla.store.effects import Program
from lakevilla_testing.checks.invariants import Violated
from lakevilla_testing.tables.iceberg_reader import IcebergTable, read_metadata
from lakevilla_testing.tables.reader import run_now
from lakevilla_testing.world.store import SimulatedStore

#: Per table that was in the lake, its live files: each path, and the deleted rows, see ``spelled``.
_State = dict[str, frozenset[str]]


def past_is_as_it_was(
    store: SimulatedStore,
    context: Context,
    source: random.Random,
    *,
    count: int,
    passing: Collection[str] = (),
    may_be_missing: bool,
) -> int:
    """Compare ``count`` versions, drawn from ``source``, with their real states.

    ``passing``: tables that another client makes again, and which are left out. ``may_be_missing``:
    another client removes logs or history, so a version may be refused. Returns the number of
    compared states of tables.
    """
    held = run_now(store, context.head())
    if held is None:
        return 0
    timeline = Timeline.of(held.head)
    heads = heads_that_were(store, run_now(store, timeline.newest(None)))
    drawn = source.sample(sorted(heads), min(count, len(heads)))
    compared = 0
    for sequence in sorted(drawn):
        expected = state_of(store, heads[sequence], passing)
        for table, paths in expected.items():
            try:
                found = run_now(store, _reported(context, timeline, sequence, table))
            except VersionNotFound:
                if may_be_missing:
                    continue
                raise
            if found != paths:
                raise Violated(
                    f"{table} at global version {sequence} had the files {sorted(paths)} and is "
                    f"told to have had {sorted(found or ())}"
                )
            compared += 1
        reported_tables = set(run_now(store, past_at(timeline, sequence)).head.tables) - set(
            passing
        )
        if reported_tables != expected.keys():
            raise Violated(
                f"global version {sequence} had the tables {sorted(expected)} and is told to "
                f"have had {sorted(reported_tables)}"
            )
    return compared


def heads_that_were(store: SimulatedStore, kept: Iterable[CommitSummary]) -> dict[int, Head]:
    """Return by its sequence the last HEAD that ended with each of the commits ``kept``."""
    kept_commits = {
        commit.sequence: (commit.txn, commit.hash, commit.timestamp_ms) for commit in kept
    }
    heads: dict[int, Head] = {}
    for mutation in store.journal:
        if is_head(mutation.key) and mutation.after is not None:
            head = decode(mutation.key, mutation.after.body, Head)
            last = head.commits[-1] if head.commits else None
            # On a store without conditions a HEAD may be overwritten, and then never existed.
            if last is not None and kept_commits.get(last.sequence) == (
                last.txn,
                last.hash,
                last.timestamp_ms,
            ):
                heads[head.sequence] = head
    return heads


def _reported(
    context: Context, timeline: Timeline, sequence: int, table: str
) -> Program[frozenset[str] | None]:
    past = yield from past_at(timeline, sequence)
    if table not in past.head.tables:
        return None
    view = yield from view_at(context, past, table)
    files = yield from view.snapshot.files()
    return frozenset(map(spelled, data_files(files)))


def state_of(store: SimulatedStore, head: Head, passing: Collection[str]) -> _State:
    """Return the state that a HEAD describes, by the contents of the store at its time."""
    found: _State = {}
    written = bodies_that_were(store)
    for leaf in head.tables.missing():
        head.tables.take(leaf, written[leaf.key])
    for table, state in head.tables.items():
        if state.dropped or table in passing:
            continue
        live: set[str] = set()
        if state.format == "iceberg":
            live.update(_files_at(written, table, state.published))
        else:
            for version in range(state.published + 1):
                entry = f"{table}/_delta_log/{version:020}.json"
                apply_files(parse_entry(table, version, written[entry]).change, live)
        for ref in state.pending:
            key = commit_key(ref.txn, ref.hash)
            apply_files(read_commit(key, written[key]).tables[table].change, live)
        found[table] = frozenset(live)
    return found


def _files_at(written: Mapping[str, bytes], table: str, version: int) -> Collection[str]:
    """Return the live files of an Iceberg table's version, by objects that may be deleted since."""
    if version < 0:
        return ()
    metadata = f"{table}/metadata/"
    archive = SimulatedStore()
    for key, body in written.items():
        if key.startswith(metadata):
            archive.put(key, body, ANY)
    found = run_now(archive, read_metadata(table, version))
    assert found is not None, f"{table} never had a version {version}"
    vectors = found.vectors
    return {
        path if path not in vectors else f"{path} {_place(found, vectors[path])}"
        for path in found.live_files
    }


def _place(table: IcebergTable, vector: DataFile) -> str:
    if vector.file_format == FileFormat.PARQUET:
        return table.path(vector.file_path)
    offset = vector._data[18]
    return f"{table.path(vector.file_path)}@{offset}#{vector.record_count}"


def bodies_that_were(store: SimulatedStore) -> dict[str, bytes]:
    """Return every object that ever existed: log entries and commit objects never change.

    A metadata file that was cleaned up may be stored again by a client that slept: the first one
    was the version.
    """
    bodies: dict[str, bytes] = {}
    for mutation in store.journal:
        if mutation.after is not None:
            again = mutation.key in bodies and "/metadata/" in mutation.key
            bodies[mutation.key] = bodies[mutation.key] if again else mutation.after.body
    return bodies


def apply_files(change: Change, live: set[str]) -> None:
    """Remove a change's removed files from the live files, and add its added ones."""
    live.difference_update(map(spelled, change.removes))
    live.update(map(spelled, change.adds))


def spelled(file: AddedFile | RemovedFile) -> str:
    """Return a file as its path, and, behind a space, the vector with its deleted rows."""
    if file.deletion_vector is not None:
        return f"{file.path} {file.deletion_vector.id}#{file.deletion_vector.cardinality}"
    vectors = [
        f"{one.path}@{one.offset}#{one.rows}" if one.kind == "vector" else one.path
        for one in file.deletes
    ]
    return " ".join([file.path, *vectors])


def path_and_deleted(file: str) -> tuple[str, int | str]:
    """Return the path of a spelled file, and the number of its deleted rows, or the path of the
    position delete file that has them.
    """
    path, _, vector = file.partition(" ")
    if vector.endswith(".parquet"):
        return path, vector
    return path, int(vector.rpartition("#")[2]) if vector else 0
