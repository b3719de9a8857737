"""Export tables of a lake or of a branch for readers without LakeVilla."""

from __future__ import annotations

from lakevilla.api.arguments import check_flag
from lakevilla.api.client.client import LakeClient
from lakevilla.api.client.names import refuse_link
from lakevilla.api.execution.executor import Executor
from lakevilla.api.frame import Frame
from lakevilla.api.run import begin_transaction
from lakevilla.errors import InvalidOperation
from lakevilla.global_log.repo import load_all
from lakevilla.lake.tables.exporting import Export, export
from lakevilla.settings import shown

__all__ = ["export_table"]


def export_table(
    client: LakeClient, executor: type[Executor[Frame]], table: str, to: str, *, copy: bool
) -> str:
    """Write a table as a separate table elsewhere, and return its URI; see ``Lake.export``."""
    copies = check_flag("copy", copy)
    given = _place(to)
    target = client.place(given)
    refuse_link(client.root, given, target)
    lake = client if client.lake is None else client.lake
    head = lake.head()
    lake.run(load_all(head))
    lake.ensure_safe_store()
    with begin_transaction(client, executor, read_only=True) as reading:
        view = reading.look(table)
    what = Export(table, view.snapshot, target, copies, head, client.uri_of)
    with client.measured("export", table):
        client.newest().run(export(client.newest().context, what))
    return client.uri_of(target)


def _place(to: object) -> str:
    if not isinstance(to, str) or not to:
        raise InvalidOperation(f"export: to is a path or a URI, not {shown(to)}")
    return to
