"""Histories as Jepsen writes them, in EDN, for Elle's model ``list-append``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from lakevilla_testing.checks.history import ListAppend, Operation, Recorded
from lakevilla_testing.outside.events import Span, spans

_ENDS = {"committed": ":ok", "aborted": ":fail", "unknown": ":info"}


def to_edn(recorded: Recorded) -> Iterator[str]:
    """Yield a history, an event a line.

    A read that was not answered, or was not promised, is ``nil``. A transaction of unknown outcome
    ends (``:info``) after all others.
    """
    events: list[tuple[int, str, Span]] = []
    found = spans(recorded)
    last = max(span.ended or span.invoked for span in found)
    for span in found:
        events.append((span.invoked, ":invoke", span))
        kind = _ENDS[span.txn.status] if span.ended is not None else ":info"
        events.append((last + 1 if span.ended is None else span.ended, kind, span))
    events.sort(key=lambda event: event[0])
    for index, (number, kind, span) in enumerate(events):
        value = " ".join(_micro(one, seen=kind == ":ok") for one in span.operations)
        yield (
            f"{{:index {index}, :time {number}, :type {kind}, :process {span.process}, "
            f":f :txn, :value [{value}]}}"
        )


def _micro(operation: Operation, *, seen: bool) -> str:
    if isinstance(operation, ListAppend):
        return f'[:append "{operation.key}" {operation.value}]'
    values = f"[{_list(operation.values)}]" if seen else "nil"
    return f'[:r "{operation.key}" {values}]'


def _list(values: Sequence[int]) -> str:
    return " ".join(map(str, values))
