"""The probe of conditional writes passes on safe stores and names the flaw of others."""

from __future__ import annotations

from typing import Any

import pytest

from lakevilla.errors import StoreError, UnsafeStore
from lakevilla.ids import Ids
from lakevilla.settings import Settings
from lakevilla.store.backends.object_store import open_store
from lakevilla.store.backends.routing import LakeStore
from lakevilla.store.base import ANY, Absent, Condition, Failure, Match, Missing, Refused, Stored
from lakevilla.store.probe import probe
from lakevilla.store.runner import Requests, Runner


def test_a_safe_store_passes_the_probe_and_keeps_no_object_of_it(
    store: LakeStore, runner: Runner, ids: Ids
) -> None:
    with runner.requests.counting() as counted:
        assert runner.run(probe(ids)), "it replaces under a condition"
    assert store.list("") == []
    assert counted == Requests(put=5, get=3, delete=2)


class Unsafe:
    """A memory store with one flaw in its conditional writes, as some stores have."""

    def __init__(self, flaw: str) -> None:
        self._store = open_store("memory://")
        self._flaw = flaw
        self._first = ""

    def put(self, key: str, body: bytes, condition: Condition) -> Any:
        absent = self._store.get(key) == Missing()
        self._first = self._first or key.removesuffix("-present")
        ignored = {
            "create overwrites": isinstance(condition, Absent),
            "match overwrites": isinstance(condition, Match) and not absent,
            "match creates": isinstance(condition, Match) and absent,
        }
        if self._flaw == "refuses all":
            return Refused()
        if isinstance(condition, Match):
            if self._flaw == "match never holds":
                return Refused()
            if self._flaw == "match unknown":
                return Failure("501", ambiguous=False, permanent=True)
            if self._flaw == "match times out":
                return Failure("timed out")
            if self._flaw == "first probe times out" and key.startswith(self._first):
                return Failure("timed out")
            if self._flaw == "match throttled":
                return Failure("429", ambiguous=False, throttled=True)
        outcome = self._store.put(key, body, ANY if ignored.get(self._flaw) else condition)
        if self._flaw == "says stored" and isinstance(outcome, Refused):
            found = self._store.get(key)
            return Stored(found.token) if not isinstance(found, Missing) else outcome
        return outcome

    def __getattr__(self, name: str) -> Any:
        return getattr(self._store, name)


@pytest.mark.parametrize(
    ("flaw", "check"),
    [
        ("create overwrites", "a second create is refused"),
        ("says stored", "a second create is refused"),
        ("refuses all", "a create of an absent key is stored"),
    ],
)
def test_an_unsafe_store_is_refused_with_the_name_of_the_failed_check(
    ids: Ids, flaw: str, check: str
) -> None:
    store = Unsafe(flaw)
    settings = Settings(retry_limit=2, retry_base_seconds=0.001)
    with pytest.raises(UnsafeStore, match=check) as error:
        Runner(store, ids, settings).run(probe(ids))
    assert "conditional writes" in error.value.message
    assert store.list("") == []


@pytest.mark.parametrize("flaw", ["match overwrites", "match creates", "match unknown"])
def test_the_probe_reports_a_store_that_can_create_but_not_replace_conditionally(
    ids: Ids, flaw: str
) -> None:
    store = Unsafe(flaw)
    settings = Settings(retry_limit=2, retry_base_seconds=0.001)
    assert Runner(store, ids, settings).run(probe(ids)) is False
    assert store.list("") == []


def test_a_probe_whose_answer_is_lost_is_made_again_with_other_objects(ids: Ids) -> None:
    store = Unsafe("first probe times out")
    settings = Settings(retry_limit=1, retry_base_seconds=0.001)
    assert Runner(store, ids, settings).run(probe(ids)) is True
    assert store.list("") == []


@pytest.mark.parametrize("flaw", ["match times out", "match throttled", "match never holds"])
def test_a_transient_fault_during_the_probe_is_a_store_error(ids: Ids, flaw: str) -> None:
    """Otherwise one failed request would decide what the store is taken to support."""
    store = Unsafe(flaw)
    settings = Settings(retry_limit=2, retry_base_seconds=0.001)
    with pytest.raises(StoreError):
        Runner(store, ids, settings).run(probe(ids))
    assert store.list("") == []


def test_the_error_of_a_probe_is_that_of_its_checks_and_not_of_its_cleaning_up(ids: Ids) -> None:
    class ReadOnly(Unsafe):
        """A store to which this client may neither write nor delete."""

        def put(self, key: str, body: bytes, condition: Condition) -> Any:
            return Failure("403: no s3:PutObject", ambiguous=False, permanent=True)

        def delete(self, key: str) -> Any:
            return Failure("403: no s3:DeleteObject", ambiguous=False, permanent=True)

    settings = Settings(retry_limit=2, retry_base_seconds=0.001)
    with pytest.raises(StoreError, match="s3:PutObject"):
        Runner(ReadOnly(""), ids, settings).run(probe(ids))
