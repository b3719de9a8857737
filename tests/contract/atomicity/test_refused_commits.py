"""Errors of commits whose commit point the store refuses or does not answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

import pytest

import lakevilla as lv
from lakevilla.global_log import head_log
from lakevilla.store.base import (
    Condition,
    Failure,
    Found,
    GetOutcome,
    Refused,
    Store,
    Stored,
    Token,
    WrappedStore,
)
from lakevilla_testing.damage.scene import OnlyCreates
from tests.support.inside import executor, inside
from tests.support.places import Place, fill
from tests.support.stores import is_entry, is_head
from tests.support.tables import accounts, values

QUICK = lv.Settings(retry_base_seconds=0.001, retry_cap_seconds=0.001, retry_limit=3)

FORBIDDEN = Failure("403 AccessDenied", ambiguous=False, permanent=True)
NOT_IMPLEMENTED = Failure("501 NotImplemented", ambiguous=False, permanent=True)
SLOW_DOWN = Failure("429, slow down", ambiguous=False, throttled=True)
CUT = Failure("the connection broke")


class Broken(WrappedStore):
    """A store that gives PUTs of commit points the given answers, and repeats the last one.

    Attributes
    ----------
    lands : bool
        Whether a request with an ambiguous answer has taken effect.
    blind : bool
        Whether commit points can't be read after the first PUT of one.
    """

    def __init__(self, inner: Store, *answers: Failure, lands: bool = False, blind: bool = False):
        super().__init__(inner)
        self.answers = list(answers)
        self.lands = lands
        self.blind = blind
        self.asked = 0

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        if not is_commit_point(key):
            return super().put(key, body, condition)
        answer = self.answers[min(self.asked, len(self.answers) - 1)]
        self.asked += 1
        if answer.ambiguous and self.lands:
            self.inner.put(key, body, condition)
        return answer

    def get(
        self, key: str, known: Token | None = None, byte_range: tuple[int, int] | None = None
    ) -> GetOutcome | Failure:
        if is_commit_point(key) and self.asked and self.blind:
            return Failure("no route to the store", ambiguous=False)
        return super().get(key, known, byte_range)


def is_commit_point(key: str) -> bool:
    return head_log.is_head(key) or is_entry("bank")(key)


@pytest.fixture(params=["head", "head as a log", "log entry"])
def lake(request: pytest.FixtureRequest, quick_place: Place) -> Iterator[lv.Lake]:
    """A lake with one table, for each kind of commit point (with ``features``)."""
    if request.param == "head as a log":
        with quick_place.connect(settings=QUICK) as lake:
            inside(lake).store = OnlyCreates(inside(lake).store)
            with lake.transaction() as txn:
                txn.create_table("bank", accounts(1))
            yield lake
            assert any(info.key for info in inside(lake).store.list(head_log.HEADS_PREFIX))
        return
    fill(quick_place, {"bank": accounts(1)})
    with quick_place.connect(settings=QUICK) as lake:
        lake.register("bank")
        yield lake


@pytest.fixture
def features(request: pytest.FixtureRequest) -> lv.Feature:
    by_entry = "log entry" in request.node.callspec.params["lake"]
    return lv.Feature.NONE if by_entry else lv.Feature.R | lv.Feature.I


@contextmanager
def broken(
    lake: lv.Lake, *answers: Failure, lands: bool = False, blind: bool = False
) -> Iterator[Broken]:
    inner = inside(lake).store
    store = Broken(inner, *answers, lands=lands, blind=blind)
    inside(lake).store = store
    try:
        yield store
    finally:
        inside(lake).store = inner
    assert store.asked, "the commit point was never tried"


def append(lake: lv.Lake, features: lv.Feature) -> lv.Transaction:
    txn = lake.transaction(features)
    txn.append("bank", [{"id": 5, "balance": 5}])
    return txn


def rows(lake: lv.Lake) -> list[int]:
    return values(lake.snapshot().read("bank"))


@pytest.mark.parametrize("refusal", [FORBIDDEN, NOT_IMPLEMENTED, SLOW_DOWN], ids=repr)
@pytest.mark.parametrize("blind", [False, True])
def test_a_refused_commit_point_raises_an_error_that_nothing_was_committed(
    lake: lv.Lake, features: lv.Feature, refusal: Failure, blind: bool
) -> None:
    txn = append(lake, features)
    with (
        broken(lake, refusal, blind=blind),
        pytest.raises(lv.StoreError, match=r"nothing of transaction .* was committed") as raised,
    ):
        txn.commit()
    assert refusal.reason in raised.value.message
    assert raised.value.txn_id == txn.id
    assert rows(lake) == [0]
    if executor(txn).state.through_head:
        assert lake.outcome(txn.id).state == "aborted"
    # The transaction stays ended even if the store works again, as its caller got an error.
    with pytest.raises(lv.StoreError):
        txn.commit()
    append(lake, features).commit()
    assert rows(lake) == [0, 5]


@pytest.mark.parametrize("lands", [False, True], ids=["lost", "landed"])
def test_a_commit_refused_after_an_ambiguous_request_has_an_unknown_outcome(
    lake: lv.Lake, features: lv.Feature, lands: bool
) -> None:
    txn = append(lake, features)
    with (
        broken(lake, CUT, FORBIDDEN, lands=lands, blind=lands),
        pytest.raises(lv.CommitOutcomeUnknown),
    ):
        txn.commit()
    assert rows(lake) == ([0, 5] if lands else [0])
    if executor(txn).state.through_head:
        assert lake.outcome(txn.id).state == ("committed" if lands else "aborted")


@pytest.mark.parametrize("lands", [False, True], ids=["lost", "landed"])
def test_an_outcome_stays_unknown_until_the_store_can_be_read_again(
    lake: lv.Lake, lands: bool
) -> None:
    txn = append(lake, lv.Feature.R | lv.Feature.I)
    with broken(lake, CUT, FORBIDDEN, lands=lands, blind=True):
        with pytest.raises(lv.CommitOutcomeUnknown):
            txn.commit()
        with pytest.raises(lv.CommitOutcomeUnknown, match="no route to the store"):
            lake.outcome(txn.id)
    assert lake.outcome(txn.id).state == ("committed" if lands else "aborted")


def test_run_raises_an_unknown_outcome_where_the_commit_is_in_doubt(quick_place: Place) -> None:
    fill(quick_place, {"bank": accounts(1)})
    with quick_place.connect(settings=QUICK) as lake:
        lake.register("bank")
        with (
            broken(lake, CUT, FORBIDDEN, lands=True, blind=True),
            pytest.raises(lv.CommitOutcomeUnknown),
        ):
            lake.run(lambda txn: txn.append("bank", [{"id": 5, "balance": 5}]))
        assert rows(lake) == [0, 5]


def test_run_does_not_repeat_a_function_that_has_hidden_an_unknown_outcome(
    lake: lv.Lake, features: lv.Feature
) -> None:
    calls = []

    def fails(txn: lv.Transaction) -> None:
        calls.append(txn.id)
        txn.append("bank", [{"id": 5, "balance": 5}])
        with broken(lake, CUT, FORBIDDEN, lands=True, blind=True):
            with suppress(lv.CommitOutcomeUnknown):
                txn.commit()
        raise lv.ConflictError("another job was first")

    with pytest.raises(lv.ConflictError, match="another job"):
        lake.run(fails, attempts=2, features=features)
    assert (len(calls), rows(lake)) == (1, [0, 5])


def test_a_refused_fence_is_not_taken_for_an_outcome(quick_place: Place) -> None:
    fill(quick_place, {"bank": accounts(1)})
    with quick_place.connect(settings=QUICK) as lake, quick_place.connect(settings=QUICK) as other:
        lake.register("bank")
        txn = append(lake, lv.Feature.R | lv.Feature.I)
        with broken(other, FORBIDDEN):
            with pytest.raises(lv.CommitOutcomeUnknown, match="403"):
                other.outcome(txn.id)
            with pytest.raises(lv.StoreError, match="403"):
                other.abort(txn.id)
        txn.commit()
        assert other.outcome(txn.id).state == "committed"


def test_a_refused_creation_of_head_raises_a_store_error(quick_place: Place) -> None:
    with quick_place.connect(settings=QUICK) as lake:
        with broken(lake, FORBIDDEN), pytest.raises(lv.StoreError, match="403"):
            with lake.transaction() as txn:
                txn.create_table("bank", accounts(1))
        assert not isinstance(inside(lake).store.get("_lakevilla/HEAD.json"), Found)
        with lake.transaction() as txn:
            txn.create_table("bank", accounts(1))
        assert rows(lake) == [0]


class _Partition(WrappedStore):
    """A store that performs the first PUT that ``last`` names, and never answers from then on."""

    def __init__(self, inner: Store, last: Callable[[str], bool]) -> None:
        super().__init__(inner)
        self.last = last
        self.gone = False

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        if self.gone:
            return Failure("no route to the store", ambiguous=False)
        if self.last(key):
            self.inner.put(key, body, condition)
            self.gone = True
            return Failure("connection cut")
        return self.inner.put(key, body, condition)

    def get(
        self, key: str, known: Token | None = None, byte_range: tuple[int, int] | None = None
    ) -> GetOutcome | Failure:
        if self.gone:
            return Failure("no route to the store", ambiguous=False)
        return self.inner.get(key, known, byte_range)


@pytest.mark.parametrize("features", [lv.Feature.NONE, lv.Feature.R | lv.Feature.I])
def test_a_store_that_is_gone_at_the_commit_point_leaves_the_outcome_unknown(
    quick_place: Place, features: lv.Feature
) -> None:
    fill(quick_place, {"bank": accounts(1)})
    with quick_place.connect(settings=QUICK) as lake:
        txn = lake.transaction(features)
        txn.append("bank", [{"id": 5, "balance": 5}])
        inner = inside(lake).store
        entry = is_entry("bank")
        inside(lake).store = _Partition(inner, lambda key: is_head(key) or entry(key))
        with pytest.raises(lv.CommitOutcomeUnknown):
            txn.commit()
        inside(lake).store = inner
        assert sorted(lake.snapshot().read("bank")["id"].to_pylist()) == [0, 5]
