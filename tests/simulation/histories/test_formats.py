"""Histories whose tables are Iceberg tables, and of lakes that hold both formats.

The seeds draw the same as for Delta tables: clients, faults, levels, foreign writers, clean-up.
Replay one with ``python -m lakevilla_testing replay SEED --formats mixed``.
"""

from collections import Counter
from dataclasses import replace

import pytest

from lakevilla_testing.histories import campaign
from lakevilla_testing.histories.plan import TABLES, draw_formats
from lakevilla_testing.tables.iceberg_reader import IcebergTable
from lakevilla_testing.tables.reader import read_table, run_now, table_rows
from lakevilla_testing.world.faults import Fault
from tests.support.search import WHOLE, how_many
from tests.support.simulated.iceberg import opened

#: The factor by which there are more histories than in every run.
TIMES = how_many(1, soak=50)


def histories(count):
    """Return the seeds of the histories, a third of them in ``make test``."""
    return range(how_many(1, whole=count * TIMES))


@pytest.mark.timeout(600 * TIMES)
@pytest.mark.parametrize(("formats", "count"), [("iceberg", 30), ("mixed", 60)])
def test_every_invariant_holds_after_every_history(formats, count):
    fired, told, read = Counter(), Counter(), 0
    for seed in histories(count):
        outcome = campaign.run(seed, plan=draw_formats(seed, formats))
        fired += outcome.fired
        told += outcome.events
        read += pyiceberg_agrees(outcome)
    if WHOLE:
        assert {fault for fault in Fault if fired[fault] < 10} == set()
        assert {kind for kind in ("redo", "reconcile", "shift", "stale") if not told[kind]} == set()
        assert read >= count / 2


#: Seeds beyond these that found a bug: a table created again between two reads of its log; a table
#: dropped before it was published; a list that is older than the hint; a state that was cleaned up
#: while commits decided on it were pending.
FOUND = (("mixed", 666), ("iceberg", 466), ("iceberg", 138), ("mixed", 227))


@pytest.mark.parametrize(("formats", "seed"), FOUND)
def test_every_invariant_holds_after_a_history_that_once_failed(formats, seed):
    campaign.run(seed, plan=draw_formats(seed, formats))


@pytest.mark.timeout(600 * TIMES)
def test_every_invariant_holds_where_old_metadata_files_are_deleted_with_each_commit():
    """A version number may be unused now, used before, and free again."""
    fired = Counter()
    for seed in histories(20):
        plan = replace(draw_formats(seed, "mixed"), few_versions=True, foreign=())
        fired += campaign.run(seed, plan=plan).fired
    if WHOLE:
        assert fired[Fault.STALE_LIST]


@pytest.mark.parametrize("formats", ["iceberg", "mixed"])
def test_the_same_seed_gives_the_same_history(formats):
    """Compare the names and bytes of manifests, too: pyiceberg would put random markers
    into them.
    """
    compared = 0
    for seed in (3, 4, 5)[: how_many(1, whole=3)]:
        plan = draw_formats(seed, formats)
        one, other = (campaign.run(seed, plan=plan, hashing=True) for _ in range(2))
        assert one.trace_hash == other.trace_hash
        avro = [key for key in one.store.objects if "/lv-" in key and key.endswith(".avro")]
        compared += len(avro)
        assert {key: one.store.objects[key].body for key in avro} == {
            key: other.store.objects[key].body for key in avro
        }
    assert compared


def pyiceberg_agrees(outcome):
    """Return the number of tables that pyiceberg and LakeVilla read alike."""
    compared = 0
    for name in TABLES:
        if "recreate" in outcome.plan.foreign:
            continue
        table = run_now(outcome.store, read_table(name))
        if isinstance(table, IcebergTable):
            found = opened(outcome.store, name, table.version).scan().to_arrow().to_pylist()
            assert ordered(found) == ordered(table_rows(outcome.store, name))
            compared += 1
    return compared


def ordered(rows):
    return sorted((sorted(row.items()) for row in rows), key=str)
