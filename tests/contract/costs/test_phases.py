"""Phases of a transaction that are reported to listeners have all of its time.

Time is virtual: only requests take time, each as long as one of S3. So the phases' times add up
to the transaction's time exactly, unless a request lies outside of all phases.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

import lakevilla as lv
from lakevilla.lake.context import Event
from lakevilla.store.base import Store
from lakevilla_testing.world.latency import S3, LatencyStore
from tests.support.inside import inside
from tests.support.places import Place, make_place
from tests.support.queues import beside
from tests.support.tables import accounts

I = lv.Feature.R | lv.Feature.I  # noqa: E741
CT = lv.Feature.R | lv.Feature.CT
FEATURES = {"NONE": lv.Feature.NONE, "R": lv.Feature.R, "R|I": I, "R|CT": CT, "R|CT|I": CT | I}


class VirtualClock:
    """A clock that only requests move."""

    def __init__(self) -> None:
        self._seconds = 1_000_000.0
        self._lock = threading.Lock()

    def now(self) -> float:
        return self._seconds + 1_750_000_000

    def elapsed(self) -> float:
        return self._seconds

    def move(self, seconds: float) -> None:
        with self._lock:
            self._seconds += seconds


class Slow(LatencyStore):
    """A store whose requests take the latency of S3 on the virtual clock, and no real time."""

    def __init__(self, store: Store, clock: VirtualClock) -> None:
        super().__init__(store, S3)
        self.clock = clock

    def _wait(self, seconds: float) -> None:
        self.clock.move(seconds)


class Heard:
    """A listener that collects the reported spans, by kind and transaction."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def __call__(self, event: Event) -> None:
        self.events.append(event)

    def of(self, kind: str) -> list[Event]:
        return [event for event in self.events if event.kind == kind]

    def seconds(self) -> dict[str, float]:
        """Return the own seconds of each phase."""
        found: dict[str, float] = defaultdict(float)
        for event in self.of("phase"):
            found[str(event.detail["phase"])] += float(str(event.detail["own_seconds"]))
        return {phase: seconds for phase, seconds in found.items() if seconds}

    def last(self) -> Event:
        return self.of("transaction")[-1]


@contextmanager
def slow(place: Place, heard: Heard) -> Iterator[lv.Lake]:
    with place.connect(on_event=heard) as lake:
        client = inside(lake).client
        clock = VirtualClock()
        client.context.clock = clock
        client.runner.store = Slow(client.runner.store, clock)
        yield lake


@pytest.fixture
def shared(request: pytest.FixtureRequest) -> Place:
    """Return a place in memory, so that all reads of files go through the store."""
    return make_place("memory", request)


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def lake(shared: Place, heard: Heard) -> Iterator[lv.Lake]:
    with shared.connect() as writer:  # a client reads the files that it has written from memory
        for name in ("bank", "shop"):
            writer.create_table(name, accounts(3))
        writer.run(lambda txn: txn.append("bank", accounts(1)))
    with slow(shared, heard) as lake:
        for name in ("bank", "shop"):
            assert not lake.read(name, where="id > 1000").num_rows  # opens the log, and no file
        heard.events.clear()
        yield lake


def reads(txn: lv.Transaction) -> None:
    assert txn.read("bank", where="id = 1").num_rows


def updates(txn: lv.Transaction) -> None:
    txn.update("bank", {"balance": "balance + 1"}, where="id = 1")


def appends(txn: lv.Transaction) -> None:
    txn.append("bank", accounts(1))


@pytest.mark.parametrize("work", [reads, updates, appends])
@pytest.mark.parametrize("features", FEATURES.values(), ids=FEATURES)
def test_the_phases_of_a_transaction_add_up_to_its_time(
    lake: lv.Lake, heard: Heard, features: lv.Feature, work: Callable[[lv.Transaction], None]
) -> None:
    with lake.transaction(features) as txn:
        work(txn)
    whole = heard.last()
    assert whole.txn_id == txn.id
    assert {event.txn_id for event in heard.of("phase")} == {txn.id}
    assert sum(heard.seconds().values()) == pytest.approx(whole.detail["seconds"])
    wanted = {"data"}
    if work is not reads:
        wanted |= {"decide"} | ({"publish"} if lv.Feature.I in features else set())
    if lv.Feature.CT in features:
        wanted |= {"publish"} if work is not reads else set()
    if lv.Feature.CT in features and work is updates:
        wanted |= {"marker"}  # HEAD is read in the same round
    elif work is reads or lv.Feature.I in features:
        wanted |= {"version"}
    assert wanted <= set(heard.seconds())
    assert whole.detail["outcome"] == ("read" if work is reads else "committed")


@pytest.mark.parametrize("work", [reads, updates, appends])
@pytest.mark.parametrize("features", [lv.Feature.NONE, CT | I], ids=["NONE", "R|CT|I"])
def test_the_phases_of_a_transaction_on_an_iceberg_table_add_up_to_its_time(
    shared: Place, heard: Heard, features: lv.Feature, work: Callable[[lv.Transaction], None]
) -> None:
    with slow(shared, heard) as lake:
        lake.create_table("bank", accounts(3), format="iceberg")
        heard.events.clear()
        with lake.transaction(features) as txn:
            work(txn)
    assert sum(heard.seconds().values()) == pytest.approx(heard.last().detail["seconds"])


def test_the_phases_of_the_first_write_of_a_lake_add_up_to_its_time(
    request: pytest.FixtureRequest, heard: Heard
) -> None:
    place = Place(f"memory://first-{request.node.name}-{id(heard)}")
    with slow(place, heard) as lake:
        lake.create_table("bank", accounts(3))
    whole = next(e for e in heard.of("transaction") if e.detail["outcome"] == "committed")
    own = [e.detail["own_seconds"] for e in heard.of("phase") if e.txn_id == whole.txn_id]
    assert sum(map(float, map(str, own))) == pytest.approx(whole.detail["seconds"])


@pytest.mark.parametrize("features", [lv.Feature.R, I], ids=["R", "R|I"])
def test_the_validation_of_reads_by_rules_is_reported_as_a_phase(
    lake: lv.Lake, heard: Heard, features: lv.Feature
) -> None:
    with lake.transaction(features, validation="rules") as txn:
        reads(txn)
    assert heard.seconds()["validate"] > 0
    assert sum(heard.seconds().values()) == pytest.approx(heard.last().detail["seconds"])


def test_the_validation_before_a_move_to_a_newer_head_is_reported_as_a_phase(
    lake: lv.Lake, shared: Place, heard: Heard
) -> None:
    with lake.transaction(CT | I) as txn:
        reads(txn)
        with shared.connect() as other:
            other.run(lambda rival: rival.append("shop", accounts(1)))
        txn.read("shop")
    assert heard.seconds()["validate"] > 0
    assert sum(heard.seconds().values()) == pytest.approx(heard.last().detail["seconds"])


def test_reads_of_metadata_by_a_new_client_are_reported_by_table(
    lake: lv.Lake, shared: Place
) -> None:
    heard = Heard()
    with slow(shared, heard) as other:
        assert other.read("bank").num_rows == 4
    assert heard.seconds()["metadata"] >= 0.067  # a LIST and a GET at least
    assert {e.detail["table"] for e in heard.of("phase") if e.detail["phase"] == "metadata"} >= {
        "bank"
    }
    assert sum(heard.seconds().values()) == pytest.approx(heard.last().detail["seconds"])


def test_the_read_of_streamed_rows_is_reported_at_the_end_of_the_stream(
    lake: lv.Lake, heard: Heard
) -> None:
    rows = lake.scan("bank")
    before = [event.detail["phase"] for event in heard.of("phase")].count("data")
    assert sum(batch.num_rows for batch in rows) == 4
    after = [event.detail["phase"] for event in heard.of("phase")].count("data")
    assert (before, after) == (1, 2)


def test_each_phase_lies_within_its_transaction(lake: lv.Lake, heard: Heard) -> None:
    with lake.transaction() as txn:
        txn.sql("SELECT * FROM bank JOIN shop USING (id)")
        updates(txn)
    whole = heard.last().detail
    for event in heard.of("phase"):
        span = event.detail
        assert whole["began"] <= span["began"] <= span["ended"] <= whole["ended"]
        assert 0 <= span["own_seconds"] <= span["seconds"] <= span["ended"] - span["began"]
        assert event.message.startswith(str(span["phase"]))
    assert whole["tables"] == ["bank", "shop"]
    assert (whole["operations"], whole["features"]) == (1, "R|I")


def test_validation_and_redo_after_a_lost_race_are_reported_as_phases(
    lake: lv.Lake, shared: Place, heard: Heard
) -> None:
    with shared.connect() as other, lake.transaction() as txn:
        updates(txn)
        before = heard.seconds()
        other.run(lambda rival: rival.update("bank", {"balance": "0"}, where="id = 1"))
    after, whole = heard.seconds(), heard.last().detail
    assert whole["redos"] == 1
    assert after["validate"] > before.get("validate", 0.0)
    assert after["data"] > before["data"]
    assert sum(after.values()) == pytest.approx(whole["seconds"])


def test_the_outcome_of_a_transaction_is_reported_once(
    lake: lv.Lake, shared: Place, heard: Heard
) -> None:
    with pytest.raises(ZeroDivisionError), lake.transaction() as txn:
        appends(txn)
        raise ZeroDivisionError
    with shared.connect() as other, pytest.raises(lv.ConflictError):
        with lake.transaction() as lost:
            reads(lost)
            other.run(lambda rival: rival.update("bank", {"balance": "0"}, where="id = 1"))
            updates(lost)
    with lake.snapshot() as state:
        state.read("shop")
    with pytest.raises(lv.TableNotFound):
        lake.read("none")
    ends = [(e.detail["outcome"], e.detail["error"]) for e in heard.of("transaction")]
    assert ends == [
        ("aborted", None),
        ("failed", "conflict"),
        ("read", None),
        ("failed", "table_not_found"),
    ]
    assert [e.txn_id for e in heard.of("transaction")][:2] == [txn.id, lost.id]


def test_each_attempt_of_run_is_reported(lake: lv.Lake, shared: Place, heard: Heard) -> None:
    attempts = []

    def change(txn: lv.Transaction) -> None:
        attempts.append(txn.id)
        balance = txn.read("bank", where="id = 1")["balance"][0].as_py()
        if len(attempts) == 1:
            with shared.connect() as other:
                other.run(lambda rival: rival.update("bank", {"balance": "0"}, where="id = 1"))
        txn.update("bank", {"balance": ":b"}, where="id = 1", params={"b": balance + 1})

    lake.run(change)
    assert [e.detail["outcome"] for e in heard.of("transaction")] == ["failed", "committed"]


def test_the_time_that_a_transaction_waits_in_a_queue_is_reported(
    lake: lv.Lake, shared: Place, heard: Heard
) -> None:
    with shared.connect() as other:
        first = other.transaction(CT | I)
        first.update("bank", {"balance": "balance + 1"}, where="id = 1")
        waiting = threading.Event()
        inside(lake).client._listeners.append(
            lambda event: waiting.set() if event.kind == "waiting" else None
        )

        def second() -> None:
            with lake.transaction(CT | I) as txn:
                updates(txn)

        with beside(second) as done:
            assert waiting.wait(30)
            first.commit()
            done.result(30)
    assert heard.seconds()["wait"] > 0
    assert heard.last().detail["outcome"] == "committed"


def test_each_transaction_of_a_commit_group_reports_its_own_phases(
    lake: lv.Lake, heard: Heard
) -> None:
    barrier = threading.Barrier(4)

    def one() -> None:
        with lake.transaction() as txn:
            appends(txn)
            barrier.wait(30)

    threads = [threading.Thread(target=one) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    ids = {event.txn_id for event in heard.of("transaction")}
    assert len(ids) == 4
    for txn_id in ids:
        phases = {e.detail["phase"] for e in heard.of("phase") if e.txn_id == txn_id}
        assert {"version", "data", "validate", "decide", "publish"} <= phases


def test_phases_are_reported_to_listeners_and_not_to_the_logger(
    lake: lv.Lake, heard: Heard, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("DEBUG", logger="lakevilla"):
        lake.run(updates)
    assert heard.of("phase")
    assert not [one for one in caplog.messages if "ms" in one]
