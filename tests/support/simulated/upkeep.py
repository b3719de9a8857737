"""Clients that write the lake and clean up there, concurrently with a test's ref."""

import pytest

from lakevilla.branches.keep import keep
from lakevilla.errors import LakeVillaError
from lakevilla.maintenance import recovery, vacuum
from lakevilla.maintenance.gc import gc
from lakevilla.maintenance.rebuild_head import confirm_head
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.verbs.applying.merge_branch import merge_branch
from lakevilla_testing.histories.attempts import context_of
from lakevilla_testing.tables import delta_cleaner
from tests.support.simulated.commits import TABLES, add_to, alone, begin

DAY = 24 * 3600
LAKES = pytest.mark.parametrize("iceberg", [(), TABLES], ids=["delta", "iceberg"])


def updates(client):
    """Commit to the lake itself: rewrite the file of table a."""
    txn = begin(client)
    yield from add_to(txn, "a", 10)
    yield from commit(txn)
    return "committed"


def merges(client, name="etl", *, serializable=False):
    """Merge a branch; return "merged", or the kind of the error."""
    txn = begin(client)
    try:
        yield from merge_branch(txn, name, keys={}, serializable=serializable)
        yield from commit(txn)
    except LakeVillaError as error:
        return error.kind
    return "merged"


def keeps(name):
    """Keep a ref; return whether all of it is kept, or the kind of the error."""

    def program(client):
        try:
            return (yield from keep(context_of(client), name)).ok
        except LakeVillaError as error:
            return error.kind

    return program


def vacuums(client, tables=("a",)):
    """Vacuum without any retention: HEAD alone protects files from deletion."""
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


def confirms(client):
    """Confirm HEAD as an operator would: a client has died with all stored, and HEAD is right."""
    return confirm_head(context_of(client))


def recovers(client):
    return recovery.recover(context_of(client), "recoverer")


def others_clean_up(client):
    """Write a checkpoint, delete the log below it, and VACUUM without retention, as
    other clients.
    """
    for table in TABLES:
        yield from delta_cleaner.write_checkpoint(client, table)
        yield from delta_cleaner.clean_log(client, table, 0.0)
        yield from delta_cleaner.vacuum(client, table, 0.0)


def all_clean_up(simulation):
    """Let the other clients and the lake's own clean up, twice."""
    for number in range(2):
        simulation.now += 10 * DAY
        alone(simulation, confirms, f"operator {number} {simulation.now}")
        for name, program in (
            ("cleaner", others_clean_up),
            ("sweeper", vacuums),
            ("collector", collects),
        ):
            alone(simulation, program, f"{name} {number} {simulation.now}")


def sweep(simulation, times=1):
    """Clean up all that is too old, repeatedly."""
    for number in range(times):
        simulation.now += 10 * DAY
        alone(simulation, confirms, f"operator {number} {simulation.now}")
        alone(simulation, vacuums, f"sweeper {number} {simulation.now}")
        alone(simulation, collects, f"collector {number} {simulation.now}")


def results(simulation):
    """Return the outcome of each client, by its name."""
    return {client.name: client.result for client in simulation.clients}
