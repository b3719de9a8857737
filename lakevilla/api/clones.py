"""Tables at a second place: clones, which the lake shows, and exports, for other readers.

A clone takes constant time, because it copies no file.
"""

from __future__ import annotations

from datetime import datetime

from lakevilla.api.arguments import check_flag
from lakevilla.api.client.client import LakeClient
from lakevilla.api.client.names import refuse_link
from lakevilla.api.execution.executor import Executor
from lakevilla.api.frame import Frame
from lakevilla.api.refs import at_of, ref_of
from lakevilla.api.run import begin_transaction
from lakevilla.branches.change import delete_ref
from lakevilla.branches.clones import keep_clone
from lakevilla.branches.create import create_ref
from lakevilla.errors import InvalidOperation, VersionNotFound
from lakevilla.global_log.refs import RefEntry
from lakevilla.global_log.repo import load_all
from lakevilla.lake.publishing.publish import publish_table
from lakevilla.lake.tables.exporting import Export, export
from lakevilla.lake.view import View
from lakevilla.results import Ref
from lakevilla.settings import shown

__all__ = ["clone", "export_table"]


def clone(
    client: LakeClient, source: str, to: str, at: int | datetime | str | None, *, copy: bool
) -> Ref:
    """Show a table, or all tables below a directory, at a second place; see ``Lake.clone``."""
    client = client.main("clone")
    _check_place("source", source)
    _check_place("to", to)
    copies = check_flag("copy", copy)
    location = client.location_of(source)
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
            source=location,
        )
    )
    if copies:
        _make_whole(client, target, entry)
    return ref_of(target, entry, entry.base.sequence)


def _make_whole(client: LakeClient, name: str, entry: RefEntry) -> None:
    """Copy all files of a clone into its tables, and delete the clone, which is not needed then."""
    client = client.main("clone")
    with client.measured("clone"):
        report = client.run(keep_clone(client.context, name, entry, all_tables=True))
    if not report.ok:
        (first, *_) = (one for one in report.findings if one.severity != "note")
        raise VersionNotFound(f"clone {name!r}: {first.message}", table=first.table)
    client.run(delete_ref(client.context, name))


def _check_place(argument: str, value: object) -> None:
    if not isinstance(value, str) or not value:
        raise InvalidOperation(f"clone: {argument} is a table or a path, not {shown(value)}")


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
    view = _look(client, executor, table)
    if head is not None and _awaits_ids(view) and client is lake:
        # The ids of rows follow from the table's log.
        client.run(publish_table(client.context, head, view.location))
        view = _look(client, executor, table)
    what = Export(table, view.snapshot, target, copies, head, client.uri_of)
    with client.measured("export", table):
        client.newest().run(export(client.newest().context, what))
    return client.uri_of(target)


def _look(client: LakeClient, executor: type[Executor[Frame]], table: str) -> View:
    with begin_transaction(client, executor, read_only=True) as reading:
        return reading.look(table)


def _awaits_ids(view: View) -> bool:
    """Return whether rows will get their ids when the commits that are pending are published."""
    return bool(view.snapshot.layout.lineage and view.parts and view.mount is None)


def _place(to: object) -> str:
    if not isinstance(to, str) or not to:
        raise InvalidOperation(f"export: to is a path or a URI, not {shown(to)}")
    return to
