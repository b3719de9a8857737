"""OpenTelemetry: a lake's transactions as spans and metrics, and gauges of the lake itself.

This module needs the extra ``opentelemetry``, which installs OpenTelemetry's API. The application's
SDK decides where the data is sent; without an SDK, no data is recorded.
"""

from __future__ import annotations

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from lakevilla.api.arguments import check_number
from lakevilla.api.lake import Lake
from lakevilla.clock import Clock, SystemClock
from lakevilla.errors import InvalidOperation, LakeVillaError
from lakevilla.gauges import GAUGES, Gauge, LakeMetrics
from lakevilla.lake.context import Event
from lakevilla.settings import MOST_SECONDS, shown

try:
    from opentelemetry import metrics, trace
    from opentelemetry.context import Context
except ImportError as error:
    raise ImportError(
        "lakevilla.opentelemetry needs opentelemetry-api, which is not installed here: "
        "`pip install 'lakevilla[opentelemetry]'`"
    ) from error

__all__ = ["listener", "observe"]

_LOG = logging.getLogger("lakevilla")

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


def observe(
    *lakes: Lake[Any],
    meter_provider: metrics.MeterProvider | None = None,
    tables: int = 100,
    every_seconds: float = 60.0,
) -> Callable[[], None]:
    """Give OpenTelemetry the gauges of lakes, as ``lake.metrics`` measures them.

    They are named ``lakevilla.head.version``, ``lakevilla.table.small_files`` and so on, with the
    attribute ``lake``, and where it applies ``table``, ``task`` or ``state``. Times are ages, in
    seconds. If a lake can't be read, ``lakevilla.up`` is 0, and it has no other gauge.

    An application calls this once, with all its lakes: the SDK refuses a second gauge of a name.

    Parameters
    ----------
    *lakes : Lake
        The lakes; they stay open as long as they are observed.
    meter_provider : opentelemetry.metrics.MeterProvider, optional
        By default, the application's provider.
    tables : int
        As for ``lake.metrics``.
    every_seconds : float
        A lake is measured at most once in this time, however often gauges are collected.

    Returns
    -------
    callable
        Call it to observe the lakes no longer, before they are closed.

    Raises
    ------
    InvalidOperation
        No lake is given, or ``every_seconds`` is no number of seconds.

    Examples
    --------
    >>> from lakevilla.opentelemetry import observe
    >>> end = observe(lake)
    >>> end()
    """
    if not lakes:
        raise InvalidOperation("observe: give the lakes, as in observe(lake)")
    most, every = check_number("tables", tables), _interval(every_seconds)
    observed = [_Observed(lake, most, every, SystemClock()) for lake in lakes]
    meter = metrics.get_meter("lakevilla", meter_provider=meter_provider)
    for gauge in GAUGES.values():
        meter.create_observable_gauge(
            gauge.opentelemetry,
            callbacks=[partial(_observations, observed, gauge)],
            unit="s" if gauge.unit == "time" else gauge.unit,
            description=f"Seconds since: {gauge.help}" if gauge.unit == "time" else gauge.help,
        )
    return observed.clear


def _interval(seconds: object) -> float:
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not 0 <= seconds <= MOST_SECONDS:  # type: ignore[operator]
        raise InvalidOperation(
            f"every_seconds must be a number of seconds from 0 to {MOST_SECONDS:.12g}, not "
            f"{shown(seconds)}"
        )
    return float(seconds)  # type: ignore[arg-type]


class _Observed:
    """A lake with its newest metrics, which all its gauges share."""

    def __init__(self, lake: Lake[Any], tables: int, every_seconds: float, clock: Clock) -> None:
        self._lake = lake
        self._tables = tables
        self._every_seconds = every_seconds
        self._lock = threading.Lock()
        self._newest: tuple[float, LakeMetrics] | None = None
        self.clock = clock

    def newest(self) -> LakeMetrics:
        """Return the metrics, measured again if they are too old."""
        with self._lock:
            now = self.clock.elapsed()
            if self._newest is None or now - self._newest[0] >= self._every_seconds:
                self._newest = (now, self._measured())
            return self._newest[1]

    def _measured(self) -> LakeMetrics:
        try:
            return self._lake.metrics(tables=self._tables)
        except LakeVillaError as error:
            _LOG.warning("metrics of the lake at %s: %s", self._lake.root, error.message)
            return LakeMetrics.unreadable(self._lake.root)


def _observations(
    observed: Sequence[_Observed], gauge: Gauge, options: metrics.CallbackOptions
) -> Iterable[metrics.Observation]:
    return [one for lake in list(observed) for one in _of_lake(lake, gauge)]


def _of_lake(lake: _Observed, gauge: Gauge) -> Iterator[metrics.Observation]:
    newest = lake.newest()
    found = newest.values.get(gauge.prometheus)
    if found is None:
        return
    by_label = found if isinstance(found, Mapping) else {"": found}
    for name, value in by_label.items():
        attributes = {"lake": newest.root} | ({gauge.label: name} if gauge.label else {})
        seen = max(0.0, lake.clock.now() - value) if gauge.unit == "time" else value
        yield metrics.Observation(seen, attributes)


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
