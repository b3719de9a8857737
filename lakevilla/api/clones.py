"""A lake's clones: tables shown at another place, to be written to there, in constant time."""

from __future__ import annotations

from datetime import datetime

from lakevilla.api.arguments import check_flag
from lakevilla.api.client.client import LakeClient
from lakevilla.api.refs import at_of, ref_of
from lakevilla.branches.change import delete_ref
from lakevilla.branches.clones import keep_clone
from lakevilla.branches.create import create_ref
from lakevilla.errors import InvalidOperation, VersionNotFound
from lakevilla.global_log.refs import RefEntry
from lakevilla.results import Ref
from lakevilla.settings import shown

__all__ = ["Clones"]


class Clones:
    """The operations of a lake on clones."""

    _client: LakeClient

    def clone(
        self,
        source: str,
        to: str,
        at: int | datetime | str | None = None,
        *,
        copy: bool = False,
    ) -> Ref:
        """Show a table, or all tables below a directory, at another place, to be written to there.

        It takes two writes, whatever the tables hold: no file is copied, and no log is made. The
        tables at ``to`` have the state of those at ``source``, are read by their paths there, and
        are tables of their own: a write on one side is not seen on the other. The first write to a
        table makes its log, with the files where they are; from then on Spark and readers of
        Iceberg see the table.

        The state is kept for as long as the clone exists, as a tag keeps it.

        Parameters
        ----------
        source : str
            A table, or a directory below the root.
        to : str
            A path below the root where nothing is stored. It is the name of the clone, for
            ``refs``, ``keep`` and ``delete_ref``: letters, digits and ``. _ - /``, at most 128.
        at : int, datetime or str, optional
            A global version, an aware time, the name of a tag or branch, or a version of a branch
            (``"etl@57"``). The present state of the lake if not given.
        copy : bool
            Have the store copy the files, into ordinary tables that need nothing of their source:
            deltalake and DuckDB read them too. This takes one copy per file and one transaction per
            table, and there is no clone in the end. If it is interrupted, it leaves a clone with
            some tables copied: call ``keep`` and ``delete_ref`` of it.

        Raises
        ------
        RefExists
        RefNotFound, VersionNotFound
            ``at`` names no state that is kept.
        TableNotFound
            There is no table at ``source`` or below.
        InvalidOperation
            ``to`` is in, around or at a table, a clone or the source, or outside the root.

        Examples
        --------
        >>> trial = lake.clone("stock", "trials/stock")
        >>> lake.run(lambda txn: txn.delete("trials/stock", where="true")).rows_deleted
        1
        >>> lake.read("stock").num_rows, lake.read("trials/stock").num_rows
        (1, 0)
        """
        client = self._client.main("clone")
        _check_place("source", source)
        _check_place("to", to)
        copies = check_flag("copy", copy)
        place = client.location_of(source)
        target = client.place(to)
        client.ensure_safe_store()
        entry = client.run(
            create_ref(
                client.context,
                target,
                "clone",
                at_of(at),
                tables=None,
                protected=False,
                metadata={},
                created_by=client.owner,
                source=place,
            )
        )
        if copies:
            self._make_whole(target, entry)
        return ref_of(target, entry, entry.base.sequence)

    def _make_whole(self, name: str, entry: RefEntry) -> None:
        """Copy all files of a clone and delete the clone: its tables need it no more."""
        client = self._client.main("clone")
        with client.measured("clone"):
            report = client.run(keep_clone(client.context, name, entry, all_tables=True))
        if not report.ok:
            (first, *_) = (one for one in report.findings if one.severity != "note")
            raise VersionNotFound(f"clone {name!r}: {first.message}", table=first.table)
        client.run(delete_ref(client.context, name))


def _check_place(argument: str, value: object) -> None:
    if not isinstance(value, str) or not value:
        raise InvalidOperation(f"clone: {argument} is a table or a path, not {shown(value)}")
