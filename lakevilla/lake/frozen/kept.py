"""The files that tags, branches and clones keep."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lakevilla.errors import InvalidOperation, TableNotFound, VersionNotFound
from lakevilla.formats.base import FormatName, TableSnapshot
from lakevilla.formats.delta.deletion_vectors import paths_of
from lakevilla.formats.files import DataFile, data_files, file_key
from lakevilla.global_log.bases import Base, load_base_tables, load_bases
from lakevilla.global_log.head import Head
from lakevilla.global_log.refs import RefEntry, is_at, number_of_epoch
from lakevilla.global_log.repo import load_refs
from lakevilla.lake.context import Context, Tail, branch_of, owner_of
from lakevilla.lake.frozen.frozen import frozen_views, source_of_clone, uri_at
from lakevilla.lake.frozen.mounts import load_clones
from lakevilla.lake.table_log import refresh
from lakevilla.store.base import Missing, ObjectInfo
from lakevilla.store.effects import Program, Stat, parallel
from lakevilla.store.location import is_external

# -------------------- kept
#
# The objects of a table that the refs of a lake keep: no client of the lake may delete them.

#: A time in milliseconds that is later than any other.
AT_ANY_TIME = 1 << 62
#: The objects that refs keep of a table are cached if they take at most this, and each this.
_CACHED_BYTES = 4 * 1024 * 1024
_KEY_BYTES = 100


@dataclass(slots=True)
class KeptByRefs:
    """The keys of objects, and the ids of Iceberg snapshots, that refs need of one table.

    ``lost``: the errors for states that can't be read any more. The objects that these states need
    are not known.
    """

    keys: set[str] = field(default_factory=set)
    snapshots: set[int] = field(default_factory=set)
    lost: list[VersionNotFound] = field(default_factory=list)


def kept_of(context: Context, head: Head | None, location: str) -> Program[KeptByRefs]:
    """Return what the refs of a HEAD keep of a table.

    Raises
    ------
    CorruptObject
        A base is damaged or missing.
    """
    if head is None:
        return KeptByRefs()
    yield from load_refs(head)
    # Bases never change, nor do the states that they name: so the same bases keep the same objects.
    hashes = " ".join(sorted({ref.hash for entry in head.refs.values() for ref in entry.bases}))
    name = f"kept by refs {context.epoch} {location} {hashes}"
    known = context.commits.get(name)
    if isinstance(known, KeptByRefs):
        return known
    kept = yield from kept_by(context, (yield from _known_bases(context, head, hashes)), location)
    size = len(name) + sum(_KEY_BYTES + len(key) for key in kept.keys)
    if not kept.lost and size <= _CACHED_BYTES:
        context.commits.keep(name, kept, size)
    return kept


def _known_bases(context: Context, head: Head, hashes: str) -> Program[list[Base]]:
    """Return the bases of a HEAD, which the vacuums of several tables decode once."""
    known = context.commits.get(f"bases {hashes}")
    if isinstance(known, list):
        return known
    bases = yield from load_bases(head)
    # Bases that list leaves would keep those in memory that are fetched for them.
    size = len(hashes) + sum(_KEY_BYTES * (8 + 4 * len(base.tables.cached())) for base in bases)
    if size <= _CACHED_BYTES and not any(base.tables.refs for base in bases):
        context.commits.keep(f"bases {hashes}", bases, size)
    return bases


def kept_by(context: Context, bases: Iterable[Base], location: str) -> Program[KeptByRefs]:
    """Return what the refs of ``bases``, which the caller has loaded, keep of a table."""
    kept = KeptByRefs()
    states: dict[FormatName, list[TableSnapshot]] = defaultdict(list)
    for view in (yield from frozen_views(context, bases, location)):
        if isinstance(view, VersionNotFound):
            kept.lost.append(view)
            continue
        if view.base.snapshot_id is not None:
            kept.snapshots.add(view.base.snapshot_id)
        states[view.snapshot.format].append(view.snapshot)
    for name, snapshots in states.items():
        keys, lost = yield from context.formats[name].objects_of_each(snapshots)
        kept.keys |= keys
        kept.lost += lost
    return kept


def kept_by_clones(
    context: Context, clones: Mapping[str, RefEntry], location: str
) -> Program[set[str]]:
    """Return the URIs of the source's objects that clones keep for a table that they have shown.

    The state that has a clone is HEAD or a base. For the tables of that state, the clone keeps the
    objects of its source. A clone does not end as long as one of these tables needs them.
    """
    kept: set[str] = set()
    for name, entry in clones.items():
        if not is_at(location, name):
            continue
        try:
            source = f"{entry.source}{location[len(name) :]}"
            snapshot = yield from source_of_clone(context, entry.base, source)
            keys = yield from context.formats.of(snapshot).objects_of(snapshot)
        except (TableNotFound, VersionNotFound):
            continue  # the clone has no such table, or its objects are not known any more
        kept |= {uri_at(context.root, key) for key in keys}
    return kept


def outside(context: Context, keys: Iterable[str]) -> set[str]:
    """Return the URIs of a table's objects that are in the lake, but not in the table's directory.

    Only a table that a clone has shown names such objects, and the clone keeps them.
    """
    start = uri_at(context.root, "")
    found = {uri_at(context.root, key) for key in keys if is_external(key)}
    return {uri for uri in found if uri.startswith(start)}


def refuse_kept(head: Head, location: str, verb: str) -> Program[None]:
    """Refuse to remove a table from the lake, or to delete its files, if a ref keeps the table.

    Raises ``InvalidOperation``, with the names of the refs.
    """
    names = set()
    for base in (yield from load_bases(head)):
        yield from load_base_tables(base, [location])
        if base.has(location):
            names.add(base.name)
    if names:
        raise InvalidOperation(
            f"{verb} {location}: {', '.join(map(repr, sorted(names)))} "
            f"{'keeps' if len(names) == 1 else 'keep'} it: delete_ref first, if that state is not "
            "needed any more",
            table=location,
        )


# -------------------- still kept
#
# A check that files which a table had once still exist, and stay until a new HEAD names them.
#
# Each file is checked against a HEAD and the newest log, whichever state had the file. This is
# safe because a client that deletes files replaces HEAD first, or keeps what HEAD keeps. If a
# vacuum has replaced HEAD after the check, the caller's replacement of the checked HEAD is refused;
# a vacuum that comes later sees the caller's HEAD.


def kept_marks(head: Head, location: str) -> tuple[object, ...]:
    """Return the part of a HEAD that decides which files of the table may be deleted.

    While the marks are equal, the same files may be deleted. The marks are all that HEAD says of
    the table: every vacuum keeps the files of log entries that no HEAD knows yet, whatever times
    the clocks of their writers gave them.
    """
    return head.tables.get(location), head.floor, head.aborted


def refuse_unkept(
    context: Context, head: Head, location: str, files: Sequence[DataFile]
) -> Program[bool]:
    """Refuse files that were deleted, or that a client may be deleting.

    Return whether some of the files stay only because a ref of this HEAD keeps them.

    Raises
    ------
    VersionNotFound
    """
    if not files:
        return False
    of_clone = yield from _refuse_unkept_files(context, head, location, files)
    tail = yield from refresh(context, location)
    wanted = yield from _not_live(tail, files)
    if not wanted:
        return of_clone
    # All files of an epoch that a ref owns stay.
    epochs = yield from BranchEpochs.of(head)
    named = {path for file in wanted for path in paths_of(location, file)}
    paths = {path for path in named if not epochs.owns(path)}
    by_branch = paths < named
    if of_clone:
        paths = {path for path in paths if not outside(context, {file_key(location, path)})}
    if not paths:
        return True
    keys = {file_key(location, path) for path in paths}
    infos: list[ObjectInfo | Missing] = yield from parallel([Stat(key) for key in sorted(keys)])
    for key, info in zip(sorted(keys), infos, strict=True):
        if isinstance(info, Missing):
            raise _not_kept(location, f"{key} was removed")
    why = yield from _may_go(context, head, tail, paths)
    if why is None:
        return by_branch or of_clone
    kept = yield from kept_of(context, head, location)
    if keys <= kept.keys:
        return True
    raise _not_kept(location, why)


def _refuse_unkept_files(
    context: Context, head: Head, location: str, files: Sequence[DataFile]
) -> Program[bool]:
    """Refuse files of another table that no clone in HEAD keeps; return whether a clone keeps some.

    Such a file is refused even if the log still has it: HEAD's state may lack it, and a clone may
    end once HEAD's tables need none of its files. A clone that only a base has is not enough: the
    base's ref may be deleted, whatever files the lake's tables name.
    """
    needed = outside(context, {key for file in files for key in _keys(location, file)})
    if not needed:
        return False
    kept = yield from kept_by_clones(context, (yield from load_clones(head)), location)
    if not needed <= kept:
        raise VersionNotFound(
            f"the state of table {location} then has files of another table, "
            f"{min(needed - kept)} among them, and no clone of this lake keeps those any more: "
            "copy its rows from a tag or branch that has it, or choose a newer state",
            table=location,
        )
    return True


def _not_live(tail: Tail, files: Iterable[DataFile]) -> Program[list[DataFile]]:
    """Return the files that the newest log lacks: no client deletes a file that the log has."""
    if tail.tip < 0:
        return list(files)
    live = {file.ref for file in data_files((yield from tail.snapshot.files()))}
    return [file for file in files if file.ref not in live]


def _may_go(context: Context, head: Head, tail: Tail, paths: set[str]) -> Program[str | None]:
    """Return the reason why a client may be deleting the object at one of the paths, or None."""
    location = tail.location
    if tail.tip < 0:
        return "its log is missing"
    table_format = context.formats.of(tail.snapshot)
    owners = {path: owner_of(path) for path in paths}
    fenced = {p for p, owner in owners.items() if owner is not None and head.is_fenced(owner[1])}
    fenced |= {path for path in paths if branch_of(path) is not None}
    if fenced:
        # gc deletes the files of fenced transactions, and of branches that have ended, if no log
        # entry names them.
        named = yield from table_format.named_in_log(tail.snapshot)
        if not fenced <= named:
            return f"{file_key(location, min(fenced - named))} belongs to no table, or was replaced"
    state = head.tables.get(location)
    vacuumed_ms = None if state is None else state.vacuumed_ms
    if vacuumed_ms is not None:
        # This is how the vacuum has decided what to keep, except that Iceberg refs with an age
        # limit count as expired: the vacuum took their ages by the store's clock, at a time that is
        # not known here.
        left = table_format.without_expired(tail.snapshot, vacuumed_ms, AT_ANY_TIME)
        kept = yield from table_format.named_objects(left, vacuumed_ms)
        keys = {file_key(location, path) for path in paths}
        if not keys <= kept:
            return f"{min(keys - kept)} was vacuumed, or may be"
    return None


def _keys(location: str, file: DataFile) -> set[str]:
    return {file_key(location, path) for path in paths_of(location, file)}


def _not_kept(location: str, why: str) -> VersionNotFound:
    return VersionNotFound(
        f"the state of table {location} then is not kept any more: {why}; choose a newer state",
        table=location,
    )


# -------------------- epochs
#
# The epochs of branches that a ref owns; files of any other epoch belong to no branch.


@dataclass(frozen=True, slots=True)
class BranchEpochs:
    """The epochs that the refs of a HEAD own, and the number of that HEAD's replacement."""

    owned: frozenset[str]
    replacement: int

    @classmethod
    def of(cls, head: Head | None) -> Program[BranchEpochs]:
        """Return the epochs of a HEAD, whose refs are fetched; without a HEAD there are none."""
        yield from load_refs(head)
        if head is None:
            return cls(frozenset(), -1)
        owned = {epoch for entry in head.refs.values() for epoch in entry.epochs}
        return cls(frozenset(owned), head.replacement)

    def is_dead(self, epoch: str) -> bool:
        """Return whether no branch owns an epoch, nor ever will.

        This is so if HEAD has reached the replacement for which the epoch was made, and none of its
        refs owns the epoch.
        """
        made = number_of_epoch(epoch)
        return made is not None and made <= self.replacement and epoch not in self.owned

    def owns(self, path: str) -> bool:
        """Return whether a file, by its path in a table, is of a branch that may still exist."""
        epoch = branch_of(path)
        return epoch is not None and not self.is_dead(epoch)
