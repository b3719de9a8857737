"""Who writes the lake, and cleans up there, beside what a test of refs is about."""

import pytest

from lakevilla.maintenance import vacuum
from lakevilla.maintenance.gc import gc
from lakevilla.testing.histories.attempts import context_of
from lakevilla.transaction.commit.commit import commit
from tests.support.simulated.commits import TABLES, add_to, alone, begin

DAY = 24 * 3600
LAKES = pytest.mark.parametrize("iceberg", [(), TABLES], ids=["delta", "iceberg"])


def updates(client):
    """A commit to the lake itself, which rewrites the file of table a."""
    txn = begin(client)
    yield from add_to(txn, "a", 10)
    yield from commit(txn)
    return "committed"


def vacuums(client, tables=("a",)):
    """Without any retention: what it may not delete is told by HEAD alone."""
    for table in tables:
        yield from vacuum.vacuum(
            context_of(client),
            table,
            retention_seconds=0.0,
            dry_run=False,
            enforce_retention=False,
        )


def collects(client):
    return gc.gc(context_of(client))


def sweep(simulation, times=1):
    """All that is too old goes, again and again."""
    for number in range(times):
        simulation.now += 10 * DAY
        alone(simulation, vacuums, f"sweeper {number} {simulation.now}")
        alone(simulation, collects, f"collector {number} {simulation.now}")


def results(simulation):
    """What each client was told, by its name."""
    return {client.name: client.result for client in simulation.clients}
