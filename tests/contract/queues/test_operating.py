"""Operating queues: listing them, freeing dead clients' places, aborting hung transactions."""

from __future__ import annotations

import gc
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
from deltalake import DeltaTable

import lakevilla as lv
from lakevilla.global_log.head import HEAD_KEY, Head, Reservation
from lakevilla.ids import uuid7
from lakevilla.lake.publishing.outcome import fence
from lakevilla.markers.marker import Marker, marker_key
from lakevilla.store.base import Store, WrappedStore
from lakevilla.store.codec import FORMAT, decode, encode
from lakevilla.sublogs.record import Edge, Ticket, TxnRecord, record_key
from lakevilla.transaction.queue.reservation import reserve
from lakevilla.transaction.state.values import Feature
from tests.support.inside import executor, inside
from tests.support.places import Place
from tests.support.queues import Told, beside, head_of, tickets
from tests.support.stores import is_entry
from tests.support.tables import contents

QUEUED = Feature.R | Feature.CT | Feature.I
LEASE = 0.3
SHORT = lv.Settings(
    lease_seconds=LEASE,
    wait_poll_seconds=0.02,
    wait_poll_cap_seconds=0.05,
    wait_timeout_seconds=60.0,
)
#: A lease that does not end during a test.
LONG = lv.Settings(wait_poll_seconds=0.02, wait_poll_cap_seconds=0.05)


@pytest.fixture
def operator(shop: Place) -> Iterator[lv.Lake]:
    """Return an operator's client with its own caches."""
    with shop.connect() as lake, lake.transaction() as txn:
        txn.append("orders", {"id": [4], "sku": ["plum"], "qty": [40]})
        txn.append("stock", {"sku": ["plum"], "left": [70]})
    with shop.connect(settings=SHORT) as lake:
        yield lake


def begin(lake: lv.Lake, *tables: str) -> lv.Transaction:
    txn = lake.transaction(QUEUED)
    for table in tables or ("stock",):
        txn.delete(table, "sku = 'pear'")
    return txn


def died(place: Place, *tables: str, settings: lv.Settings = SHORT) -> lv.Transaction:
    """Begin a transaction whose client dies: no process renews or ends it."""
    client = place.connect(settings=settings)
    txn = begin(client, *tables)
    client.close()
    return txn


class Gone(BaseException):
    """The client dies."""


def died_decided(place: Place, table: str, settings: lv.Settings = SHORT) -> lv.Transaction:
    """Decide a transaction whose client dies before it publishes."""

    class Dying(WrappedStore):
        dead = False

        def put(self, key: str, body: bytes, condition: Any) -> Any:
            self.dead = self.dead or is_entry(table)(key)
            return self.alive().put(key, body, condition)

        def get(self, *args: Any) -> Any:
            return self.alive().get(*args)

        def list(self, *args: Any) -> Any:
            return self.alive().list(*args)

        def delete(self, key: str) -> Any:
            return self.alive().delete(key)

        def alive(self) -> Store:
            if self.dead:
                raise Gone
            return self.inner

    client = place.connect(settings=settings)
    txn = begin(client, table)
    client.close()
    inside(client).store = Dying(inside(client).store)
    with pytest.raises(Gone):
        txn.commit()
    return txn


def write(place: Place, key: str, body: bytes) -> None:
    path = Path(place.root) / key
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(body)


def found(report: lv.Report, kind: str) -> list[lv.Finding]:
    return [finding for finding in report.findings if finding.kind == kind]


# -- transactions ----------------------------------------------------------------


def test_transactions_lists_for_each_transaction_those_that_it_waits_for(
    shop: Place, operator: lv.Lake
) -> None:
    assert operator.transactions() == []
    told = Told()
    before = datetime.now(UTC) - timedelta(seconds=1)
    with shop.connect(settings=LONG, on_event=told) as lake:
        optimistic = lake.transaction()
        optimistic.append("stock", {"sku": ["fig"], "left": [1]})
        first, second = begin(lake), begin(lake, "stock", "orders")
        with beside(second.commit):
            told.wait("waiting")
            one, two = operator.transactions()
            assert (one.id, two.id) == (first.id, second.id)
            assert (one.state, one.waits_for, one.tables) == ("running", (), ("stock",))
            assert (two.state, two.waits_for) == ("waiting", (first.id,))
            assert two.tables == ("orders", "stock")
            assert one.owner == two.owner != ""
            after = datetime.now(UTC) + timedelta(seconds=1)
            for info in (one, two):
                assert before < info.started < after
                assert before < info.last_seen < after
            first.commit()
    assert operator.transactions() == []


def test_a_transaction_listed_as_saved_can_be_resumed(shop: Place, operator: lv.Lake) -> None:
    with shop.connect(settings=SHORT) as client:
        txn = client.transaction()
        txn.append("stock", {"sku": ["fig"], "left": [1]})
        txn.save()
        assert [info.state for info in operator.transactions()] == ["running"]
    (info,) = operator.transactions()
    while info.state == "running":  # until its lease is over by the store's clock
        time.sleep(0.02)
        (info,) = operator.transactions()
    assert (info.id, info.state, info.tables) == (txn.id, "saved", ("stock",))
    assert datetime.now(UTC) - info.last_seen > timedelta(seconds=LEASE)
    operator.resume(txn.id).commit()
    assert operator.transactions() == []


def fence_alone(lake: lv.Lake, txn_id: str) -> None:
    """Fence the transaction but keep its record, as a client that died in between."""
    assert inside(lake).run(fence(inside(lake).context, txn_id)) is None


def test_doctor_reports_ended_transactions_that_were_not_cleaned_up(
    shop: Place, operator: lv.Lake
) -> None:
    decided = died_decided(shop, "stock")
    fenced = died(shop, "orders")
    fence_alone(operator, fenced.id)
    assert {info.id: info.state for info in operator.transactions()} == {
        decided.id: "committed",
        fenced.id: "aborted",
    }
    assert len(found(operator.doctor(), "ended")) == 2


def test_transactions_and_doctor_report_tables_by_their_registered_names(
    shop: Place, operator: lv.Lake, tmp_path: Path
) -> None:
    Place(str(tmp_path)).write("beyond", [{"sku": "pear"}])
    operator.register("far", str(tmp_path / "beyond"))
    txn = begin(operator, "far")
    txn.save()
    (info,) = operator.transactions()
    assert info.tables == ("far",)
    assert [queue.table for queue in operator.doctor().queues] == ["far"]
    txn.abort()


def test_listing_transactions_costs_one_list_and_one_get_each(
    shop: Place, operator: lv.Lake
) -> None:
    dead = [died(shop) for _ in range(3)]
    with inside(operator).requests.counting() as counts:
        assert len(operator.transactions()) == 3
    assert (counts.list, counts.get, counts.put, counts.delete) == (1, 1 + len(dead), 0, 0)


def test_a_missing_lake_has_no_transactions(tmp_path: Path) -> None:
    with lv.connect(str(tmp_path / "nowhere")) as lake:
        assert lake.transactions() == []
    assert not (tmp_path / "nowhere").exists()


# -- doctor ----------------------------------------------------------------------


def test_doctor_shows_each_queue_in_order(shop: Place, operator: lv.Lake) -> None:
    assert operator.doctor() == lv.Report(True)
    with shop.connect(settings=LONG) as lake:
        first, second = begin(lake, "stock"), begin(lake, "stock", "orders")
        third = lake.transaction(QUEUED)
        third.read("stock")
        third.append("orders", operator.snapshot().read("orders"))  # takes places for the reads
        before = contents(shop.root)
        report = operator.doctor()
        assert contents(shop.root) == before
        orders, stock = report.queues
        assert [(p.number, p.txn_id, p.access) for p in stock.places] == [
            (1, first.id, "write"),
            (2, second.id, "write"),
            (3, third.id, "read"),
        ]
        assert [(p.txn_id, p.state) for p in orders.places] == [(second.id, "running")]
        assert report.ok
        assert all(p.owner == executor(first).client.owner for p in stock.places)
        for txn in (first, second, third):
            txn.abort()
    assert operator.doctor() == lv.Report(True)


def ring(place: Place, *members: str) -> None:
    """Store a cycle of transactions: each is first at one table and waits for the next one's."""
    for index, txn in enumerate(members):
        holder = members[(index + 1) % len(members)]
        own, theirs = (f"t{index}", f"t{(index + 1) % len(members)}")
        record = TxnRecord(
            FORMAT,
            f"{index:032x}",
            txn,
            "host:1:aa",
            1,
            LEASE,
            0,
            tickets=(Ticket(own, 1, "write"), Ticket(theirs, 2, "write")),
            edges=(Edge(txn, 2, holder, 1, theirs),),
        )
        write(place, record_key(txn), encode(record))
        for table, number in ((own, 1), (theirs, 2)):
            body = encode(Marker(FORMAT, f"{index:032x}", txn, table, number, "write"))
            write(place, marker_key(table, number), body)


def test_doctor_shows_transactions_that_wait_in_a_cycle(shop: Place, operator: lv.Lake) -> None:
    members = [uuid7(10_000 + number, number) for number in range(3)]
    ring(shop, *members)
    report = operator.doctor()
    assert report.cycles == (tuple(members),)
    (finding,) = found(report, "cycle")
    assert finding.txn_id == max(members)
    assert report.ok
    waits = {p.txn_id: p.waits_for for queue in report.queues for p in queue.places}
    assert waits == {
        members[0]: (members[1],),
        members[1]: (members[2],),
        members[2]: (members[0],),
    }
    assert {info.state for info in operator.transactions()} == {"waiting"}


def test_doctor_reports_unreadable_markers_and_records(shop: Place, operator: lv.Lake) -> None:
    txn = uuid7(10_000, 1)
    newer = uuid7(10_000, 2)
    write(shop, marker_key("stock", 1), b"{")
    write(shop, marker_key("stock", 2), b'{"format": 99}')
    write(shop, marker_key("stock", 3), encode(Marker(FORMAT, "0", txn, "stock", 3, "write")))
    write(shop, record_key(txn), b"[]")
    write(shop, record_key(newer), b'{"format": 99}')
    write(shop, "_lakevilla/txns/notes.txt", b"")
    write(shop, "stock/_lakevilla/markers/notes.txt", b"")
    report = operator.doctor()
    assert not report.ok
    told = {(f.severity, f.kind, f.key) for f in report.findings}
    assert told == {
        ("error", "corrupt_object", marker_key("stock", 1)),
        ("warning", "unsupported_format", marker_key("stock", 2)),
        ("error", "corrupt_object", record_key(txn)),
        ("warning", "unsupported_format", record_key(newer)),
    }
    (queue,) = report.queues
    assert [shop.state for shop in queue.places] == ["unreadable"] * 3
    assert operator.transactions() == []


def test_doctor_reports_owners_that_do_not_renew_their_records(
    shop: Place, operator: lv.Lake
) -> None:
    dead = died(shop)
    report = operator.doctor()
    while not found(report, "silent"):
        time.sleep(0.02)
        report = operator.doctor()
    assert [finding.txn_id for finding in found(report, "silent")] == [dead.id]
    assert report.ok


def test_doctor_shows_reservations(shop: Place, operator: lv.Lake) -> None:
    with shop.connect(settings=LONG) as lake:
        txn = begin(lake)
        inside(lake).run(reserve(executor(txn).state, {"stock", "orders"}))
        report = operator.doctor()
        assert {queue.table: queue.reserved_by for queue in report.queues} == {
            "orders": (txn.id,),
            "stock": (txn.id,),
        }
        assert [finding.txn_id for finding in found(report, "reserved")] == [txn.id]
        assert operator.transactions()[0].tables == ("orders", "stock")
        txn.commit()
    assert operator.doctor() == lv.Report(True)


# -- recover ---------------------------------------------------------------------


def test_recover_frees_the_places_of_dead_transactions_after_a_lease(
    shop: Place, operator: lv.Lake
) -> None:
    dead = [died(shop, "stock", "orders") for _ in range(3)]
    started = time.monotonic()
    report = operator.recover()
    took = time.monotonic() - started
    assert LEASE <= took < LEASE + 5.0
    assert tickets(operator, "stock") == tickets(operator, "orders") == []
    assert [(f.table, f.kind) for f in report.findings] == [
        ("orders", "stale"),
        ("stock", "stale"),
    ]
    assert all(txn.id in report.findings[0].message for txn in dead)
    assert report.ok
    # The records of dead transactions stay: a client that only slept takes a new place.
    assert len(operator.transactions()) == 3
    dead[0].commit()
    with inside(operator).requests.counting() as counts:
        assert operator.recover() == lv.Report(True)
    assert counts.list < 10  # the queues are empty, so recover does not wait


def test_recover_waits_for_no_live_transaction(shop: Place, operator: lv.Lake) -> None:
    with shop.connect(settings=SHORT) as lake:
        txn = begin(lake)
        own = begin(operator, "orders")
        assert operator.recover() == lv.Report(True)
        assert tickets(operator, "stock") == [1]
        assert tickets(operator, "orders") == [1]
        own.abort()
        txn.commit()


def test_recover_deletes_places_of_ended_transactions_at_once(
    shop: Place, operator: lv.Lake
) -> None:
    with shop.connect(settings=LONG) as lake, shop.connect(settings=LONG) as slow:
        aborted = died(shop, "orders", settings=LONG)
        fence_alone(lake, aborted.id)
        ended = died(shop, settings=LONG)
        (Path(shop.root) / record_key(ended.id)).unlink()
        started = time.monotonic()
        report = slow.recover()
        assert time.monotonic() - started < 10.0  # the lease is 30 s
        assert {f.table for f in found(report, "void")} == {"orders", "stock"}
        assert tickets(operator, "stock") == tickets(operator, "orders") == []


def test_recover_publishes_decided_commits_of_dead_clients(shop: Place, operator: lv.Lake) -> None:
    died_decided(shop, "stock")
    report = operator.recover()
    assert [f.kind for f in report.findings] == ["published", "stale"]
    assert DeltaTable(shop.uri("stock")).to_pyarrow_table().num_rows == 2
    assert tickets(operator, "stock") == []


def test_recover_deletes_unreadable_markers_after_a_lease_but_not_newer_ones(
    shop: Place, operator: lv.Lake
) -> None:
    write(shop, marker_key("stock", 1), b'{"format": 99}')
    started = time.monotonic()
    report = operator.recover()
    assert time.monotonic() - started < LEASE  # recover can't delete it, so it does not wait
    assert [(f.severity, f.key) for f in report.findings] == [("warning", marker_key("stock", 1))]
    write(shop, marker_key("stock", 2), b"")
    started = time.monotonic()
    report = operator.recover()
    assert time.monotonic() - started >= LEASE
    assert [f.key for f in found(report, "unreadable")] == [marker_key("stock", 2)]
    assert tickets(operator, "stock") == [1]


def test_recover_keeps_a_place_whose_ticket_a_live_transaction_reuses_meanwhile(
    shop: Place, operator: lv.Lake
) -> None:
    """A live transaction takes the ticket number that a dead one had."""
    dead = died(shop)
    with shop.connect(settings=LONG) as lake:
        started = threading.Event()
        inner = inside(operator).perform
        looked: list[object] = []

        def watch(effect: object) -> object:
            if type(effect).__name__ == "Sleep" and not looked:
                looked.append(effect)
                started.set()
                taken.wait(20.0)
            return inner(effect)  # type: ignore[arg-type]

        taken = threading.Event()
        inside(operator).perform = watch
        with beside(operator.recover):
            assert started.wait(20.0)
            (Path(shop.root) / marker_key("stock", 1)).unlink()
            live = begin(lake)
            assert tickets(lake, "stock") == [1]
            taken.set()
        assert tickets(lake, "stock") == [1]
        live.commit()
    assert dead.state == "open"


def test_recover_reports_a_longer_lease_than_its_own_and_does_not_wait_for_it(
    shop: Place, operator: lv.Lake
) -> None:
    dead = died(shop, settings=LONG)
    started = time.monotonic()
    report = operator.recover()
    assert LEASE <= time.monotonic() - started < 10.0
    (finding,) = found(report, "silent")
    assert finding.txn_id == dead.id
    assert "30 s" in finding.message
    assert tickets(operator, "stock") == [1]


def test_recover_removes_reservations_of_dead_transactions_from_head(
    shop: Place, operator: lv.Lake
) -> None:
    client = shop.connect(settings=SHORT)
    txn = begin(client)
    inside(client).run(reserve(executor(txn).state, {"stock"}))
    client.close()
    assert head_of(shop).reserved
    report = operator.recover()
    assert [f.txn_id for f in found(report, "reserved")] == [txn.id]
    assert head_of(shop).reserved == ()


@pytest.mark.night
def test_recover_frees_ten_thousand_stale_places_in_one_lease(
    shop: Place, operator: lv.Lake
) -> None:
    count = 10_000
    txns = [uuid7(1_000 + number // 10, number // 10) for number in range(count)]
    for number, txn in enumerate(txns, 1):
        body = encode(Marker(FORMAT, f"{number:032x}", txn, "stock", number, "write"))
        write(shop, marker_key("stock", number), body)
    for txn in set(txns):
        write(shop, record_key(txn), encode(TxnRecord(FORMAT, "0", txn, "h:1:a", 1, LEASE, 0)))
    sleeps: list[float] = []
    inner = inside(operator).perform

    def counted(effect: object) -> object:
        sleeps.append(getattr(effect, "seconds", 0.0))
        return inner(effect)  # type: ignore[arg-type]

    inside(operator).perform = counted
    report = operator.recover()
    assert sum(sleeps) <= LEASE + 0.01
    assert tickets(operator, "stock") == []
    (finding,) = found(report, "stale")
    assert f"{count} places" in finding.message
    assert "and 995 more" in finding.message


# -- gc --------------------------------------------------------------------------


def test_gc_deletes_markers_of_transactions_that_can_not_commit_any_more(
    shop: Place, operator: lv.Lake
) -> None:
    died_decided(shop, "orders", LONG)
    recordless = died(shop, settings=LONG)
    (Path(shop.root) / record_key(recordless.id)).unlink()
    fenced = died(shop, settings=LONG)
    fence_alone(operator, fenced.id)
    with shop.connect(settings=LONG) as lake:
        live = begin(lake)
        write(shop, marker_key("stock", 9), b"{")
        void = {marker_key("orders", 1), marker_key("stock", 1), marker_key("stock", 2)}
        before = contents(shop.root)
        told = operator.gc(dry_run=True)
        assert contents(shop.root) == before
        assert {f.key for f in told.findings if f.key and "/markers/" in f.key} == void
        assert all("would be deleted" in f.message for f in told.findings)
        done = operator.gc()
        assert {f.key for f in done.findings} == {f.key for f in told.findings}
        assert tickets(operator, "stock") == [3, 9]
        assert tickets(operator, "orders") == []
        live.commit()


def test_gc_removes_reservations_of_ended_transactions_from_head(
    shop: Place, operator: lv.Lake
) -> None:
    with shop.connect(settings=LONG) as lake:
        live = begin(lake)
        inside(lake).run(reserve(executor(live).state, {"stock"}))
        path = Path(shop.root) / HEAD_KEY
        head = decode(HEAD_KEY, path.read_bytes(), Head)
        nobody = Reservation(uuid7(int(time.time() * 1000), 5), ("stock",))
        path.write_bytes(encode(msgspec.structs.replace(head, reserved=(*head.reserved, nobody))))
        told = operator.gc(dry_run=True)
        assert [f.txn_id for f in found(told, "reserved")] == [nobody.txn]
        assert nobody in head_of(shop).reserved
        done = operator.gc()
        assert [f.txn_id for f in found(done, "reserved")] == [nobody.txn]
        assert [one.txn for one in head_of(shop).reserved] == [live.id]
        live.commit()


# -- abort -----------------------------------------------------------------------


def test_abort_of_a_hung_transaction_lets_the_waiting_ones_go_on(
    shop: Place, operator: lv.Lake
) -> None:
    """The hung transaction's heartbeat still renews its record, so its lease never ends."""
    told = Told()
    with (
        shop.connect(settings=SHORT) as lake,
        shop.connect(settings=SHORT, on_event=told) as other,
    ):
        hung = begin(lake)
        hung.save()
        waiter = begin(other)
        with beside(waiter.commit) as committed:
            told.wait("waiting")
            operator.abort(hung.id)
            committed.result(30.0)
        assert waiter.state == "committed"
        assert not (Path(shop.root) / record_key(hung.id)).exists()
        assert not list((Path(shop.root) / "_lakevilla/txns").rglob("*.json"))
        with pytest.raises(lv.TransactionAborted):
            hung.commit()
        hung.abort()
        gc.collect()
    assert tickets(operator, "stock") == []
    assert operator.transactions() == []
    with pytest.raises(lv.TransactionAborted):
        operator.resume(hung.id)


def test_abort_refuses_a_committed_transaction_and_keeps_its_record(
    shop: Place, operator: lv.Lake
) -> None:
    txn = begin(operator)
    txn.commit()
    write(shop, record_key(txn.id), b"kept")
    with pytest.raises(lv.InvalidOperation, match="has committed"):
        operator.abort(txn.id)
    assert (Path(shop.root) / record_key(txn.id)).read_bytes() == b"kept"
