"""A lake's transactions as OpenTelemetry spans with the right times, and as metrics."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import StatusCode

import lakevilla as lv
from lakevilla import opentelemetry
from lakevilla.lake.context import Event
from lakevilla.opentelemetry import listener
from tests.support.combined import Work, combine


class Telemetry:
    """An application's OpenTelemetry set-up that keeps all spans and metrics."""

    def __init__(self) -> None:
        self.exporter = InMemorySpanExporter()
        self.traces = TracerProvider()
        self.traces.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.reader = InMemoryMetricReader()
        self.metrics = MeterProvider([self.reader])
        self.events: list[Event] = []
        self.listener = listener(
            tracer_provider=self.traces, meter_provider=self.metrics, also=self.events.append
        )

    @property
    def spans(self) -> list[ReadableSpan]:
        return list(self.exporter.get_finished_spans())

    def transactions(self) -> list[ReadableSpan]:
        return [span for span in self.spans if span.name == "lakevilla.transaction"]

    def phases(self, of: ReadableSpan) -> list[ReadableSpan]:
        return [
            span
            for span in self.spans
            if span.parent is not None and span.parent.span_id == of.context.span_id
        ]

    def points(self, name: str) -> list[Any]:
        data = self.reader.get_metrics_data()
        return [
            point
            for resource in (() if data is None else data.resource_metrics)
            for scope in resource.scope_metrics
            for metric in scope.metrics
            if metric.name == name
            for point in metric.data.data_points
        ]

    def forget(self) -> None:
        self.exporter.clear()
        self.events.clear()


@pytest.fixture
def telemetry() -> Telemetry:
    return Telemetry()


@pytest.fixture
def lake(tmp_path: Path, telemetry: Telemetry) -> Iterator[lv.Lake]:
    with lv.connect(tmp_path, on_event=telemetry.listener) as lake:
        lake.create_table("t", [{"a": 1}])
        telemetry.forget()
        yield lake


def test_a_transaction_is_a_span_and_its_phases_are_its_children(
    lake: lv.Lake, telemetry: Telemetry
) -> None:
    before = time.time_ns()
    with lake.transaction() as txn:
        txn.update("t", {"a": "a + 1"}, where="a = 1")
    after = time.time_ns()
    (whole,) = telemetry.transactions()
    assert whole.attributes is not None
    assert whole.attributes["lakevilla.transaction.id"] == txn.id
    assert whole.attributes["lakevilla.outcome"] == "committed"
    assert whole.status.status_code is StatusCode.UNSET
    phases = telemetry.phases(whole)
    names = {span.name.removeprefix("lakevilla.") for span in phases}
    assert {"version", "metadata", "data", "validate", "decide", "publish"} <= names
    assert len(phases) == len(telemetry.spans) - 1
    slack = 1_000_000_000  # two clocks are read one after the other, perhaps on a busy machine
    assert before - slack <= whole.start_time <= whole.end_time <= after + slack
    events = [e for e in telemetry.events if e.kind == "phase"]
    for span, event in zip(phases, events, strict=True):
        assert whole.start_time <= span.start_time <= span.end_time <= whole.end_time
        long = event.detail["ended"] - event.detail["began"]
        assert (span.end_time - span.start_time) / 1e9 == pytest.approx(long, abs=1e-6)
        assert span.attributes.get("lakevilla.table") == event.detail["table"]


def test_the_span_of_a_transaction_is_a_child_of_the_current_span_at_its_use(
    lake: lv.Lake, telemetry: Telemetry
) -> None:
    tracer = telemetry.traces.get_tracer("the application")
    with tracer.start_as_current_span("job") as job:
        assert lake.read("t").num_rows == 1
    (whole,) = telemetry.transactions()
    assert whole.parent is not None
    assert whole.parent.span_id == job.get_span_context().span_id
    assert whole.attributes["lakevilla.outcome"] == "read"


def test_a_conflict_is_an_error_and_each_attempt_is_a_span(
    lake: lv.Lake, tmp_path: Path, telemetry: Telemetry
) -> None:
    attempts = []

    def change(txn: lv.Transaction) -> None:
        attempts.append(txn.id)
        rows = txn.read("t").to_pylist()
        if len(attempts) == 1:
            with lv.connect(tmp_path) as other:
                other.run(lambda rival: rival.update("t", {"a": "7"}, where="true"))
        txn.overwrite("t", rows)

    lake.run(change)
    lost, won = telemetry.transactions()
    assert (lost.status.status_code, lost.status.description) == (StatusCode.ERROR, "conflict")
    assert won.attributes["lakevilla.outcome"] == "committed"
    assert lost.end_time <= won.start_time
    assert telemetry.phases(lost)
    assert telemetry.phases(won)
    (aborts,) = telemetry.points("lakevilla.aborts")
    assert (aborts.value, dict(aborts.attributes)) == (1, {"error": "conflict"})


def test_a_redo_is_an_event_of_the_span_and_counted(
    lake: lv.Lake, tmp_path: Path, telemetry: Telemetry
) -> None:
    with lake.transaction() as txn:
        txn.update("t", {"a": "a + 1"}, where="true")
        with lv.connect(tmp_path) as other:
            other.run(lambda rival: rival.update("t", {"a": "7"}, where="true"))
    (whole,) = telemetry.transactions()
    assert "redo" in [event.name for event in whole.events]
    assert [point.value for point in telemetry.points("lakevilla.redos")] == [1]
    assert whole.attributes["lakevilla.redos"] == 1


def test_transactions_that_share_a_version_are_spans_of_their_own(
    lake: lv.Lake, tmp_path: Path, telemetry: Telemetry
) -> None:
    def add(number: int) -> Work:
        return lambda txn: txn.update("t", {"a": f"a + {number}"}, where="true")

    with lv.connect(tmp_path) as other:
        rival = partial(other.run, add(1000))
        first, *members = combine(lake, add(1), add(10), add(100), meanwhile=rival)
    assert lake.read("t").to_pylist() == [{"a": 1112}]
    assert lake.history(1)[0].members == tuple(txn.id for txn in members)
    spans = {
        span.attributes["lakevilla.transaction.id"]: span
        for span in telemetry.transactions()
        if span.attributes is not None and span.attributes["lakevilla.outcome"] == "committed"
    }
    assert set(spans) == {first.id, *(txn.id for txn in members)}
    assert [spans[txn.id].attributes["lakevilla.members"] for txn in members] == [2, 2]
    assert spans[first.id].attributes["lakevilla.members"] == 0
    for txn in members:
        span = spans[txn.id]
        assert span.attributes["lakevilla.operations"] == 1
        # A redo of the whole is told to each, by its own operation.
        told = {event.name: event.attributes["message"] for event in span.events}
        assert told == {
            "retry": "lost a race for HEAD (1 times)",
            "redo": "redoing from operation 0 on t",
        }
        names = {phase.name for phase in telemetry.phases(span)}
        assert {"lakevilla.wait", "lakevilla.publish"} <= names
    ids = {event.txn_id for event in telemetry.events}
    assert lake.history(1)[0].txn_id not in ids, "nobody has begun it"


def test_metrics_count_commits_and_the_times_of_transactions_and_phases(
    lake: lv.Lake, telemetry: Telemetry
) -> None:
    for _ in range(3):
        lake.run(lambda txn: txn.append("t", [{"a": 2}]))
    lake.read("t")
    # The number includes the creation of the table.
    assert [point.value for point in telemetry.points("lakevilla.commits")] == [4]
    assert telemetry.points("lakevilla.aborts") == []
    durations = telemetry.points("lakevilla.transaction.duration")
    by = {point.attributes["outcome"]: point for point in durations}
    # `create_table` also reads the new table.
    assert (by["committed"].count, by["read"].count) == (4, 2)
    whole = sum(point.sum for point in durations)
    parts = sum(point.sum for point in telemetry.points("lakevilla.phase.duration"))
    assert 0 < parts <= whole


def test_threads_can_share_a_listener(lake: lv.Lake, telemetry: Telemetry) -> None:
    def work() -> None:
        lake.run(lambda txn: txn.append("t", [{"a": 2}]))

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    wholes = telemetry.transactions()
    assert len({span.context.trace_id for span in wholes}) == 4
    for whole in wholes:
        phases = telemetry.phases(whole)
        ids = {span.attributes["lakevilla.transaction.id"] for span in phases}
        assert ids == {whole.attributes["lakevilla.transaction.id"]}
        assert {"lakevilla.decide", "lakevilla.publish"} <= {span.name for span in phases}


def test_spans_of_snapshots_that_are_never_closed_end_when_there_are_too_many(
    lake: lv.Lake, telemetry: Telemetry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(opentelemetry, "_MOST", 3)
    for _ in range(5):
        lake.snapshot().read("t")
    assert len(telemetry.transactions()) == 2, "the oldest are ended"


def test_the_listener_does_nothing_without_a_set_up_of_the_application(tmp_path: Path) -> None:
    with lv.connect(tmp_path, on_event=listener()) as lake:
        lake.create_table("t", [{"a": 1}])
        assert lake.read("t").num_rows == 1
