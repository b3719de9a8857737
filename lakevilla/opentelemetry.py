"""OpenTelemetry: a lake's transactions as spans and metrics, through ``on_event``.

This module needs the extra ``opentelemetry``, which installs OpenTelemetry's API. The application's
SDK decides where the data is sent; without an SDK, no data is recorded.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass

from lakevilla.clock import Clock, SystemClock
from lakevilla.lake.context import Event

try:
    from opentelemetry import metrics, trace
    from opentelemetry.context import Context
except ImportError as error:
    raise ImportError(
        "lakevilla.opentelemetry needs opentelemetry-api, which is not installed here: "
        "`pip install 'lakevilla[opentelemetry]'`"
    ) from error

__all__ = ["listener"]

#: The most transactions that are remembered at a time. The oldest are dropped, because the end of a
#: snapshot that is never closed is not reported.
_MOST = 10_000
_NANOSECONDS = 1_000_000_000


def listener(
    *,
    tracer_provider: trace.TracerProvider | None = None,
    meter_provider: metrics.MeterProvider | None = None,
    also: Callable[[Event], None] | None = None,
) -> Callable[[Event], None]:
    """Return a listener for ``on_event`` that sends spans and metrics to OpenTelemetry.

    ``lakevilla.connect`` takes it as ``on_event``.

    A transaction is a span ``lakevilla.transaction``, a child of the span that is current when the
    transaction begins its work. Each phase is a child span, ``lakevilla.version`` to
    ``lakevilla.free``; redos, waits and the like are events of the transaction's span.

    The metrics are the counters ``lakevilla.commits``, ``lakevilla.aborts`` (with the attribute
    ``error``), ``lakevilla.redos`` and ``lakevilla.retries``, and the histograms
    ``lakevilla.transaction.duration`` and ``lakevilla.phase.duration``, in seconds. The duration of
    a phase excludes phases inside it, so the durations of all phases add up to the time of the
    transactions.

    One listener may serve several lakes and threads.

    Parameters
    ----------
    tracer_provider : opentelemetry.trace.TracerProvider, optional
        By default, the application's provider.
    meter_provider : opentelemetry.metrics.MeterProvider, optional
        By default, the application's provider.
    also : callable, optional
        A listener of your own, which gets each event first.

    Returns
    -------
    callable
        The listener, to be passed as ``on_event``.

    Raises
    ------
    ImportError
        On import of this module: the extra ``opentelemetry`` is not installed.

    Examples
    --------
    >>> from lakevilla.opentelemetry import listener
    >>> watched = lv.connect("warehouse", on_event=listener())
    >>> watched.read("stock").num_rows
    1
    """
    return _Listener(
        trace.get_tracer("lakevilla", tracer_provider=tracer_provider),
        metrics.get_meter("lakevilla", meter_provider=meter_provider),
        also,
        SystemClock(),
    )


@dataclass(slots=True)
class _Open:
    """A transaction's span, and the offset from the lake's clock to nanoseconds since the epoch."""

    began: object
    span: trace.Span
    within: Context
    offset_ns: int
    has_ended: bool = False

    def at(self, seconds: object) -> int:
        assert isinstance(seconds, float)
        return self.offset_ns + int(seconds * _NANOSECONDS)


class _Listener:
    def __init__(
        self,
        tracer: trace.Tracer,
        meter: metrics.Meter,
        also: Callable[[Event], None] | None,
        clock: Clock,
    ) -> None:
        self._tracer = tracer
        self._also = also
        self._clock = clock
        self._lock = threading.Lock()
        self._known: OrderedDict[str, _Open] = OrderedDict()
        self._commits = meter.create_counter("lakevilla.commits", "{transaction}")
        self._aborts = meter.create_counter("lakevilla.aborts", "{transaction}")
        self._redos = meter.create_counter("lakevilla.redos", "{operation}")
        self._retries = meter.create_counter("lakevilla.retries", "{race}")
        self._duration = meter.create_histogram("lakevilla.transaction.duration", "s")
        self._phase = meter.create_histogram("lakevilla.phase.duration", "s")

    def __call__(self, event: Event) -> None:
        if self._also is not None:
            self._also(event)
        if event.txn_id is None:
            return
        if event.kind == "phase":
            self._phase_is_over(event, event.txn_id)
        elif event.kind == "transaction":
            self._transaction_is_over(event, event.txn_id)
        elif event.kind != "progress":
            self._note(event, event.txn_id)

    def _phase_is_over(self, event: Event, txn_id: str) -> None:
        detail = event.detail
        phase = str(detail["phase"])
        own = detail["own_seconds"]
        assert isinstance(own, float)
        self._phase.record(own, {"phase": phase})
        opened = self._opened(txn_id, detail["transaction_began"])
        span = self._tracer.start_span(
            f"lakevilla.{phase}",
            opened.within,
            attributes=_attributes(txn_id, detail["table"]),
            start_time=opened.at(detail["began"]),
        )
        span.end(opened.at(detail["ended"]))

    def _transaction_is_over(self, event: Event, txn_id: str) -> None:
        detail = event.detail
        opened = self._opened(txn_id, detail["began"])
        outcome, error = str(detail["outcome"]), detail["error"]
        for name in ("outcome", "features", "operations", "retries", "redos", "members"):
            value = detail[name]
            assert isinstance(value, str | int)
            opened.span.set_attribute(f"lakevilla.{name}", value)
        if outcome in ("failed", "unknown"):
            opened.span.set_status(trace.Status(trace.StatusCode.ERROR, str(error or outcome)))
        opened.span.end(opened.at(detail["ended"]))
        opened.has_ended = True
        self._count(outcome, error, detail["redos"], detail["retries"])
        seconds = detail["seconds"]
        assert isinstance(seconds, float)
        self._duration.record(seconds, {"outcome": outcome})

    def _count(self, outcome: str, error: object, redos: object, retries: object) -> None:
        assert isinstance(redos, int)
        assert isinstance(retries, int)
        if outcome == "committed":
            self._commits.add(1)
        elif outcome != "read":
            self._aborts.add(1, {"error": str(error or outcome)})
        self._redos.add(redos)
        self._retries.add(retries)

    def _note(self, event: Event, txn_id: str) -> None:
        """Record an event as an event of the transaction's span."""
        with self._lock:
            opened = self._known.get(txn_id)
        if opened is not None and not opened.has_ended:
            opened.span.add_event(event.kind, {"message": event.message})

    def _opened(self, txn_id: str, began: object) -> _Open:
        """Return the transaction's span, which begins with the first event of the transaction."""
        with self._lock:
            opened = self._known.get(txn_id)
            # A transaction that runs again keeps its id, and each run is a span of its own.
            if opened is not None and opened.began == began:
                return opened
            if opened is not None and not opened.has_ended:
                opened.span.end()
            opened = self._known[txn_id] = self._begin(txn_id, began)
            self._known.move_to_end(txn_id)
            while len(self._known) > _MOST:
                _, oldest = self._known.popitem(last=False)
                if not oldest.has_ended:
                    oldest.span.end()
            return opened

    def _begin(self, txn_id: str, began: object) -> _Open:
        assert isinstance(began, float)
        offset = int((self._clock.now() - self._clock.elapsed()) * _NANOSECONDS)
        span = self._tracer.start_span(
            "lakevilla.transaction",
            attributes=_attributes(txn_id, None),
            start_time=offset + int(began * _NANOSECONDS),
        )
        return _Open(began, span, trace.set_span_in_context(span), offset)


def _attributes(txn_id: str, table: object) -> dict[str, str]:
    found = {"lakevilla.transaction.id": txn_id}
    return found if table is None else {**found, "lakevilla.table": str(table)}
