"""Lakes with versions that several transactions share: checked, cleaned up, and rebuilt."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.store.base import Condition, Failure, Refused, Stored, WrappedStore
from lakevilla_testing.histories.plan import small_limits
from tests.support.combined import adds, combine
from tests.support.inside import inside
from tests.support.places import Place, make_place
from tests.support.stores import Later, is_entry, is_head, unpublished

DAY = 24 * 3600.0


@pytest.fixture(params=["local", "iceberg"])
def place(request: pytest.FixtureRequest) -> Place:
    return make_place(request.param, request)


@pytest.fixture
def short_pages() -> Iterator[None]:
    with small_limits(True):
        yield


def filled(lake: lv.Lake) -> None:
    lake.create_table("a", pa.table({"id": [1, 2], "n": [0, 0]}))


def numbers(lake: lv.Lake) -> list[int]:
    return sorted(lake.read("a")["n"].to_pylist())


def settled(lake: lv.Lake, txn: lv.Transaction) -> str:
    """Return a transaction's outcome, which no abort may contradict."""
    found = lake.outcome(txn.id).state
    with pytest.raises(lv.InvalidOperation):
        lake.abort(txn.id)
    assert lake.outcome(txn.id).state == found
    return found


def test_doctor_verify_and_recover_find_nothing_wrong(place: Place) -> None:
    with place.connect() as lake:
        filled(lake)
        members = combine(lake, adds(1), adds(10), adds(100))[1:]
    with place.connect() as other:
        assert other.doctor(files=True).ok
        assert other.verify().ok
        assert other.recover().ok
        assert [settled(other, txn) for txn in members] == ["committed"] * 2


def test_recover_publishes_a_shared_version_whose_client_died(place: Place) -> None:
    with place.connect() as lake:
        filled(lake)
        with unpublished(lake, is_entry("a")):
            members = combine(lake, adds(1), adds(10), adds(100))[1:]
    with place.connect() as other:
        found = {one.kind for one in other.doctor().findings}
        assert found == {"unpublished"}
        assert other.recover().ok
        assert numbers(other) == [0, 111]
        entry = other.table("a").history(1)[0]
        assert entry.members == tuple(txn.id for txn in members)
        assert [settled(other, txn) for txn in members] == ["committed"] * 2
        assert other.doctor().ok
    assert sorted(row["n"] for row in place.seen("a")) == [0, 111]


def test_members_in_pages_are_found_until_gc_has_released_them(
    place: Place, short_pages: None
) -> None:
    clock = Later()
    with place.connect() as lake:
        clock.of(lake)
        filled(lake)
        members = combine(lake, adds(1), adds(10), adds(100))[1:]
        for _ in range(8):
            lake.run(adds(1))
    with place.connect() as lake:
        assert len(list(Path(place.root, "_lakevilla/pages").iterdir())) >= 2
        assert [settled(lake, txn) for txn in members] == ["committed"] * 2
        with pytest.raises(lv.InvalidOperation, match="members='all'"):
            lake.revert(3)
        clock.of(lake)
        lake.run(adds(1))
        clock.ahead_seconds = 8 * DAY
        for _ in range(3):
            lake.run(adds(1))
        assert lake.gc().ok
        assert lake.gc().ok
        assert lake.history()[-1].version > 3
        assert [settled(lake, txn) for txn in members] == ["expired"] * 2
        assert numbers(lake) == [0, 123]
        assert lake.verify().ok


def test_gc_keeps_what_a_shared_version_needs(place: Place) -> None:
    clock = Later()
    with place.connect() as lake:
        clock.of(lake)
        filled(lake)
        members = combine(lake, adds(1), adds(10), adds(100))[1:]
        clock.ahead_seconds = 3 * DAY  # older than a transaction may be; the history is kept
        assert lake.gc().ok
        assert [settled(lake, txn) for txn in members] == ["committed"] * 2
    with place.connect() as other:
        assert numbers(other) == [0, 111]
        assert other.revert(3, members="all").tables == {"a": "physical"}
        assert numbers(other) == [0, 1]
        assert other.verify().ok


@pytest.mark.parametrize("is_published", [True, False])
def test_members_of_a_lost_head_are_never_told_that_they_did_not_commit(
    place: Place, is_published: bool
) -> None:
    with place.connect() as lake:
        filled(lake)
        with unpublished(lake, is_entry("a") if not is_published else lambda key: False):
            members = combine(lake, adds(1), adds(10), adds(100))[1:]
        whole = lake.history(1)[0].txn_id
    Path(place.root, "_lakevilla/HEAD.json").unlink()
    with place.connect() as other:
        report = other.recover(rebuild_head=True)
        told = [one for one in report.findings if one.kind in ("maybe_decided", "unpublished")]
        if is_published:
            assert told == []
            assert numbers(other) == [0, 111]
        else:
            (one,) = [one for one in told if one.txn_id == whole]
            assert all(txn.id in one.message for txn in members)
            assert numbers(other) == [0, 0]
        assert [settled(other, txn) for txn in members] == ["expired"] * 2
        assert other.recover(confirm_head=True).ok
        again = combine(other, adds(1), adds(10), adds(100))[1:]
        assert other.history(1)[0].members == tuple(txn.id for txn in again)
        assert other.doctor().ok


class _RefusedOnce(WrappedStore):
    """A store that refuses the second replacement of HEAD for good."""

    heads = 0

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        self.heads += is_head(key)
        if is_head(key) and self.heads == 2:
            return Failure("no right to write", ambiguous=False, permanent=True)
        return super().put(key, body, condition)


def test_an_attempt_that_failed_is_not_reported_for_members_that_committed_alone(
    place: Place,
) -> None:
    """Their changes would be made twice if somebody ran them again."""
    with place.connect() as lake:
        filled(lake)
        inside(lake).store = _RefusedOnce(inside(lake).store)
        found = combine(lake, adds(1), adds(10), adds(100))
        assert [txn.state for txn in found] == ["committed"] * 3
        assert [entry.members for entry in lake.history()] == [()] * 4
    own = {txn.id for txn in found} | {lake.history()[-1].txn_id}
    left = {path.name[:36] for path in Path(place.root, "_lakevilla/commits").iterdir()} - own
    assert len(left) == 1, "the commit object of the attempt is there"
    Path(place.root, "_lakevilla/HEAD.json").unlink()
    with place.connect() as other:
        report = other.recover(rebuild_head=True)
        assert not [one for one in report.findings if one.kind in ("maybe_decided", "unpublished")]
        assert numbers(other) == [0, 111]
