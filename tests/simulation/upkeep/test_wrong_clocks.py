"""Run clean-ups with clocks that are days wrong: they go by the store's time (docs/design/0054)."""

import pyarrow as pa
import pytest

from lakevilla.errors import AlreadyCommitted, TransactionAborted
from lakevilla.maintenance import vacuum
from lakevilla.maintenance.gc import gc
from lakevilla.maintenance.gc.listing import TOLERANCE_SECONDS, ask_time, shown_time
from lakevilla.store.effects import list_objects
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.state.files import store_files
from lakevilla.transaction.state.values import Feature, KeyUse
from lakevilla.transaction.verbs.read_write import append
from lakevilla_testing.checks import invariants
from lakevilla_testing.histories.attempts import SCHEMA, context_of
from lakevilla_testing.planted.every import PLANTED
from tests.support.simulated.commits import (
    RI,
    TABLES,
    add_to,
    alone,
    balances,
    begin,
    lake,
    simulation_client,
)

DAY = 24 * 3600
FORMATS = pytest.mark.parametrize("iceberg", [(), TABLES], ids=["delta", "iceberg"])
BY_ENTRY = pytest.mark.parametrize("features", [Feature.R, Feature.NONE], ids=["R", "NONE"])
AHEAD, BEHIND = 8 * DAY, -8 * DAY


def cleans_up(simulation, offset, **options):
    """Run vacuum and gc to their end, by a client with a wrong clock."""
    other = simulation_client(simulation, f"cleaner at {simulation.now}")
    other.clock.skew(offset)
    yield from gc.gc(context_of(other))
    yield from vacuum.vacuum(context_of(other), "a", dry_run=False, **options)
    yield from gc.gc(context_of(other))


def open_transaction(simulation, features, between, offset=0.0):
    """Append and store a row, run something else, and only then commit."""

    def program(client):
        client.clock.skew(offset)
        txn = begin(client, features)
        rows = pa.table({"id": [7], "balance": [100], "items": [""]}, schema=SCHEMA)
        yield from append(txn, "a", rows.to_reader())
        yield from store_files(txn)
        simulation.now += 120
        yield from between()
        return (yield from commit(txn))

    alone(simulation, program, "owner")
    invariants.every_table_is_readable(simulation.store, TABLES)
    assert 7 in balances(simulation)["a"]


@FORMATS
@pytest.mark.parametrize("features", [Feature.R, Feature.NONE, RI], ids=["R", "NONE", "HEAD"])
@pytest.mark.parametrize("offset", [AHEAD, BEHIND], ids=["ahead", "behind"])
def test_a_cleaner_whose_clock_is_wrong_deletes_nothing_of_a_running_transaction(
    iceberg, features, offset
):
    simulation = lake(iceberg=iceberg)
    open_transaction(simulation, features, lambda: cleans_up(simulation, offset))


def test_a_planted_cleaner_that_goes_by_its_own_clock_is_found():
    with PLANTED["cleaners_believe_their_clock"].plant():
        simulation = lake()
        with pytest.raises(invariants.Violated):
            open_transaction(simulation, Feature.R, lambda: cleans_up(simulation, AHEAD))
        simulation = lake()
        with pytest.raises(TransactionAborted):
            open_transaction(simulation, RI, lambda: cleans_up(simulation, AHEAD))


@FORMATS
@BY_ENTRY
def test_files_of_a_writer_whose_clock_is_behind_stay_where_retention_is_zero(iceberg, features):
    simulation = lake(iceberg=iceberg)
    none = {"retention_seconds": 0.0, "enforce_retention": False}
    open_transaction(simulation, features, lambda: cleans_up(simulation, 0.0, **none), BEHIND)


def pays(key):
    """Make one more payment with an idempotency key: it must not be made twice."""

    def program(client):
        txn = begin(client, key=KeyUse(key, None))
        yield from add_to(txn, "a", 10)
        yield from commit(txn)

    return program


@pytest.mark.parametrize(
    ("writers", "cleaners"), [(0.0, AHEAD), (BEHIND, 0.0)], ids=["cleaner ahead", "writer behind"]
)
def test_an_idempotency_key_is_remembered_for_its_retention(writers, cleaners):
    simulation = lake()

    def first(client):
        client.clock.skew(writers)
        yield from pays("rent")(client)

    simulation.now += 20 * DAY
    alone(simulation, first, "first")
    for _ in range(2):
        simulation.now += DAY
        alone(simulation, lambda client: cleans_up(simulation, cleaners), "operator")
    with pytest.raises(AlreadyCommitted):
        alone(simulation, pays("rent"), "again")
    assert balances(simulation)["a"] == {0: 110, 1: 100}


def test_a_planted_history_that_goes_by_its_writer_s_clock_is_found():
    with (
        PLANTED["history_by_the_writers_clock"].plant(),
        pytest.raises(pytest.fail.Exception, match="DID NOT RAISE"),
    ):
        test_an_idempotency_key_is_remembered_for_its_retention(BEHIND, 0.0)


def test_an_object_old_by_the_store_s_clock_is_deleted_by_a_cleaner_whose_clock_is_behind():
    simulation = lake()

    def leaves(client):
        txn = begin(client, Feature.R)
        rows = pa.table({"id": [7], "balance": [100], "items": [""]}, schema=SCHEMA)
        yield from append(txn, "a", rows.to_reader())
        yield from store_files(txn)

    before = set(simulation.store.objects)
    alone(simulation, leaves, "dead")
    (left,) = set(simulation.store.objects) - before
    simulation.now += 10 * DAY
    alone(simulation, lambda client: cleans_up(simulation, BEHIND), "operator")
    assert left not in simulation.store.objects


@pytest.mark.parametrize(
    ("offset", "believed"),
    [(0.0, True), (TOLERANCE_SECONDS - 1, True), (AHEAD, False), (BEHIND, False)],
)
def test_a_client_takes_the_store_s_time_unless_both_times_agree(offset, believed):
    simulation = lake()

    def asks(client):
        client.clock.skew(offset)
        asked = yield from ask_time(context_of(client), "a/_lakevilla")
        listed = yield from list_objects("a")
        simulation.now += 3600  # a list request may take long
        own, stores = asked.own_seconds, simulation.store.objects[asked.key].modified_seconds
        for seen in (listed, []):  # a clock that is behind does not show the object
            assert (yield from shown_time(asked, seen)) == (own if believed else stores)

    alone(simulation, asks, "client")
