"""Tables of a lake, or of a branch, for readers that know no lake."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lakevilla.api.arguments import check_flag
from lakevilla.api.client.client import LakeClient
from lakevilla.api.client.names import refuse_link
from lakevilla.errors import InvalidOperation
from lakevilla.global_log.repo import load_all
from lakevilla.lake.tables.exporting import Export, export
from lakevilla.settings import shown

__all__ = ["Exports"]


class Exports:
    """The exports of a lake for readers without LakeVilla."""

    _client: LakeClient
    _begin: Callable[..., Any]

    def export(self, table: str, to: str, *, copy: bool = False) -> str:
        """Write a table as it is here, on this branch or at this tag, as a separate table
        elsewhere.

        The first export makes the target, and each later export that changes it adds one version.
        Commits of other clients to the target are not copied back, and are undone by the next
        export.

        Without ``copy`` the target names the files where they are, by URIs: it costs one write, and
        for Iceberg the manifests. All readers of Iceberg follow the URIs, and of Delta's readers
        Spark and Trino. It can be read as long as the files are kept: on a branch or tag, until
        that is deleted. With ``copy`` the store copies the files that the target lacks, so that
        deltalake and DuckDB read it too, and it needs nothing of the lake.

        Parameters
        ----------
        table : str
            Its path below the root, or a registered name.
        to : str
            A path below the root, or a URI: a place of its own, outside of all tables.
        copy : bool
            Copy the files, in the store of the lake.

        Returns
        -------
        str
            The URI of the target.

        Raises
        ------
        TableNotFound
        InvalidOperation
            The target is stored in or around a table, or is a table that is no export of this
            table.

        Examples
        --------
        >>> _ = lake.branch("etl")
        >>> lake.on("etl").run(lambda txn: txn.delete("stock", where="true")).rows_deleted
        1
        >>> import deltalake
        >>> uri = lake.on("etl").export("stock", "exports/stock", copy=True)
        >>> deltalake.DeltaTable(uri).version()
        0
        """
        client = self._client
        copies = check_flag("copy", copy)
        given = _place(to)
        target = client.place(given)
        refuse_link(client.root, given, target)
        lake = client if client.lake is None else client.lake
        head = lake.head()
        lake.run(load_all(head))
        lake.ensure_safe_store()
        with self._begin({"read_only": True}) as executor:
            view = executor.look(table)
        what = Export(table, view.snapshot, target, copies, head, client.uri_of)
        with client.measured("export", table):
            client.newest().run(export(client.newest().context, what))
        return client.uri_of(target)


def _place(to: object) -> str:
    if not isinstance(to, str) or not to:
        raise InvalidOperation(f"export: to is a path or a URI, not {shown(to)}")
    return to
