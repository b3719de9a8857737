"""Google Cloud Storage's limit of one write of an object a second, over the connection."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from lakevilla.clock import SystemClock
from lakevilla.ids import Ids
from lakevilla.settings import Settings
from lakevilla.store.backends.object_store import open_store
from lakevilla.store.backends.routing import LakeStore
from lakevilla.store.base import ABSENT, Failure, Found, Match, Missing, Refused, Stored
from lakevilla.store.effects import put
from lakevilla.store.runner import Requests, Runner
from lakevilla_testing.gcs.objects import Objects
from lakevilla_testing.gcs.server import Server
from tests.fixtures.gcs import GcsServer


@pytest.fixture
def store() -> Iterator[LakeStore]:
    """A bucket on a server that takes no second write of an object while a test runs."""
    server = Server(0, Objects(seconds_between_writes=60.0))
    thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
    thread.start()
    reached = GcsServer(server.endpoint)
    yield open_store(reached.new_root(), reached.storage_options)
    server.shutdown()
    server.server_close()
    thread.join()


def test_a_write_too_soon_is_a_failure_of_the_object_and_a_read_is_none(store: LakeStore) -> None:
    stored = store.put("k", b"1", ABSENT)
    assert isinstance(stored, Stored)
    for again in (store.put("k", b"2", ABSENT), store.put("k", b"2", Match(stored.token))):
        assert isinstance(again, Failure)
        assert (again.of_object, again.ambiguous, again.permanent) == (True, False, False)
    assert store.get("k") == Found(b"1", stored.token, 1)
    deleted = store.delete("k")
    assert isinstance(deleted, Failure)
    assert deleted.of_object
    assert store.delete("nothing") is None
    assert store.get("nothing") == Missing()


def test_a_create_that_comes_too_soon_after_anothers_is_refused_at_once(store: LakeStore) -> None:
    runner = Runner(store, Ids(SystemClock()), Settings())
    first = runner.run(put("k", b"1", ABSENT))
    assert isinstance(first, Stored)
    assert not first.limited
    with runner.requests.counting() as counted:
        second = runner.run(put("k", b"2", ABSENT))
    assert second == Refused(Found(b"1", first.token, 1), limited=True)
    assert counted == Requests(put=1, get=1)


def test_a_replacement_of_an_object_that_has_changed_is_refused_at_once(store: LakeStore) -> None:
    other = store.put("other", b"0", ABSENT)
    assert isinstance(other, Stored)
    runner = Runner(store, Ids(SystemClock()), Settings())
    present = runner.run(put("k", b"1", ABSENT))
    outcome = runner.run(put("k", b"2", Match(other.token)))
    assert isinstance(present, Stored)
    assert outcome == Refused(Found(b"1", present.token, 1), limited=True)
