"""Columns that go by what is applied, and values of others in them (docs/design/0055)."""

from __future__ import annotations

import msgspec

from lakevilla.formats.base import TableSnapshot
from lakevilla.lake.operations.comparing.dropped_columns import (
    missing_fields,
    named,
    refuse_hidden,
    value_that_came,
)
from lakevilla.lake.operations.comparing.unfit import unfit
from lakevilla.lake.operations.difference import difference
from lakevilla.store.effects import Program
from lakevilla.sublogs.operations import Transplant
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.verbs.read_write import lookup


def hiding(
    txn: TransactionState, operation: Transplant, old: TableSnapshot, new: TableSnapshot
) -> Program[Transplant]:
    """The operation, with the columns that go by it, if no value of others is in them.

    Raises
    ------
    MergeConflict
        One is, or it brings values into columns that the table has no more.
    """
    snapshot = yield from lookup(txn, operation.table)
    yield from refuse_hidden(txn.context, operation, snapshot)
    paths = missing_fields(old.layout, new.layout)
    if not paths or operation.after is None or snapshot.metadata == new.metadata:
        return operation
    since = yield from difference(old, snapshot)
    own = {file.ref for file in operation.adds}
    came = [file for file in since.adds if file.ref not in own]
    found = yield from value_that_came(
        txn.context, old.layout, paths, came, since.removes, operation.keys
    )
    if found is not None:
        raise unfit(
            operation,
            snapshot,
            f"{named(paths)} is to go from it ({' to '.join(operation.parameters.values())}), and "
            f"others have written rows since: {found}",
        )
    return msgspec.structs.replace(operation, hides=paths)
