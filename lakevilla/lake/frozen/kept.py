"""What the refs of a lake keep of a table: objects that nobody of the lake may delete."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from lakevilla.errors import InvalidOperation, TableNotFound, VersionNotFound
from lakevilla.global_log.bases import Base, load_base_tables, load_bases
from lakevilla.global_log.head import Head
from lakevilla.global_log.refs import is_at
from lakevilla.lake.context import Context
from lakevilla.lake.frozen.by_uri import uri_at
from lakevilla.lake.frozen.frozen import frozen_views, source_of_clone
from lakevilla.store.effects import Program
from lakevilla.store.location import is_external


@dataclass(slots=True)
class KeptByRefs:
    """The keys of objects, and the ids of Iceberg snapshots, that refs need of one table.

    ``lost``: for states that can't be told any more, why. What they need nobody knows.
    """

    keys: set[str] = field(default_factory=set)
    snapshots: set[int] = field(default_factory=set)
    lost: list[VersionNotFound] = field(default_factory=list)


def kept_of(context: Context, head: Head | None, location: str) -> Program[KeptByRefs]:
    """What the refs of a HEAD keep of a table.

    Raises
    ------
    CorruptObject
        A base is damaged or missing.
    """
    bases = [] if head is None else (yield from load_bases(head))
    return (yield from kept_by(context, bases, location))


def kept_by(context: Context, bases: Iterable[Base], location: str) -> Program[KeptByRefs]:
    """The same of bases that were loaded before."""
    kept = KeptByRefs()
    for view in (yield from frozen_views(context, bases, location)):
        if isinstance(view, VersionNotFound):
            kept.lost.append(view)
            continue
        if view.base.snapshot_id is not None:
            kept.snapshots.add(view.base.snapshot_id)
        try:
            kept.keys |= yield from context.formats.of(view.snapshot).objects_of(view.snapshot)
        except VersionNotFound as error:
            kept.lost.append(error)
    return kept


def kept_by_clones(context: Context, head: Head, location: str) -> Program[set[str]]:
    """The URIs of what clones keep of the source of a table that was one of theirs.

    Those in a HEAD, and those that its bases show: each holds what it is of.
    """
    bases = yield from load_bases(head)
    entries = [*head.refs.items(), *(item for base in bases for item in base.clones.items())]
    kept: set[str] = set()
    for name, entry in entries:
        if entry.kind != "clone" or not is_at(location, name):
            continue
        try:
            source = f"{entry.source}{location[len(name) :]}"
            snapshot = yield from source_of_clone(context, entry.base, source)
            keys = yield from context.formats.of(snapshot).objects_of(snapshot)
        except (TableNotFound, VersionNotFound):
            continue  # it has no such table, or nobody can tell any more what that needs
        kept |= {uri_at(context.root, key) for key in keys}
    return kept


def outside(context: Context, keys: Iterable[str]) -> set[str]:
    """The URIs of those of a table's objects that lie in the lake, and not in its own directory.

    A table that was part of a clone names them, and the clone keeps them.
    """
    start = uri_at(context.root, "")
    found = {uri_at(context.root, key) for key in keys if is_external(key)}
    return {uri for uri in found if uri.startswith(start)}


def refuse_kept(head: Head, location: str, verb: str) -> Program[None]:
    """Refuse to take a table out of the lake, or its files away, that a ref keeps.

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
            f"{'keeps' if len(names) == 1 else 'keep'} it: delete_ref first, if nobody needs that "
            "state any more",
            table=location,
        )
