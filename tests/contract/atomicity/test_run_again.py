"""``lake.run`` runs its function again: it frees places, finds outcomes, and repeats no effect."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.api import run
from lakevilla.errors import StoreError
from lakevilla.global_log.head import HEAD_KEY
from lakevilla.lake.context import Context
from lakevilla.lake.publishing import outcome
from lakevilla.markers.marker import marker_key
from lakevilla.store.base import Condition, Failure, Refused, Stored, Token, WrappedStore
from lakevilla.store.effects import Program
from lakevilla.sublogs.record import record_key
from tests.support.inside import inside
from tests.support.places import Place, fill, make_place
from tests.support.queues import CT, I, R, left_over, tickets
from tests.support.stores import InterruptedStore
from tests.support.tables import accounts

SHORT = lv.Settings(
    lease_seconds=0.3,
    wait_timeout_seconds=4.0,
    wait_poll_seconds=0.02,
    wait_poll_cap_seconds=0.05,
    retry_base_seconds=0.001,
    retry_cap_seconds=0.002,
    retry_limit=2,
)
QUEUED = R | CT | I


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Place:
    place = make_place("memory", request)
    fill(place, {table: accounts(2) for table in ("x", "y")})
    return place


@pytest.fixture
def lake(place: Place) -> Iterator[lv.Lake]:
    with place.connect(settings=SHORT) as lake:
        yield lake


@pytest.fixture
def other(place: Place) -> Iterator[lv.Lake]:
    with place.connect(settings=SHORT) as other:
        yield other


def add(txn: lv.Transaction, table: str, amount: int = 1) -> None:
    txn.update(table, {"balance": f"balance + {amount}"}, "id = 0")


def balance(lake: lv.Lake, table: str) -> int:
    with lake.transaction(read_only=True) as txn:
        (found,) = txn.read(table, where="id = 0")["balance"].to_pylist()
    assert isinstance(found, int)
    return found


def overtake(other: lv.Lake, table: str = "x") -> None:
    with other.transaction() as theirs:
        add(theirs, table, 10)


# -- keys ------------------------------------------------------------------------------


def test_an_idempotency_key_stays_bound_while_its_transaction_is_run_again(
    lake: lv.Lake, other: lv.Lake
) -> None:
    ids: list[str] = []

    def keyed(txn: lv.Transaction) -> None:
        ids.append(txn.id)
        txn.read("x")
        add(txn, "x")
        if len(ids) == 1:
            overtake(other)  # the commit binds the key, and then finds the conflict
        if len(ids) == 2:
            # The same process uses the key again while the first use is under way.
            lake.run(lambda again: add(again, "y"), idempotency_key="k")

    lake.run(keyed, idempotency_key="k")
    assert ids[0] == ids[1]
    assert balance(lake, "x") - 110 + balance(lake, "y") - 100 == 1


@pytest.mark.parametrize("features", [R | I, QUEUED], ids=["R|I", "R|CT|I"])
def test_the_key_of_a_resumed_transaction_is_used_by_only_one_commit(
    lake: lv.Lake, other: lv.Lake, features: lv.Feature
) -> None:
    with (
        pytest.raises(lv.TransactionAborted),
        lake.transaction(features, idempotency_key="k") as txn,
    ):
        add(txn, "x")
        txn.save()
        resumed = other.resume(txn.id)
        txn.save()  # the first client notices that another has resumed it

    def use_again() -> None:
        lake.run(lambda again: add(again, "y"), idempotency_key="k")

    # The resumed transaction has bound the key, and is right before its commit point.
    inside(other).store = InterruptedStore(inside(other).store, HEAD_KEY.__eq__, use_again)
    with pytest.raises(lv.TransactionAborted):
        resumed.commit()
    assert (balance(lake, "x"), balance(lake, "y")) == (100, 101)


# -- places given back -------------------------------------------------------------------


def test_a_function_that_raises_another_error_for_a_conflict_leaves_no_place(
    lake: lv.Lake, other: lv.Lake
) -> None:
    def translates(txn: lv.Transaction) -> None:
        txn.read("x")
        add(txn, "x")
        overtake(other)
        try:
            txn.commit()
        except lv.ConflictError:
            raise ValueError("no luck") from None

    with pytest.raises(ValueError, match="no luck"):
        lake.run(translates, features=QUEUED)
    assert left_over(lake, "x", "y") == []


def test_a_transaction_whose_key_another_client_uses_meanwhile_leaves_no_place(
    lake: lv.Lake, other: lv.Lake
) -> None:
    calls: list[str] = []

    def beaten(txn: lv.Transaction) -> None:
        calls.append(txn.id)
        add(txn, "x")
        other.run(lambda theirs: add(theirs, "y"), idempotency_key="k")

    assert lake.run(beaten, features=QUEUED, idempotency_key="k") is None
    assert len(calls) == 1
    assert (balance(lake, "x"), balance(lake, "y")) == (100, 101)
    assert left_over(lake, "x", "y") == []


class Broken(WrappedStore):
    """A store in which writes to one key fail without an answer; then the key can't be read."""

    def __init__(self, inner: Any, key: str) -> None:
        super().__init__(inner)
        self.key: str | None = key
        self.written = False

    def get(
        self, key: str, known: Token | None = None, byte_range: tuple[int, int] | None = None
    ) -> Any:
        if self.written and key == self.key:
            return Failure("the connection was cut")
        return self.inner.get(key, known, byte_range)

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        if key == self.key:
            self.written = True
            return Failure("the connection was cut")
        return self.inner.put(key, body, condition)


def test_the_next_attempt_takes_new_places_after_an_unknown_outcome_was_settled(
    lake: lv.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = inside(lake).store = Broken(inside(lake).store, HEAD_KEY)
    ids: list[str] = []
    found: list[list[int]] = []
    ask = outcome.outcome

    def settle(context: Context, txn_id: str) -> Program[lv.Outcome]:
        store.key = None  # the store works again
        return (yield from ask(context, txn_id))

    monkeypatch.setattr(outcome, "outcome", settle)

    def body(txn: lv.Transaction) -> None:
        ids.append(txn.id)
        add(txn, "x")
        found.append(tickets(lake, "x"))

    lake.run(body, features=QUEUED)
    assert len(set(ids)) == 2
    assert found == [[1], [1]]
    assert balance(lake, "x") == 101
    assert left_over(lake, "x") == []


def test_a_commit_that_failed_outside_of_a_block_gives_its_places_back(
    lake: lv.Lake, other: lv.Lake
) -> None:
    txn = lake.transaction(QUEUED)
    txn.read("x")
    add(txn, "x")
    overtake(other)
    with pytest.raises(lv.ConflictError):
        txn.commit()
    # The caller still has the transaction, so its heartbeat would go on for ever.
    assert left_over(lake, "x") == []
    with pytest.raises(lv.ConflictError):
        txn.commit()
    txn.abort()


class Blind(WrappedStore):
    """A store in which one key can't be read."""

    key: str | None = None

    def get(
        self, key: str, known: Token | None = None, byte_range: tuple[int, int] | None = None
    ) -> Any:
        if key == self.key:
            return Failure("no right to read", permanent=True)
        return self.inner.get(key, known, byte_range)


def test_a_place_is_taken_even_if_the_places_ahead_can_not_be_read(
    lake: lv.Lake, other: lv.Lake
) -> None:
    first = other.transaction(QUEUED)
    add(first, "y")
    store = inside(lake).store = Blind(inside(lake).store)
    with lake.transaction(QUEUED) as txn:
        store.key = marker_key("y", 1)
        with pytest.raises(StoreError):
            add(txn, "y")
        store.key = None
        assert tickets(lake, "y") == [1, 2]
        first.commit()
        add(txn, "y")
    assert balance(lake, "y") == 102
    assert left_over(lake, "x", "y") == []


# -- resumed elsewhere -------------------------------------------------------------------


@pytest.mark.parametrize("features", [R | I, QUEUED], ids=["R|I", "R|CT|I"])
@pytest.mark.parametrize("commits", [False, True], ids=["under way", "committed"])
def test_run_settles_an_attempt_resumed_by_another_process_before_it_runs_again(
    lake: lv.Lake, other: lv.Lake, features: lv.Feature, commits: bool
) -> None:
    ids: list[str] = []
    resumed: list[lv.Transaction] = []

    def body(txn: lv.Transaction) -> None:
        ids.append(txn.id)
        add(txn, "x")
        txn.save()
        if len(ids) == 1:
            resumed.append(other.resume(txn.id))
            if commits:
                resumed[0].commit()
            txn.save()

    lake.run(body, features=features)
    if not commits:
        with pytest.raises(lv.TransactionAborted):
            resumed[0].commit()
    assert len(ids) == (1 if commits else 2)
    assert balance(lake, "x") == 101


@pytest.mark.parametrize("features", [R | I, QUEUED], ids=["R|I", "R|CT|I"])
def test_run_settles_an_attempt_resumed_before_a_conflict_before_it_runs_again(
    lake: lv.Lake, other: lv.Lake, features: lv.Feature
) -> None:
    ids: list[str] = []
    resumed: list[lv.Transaction] = []

    def body(txn: lv.Transaction) -> None:
        ids.append(txn.id)
        if len(ids) == 1:
            add(txn, "y")
            txn.save()
            resumed.append(other.resume(txn.id))
            txn.read("x")
            overtake(other)
        else:
            add(txn, "y")

    lake.run(body, features=features)
    with pytest.raises(lv.TransactionAborted):
        resumed[0].commit()
    assert len(ids) == 2
    assert balance(lake, "y") == 101


class Late(WrappedStore):
    """A store in which creates of records get no answer and are performed later."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.late: tuple[str, bytes, Condition] | None = None
        self.armed = True

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        if self.armed and key.startswith("_lakevilla/txns/") and key.count("/") == 2:
            self.late = (key, body, condition)
            return Failure("the connection was cut")
        return self.inner.put(key, body, condition)


@pytest.mark.parametrize("resumes", ["before", "after"])
def test_a_record_stored_late_lets_no_client_commit_an_attempt_that_was_run_again(
    place: Place, other: lv.Lake, monkeypatch: pytest.MonkeyPatch, resumes: str
) -> None:
    ids: list[str] = []
    lake = place.connect(settings=SHORT)
    store = inside(lake).store = Late(inside(lake).store)
    attempt = run._attempt

    def between(*args: Any) -> lv.Transaction | None:
        if ids:
            store.armed = False
            if resumes == "before":
                assert store.late is not None
                assert isinstance(store.inner.put(*store.late), Stored)
                other.resume(ids[0]).commit()
        return attempt(*args)

    monkeypatch.setattr(run, "_attempt", between)

    def body(txn: lv.Transaction) -> None:
        ids.append(txn.id)
        add(txn, "y")
        if len(ids) == 1:
            with pytest.raises(StoreError):
                txn.save()
            assert store.late is not None
            assert store.late[0] == record_key(txn.id)
            txn.read("x")
            overtake(other)

    lake.run(body)
    if resumes == "after":
        assert store.late is not None
        store.inner.put(*store.late)
        with pytest.raises(lv.LakeVillaError):
            other.resume(ids[0]).commit()
    assert balance(lake, "y") == 101
    lake.close()


def test_a_resumed_transaction_keeps_the_sources_that_it_has_stored(
    lake: lv.Lake, other: lv.Lake
) -> None:
    def rows(value: int) -> pa.Table:
        ids = pa.array(range(6000), pa.int64())
        return pa.table({"id": ids, "balance": pa.array([value] * 6000, pa.int64())})

    txn = lake.transaction()
    txn.upsert("x", rows(7), "id")
    txn.save()
    resumed = other.resume(txn.id)
    resumed.upsert("y", rows(8), "id")
    with lake.transaction() as between:
        add(between, "x")  # so the first merge is redone from its stored source
    resumed.commit()
    assert (balance(lake, "x"), balance(lake, "y")) == (7, 8)
