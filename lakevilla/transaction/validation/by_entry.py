"""Whether a table is still the lake's, for a transaction that commits by the table's own log entry.

Such a transaction needs no HEAD, and a dropped table's log takes its entry as before. So it asks
HEAD now and then, beside requests that it makes anyway (docs/design/0050-drops-and-log-entries.md).
"""

from __future__ import annotations

from lakevilla.errors import TableNotFound
from lakevilla.lake.context import Context
from lakevilla.lake.table_log import load_noted, noted
from lakevilla.store.effects import Program
from lakevilla.transaction.state.transaction import TransactionState

#: How old a HEAD may be that such a transaction goes by. Far below ``reuse_after_seconds``: no
#: other table is made in a dropped one's place before whoever wrote it knows of the drop.
_KNOWN_SECONDS = 10.0


def ask_now_and_then(txn: TransactionState) -> Program[None]:
    """Have a HEAD at hand that was asked for lately: a request every few seconds, of a process."""
    if not txn.through_head:
        trusted = txn.context.settings.trusted_tip_seconds
        yield from txn.context.head_of_late(min(_KNOWN_SECONDS, trusted))


def refuse_dropped(txn: TransactionState, location: str) -> Program[None]:
    """Refuse a table that HEAD, as it is known, has dropped: asked again before that is believed.

    Raises
    ------
    TableNotFound
    """
    if txn.through_head:
        return
    if (yield from _is_dropped(txn.context, location)):
        yield from txn.context.head()
        if (yield from _is_dropped(txn.context, location)):
            raise TableNotFound(
                f"table {location} was dropped from this lake; `register` revives it while its log "
                "exists",
                table=location,
                txn_id=txn.id,
            )


def _is_dropped(context: Context, location: str) -> Program[bool]:
    yield from load_noted(context, location)
    state = noted(context, location)
    return state is not None and state.dropped
