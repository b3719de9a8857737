"""The probe passes on stores that are safe and names what is wrong with others."""

from __future__ import annotations

from typing import Any

import pytest

from lakevilla.errors import UnsafeStore
from lakevilla.ids import Ids
from lakevilla.settings import Settings
from lakevilla.store.base import ANY, Absent, Condition, Match, Missing, Refused, Stored
from lakevilla.store.obstore_backend import open_store
from lakevilla.store.probe import probe
from lakevilla.store.routing import LakeStore
from lakevilla.store.runner import Counts, Runner


def test_a_safe_store_passes_and_keeps_nothing_of_the_probe(
    store: LakeStore, runner: Runner, ids: Ids
) -> None:
    with runner.requests.counting() as counted:
        runner.run(probe(ids))
    assert store.list("") == []
    assert counted == Counts(put=5, get=3, delete=2)


class Unsafe:
    """A memory store that drops one condition, as some stores do."""

    def __init__(self, flaw: str) -> None:
        self._store = open_store("memory://")
        self._flaw = flaw

    def put(self, key: str, body: bytes, condition: Condition) -> Any:
        absent = self._store.get(key) == Missing()
        ignored = {
            "create overwrites": isinstance(condition, Absent),
            "match overwrites": isinstance(condition, Match) and not absent,
            "match creates": isinstance(condition, Match) and absent,
        }
        if self._flaw == "refuses all":
            return Refused()
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
        ("match overwrites", "a stale match is refused"),
        ("match creates", "a match on an absent key is refused"),
        ("says stored", "a second create is refused"),
        ("refuses all", "a create of an absent key is stored"),
    ],
)
def test_an_unsafe_store_is_refused_by_the_name_of_the_check(
    ids: Ids, flaw: str, check: str
) -> None:
    store = Unsafe(flaw)
    settings = Settings(retry_limit=2, retry_base_seconds=0.001)
    with pytest.raises(UnsafeStore, match=check) as error:
        Runner(store, ids, settings).run(probe(ids))
    assert "conditional writes" in error.value.message
    assert store.list("") == []
