"""The lake as the gateway's routes use it: namespaces, names, and states of tables.

The catalog keeps nothing: each call reads what is on the store, by a client of the lake.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from lakevilla.api.catalog.pages import ListedTable
from lakevilla.api.given import (
    TableChange,
    TableWish,
    give,
    make,
    make_branch_directory,
    rename,
    stage,
)
from lakevilla.api.lake import Lake
from lakevilla.errors import InvalidOperation, RefNotFound, TableNotFound, VersionNotFound
from lakevilla.formats.iceberg.metadata.file import Metadata
from lakevilla.formats.iceberg.metadata.updates import added_snapshots, adds_files
from lakevilla.formats.iceberg.snapshot import IcebergSnapshot
from lakevilla.global_log.head import Head, TableState
from lakevilla.global_log.namespaces import (
    ROOT,
    Namespace,
    change_properties,
    drop_namespace,
    made_namespaces,
    make_namespace,
    properties_of,
)
from lakevilla.global_log.refs import MAIN
from lakevilla.global_log.repo import load_tables
from lakevilla.lake.context import Context, inner_branch_of
from lakevilla.lake.frozen.mounts import mount_of
from lakevilla.lake.publishing.publish import publish_table
from lakevilla.lake.table_log import open_tail, probe
from lakevilla.lake.view import View, build_view
from lakevilla.serve.delta.footers import Footers
from lakevilla.serve.delta.state import shown_delta
from lakevilla.serve.names import (
    dotted,
    identifier_of,
    lake_names,
    new_name,
    prefix_of,
)
from lakevilla.serve.paging import NamespaceToken, digest_of, page_of, token_refused
from lakevilla.serve.refusal import (
    Refusal,
    already_there,
    may_have_been_merged,
    no_namespace,
    no_table,
    not_built,
)
from lakevilla.serve.states import State, names_version, prefix_of_state, shown, state_of
from lakevilla.store.effects import Program
from lakevilla.store.location import is_external, normalise_location, parse_location

#: How often the commits that are decided are published before a load gives up.
_TRIES = 5
#: After so many seconds a client may ask again for a table whose log was busy.
_RETRY_SECONDS = 2
#: The requirement of a request that makes a table.
_CREATES = "assert-create"
#: The status and type of each outcome of a commit that is not done.
_OUTCOMES = {
    "conflict": (409, "CommitFailedException"),
    "exists": (409, "AlreadyExistsException"),
    "busy": (429, "TooManyRequestsException"),
    "invalid": (400, "BadRequestException"),
    "unsupported": (406, "UnsupportedOperationException"),
    "missing": (404, "NoSuchTableException"),
    "protected": (403, "ForbiddenException"),
    "unknown": (500, "CommitStateUnknownException"),
}


@dataclass(frozen=True, slots=True)
class Change:
    """A table's part of a commit, as a client sends it."""

    table: tuple[Namespace, str]
    requirements: Sequence[Mapping[str, Any]]
    updates: Sequence[Mapping[str, Any]]


@dataclass(frozen=True, slots=True)
class Found:
    """A table that a request names.

    Attributes
    ----------
    name : str
        Its name in the lake.
    location : str
        Where it lies, relative to the lake's root if it is below.
    state : TableState
        Its entry in ``head``.
    head : Head
        The newest state of the lake.
    """

    name: str
    location: str
    state: TableState
    head: Head


class Catalog:
    """The tables of a lake as Iceberg's REST protocol sees them.

    Parameters
    ----------
    lake : Lake
        The lake, on its main line.
    read_only : bool
        Whether nothing is written, decided commits included.
    state : State, optional
        Another state of the lake, which is only read.
    footers : Footers, optional
        What the process knows of the files of Delta tables.
    """

    def __init__(
        self,
        lake: Lake,
        *,
        read_only: bool = False,
        state: State | None = None,
        footers: Footers | None = None,
    ) -> None:
        self._lake, self._client = lake, lake._client
        self._state, self._is_newest = state or State(lake), state is None
        self._footers = footers or Footers()
        self._writes_nothing = read_only
        #: Whether all requests that change something are refused.
        self.read_only = read_only or (state is not None and not state.is_branch)
        #: Whether those that make, drop or rename something are refused.
        self.keeps_names = state is not None

    @property
    def lake(self) -> Lake:
        """The lake, on its main line."""
        return self._lake

    def at(self, prefix: str | None) -> Catalog:
        """Return the catalog of a state, by the word that names it in paths.

        Raises
        ------
        Refusal
            The lake has no such state.
        """
        if prefix is None or prefix == MAIN:
            return self
        try:
            state = state_of(self._lake, prefix)
        except (RefNotFound, VersionNotFound, InvalidOperation) as error:
            raise Refusal(404, "NoSuchWarehouseException", error.message) from None
        return Catalog(
            self._lake, read_only=self._writes_nothing, state=state, footers=self._footers
        )

    def refuse_state_alone(self, warehouse: str) -> None:
        """Refuse a warehouse that is called as a state is: its client would write the lake itself.

        Raises
        ------
        Refusal
            A ref has this name, or it is how a version is named.
        """
        if warehouse in ("", "lake"):
            return
        if names_version(warehouse) or any(warehouse == ref.name for ref in self._lake.refs()):
            message = (
                f"warehouse {warehouse!r} has the name of a state of the lake: write "
                f"'lake@{warehouse}' for the state, or 'lake' for the lake itself"
            )
            raise Refusal(404, "NoSuchWarehouseException", message)

    def prefix_of(self, name: str) -> str:
        """Return the word that names a state in paths: of a ref, a version, or ``now``.

        Raises
        ------
        Refusal
            The lake has no such state.
        """
        prefix = prefix_of_state(self._lake, name)
        if prefix == MAIN:
            return prefix
        try:
            self.at(prefix)._state.tables(limit=1)  # it can be read
        except VersionNotFound as error:
            raise Refusal(404, "NoSuchWarehouseException", error.message) from None
        return prefix

    # -- namespaces ----------------------------------------------------------------

    def namespaces(
        self, parent: Namespace, size: int | None, after: str | None
    ) -> tuple[Sequence[Namespace], str | None]:
        """Return namespaces directly below ``parent``, sorted, and the token of the next page.

        Raises
        ------
        Refusal
            There is no such parent; or ``after`` is no token, or of a state that is gone.
        """
        known = None if after is None else NamespaceToken.read(after)
        made = self._client.run(made_namespaces())
        listed, tables = self._listed_again(known)
        token = NamespaceToken(tables, digest_of(made), () if known is None else known.last)
        if known is not None and known.made != token.made:
            raise token_refused(
                "namespaces were made or dropped since the first page: begin with it again"
            )
        there = _with_parents([ROOT, *made, *_directories(listed)])
        if parent and parent not in there:
            raise no_namespace(dotted(parent))
        depth = len(parent)
        found = sorted(one for one in there if len(one) == depth + 1 and one[:depth] == parent)
        return page_of(found, size, token, begun=known is not None)

    def _listed_again(self, known: NamespaceToken | None) -> tuple[Sequence[ListedTable], str]:
        """Return all tables, in the state of the pages before, and the token of that state."""
        if known is None:
            return self._state.all_tables(None)
        if not known.tables:
            listed, tables = self._state.all_tables(None)
            if tables:
                raise token_refused("the first page was of an empty lake: begin with it again")
            return listed, tables
        try:
            return self._state.all_tables(known.tables)
        except (InvalidOperation, VersionNotFound) as error:
            raise token_refused(error.message) from None

    def properties(self, namespace: Namespace) -> Mapping[str, str]:
        """Return a namespace's properties.

        Raises
        ------
        Refusal
            There is no such namespace.
        """
        made = self._client.run(properties_of(namespace))
        if made is None and not self._has_below(namespace):
            raise no_namespace(dotted(namespace))
        return made or {}

    def make_namespace(self, namespace: Namespace, properties: Mapping[str, str]) -> None:
        """Make a namespace.

        Raises
        ------
        Refusal
            It exists.
        """
        self._client.ensure_safe_store()
        nonce = self._client.context.ids.nonce()
        there = self._has_below(namespace)
        if there or not self._client.run(make_namespace(namespace, properties, nonce)):
            raise already_there("Namespace", dotted(namespace))

    def change_properties(
        self, namespace: Namespace, updates: Mapping[str, str], removals: Collection[str]
    ) -> Mapping[str, str]:
        """Set and remove properties of a namespace; return those that it had before."""
        self.properties(namespace)  # it exists
        self._client.ensure_safe_store()

        def changed(known: Mapping[str, str]) -> Mapping[str, str]:
            return {k: v for k, v in known.items() if k not in removals} | dict(updates)

        nonce = self._client.context.ids.nonce
        return self._client.run(change_properties(namespace, changed, nonce))

    def drop_namespace(self, namespace: Namespace) -> None:
        """Drop an empty namespace.

        Raises
        ------
        Refusal
            There is no such namespace, or it has tables or namespaces.
        """
        self.properties(namespace)
        within = any(one[: len(namespace)] == namespace for one in self._namespaces() - {namespace})
        if within or self._has_below(namespace):
            message = f"namespace {dotted(namespace)} is not empty: drop what is in it first"
            raise Refusal(409, "NamespaceNotEmptyException", message)
        self._client.run(drop_namespace(namespace))

    def _namespaces(self) -> set[Namespace]:
        """Return all namespaces: those that were made, and the directories of tables."""
        made = self._client.run(made_namespaces())
        return _with_parents([ROOT, *made, *_directories(self._state.tables())])

    def _has_below(self, namespace: Namespace) -> bool:
        """Return whether tables lie in a namespace, or in one below it; True for the root's."""
        if namespace == ROOT:
            return True
        prefix = prefix_of(namespace)
        if prefix is not None:
            return bool(self._state.tables(prefix, limit=1))
        listed = self._state.tables()
        return any(identifier_of(one.name)[0][: len(namespace)] == namespace for one in listed)

    # -- tables --------------------------------------------------------------------

    def tables(
        self, namespace: Namespace, size: int | None, after: str | None
    ) -> tuple[list[str], str | None]:
        """Return tables of a namespace, and the token of the next page; all without ``size``.

        Raises
        ------
        Refusal
            There is no such namespace; or ``after`` is no token of this state, or is of a version
            that is gone.
        """
        try:
            page = self._state.tables(prefix_of(namespace), after=after, limit=size)
        except (InvalidOperation, VersionNotFound) as error:
            if after is None:
                raise
            raise token_refused(error.message) from None
        names = (identifier_of(one.name) for one in page if "://" not in one.name)
        found = [name for where, name in names if where == namespace]
        if not found and after is None:
            self.properties(namespace)  # it exists
        return found, page.next

    def find(self, namespace: Namespace, table: str, head: Head | None = None) -> Found:
        """Return the table of that name. ``head``: the newest HEAD, if it was just read.

        Raises
        ------
        Refusal
            There is none, or there are two, or a clone shows it that has no log yet.
        """
        head = self._client.head() if head is None else head
        found: dict[str, Found] = {}
        for name in lake_names(namespace, table) if head is not None else ():
            try:
                location = self._client.resolve(self._client.names(head, name), name, head)
            except (TableNotFound, InvalidOperation):
                continue  # the lake can't have a table of this name
            assert head is not None
            self._client.run(load_tables(head, [location]))
            state = head.tables.get(location)
            if state is not None and not (state.dropped or state.view):
                found.setdefault(location, Found(name, location, state, head))
            elif (mount := self._client.run(mount_of(head, location))) is not None:
                raise _unwritten(dotted(namespace, table), mount.source)
        if not found:
            raise no_table(dotted(namespace, table))
        if len(found) > 1:
            # If one of them were meant, a request to drop it that comes again would mean the other.
            names = " and ".join(one.name for one in found.values())
            message = f"{dotted(namespace, table)} is {names}: rename one with `lakevilla rename`"
            raise Refusal(400, "BadRequestException", message)
        return next(iter(found.values()))

    def has(self, namespace: Namespace, table: str) -> None:
        """Refuse a table that does not exist in this state."""
        if self._is_newest:
            self.find(namespace, table)
        else:
            self._view(namespace, table)

    def load(self, namespace: Namespace, table: str) -> tuple[Metadata, str]:
        """Return the metadata of an Iceberg table, and the URI of the file that has it.

        Decided commits that the table's log lacks are published first; of another state than the
        newest, a file is made that has them.

        Raises
        ------
        Refusal
            There is no such table, it can't be shown, or its log was too busy.
        """
        return self._newest(namespace, table) if self._is_newest else self._then(namespace, table)

    def _then(self, namespace: Namespace, table: str) -> tuple[Metadata, str]:
        (_, view), name = self._view(namespace, table), dotted(namespace, table)
        if view.snapshot.format == "delta":
            return self._as_iceberg(view, name)
        if view.mount is not None:
            raise _unwritten(name, view.mount.source)
        if view.placement.overlay and self._writes_nothing:
            raise not_built(f"make metadata of this state of {name} with --read-only")
        client = self._client
        if self._state.is_branch and not self._writes_nothing:
            client = self._state.lake._client  # which tells where the branch's files lie
            make_branch_directory(client, view.location)
        found = client.run(shown(client.context, view))
        if found is None:
            raise not_built(f"show the format of table {name}")
        return found

    def _as_iceberg(self, view: View, name: str) -> tuple[Metadata, str]:
        """Return what Iceberg clients are shown of a state of a Delta table."""
        makes, context = not self._writes_nothing, self._client.context
        found = self._client.run(shown_delta(context, view, self._footers, makes=makes))
        if found is None:
            raise not_built(f"make metadata of this state of {name} with --read-only")
        return found

    def _view(self, namespace: Namespace, table: str) -> tuple[str, View]:
        """Return the name in the lake of a table of this state, and what the table is there."""
        for name in lake_names(namespace, table):
            with suppress(TableNotFound, InvalidOperation):
                view = self._state.view(name)
                if not view.snapshot.is_view:
                    return name, view
        raise no_table(dotted(namespace, table))

    def _newest(self, namespace: Namespace, table: str) -> tuple[Metadata, str]:
        found = self.find(namespace, table)
        name = dotted(namespace, table)
        client = self._client
        if found.state.format != "iceberg":
            view = client.run(_newest_view(client.context, found))
            return self._as_iceberg(view, name)
        if found.state.catalog:
            raise not_built(f"show tables of another catalog: load {name} there")
        base = client.run(_published(client.context, found, publishes=not self._writes_nothing))
        if base is None or base.document is None or base.document_uri is None:
            reason = (
                "a read-only gateway publishes none" if self._writes_nothing else "its log is busy"
            )
            raise Refusal(
                503,
                "ServiceUnavailableException",
                f"table {name} has decided commits that are not in its log yet, and {reason}: try "
                "again",
                retry_seconds=_RETRY_SECONDS,
            )
        return base.document, base.document_uri

    def make(self, namespace: Namespace, wish: TableWish) -> tuple[Metadata, str]:
        """Make a table, and return its metadata and the URI of the file that has it.

        Raises
        ------
        Refusal
            There is no such namespace, or the name is taken.
        """
        self.properties(namespace)  # it exists
        self._refuse_taken(namespace, wish.name)
        make(self._lake, new_name(namespace, wish.name), wish)
        return self.load(namespace, wish.name)

    def stage(self, namespace: Namespace, wish: TableWish) -> dict[str, Any]:
        """Return the metadata of a table that a later commit makes.

        Raises
        ------
        Refusal
            There is no such namespace, or the name is taken.
        """
        self.properties(namespace)
        self._refuse_taken(namespace, wish.name)
        return stage(self._lake, new_name(namespace, wish.name), wish)

    def commit(self, changes: Sequence[Change], key: str | None) -> dict[str, tuple[Metadata, str]]:
        """Commit a request's changes of tables in one version of the lake, or none of them.

        Returns
        -------
        dict
            The newest metadata of each table and the URI of its file, by the table's location.

        Raises
        ------
        Refusal
            The request is not done; 409 only where nothing of it took effect, and never will.
        """
        if self.read_only:
            raise self._refused_here(changes)
        try:
            head = None if self._state.is_branch else self._client.head()
            asked = [self._asked(change, head) for change in changes]
            answer = give(self._state.lake, asked, key=key, head=head)
        except RefNotFound as error:
            raise may_have_been_merged(error.message) from None
        except Refusal as refusal:
            if refusal.status == 404 and self._state.is_branch:
                raise may_have_been_merged(refusal.message) from None
            if isinstance(refusal, _Elsewhere) and any(adds_files(one.updates) for one in changes):
                raise Refusal(500, "CommitStateUnknownException", refusal.message) from None
            raise
        if answer.outcome != "done":
            status, kind = _OUTCOMES[answer.outcome]
            after = _RETRY_SECONDS if answer.outcome == "busy" else None
            raise Refusal(status, kind, answer.message, after)
        return {
            location: (document, self._client.uri_of(document.key))
            for location, document in answer.tables.items()
        }

    def _refused_here(self, changes: Sequence[Change]) -> Refusal:
        """Return the answer to a commit where nothing is committed.

        A tag may have the name of a branch that was merged, with the commit, and deleted.
        """
        message = "only read here: tags and versions are, and a gateway with --read-only"
        lists = [uri for change in changes for uri in _lists_of(change)]
        if not self._writes_nothing and any(inner_branch_of(uri) for uri in lists):
            return may_have_been_merged(
                f"{message}; the request was made for a branch, which may have been merged with it"
            )
        return Refusal(403, "ForbiddenException", message)

    def _asked(self, change: Change, head: Head | None) -> TableChange:
        """Return a change as the lake is asked for it."""
        if any(one.get("type") == _CREATES for one in change.requirements):
            name = new_name(*change.table)
            return TableChange(name, change.requirements, change.updates, makes=True)
        name = dotted(*change.table)
        if self._state.is_branch:
            known, view = self._view(*change.table)
            if view.snapshot.format != "iceberg":
                raise self._not_written(change, view.location, _is_delta(name))
            return TableChange(known, change.requirements, change.updates)
        try:
            one = self.find(*change.table, head)
        except Refusal as refusal:
            raise _Elsewhere(refusal.status, refusal.kind, refusal.message) from None
        if one.state.format != "iceberg":
            raise self._not_written(change, one.location, _is_delta(name))
        if one.state.catalog:
            what = not_built(f"write tables of another catalog: commit to {name} there")
            raise self._not_written(change, one.location, what)
        return TableChange(one.name, change.requirements, change.updates)

    def _not_written(self, change: Change, location: str, refusal: Refusal) -> Refusal:
        """Return the answer to a commit to a table that no Iceberg client writes by the gateway.

        A client stores its files below the table's location. If they lie elsewhere, the request
        was made for a table that had the name before, and may be part of that.
        """
        for uri in _lists_of(change):
            try:
                place = normalise_location(self._lake.root, uri)
            except InvalidOperation:
                continue  # no table of the lake has such a file
            if not place.startswith(f"{location}/"):
                return _Elsewhere(refusal.status, refusal.kind, refusal.message)
        return refusal

    def drop(self, namespace: Namespace, table: str, *, purge: bool) -> None:
        """Remove a table from the lake; with ``purge``, delete its data, too.

        Raises
        ------
        Refusal
            There is no such table, or a tag, a branch or a clone needs it.
        """
        found = self.find(namespace, table)
        try:
            if purge:
                self._lake.drop_table(found.name, delete_data=True)
            else:
                self._lake.unregister(found.name)
        except InvalidOperation as error:
            raise Refusal(409, "CommitFailedException", error.message) from None

    def rename(self, source: tuple[Namespace, str], target: tuple[Namespace, str]) -> None:
        """Give a table another name.

        Raises
        ------
        Refusal
            There is no such table or namespace, or the new name is taken.
        """
        found = self.find(*source)
        self.properties(target[0])  # it exists
        self._refuse_taken(*target)
        rename(self._lake, found.name, found.location, new_name(*target))

    def register(self, namespace: Namespace, table: str, metadata_location: str) -> None:
        """Add an Iceberg table below the lake's root to the lake, by its newest metadata file.

        Raises
        ------
        Refusal
            There is no such namespace, the name is taken, or the file is not the newest of a table.
        """
        self.properties(namespace)
        self._refuse_taken(namespace, table)
        directory, slash, _ = metadata_location.rpartition("/metadata/")
        if not slash:
            message = f"{metadata_location} is no metadata file of a table: it lies in no metadata/"
            raise Refusal(400, "BadRequestException", message)
        if is_external(normalise_location(self._lake.root, directory)):
            message = (
                f"{metadata_location} is not below the lake's root: `lakevilla register` adds "
                "tables elsewhere"
            )
            raise Refusal(400, "BadRequestException", message)
        name = new_name(namespace, table)
        (name,) = self._lake.register(name, directory)
        if self.find(namespace, table).state.format != "iceberg":
            self._lake.unregister(name)
            message = f"{directory} is of a Delta table: `lakevilla register` adds it to the lake"
            raise Refusal(400, "BadRequestException", message)
        try:
            _, newest = self.load(namespace, table)
        except Refusal as refusal:
            if refusal.status != 503:  # that is a table which is shown later
                self._lake.unregister(name)
            raise
        if parse_location(newest) != parse_location(metadata_location):
            self._lake.unregister(name)
            message = (
                f"{metadata_location} is not the newest metadata of its table, which is {newest}: "
                "register that"
            )
            raise Refusal(400, "BadRequestException", message)

    def _refuse_taken(self, namespace: Namespace, table: str) -> None:
        try:
            self.find(namespace, table)
        except Refusal:
            return
        raise already_there("Table", dotted(namespace, table))


class _Elsewhere(Refusal):
    """A name by which no table is found may have been that of a table that has the commit.

    It may have left the lake since, or have another name. After a 404 or a 400 a client deletes
    its files, which are that table's.
    """


def _lists_of(change: Change) -> list[str]:
    """Return the manifest lists that a client has stored for a change."""
    return [str(one.get("manifest-list")) for one in added_snapshots(change.updates)]


def _is_delta(name: str) -> Refusal:
    message = f"{name} is a Delta table, which no Iceberg client can write"
    return Refusal(400, "BadRequestException", message)


def _newest_view(context: Context, found: Found) -> Program[View]:
    """Return a table's state with all that is decided and all that its log has."""
    tail = yield from probe(context, (yield from open_tail(context, found.location)))
    return (yield from build_view(context, found.head, found.location, tail))


def _unwritten(name: str, source: str) -> Refusal:
    what = (
        f"show {name}, which is a clone of {source} that has no metadata file before its first "
        "write: write to it by LakeVilla, or load its source"
    )
    return not_built(what)


def _published(
    context: Context, found: Found, *, publishes: bool
) -> Program[IcebergSnapshot | None]:
    """Return the table's log once it has all that is decided; None if that is never seen."""
    head = found.head
    for _ in range(_TRIES):
        if publishes:
            head = (yield from publish_table(context, head, found.location)).head
        tail = yield from open_tail(context, found.location)
        tail = yield from probe(context, tail)
        view = yield from build_view(context, head, found.location, tail)
        if not view.placement.overlay and isinstance(view.base, IcebergSnapshot):
            return view.base
        held = yield from context.head()
        if held is None:
            return None
        head = held.head
        yield from load_tables(head, [found.location])
    return None


def _directories(listed: Iterable[ListedTable]) -> list[Namespace]:
    return [identifier_of(one.name)[0] for one in listed if "://" not in one.name]


def _with_parents(found: Iterable[Namespace]) -> set[Namespace]:
    return {one[:depth] for one in found for depth in range(1, len(one) + 1)}
