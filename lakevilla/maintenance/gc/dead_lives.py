"""What is left of branches that have ended: their directories, and files of tables that are theirs.

A life that no ref of HEAD has, and whose number HEAD has come past, is owned by nobody, and never
will be. Its HEAD goes last: it alone tells of tables that were made on the branch.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from lakevilla.errors import CorruptObject, UnsupportedFormat
from lakevilla.global_log.bases import Base, load_base_tables
from lakevilla.global_log.commits import commit_key
from lakevilla.global_log.head import Head
from lakevilla.global_log.head_log import is_head
from lakevilla.global_log.repo import load_head, load_tables
from lakevilla.lake.context import Context
from lakevilla.lake.file_names import branch_directory
from lakevilla.lake.frozen.kept import kept_by
from lakevilla.lake.frozen.lives import BranchLives
from lakevilla.lake.tables.deletable import held_back
from lakevilla.store.effects import Program, list_objects
from lakevilla.store.home import HOMES_PREFIX, at_home


def left_of_branches(
    context: Context,
    head: Head,
    bases: Sequence[Base],
    named: Collection[str],
    listed: Iterable[str],
    left: dict[str, str],
) -> Program[tuple[list[str], list[str]]]:
    """What may be deleted of the directories of branches, and of tables that only they have.

    ``named`` are the leaves that HEAD and its bases need. Into ``left`` go the places where
    nothing may be deleted, and why. Returns the keys that go first, and the HEADs, which go after
    them.
    """
    of: dict[str, list[str]] = {}
    lives = yield from BranchLives.of(head)
    for key in listed:
        life = key.removeprefix(f"{HOMES_PREFIX}/").partition("/")[0]
        if lives.is_dead(life):
            of.setdefault(life, []).append(key)
    if not of:
        return [], []
    kept = {*named, *(yield from _commits_of(bases)), *_kept_apart(bases)}
    first: list[str] = []
    last: list[str] = []
    for life, keys in sorted(of.items()):
        files, held = yield from _files(context, head, bases, life, left)
        heads = [key for key in keys if is_head(key)]
        rest = [key for key in keys if key not in kept and not is_head(key)]
        first += [*files, *rest]
        if not held and len(rest) + len(heads) == len(keys):
            last += heads
    return first, last


def _commits_of(bases: Iterable[Base]) -> Program[set[str]]:
    """The commit objects that bases need of any life."""
    keys = set()
    for base in bases:
        yield from load_base_tables(base)
        for state in base.tables.values():
            keys |= {commit_key(ref.txn, ref.hash, ref.life) for ref in state.pending if ref.life}
    return keys


def _kept_apart(bases: Iterable[Base]) -> set[str]:
    """The states that bases keep apart from the tables' logs, whosever life they are of."""
    return {kept.key for base in bases for kept in base.kept.values()}


def _files(
    context: Context, head: Head, bases: Sequence[Base], life: str, left: dict[str, str]
) -> Program[tuple[list[str], bool]]:
    """The files of tables that the lake has not, and whether any of them is needed yet.

    Those of its own tables are among what lies in their directories.
    """
    try:
        held = yield from at_home(life, load_head())
        yield from load_tables(None if held is None else held.head)
    except (CorruptObject, UnsupportedFormat):
        return [], False  # what it touched is not known any more
    if held is None:
        return [], False
    doomed: list[str] = []
    kept = False
    for location, state in held.head.tables.items():
        if location in head.tables:
            continue
        if why := (yield from held_back(context, head, location, state.table_id)):
            left[location] = why
            continue
        listed = yield from list_objects(branch_directory(location, life))
        needed = yield from kept_by(context, bases, location)
        keys = {info.key for info in listed}
        kept = kept or bool(needed.lost) or bool(keys & needed.keys)
        doomed += [] if needed.lost else sorted(keys - needed.keys)
    return doomed, kept
