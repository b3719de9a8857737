"""The tables that an Iceberg client's request makes: looked for, and made with their rows.

Rule G10 of docs/design/0073-given-commits.md. The client was told a place that no table had, and
has stored its files there. So the place, and not the name, shows whether the request took effect.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lakevilla.errors import CommitOutcomeUnknown
from lakevilla.formats.base import TableSnapshot
from lakevilla.formats.iceberg.given import consequence
from lakevilla.formats.iceberg.metadata.requested import checked_definition
from lakevilla.formats.iceberg.metadata.requirements import check_requirements
from lakevilla.formats.iceberg.metadata.updates import updated
from lakevilla.formats.iceberg.snapshot import IcebergSnapshot
from lakevilla.global_log.repo import load_tables
from lakevilla.lake.table_log import open_tail
from lakevilla.store.effects import Program
from lakevilla.sublogs.operations import Given
from lakevilla.transaction.commit.asked import TableRequest
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.verbs.bind import bind_to_head
from lakevilla.transaction.verbs.catalog.names import rename
from lakevilla.transaction.verbs.create_table import defined_change
from lakevilla.transaction.verbs.read_write import create_by, execute


def not_made(txn: TransactionState, requests: Sequence[TableRequest]) -> Program[set[str]]:
    """Return the locations of the tables that the requests make, and that HEAD does not have.

    Raises
    ------
    CommitOutcomeUnknown
        A table was made, and has left the lake since; or another table is at its place, so that
        the request is void there, and maybe not on others.
    """
    making = [one for one in requests if one.makes is not None]
    if not making:
        return set()
    yield from bind_to_head(txn, [one.location for one in requests], probing=True)
    yield from load_tables(txn.head, [one.location for one in making])
    found = set()
    for one in making:
        state = None if txn.head is None else txn.head.tables.get(one.location)
        if state is None:
            tail = yield from open_tail(txn.context, one.location, missing_ok=True)
            if tail.tip < 0:
                found.add(one.location)
                continue
        if state is None or state.dropped:
            raise CommitOutcomeUnknown(
                f"table {_name(one)} was made by this request, and has left the lake since",
                table=one.location,
                txn_id=txn.id,
            )
        if state.table_id != one.table_id:
            raise CommitOutcomeUnknown(
                f"another client has made a table at {one.location}: see whether the other tables "
                f"of the request have changed, and stage table {_name(one)} again",
                table=one.location,
                txn_id=txn.id,
            )
    return found


def make(txn: TransactionState, one: TableRequest, now_ms: int) -> Program[None]:
    """Note the operations that make a table: its definition, what the client stored, its name.

    Raises
    ------
    TableExists
        The name is taken.
    ConflictError
        A requirement does not hold for a table that is not there.
    InvalidOperation, UnsupportedTableFeature
        The updates are not valid, or LakeVilla could not write the table.
    """
    assert one.makes is not None
    check_requirements(None, one.requirements, _name(one))
    parts = updated(None, one.updates, now_ms, _name(one))

    def definition(blank: TableSnapshot) -> Mapping[str, Any]:
        assert isinstance(blank, IcebergSnapshot)
        return checked_definition(blank.definition, parts)

    change = defined_change(txn, one.location, definition, "iceberg", is_filled=True)
    yield from create_by(txn, one.location, change)
    defined = txn.work.tables[one.location].snapshot
    assert isinstance(defined, IcebergSnapshot)
    it = yield from consequence(defined, one.updates, now_ms, one.admits)
    operation = Given(one.location, it.given, it.change, it.moves, it.objects)
    yield from execute(txn, operation, "commit")
    yield from rename(txn, one.location, one.location, one.makes.name, one.makes.place)


def _name(one: TableRequest) -> str:
    return one.location if one.makes is None else one.makes.name
