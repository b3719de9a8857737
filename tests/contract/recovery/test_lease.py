"""A lease that is too short for the store's latency is refused when the user connects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import lakevilla as lv
from lakevilla.api import connecting
from lakevilla.api.client.heartbeat import check_lease
from lakevilla.store.backends.routing import LakeStore
from lakevilla.store.base import Store, WrappedStore
from lakevilla_testing.world.latency import EXPRESS, S3, LatencyProfile, LatencyStore
from tests.support.inside import inside
from tests.support.places import make_place


class SlowLakeStore(LatencyStore):
    """The store of a lake, as slow as a latency profile."""

    def __init__(self, store: LakeStore, profile: LatencyProfile) -> None:
        super().__init__(store, profile)
        self.root = store.root


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that makes every store as slow as a latency profile."""

    def slow_down(profile: LatencyProfile) -> None:
        open_store = connecting.open_store

        def open_slow(*args: Any, **options: Any) -> Store:
            return SlowLakeStore(open_store(*args, **options), profile)

        monkeypatch.setattr(connecting, "open_store", open_slow)

    return slow_down


def connect(tmp_path: Path, lease_seconds: float) -> lv.Lake:
    return lv.connect(str(tmp_path), settings=lv.Settings(lease_seconds=lease_seconds))


@pytest.mark.parametrize(("profile", "lease"), [(S3, 0.5), (EXPRESS, 0.1)])
def test_a_lease_too_short_for_the_store_is_refused(
    tmp_path: Path, slow: Any, profile: LatencyProfile, lease: float
) -> None:
    slow(profile)
    with pytest.raises(lv.InvalidOperation, match="lease_seconds") as caught:
        connect(tmp_path, lease)
    message = caught.value.message
    assert f"lease_seconds={lease:g}" in message
    measured = float(message.split("takes ")[1].split(" s a request")[0])
    assert profile.get <= measured
    advice = float(message.split("set it to ")[1].split()[0])
    connect(tmp_path, advice).close()


def test_a_lease_that_fits_the_store_is_accepted(tmp_path: Path, slow: Any) -> None:
    slow(EXPRESS)
    with connect(tmp_path, 2.0) as lake:
        lake.create_table("orders", [{"id": 1}])
        assert inside(lake).requests.snapshot().get >= 5


@pytest.mark.parametrize("lease", [0.049, 1e-9])
def test_a_lease_too_short_for_any_process_is_refused_without_a_request(
    tmp_path: Path, slow: Any, lease: float
) -> None:
    slow(LatencyProfile("never asked", 60.0, 60.0, 60.0, 60.0, 60.0))
    with pytest.raises(lv.InvalidOperation, match=r"lease_seconds=.* set it to 0\.05 or more"):
        connect(tmp_path, lease)


@pytest.mark.parametrize("lease", [30.0, 3600.0])
def test_the_default_and_longer_leases_send_no_request(tmp_path: Path, lease: float) -> None:
    with connect(tmp_path, lease) as lake:
        assert inside(lake).requests.snapshot().total == 0
    with lv.connect(str(tmp_path)) as lake:
        assert inside(lake).requests.snapshot().total == 0


def test_a_lease_is_not_refused_for_a_few_slow_answers(tmp_path: Path) -> None:
    class Waking(WrappedStore):
        """A store whose first two answers take a minute by the clock, and later ones no time."""

        now = 0.0
        asked = 0

        def get(self, *args: Any, **options: Any) -> Any:
            self.asked += 1
            if self.asked <= 2:
                self.now += 60.0
            return super().get(*args, **options)

        def elapsed(self) -> float:
            return self.now

    with lv.connect(str(tmp_path)) as lake:
        store = inside(lake).store = Waking(inside(lake).store)
        inside(lake).run(check_lease(lv.Settings(lease_seconds=1.0), store))
        assert store.asked == 5


def test_a_lake_with_a_short_lease_can_be_pickled(
    request: pytest.FixtureRequest,
) -> None:
    import pickle

    place = make_place("local", request)
    with place.connect(settings=lv.Settings(lease_seconds=1.0)) as lake:
        with pickle.loads(pickle.dumps(lake)) as copy:
            assert copy.settings.lease_seconds == 1.0
