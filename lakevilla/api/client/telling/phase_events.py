"""What listeners are told of a transaction's phases, and of its end."""

from __future__ import annotations

from lakevilla.errors import LakeVillaError
from lakevilla.lake.context import Event
from lakevilla.phases import Phases, Span
from lakevilla.transaction.state.life import Life
from lakevilla.transaction.state.transaction import TransactionState


def phase_event(phases: Phases, span: Span) -> Event:
    """One stretch of one phase, told when it is over."""
    about = span.phase if span.table is None else f"{span.phase} {span.table}"
    detail = {
        "phase": span.phase,
        "table": span.table,
        "began": span.began,
        "ended": span.ended,
        "seconds": span.seconds,
        "own_seconds": span.own_seconds,
        "transaction_began": phases.began,
    }
    return Event("phase", phases.txn_id, f"{about}: {span.seconds * 1000:.1f} ms", detail)


def transaction_event(
    state: TransactionState, error: LakeVillaError | None, began: float, ended: float
) -> Event:
    """The end of a transaction, with what it took."""
    outcome = _outcome(state, error)
    detail = {
        "outcome": outcome,
        "error": error.kind if outcome == "failed" and error is not None else None,
        "features": state.options.features.name or "",
        "tables": sorted(state.work.tables),
        "operations": len(state.work.done),
        "retries": state.ending.retries,
        "redos": state.work.redos,
        "began": began,
        "ended": ended,
        "seconds": ended - began,
    }
    message = f"transaction {state.id} {_WORDS[outcome]} after {ended - began:.3f} s"
    return Event("transaction", state.id, message, detail)


_WORDS = {
    "committed": "was committed",
    "read": "has read",
    "aborted": "was aborted",
    "failed": "has failed",
    "unknown": "may have been committed",
}


def _outcome(state: TransactionState, error: LakeVillaError | None) -> str:
    if state.state is Life.COMMITTED:
        return "committed" if state.work.done else "read"
    if state.ending.is_in_doubt:
        return "unknown"
    if error is not None:
        return "failed"
    return "read" if state.options.read_only else "aborted"
