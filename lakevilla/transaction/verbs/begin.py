"""Begin a transaction, and take its turn."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from lakevilla.errors import TableNotFound
from lakevilla.lake.table_log import open_tail
from lakevilla.store.effects import Program
from lakevilla.transaction.queue.wait import wait_for_turn
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import Feature
from lakevilla.transaction.validation.validate import catch_up
from lakevilla.transaction.verbs.bind import take_places
from lakevilla.transaction.verbs.read_write import lookup

# -------------------- begin
#
# The one function through which each new transaction goes: by an API call, a rerun or a resume.


def begin(txn: TransactionState) -> TransactionState:
    """Give a new transaction the function by which a redo reads other tables.

    Only by this function does ``redo`` call code of ``verbs``, which is above it.
    """
    txn.lookup = partial(lookup, txn)
    return txn


# -------------------- take turn
#
# Take places in queues, and wait to be first, before anything is read (design, section 7).
#
# A transaction that does not do this waits when it commits, and the transactions that go first may
# change what it has read before. Safety needs none of this: a transaction whose wait runs out goes
# on as an optimistic one.


def take_turn(txn: TransactionState, locations: Sequence[str]) -> Program[None]:
    """Take places for writing in the queues of the tables, and wait until all are first.

    All places are taken in one round. A transaction that has read nothing yet is bound after the
    wait, to a state with all transactions that went first. One that has read moves to that state.

    Raises
    ------
    TableNotFound
    ConflictError
        Transactions that went first have changed what the caller has read.
    """
    if Feature.CT not in txn.options.features:
        return
    yield from take_places(txn, locations, "write")
    for location in locations:
        tail = yield from open_tail(txn.context, location, missing_ok=True)
        if tail.tip < 0:
            raise TableNotFound(
                f"there is no table at {location}: `tables()` lists those of the lake",
                table=location,
            )
    if any(txn.is_behind(location) for location in locations):
        held = txn.bound.held or txn.context.held
        waited = yield from wait_for_turn(txn, None if held is None else held.head)
        if waited and txn.bound.is_bound:
            yield from catch_up(txn, midway=True)
