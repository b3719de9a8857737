"""Refs of a lake: states of all tables that have a name, and are kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Generic, Literal, Self

from lakevilla.api.arguments import (
    check_choice,
    check_flag,
    check_metadata,
    check_number,
    check_patterns,
)
from lakevilla.api.client.client import LakeClient
from lakevilla.api.frame import Frame
from lakevilla.api.history import milliseconds, utc_datetime
from lakevilla.branches.change import all_refs, delete_ref, protect, protect_main
from lakevilla.branches.create import At, create_ref
from lakevilla.display import HtmlList
from lakevilla.errors import InvalidOperation
from lakevilla.global_log.refs import MAIN, RefEntry, RefKind
from lakevilla.results import Ref
from lakevilla.settings import shown

__all__ = ["REFS_ELSEWHERE", "Refs", "at_of", "check_ref", "ref_of"]


_METADATA_BYTES = 4096
#: Other names of the verbs here.
REFS_ELSEWHERE = {
    "branches": "lake.refs() lists the branches and tags",
    "checkout": "lake.on(name) is the lake at a tag, or on a branch",
    "create_branch": "lake.branch(name) begins a branch",
    "create_tag": "lake.tag(name) makes a tag",
    "delete_branch": "lake.delete_ref(name) ends a branch",
    "delete_tag": "lake.delete_ref(name) deletes a tag",
    "drop_branch": "lake.delete_ref(name) ends a branch",
    "drop_tag": "lake.delete_ref(name) deletes a tag",
    "list_branches": "lake.refs() lists the branches and tags",
    "list_refs": "lake.refs() lists the branches and tags",
    "list_tags": "lake.refs() lists the branches and tags",
    "ref": "lake.refs() lists the branches and tags, and lake.on(name) is the lake there",
    "tags": "lake.refs() lists the branches and tags",
    "untag": "lake.delete_ref(name) deletes a tag",
}


class Refs(Generic[Frame]):
    """The operations of a lake on its refs."""

    _client: LakeClient

    def tag(
        self,
        name: str,
        at: int | datetime | str | None = None,
        *,
        tables: Sequence[str] | None = None,
        absorb: Sequence[str] | None = None,
        protected: bool = False,
        metadata: Mapping[str, str] | None = None,
    ) -> Ref:
        """Give a state of the lake a name, and keep it until ``delete_ref``.

        It takes two writes, whatever the lake holds, and a read of the log of each table that other
        clients can write. With more than 256 tables no log is read, unless ``absorb`` names them,
        and ``on_event`` gets ``left_out``: then a commit of another client to a table is in the tag
        if a transaction has written the table since.

        ``gc`` and ``vacuum`` keep all that the state needs. Other clients' clean-up does not know
        of it, and leaves it for the table's retention.

        Parameters
        ----------
        name : str
            Letters, digits and ``. _ - /``, at most 128. Not digits alone, and not ``main``.
        at : int, datetime or str, optional
            A global version, an aware time, the name of another ref, or a version of a branch
            (``"etl@57"``). The present lake if not given.
        tables : sequence of str, optional
            Names or paths, in which ``*`` and ``?`` stand for anything. Other tables are neither
            kept nor found. All tables if not given.
        absorb : sequence of str, optional
            Names or patterns of the tables whose logs are read for commits of other clients; ``[]``
            for none. Not together with ``at``.
        protected : bool
            It is not deleted before ``protect(name, on=False)``.
        metadata : Mapping of str to str, optional
            Notes about it, at most 4 KiB.

        Raises
        ------
        RefExists
        RefNotFound
            ``at`` names no ref.
        VersionNotFound
            The state is not kept any more, or a vacuum may be deleting files of it.
        InvalidOperation
            The name is not allowed, or a pattern fits no table.

        Examples
        --------
        >>> lake.tag("closing", metadata={"by": "finance"}).metadata
        {'by': 'finance'}
        >>> lake.run(lambda txn: txn.delete("stock", where="true")).rows_deleted
        1
        >>> lake.on("closing").read("stock").to_pylist()
        [{'sku': 'tea', 'qty': 5}]
        """
        return self._create("tag", name, at, tables, absorb, protected, metadata)

    def branch(
        self,
        name: str,
        at: int | datetime | str | None = None,
        *,
        tables: Sequence[str] | None = None,
        absorb: Sequence[str] | None = None,
        protected: bool = False,
        metadata: Mapping[str, str] | None = None,
    ) -> Ref:
        """Begin a branch of the lake: its tables, to be written where no other client sees it.

        ``on(name)`` returns the lake there, with transactions over all its tables. No file is
        copied, whatever the lake holds: it takes three writes, and a read of the log of each table
        as ``tag`` does. A commit on the branch is in no table's log, so no other client sees it. A
        commit of other clients to the lake is not on the branch.

        Parameters
        ----------
        name : str
            As for ``tag``.
        at : int, datetime or str, optional
            A global version, an aware time, the name of another ref, or a version of a branch
            (``"etl@57"``). The present lake if not given.
        tables : sequence of str, optional
            Names or paths, in which ``*`` and ``?`` stand for anything. Other tables are not on
            the branch. All tables if not given.
        absorb : sequence of str, optional
            As for ``tag``.
        protected : bool
            It is not deleted before ``protect(name, on=False)``.
        metadata : Mapping of str to str, optional
            Notes about it, at most 4 KiB.

        Raises
        ------
        RefExists
        RefNotFound
            ``at`` names no ref.
        VersionNotFound
            The state is not kept any more, or a vacuum may be deleting files of it.
        InvalidOperation
            The name is not allowed, or a pattern fits no table.

        Examples
        --------
        >>> etl = lake.branch("etl")
        >>> lake.on("etl").run(lambda txn: txn.delete("stock", where="true")).rows_deleted
        1
        >>> lake.on("etl").read("stock").num_rows, lake.read("stock").num_rows
        (0, 1)
        """
        return self._create("branch", name, at, tables, absorb, protected, metadata)

    def _create(
        self,
        kind: RefKind,
        name: str,
        at: int | datetime | str | None,
        tables: Sequence[str] | None,
        absorb: Sequence[str] | None,
        protected: bool,
        metadata: Mapping[str, str] | None,
    ) -> Ref:
        client = self._client.main(kind)
        protected = check_flag("protected", protected)
        entry = client.run_safely(
            create_ref(
                client.context,
                name,
                kind,
                at_of(at),
                tables=check_patterns("tables", tables),
                absorb=check_patterns("absorb", absorb, may_be_empty=True),
                protected=protected,
                metadata=_metadata(metadata),
                created_by=client.owner,
            )
        )
        return ref_of(name, entry, entry.base.sequence)

    def on(self, name: str) -> Self:
        """Return the lake on a branch, or in the state that a tag keeps.

        On a branch transactions write as on the lake itself. At a tag it is only read: ``read``,
        ``scan``, ``sql``, ``snapshot``, ``tables`` and ``lake[name]`` show that state, and no
        other version of the lake. A table's own past goes as far as the tag's state.

        Parameters
        ----------
        name : str
            A branch, a tag, or ``main`` for the lake itself. ``"etl@57"`` is a branch at a version
            of its own: that is only read.

        Raises
        ------
        RefNotFound
        VersionNotFound
            The branch has no such version.
        InvalidOperation
            It is not a name.
        """
        _check_text("on", name)
        new = object.__new__(type(self))
        new.__dict__.update(self.__dict__)
        new._client = self._client.on(None if name == MAIN else name)
        return new

    def refs(self, kind: Literal["branch", "tag", "clone"] | None = None) -> list[Ref]:
        """Return the branches, tags and clones of the lake, by name.

        Parameters
        ----------
        kind : {"branch", "tag", "clone"}, optional
            Only refs of this kind.
        """
        client = self._client.main("refs")
        if kind is not None:
            check_choice("kind", kind, "branch", "tag", "clone")
        return HtmlList(
            ref_of(name, entry, version)
            for name, (entry, version) in client.run(all_refs(client.context)).items()
            if kind in (None, entry.kind)
        )

    def delete_ref(self, name: str) -> None:
        """Release a tag, or end a branch with all that was committed on it.

        Objects that it alone has kept are deleted by the next ``vacuum`` and ``gc``.

        Parameters
        ----------
        name : str
            As in ``refs``.

        Raises
        ------
        RefNotFound
        InvalidOperation
            It is protected, or ``main``.
        """
        client = self._client.main("delete_ref")
        check_ref("delete_ref", name)
        client.run_safely(delete_ref(client.context, name))

    def protect(self, name: str, on: bool = True) -> None:
        """Refuse to delete a ref from now on, or no longer. It binds LakeVilla's clients.

        Parameters
        ----------
        name : str
            As in ``refs``.
        on : bool
            False lifts the protection.

        Raises
        ------
        RefNotFound
        """
        client = self._client.main("protect")
        if name == MAIN:
            raise InvalidOperation(
                f"protect: {MAIN!r} is the lake itself, which is never deleted: protect_main makes "
                "it take only merges"
            )
        _check_text("protect", name)
        client.run_safely(protect(client.context, name, on=check_flag("on", on)))

    def protect_main(self, on: bool = True) -> None:
        """Let the lake itself take only merges and upkeep from now on, or everything again.

        Transactions that write rows or definitions raise ``InvalidOperation``; one that is open
        raises ``ConflictError`` when it commits. Still allowed are ``merge``, ``rollback``,
        ``revert``, ``cherry_pick``, ``restore`` and ``txn.apply``, and also ``optimize``,
        ``vacuum``, ``gc``, ``recover``, and the verbs that no branch has: ``register``,
        ``unregister``, ``rename_table`` and ``guard``.

        It binds LakeVilla's clients. Commits of other clients to a table are absorbed as before:
        ``guard`` refuses them. A process that writes only without ``Feature.I``, and has opened its
        table before, learns of it when it next reads HEAD; ``guard`` binds that process too.

        Parameters
        ----------
        on : bool
            False lifts the protection.

        Examples
        --------
        >>> lake.protect_main()
        >>> lake.is_main_protected()
        True
        >>> _ = lake.branch("night")
        >>> _ = lake.on("night").run(lambda txn: txn.append("stock", [{"sku": "jam", "qty": 2}]))
        >>> lake.merge("night").tables
        {'stock': 'physical'}
        >>> lake.protect_main(on=False)
        """
        client = self._client.main("protect_main")
        client.run_safely(protect_main(client.context, on=check_flag("on", on)))

    def is_main_protected(self) -> bool:
        """Return whether the lake itself takes only merges and upkeep: see ``protect_main``."""
        head = self._client.main("is_main_protected").head()
        return head is not None and head.is_protected


def _check_text(verb: str, name: object) -> None:
    if isinstance(name, Ref):
        raise InvalidOperation(f"{verb} takes the name of a ref: pass {name.name!r}")
    if not isinstance(name, str):
        raise InvalidOperation(f"{verb} takes the name of a ref, not {shown(name)}")


def check_ref(verb: str, name: object) -> None:
    """Refuse a value that no ref in HEAD can have as its name."""
    _check_text(verb, name)
    if name == MAIN:
        raise InvalidOperation(f"{verb}: {MAIN!r} is the lake itself, which is no ref")


def _metadata(metadata: Mapping[str, str] | None) -> dict[str, str]:
    """Return a ref's metadata, checked: it is stored in HEAD, which each commit replaces."""
    entries = check_metadata(metadata)
    size = sum(len(text.encode()) for pair in entries.items() for text in pair)
    if size > _METADATA_BYTES:
        raise InvalidOperation(
            f"metadata of a ref has at most {_METADATA_BYTES} bytes, and this has {size}: keep it "
            "in a table, and name that here"
        )
    return entries


def at_of(at: object) -> At:
    """Return the state that a caller means. Raises ``InvalidOperation``."""
    match at:
        case None:
            return None
        case datetime():
            return "time", milliseconds(at)
        case str():
            return None if at == MAIN else ("ref", at)
        case Ref():
            raise InvalidOperation(f"at takes the name of a ref: pass {at.name!r}")
        case bool():
            pass
        case int():
            return "version", check_number("at", at)
    raise InvalidOperation(
        f"at is a global version, an aware datetime or the name of a ref, not {shown(at)}"
    )


def ref_of(name: str, entry: RefEntry, version: int) -> Ref:
    """Return a ref as it is reported."""
    return Ref(
        name,
        entry.kind,
        version,
        entry.base.sequence,
        utc_datetime(entry.created_ms),
        entry.created_by,
        entry.protected,
        dict(entry.metadata),
        None if entry.synced is None else entry.synced.sequence,
    )
