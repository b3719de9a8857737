"""Cached commit objects take no more memory than their budget."""

from __future__ import annotations

import tracemalloc

from lakevilla.formats.base import Change
from lakevilla.formats.files import DataFile
from lakevilla.global_log.commits import CommitObject, TablePart, read_commit, seal
from lakevilla.store.cached import Budget, CachedObjects
from lakevilla.store.codec import FORMAT
from tests.support import by_hand

LIMIT = 2_000_000
TAGS: dict[str, str | None] = {"lakevilla.blake3": "0" * 32}


def body_of(number: int, files: int = 300) -> tuple[str, str, bytes]:
    adds = tuple(
        DataFile(f"lv-h-{number}-{n}.parquet", 1000, 1, stats=f'{{"numRecords":{n}}}', tags=TAGS)
        for n in range(files)
    )
    parts = {"t": TablePart("id", Change(adds=adds))}
    commit = CommitObject(FORMAT, "n", f"txn{number}", parts)
    digest, body = seal(commit)
    return commit.txn, digest, body


def test_cached_commits_stay_within_their_memory_budget() -> None:
    context = by_hand.make_context()
    budget = Budget()
    context.commits = CachedObjects("place", LIMIT, budget)
    bodies = [body_of(number) for number in range(75)]
    assert sum(len(body) for _, _, body in bodies) > 1.5 * LIMIT
    tracemalloc.start()
    try:
        for txn, digest, body in bodies:
            found = read_commit(f"_lakevilla/commits/{txn}-{digest}.json", body)
            context.keep_commit(digest, found, len(body))
            assert budget.bytes <= LIMIT
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert LIMIT / 4 < held < 1.2 * LIMIT
    txn, digest, _ = bodies[-1]
    assert context.known_commit(txn, digest) is not None
    assert context.known_commit(*bodies[0][:2]) is None
