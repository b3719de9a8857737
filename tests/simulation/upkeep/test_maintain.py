"""Run two maintainers at once, and one that dies at each of its requests: nothing is lost.

The lease only saves requests (docs/design/0037-upkeep.md), so maintainers that ignore the lease
must lose nothing, too.
"""

import pyarrow as pa
import pytest

from lakevilla.formats import base as rules
from lakevilla.maintenance.doctor import doctor
from lakevilla.maintenance.upkeep import maintain as upkeep
from lakevilla.maintenance.upkeep.maintain import maintain
from lakevilla.maintenance.upkeep.tasks import TASKS
from lakevilla.transaction.commit.upload import seal_commit, upload
from lakevilla.transaction.verbs.read_write import append
from lakevilla_testing.histories.attempts import context_of
from lakevilla_testing.histories.exhaustive import crash_everywhere, interleavings, set_up_once
from tests.support.search import STRIDE, how_many
from tests.support.simulated.commits import add_to, alone, balances, begin, commit, lake
from tests.support.simulated.upkeep import confirms

DAY = 24 * 3600
SCHEDULES = how_many(2, whole=15, soak=200)
#: Each searches a part of the schedules.
SHARES = pytest.mark.parametrize("share", range(8))


@pytest.fixture(autouse=True)
def _often(monkeypatch):
    """Let two small files suffice for an optimize."""
    monkeypatch.setattr(rules, "SMALL_FILES", 2)


def maintains(client):
    report = yield from maintain(context_of(client), list(TASKS), owner=client.name)
    assert report.ok, report
    return "done"


def adds(number):
    """Add a row, and so a small file."""

    def program(client):
        txn = begin(client)
        row = {"id": number, "balance": 1, "items": ""}
        yield from append(txn, "a", pa.Table.from_pylist([row]).to_reader())
        yield from commit(txn)
        return "committed"

    return program


def leaves_files(client):
    """Die after the uploads of a transaction."""
    txn = begin(client)
    yield from add_to(txn, "b", 1)
    yield from upload(txn, (yield from seal_commit(txn)))
    return "stopped"


@set_up_once
def a_lake(faults, schedule):
    """Return a lake with small files to combine, old files to vacuum, and aborted ones
    to collect.
    """
    simulation = lake(faults, schedule)
    alone(simulation, adds(2), "writer 2")
    alone(simulation, maintains, "first")
    alone(simulation, adds(3), "writer 3")
    alone(simulation, leaves_files, "dead")
    simulation.now += 10 * DAY
    return simulation


def two(faults, schedule):
    simulation = a_lake(faults, schedule)
    simulation.add("one", maintains)
    simulation.add("two", maintains)
    simulation.add("writer", adds(4))
    return simulation


ROWS = {"a": {0: 100, 1: 100, 2: 1, 3: 1, 4: 1}, "b": {0: 100, 1: 100}}


def is_whole(simulation):
    """Check that all committed rows can be read, and that no check finds a fault."""
    assert balances(simulation) == ROWS
    simulation.now += 10 * DAY
    alone(simulation, maintains, "last")
    assert balances(simulation) == ROWS
    report = alone(simulation, lambda client: doctor(context_of(client)), "doctor")
    assert report.ok, report


@pytest.mark.parametrize("lease", [True, False], ids=["by_turns", "at_once"])
def test_two_maintainers_and_a_concurrent_writer_lose_nothing_in_any_order(lease, monkeypatch):
    if not lease:
        monkeypatch.setattr(upkeep, "is_free", lambda *_: True)
    assert interleavings(two, is_whole, limit=SCHEDULES) == SCHEDULES


@SHARES
def test_a_maintainer_may_die_anywhere_concurrently_with_another(share):
    assert crash_everywhere(two, is_whole, "one", every=8 * STRIDE, first=share) > 15 // STRIDE


@SHARES
def test_work_left_by_a_dead_maintainer_is_done_by_the_next_one(share):
    def build(faults, schedule):
        simulation = a_lake(faults, schedule)
        simulation.add("one", maintains)
        simulation.add("writer", adds(4))
        return simulation

    def check(simulation):
        alone(simulation, confirms, "operator")
        assert alone(simulation, maintains, "next") == "done"
        is_whole(simulation)
        for table in ("a", "b"):
            files = [info.key for info in simulation.store.list(table) if "/_" not in info.key]
            assert len(files) == 1, files

    assert crash_everywhere(build, check, "one", every=8 * STRIDE, first=share) > 15 // STRIDE
