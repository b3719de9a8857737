"""Histories of the real protocol under faults, each from a seed; see ``lakevilla.testing``.

``LAKEVILLA_HISTORIES`` sets how many (2,000 by default). A failure names the
seed that replays it: ``python -m lakevilla.testing replay SEED``.
"""

import os
from collections import Counter

import pytest
from deltalake import DeltaTable

from lakevilla.testing import campaign
from lakevilla.testing.faults import Fault
from lakevilla.testing.plan import TABLES
from lakevilla.testing.reader import table_rows

HISTORIES = int(os.environ.get("LAKEVILLA_HISTORIES", "2000"))
BLOCK = 50


@pytest.mark.parametrize("first", range(0, HISTORIES, BLOCK))
def test_every_invariant_holds_after_every_history(first, tmp_path):
    fired = Counter()
    for seed in range(first, min(first + BLOCK, HISTORIES)):
        outcome = campaign.run(seed, hashing=seed % 100 == 0)
        fired += outcome.fired
        if seed % 100 == 0:
            # The same seed gives the same history, request by request.
            assert campaign.run(seed, hashing=True).trace_hash == outcome.trace_hash
        if seed % 100 == 50:
            deltalake_agrees(outcome, tmp_path / str(seed))
    if first + BLOCK <= HISTORIES:
        # Each fault strikes at least 500 times in 2,000 histories; a block that
        # lacks one altogether says that it is no longer reached. A list that is
        # stale and shows it is rare in any one block.
        missing = {fault for fault in Fault if fired[fault] < 4} - {Fault.STALE_LIST}
        assert not missing


def deltalake_agrees(outcome, directory):
    outcome.store.dump(directory)
    for table in TABLES:
        if not (directory / table / "_delta_log").exists():
            continue
        if "recreate" in outcome.plan.foreign:
            continue
        found = DeltaTable(str(directory / table)).to_pyarrow_table().to_pylist()
        expected = [dict(row) for row in table_rows(outcome.store, table)]
        key = lambda row: sorted(row.items())  # noqa: E731
        assert sorted(found, key=key) == sorted(expected, key=key)
