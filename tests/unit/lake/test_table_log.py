"""A table's log, as a client finds it by the HEAD that it knows."""

from __future__ import annotations

import pytest

from lakevilla.global_log import leaves
from lakevilla.lake.table_log import load_noted, noted
from lakevilla.store.effects import delete
from tests.support.simulated.memory_lake import MemoryLake


def test_a_client_reads_the_newest_head_where_a_leaf_of_its_own_was_deleted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leaves, "INLINE_BYTES", 100)
    lake = MemoryLake()
    writer, sleeper = lake.peer(), lake.peer()
    writer.commit(writer.appending("a", 7))
    sleeper.run(sleeper.context.head())
    writer.commit(writer.appending("a", 8))
    assert sleeper.context.held is not None
    assert writer.context.held is not None
    newest = writer.context.held.head.tables.refs
    for ref in set(sleeper.context.held.head.tables.refs) - set(newest):
        writer.run(delete(ref.key))
    assert noted(sleeper.context, "a") is None
    sleeper.run(load_noted(sleeper.context, "a"))
    assert sleeper.context.held.head.tables.refs == newest
    assert noted(sleeper.context, "a") == writer.context.held.head.tables["a"]
