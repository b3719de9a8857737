"""What simulated clients note about their transactions, for the checkers."""

from __future__ import annotations

import pytest

from lakevilla.errors import StoreError
from lakevilla.store.effects import Put
from lakevilla.transaction.verbs.save import resume, save
from lakevilla_testing.checks.history import ListAppend
from lakevilla_testing.histories.attempts import Hand, World
from lakevilla_testing.histories.plan import Plan
from tests.support.simulated.memory_lake import THROUGH_HEAD, MemoryLake


def test_a_save_stored_without_a_response_is_noted_for_the_client_that_resumes_it() -> None:
    lake = MemoryLake(save_interval_seconds=0.0)
    owner, other = lake.peer(), lake.peer()
    txn = owner.begin()
    world = World(lake.world, Plan(seed=0, features=(THROUGH_HEAD,), kinds=("shared",)))
    attempt = world.begin(owner.context, owner.client, "shared", txn)
    owner.run(Hand(world, attempt).push("a", 0))
    lost = StoreError("no network")
    owner.instead("_lakevilla/txns/" + txn.id + ".json", lost, verb=Put, landed=True)
    with pytest.raises(StoreError, match="no network"):
        owner.run(Hand(world, attempt).push("a", 1))
    appends = [one for one in attempt.record.operations if isinstance(one, ListAppend)]
    assert [one.key for one in appends] == ["a0", "a1"]
    resumed = other.run(resume(other.context, txn.id, "other"))
    assert len(resumed.work.done) == len(appends)
    other.run(save(resumed))
    other.commit(resumed)
    assert lake.ids("a") == [0, 1]
