"""Checks of refs: each base, compared with the HEADs that ever existed."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from lakevilla.errors import VersionNotFound
from lakevilla.formats.files import data_files, file_key
from lakevilla.global_log.bases import load_base_tables, load_bases
from lakevilla.global_log.head import Head
from lakevilla.global_log.head_log import is_head
from lakevilla.global_log.refs import RefEntry
from lakevilla.lake.context import Context, branch_of
from lakevilla.lake.frozen.frozen import frozen_view
from lakevilla.store.base import Missing
from lakevilla.store.codec import decode
from lakevilla_testing.checks.invariants import Violated
from lakevilla_testing.checks.past import path_and_deleted, spelled, state_of
from lakevilla_testing.tables.reader import run_now
from lakevilla_testing.world.store import SimulatedStore


def refs_are_as_they_were(
    store: SimulatedStore,
    context: Context,
    made: Iterable[tuple[str, RefEntry]],
    deleted: Collection[str],
    *,
    may_be_lost: bool,
) -> int:
    """Check that each ref shows each table in its original state, and that all its files exist.

    ``made`` are the acknowledged refs: they exist unless a client has tried to delete a ref of that
    name. ``may_be_lost``: foreign clients clean up logs, and don't know of refs. Returns the number
    of compared states of tables.
    """
    held = run_now(store, context.head())
    if held is None:
        return 0
    bases = {base.name: base for base in run_now(store, load_bases(held.head))}
    for name, entry in made:
        if name not in deleted and name not in bases:
            raise Violated(f"tag {name!r} ({entry.id}) was acknowledged, and is not there")
    heads = _heads(store)
    compared = 0
    for name, base in bases.items():
        run_now(store, load_base_tables(base))
        tables = {place for place, state in base.tables.items() if not state.dropped}
        # Of the commits that one replacement has decided together, only the state after the last
        # one ever existed.
        head = heads.get(base.sequence)
        expected = None if head is None else state_of(store, head, ())
        if expected is not None and tables != expected.keys():
            raise Violated(
                f"tag {name!r} of version {base.sequence} has the tables {sorted(tables)}, and "
                f"there were {sorted(expected)}"
            )
        for table in sorted(tables):
            try:
                view = run_now(store, frozen_view(context, base, table))
            except VersionNotFound as error:
                if may_be_lost:
                    continue
                raise Violated(f"tag {name!r} has lost table {table}: {error}") from error
            files = [spelled(one) for one in data_files(run_now(store, view.snapshot.files()))]
            # A copy replaces a file that the table no longer has, under another name.
            copied = {file for file in files if table in base.kept and branch_of(file)}
            if expected is not None and not _is_same(files, copied, expected[table]):
                raise Violated(
                    f"tag {name!r} of version {base.sequence} shows {table} with {sorted(files)}, "
                    f"and it had {sorted(expected[table])}"
                )
            paths = [path_and_deleted(file)[0] for file in files]
            missing = [p for p in paths if isinstance(store.head(file_key(table, p)), Missing)]
            if missing and not may_be_lost:
                raise Violated(f"tag {name!r} lacks {missing} of {table}")
            compared += 1
    return compared


def _is_same(files: Collection[str], copied: set[str], expected: frozenset[str]) -> bool:
    others = frozenset(files) - copied
    return others <= expected and len(expected) == len(others) + len(copied)


def _heads(store: SimulatedStore) -> dict[int, Head]:
    """Return the last HEAD of each global version that ever existed."""
    found: dict[int, Head] = {}
    for mutation in store.journal:
        if is_head(mutation.key) and mutation.after is not None:
            head = decode(mutation.key, mutation.after.body, Head)
            found[head.sequence] = head
    return found
