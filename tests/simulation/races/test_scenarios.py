"""Races that model checking the design has found, each played out request by request."""

import contextlib

import pyarrow as pa
import pytest

from lakevilla.errors import (
    AlreadyCommitted,
    CommitOutcomeUnknown,
    ConflictError,
    ForeignConflict,
    TransactionAborted,
    TransactionNotFound,
    VersionNotFound,
)
from lakevilla.global_log import head
from lakevilla.lake.publishing import outcome
from lakevilla.maintenance import recovery
from lakevilla.maintenance.gc import gc
from lakevilla.settings import Settings
from lakevilla.store.base import Refused
from lakevilla.store.effects import Get, Put
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.state.values import Feature, KeyUse
from lakevilla.transaction.verbs import read_write, save
from lakevilla.transaction.verbs.abort import abort, give_up
from lakevilla.transaction.verbs.bind import bind_to_head
from lakevilla.transaction.verbs.read_write import append, bind_to_past
from lakevilla_testing.checks import invariants
from lakevilla_testing.histories.attempts import COLUMNS, SCHEMA, context_of
from lakevilla_testing.planted.every import PLANTED
from lakevilla_testing.tables import delta_cleaner, delta_writer
from tests.support.simulated.commits import (
    RI,
    TABLES,
    Process,
    add_to,
    alone,
    balances,
    begin,
    lake,
    read,
    simulation_client,
    transfer,
)

HEAD = "HEAD.json"
DAY = 24 * 3600


def recover(client):
    return recovery.recover(context_of(client))


def collect(client):
    return gc.gc(context_of(client))


def settled(simulation):
    """Return the balances after recovery, and check the invariants of the logs."""
    alone(simulation, recover, "recoverer")
    invariants.every_table_is_readable(simulation.store, TABLES)
    invariants.no_id_commits_twice(simulation.store, TABLES)
    invariants.tables_follow_head(simulation.store, TABLES)
    invariants.all_or_nothing(simulation.store, TABLES)
    return balances(simulation)


def one_update(amount, table="a", number=0, features=RI):
    def program(client):
        txn = begin(client, features)
        yield from add_to(txn, table, amount, number)
        return (yield from commit(txn))

    return program


# ------------------------------------------------------------------ 1


def test_a_delayed_head_replacement_is_stored_after_its_client_got_an_unknown_outcome():
    simulation = lake()
    ids = []

    def owner(client):
        txn = begin(client)
        ids.append(txn.id)
        yield from add_to(txn, "a", -1)
        yield from add_to(txn, "b", 1)
        yield from commit(txn)

    process = Process(simulation, owner).until(HEAD)
    delayed = process.next
    while not process.done:
        process.lose() if process.next == delayed else process.step()
    assert isinstance(process.result, CommitOutcomeUnknown)
    told = alone(simulation, lambda client: outcome.outcome(context_of(client), ids[0]), "asker")
    assert told.state == "aborted"
    assert isinstance(simulation.store.apply(delayed), Refused)
    assert settled(simulation)["a"] == {0: 100, 1: 100}


def test_a_delayed_log_entry_is_refused_after_a_helper_has_published_it():
    simulation = lake()
    process = Process(simulation, one_update(5)).until("a/_delta_log")
    delayed = process.lose()
    alone(simulation, recover, "helper")
    assert isinstance(simulation.store.apply(delayed), Refused)
    assert process.finish().versions is not None
    assert settled(simulation)["a"][0] == 105


# ------------------------------------------------------------------ 2


def test_a_committer_that_slept_through_gc_is_fenced():
    simulation = lake()
    process = Process(simulation, one_update(5)).until(HEAD)
    alone(simulation, one_update(7, "b"), "other writer")
    simulation.now += 2 * DAY
    alone(simulation, collect, "collector")
    with pytest.raises(TransactionAborted):
        process.finish()
    assert settled(simulation)["a"][0] == 100
    alone(simulation, collect, "collector again")
    invariants.no_orphan_files(simulation.store, TABLES)


def test_a_committer_that_slept_while_no_other_committed_commits_in_spite_of_gc():
    """To gc, a HEAD that this very commit had set back would look the same."""
    simulation = lake()
    process = Process(simulation, one_update(5)).until(HEAD)
    simulation.now += 2 * DAY
    alone(simulation, collect, "collector")
    process.finish()
    assert settled(simulation)["a"][0] == 105


def test_a_committer_whose_id_another_client_has_aborted_after_its_uploads_is_refused():
    simulation = lake()
    process = Process(simulation, one_update(5)).until("_lakevilla/commits")
    txn = process.next.key.split("/")[-1][:36]
    alone(simulation, lambda client: outcome.fence(context_of(client), txn), "operator")
    with pytest.raises(TransactionAborted):
        process.finish()
    assert settled(simulation)["a"][0] == 100


# ------------------------------------------------------------------ 3


def saved(simulation):
    """Save a transaction; return its owner, about to commit, and its id."""
    ids = []

    def owner(client):
        txn = begin(client)
        ids.append(txn.id)
        yield from add_to(txn, "a", -1)
        yield from add_to(txn, "b", 1)
        yield from save.save(txn)
        try:
            return (yield from commit(txn))
        except (AlreadyCommitted, TransactionAborted):
            yield from save.forget(txn)
            yield from abort(txn)
            raise

    return Process(simulation, owner, "owner").until("_lakevilla/commits"), ids[0]


def resumer(txn):
    def program(client):
        resumed = yield from save.resume(context_of(client), txn, client.name)
        return (yield from commit(resumed))

    return program


def test_owner_and_resumer_of_one_transaction_commit_it_once_and_keep_its_files():
    simulation = lake()
    owner, txn = saved(simulation)
    assert alone(simulation, resumer(txn), "resumer").id == txn
    with pytest.raises((AlreadyCommitted, TransactionAborted)):
        owner.finish()
    assert settled(simulation)["a"][0] == 99


def test_two_resumers_of_one_transaction_commit_it_once():
    simulation = lake()
    _, txn = saved(simulation)
    one = Process(simulation, resumer(txn), "one").until(HEAD)
    two = Process(simulation, resumer(txn), "two")
    two.finish()
    with pytest.raises((AlreadyCommitted, TransactionAborted)):
        one.finish()
    assert settled(simulation) == {"a": {0: 99, 1: 100}, "b": {0: 101, 1: 100}}


def test_owner_with_a_lost_answer_and_a_resumer_commit_once():
    simulation = lake()
    owner, txn = saved(simulation)
    owner.until(HEAD)
    simulation.store.apply(owner.lose())
    with pytest.raises(AlreadyCommitted):
        alone(simulation, resumer(txn), "resumer")
    assert owner.finish().id == txn
    assert settled(simulation)["a"][0] == 99


def kept(simulation):
    """Return a transaction that was saved."""

    def owner(client):
        txn = begin(client)
        yield from add_to(txn, "a", -1)
        yield from add_to(txn, "b", 1)
        yield from save.save(txn)
        return txn

    return alone(simulation, owner, "owner")


def given_up(txn):
    return lambda client: give_up(txn)


def data_files(simulation):
    return {key for key in simulation.store.objects if key.endswith(".parquet")}


@pytest.mark.parametrize("faster_than", range(10))
@pytest.mark.parametrize("gets_to", ["_lakevilla/txns", HEAD, "a/_delta_log", "its end"])
def test_an_owner_that_aborts_deletes_no_file_of_a_resumer(faster_than, gets_to):
    """Let the resumer run before each request of the abort, up to each of its own writes."""
    simulation = lake()
    txn = kept(simulation)
    process = Process(simulation, given_up(txn), "owner")
    for _ in range(faster_than):
        if not process.done:
            process.step()
    other = Process(simulation, resumer(txn.id), "resumer")
    while not other.done:
        if isinstance(other.next, Put) and gets_to in other.next.key:
            break
        other.step()
    process.finish()
    while not other.done:
        other.step()
    found = settled(simulation)
    committed = not isinstance(other.result, Exception)
    assert (found["a"][0], found["b"][0]) == ((99, 101) if committed else (100, 100))
    if not committed:
        assert isinstance(
            other.result, TransactionAborted | TransactionNotFound | CommitOutcomeUnknown
        )


def test_an_owner_that_aborts_without_a_resumer_leaves_no_file():
    simulation = lake()
    before = data_files(simulation)
    txn = kept(simulation)
    assert data_files(simulation) > before
    alone(simulation, given_up(txn), "owner")
    assert data_files(simulation) == before


# ------------------------------------------------------------------ 4


def test_a_foreign_append_that_takes_the_version_after_the_decision_does_not_stop_publishing():
    simulation = lake()
    process = Process(simulation, one_update(5)).until("a/_delta_log")
    row = {"id": 7, "balance": 1, "items": ""}
    alone(simulation, lambda client: delta_writer.append(client, "a", [row]), "foreign")
    assert process.finish().versions == {"a": 3}
    assert settled(simulation)["a"] == {0: 105, 1: 100, 7: 1}


def double(row):
    return {**row, "balance": 2 * row["balance"]}


def test_a_foreign_update_of_a_decided_commit_s_file_is_reconciled_and_reported():
    simulation = lake()
    process = Process(simulation, one_update(5)).until("a/_delta_log")
    # Another transaction is decided behind the first one and not published either.
    behind = Process(simulation, one_update(7), "behind").until("a/_delta_log")
    alone(simulation, lambda client: delta_writer.rewrite(client, "a", double), "foreign")
    with pytest.raises(ForeignConflict):
        process.finish()
    with pytest.raises(ForeignConflict):
        behind.finish()
    assert settled(simulation)["a"] == {0: 212, 1: 200}


def test_a_foreign_update_of_rows_that_a_decided_commit_has_observed_is_reported():
    simulation = lake()

    def program(client):
        txn = begin(client)
        found = yield from read(txn, "a", "id = 0")
        yield from add_to(txn, "a", found[0])
        return (yield from commit(txn))

    process = Process(simulation, program).until("a/_delta_log")
    alone(simulation, lambda client: delta_writer.rewrite(client, "a", double), "foreign")
    with pytest.raises(ForeignConflict, match="rows that it had read were changed"):
        process.finish()
    assert settled(simulation)["a"][0] == 300


def test_a_reader_of_a_pending_commit_conflicts_with_a_foreign_change_under_that_commit():
    simulation = lake()
    process = Process(simulation, one_update(5)).until("a/_delta_log")

    def reader(client):
        txn = begin(client)
        found = yield from read(txn, "a", "id = 0")
        assert found == {0: 105}
        yield from add_to(txn, "b", found[0])
        return (yield from commit(txn))

    late = Process(simulation, reader, "reader").until(HEAD)
    alone(simulation, lambda client: delta_writer.rewrite(client, "a", double), "foreign")
    with pytest.raises(ForeignConflict):
        process.finish()
    with pytest.raises(ConflictError):
        late.finish()
    assert settled(simulation)["b"][0] == 100


def restored_after_it_was_reconciled():
    """Return the balances after RESTORE has brought back a file that a helper had found removed."""
    simulation = lake()
    process = Process(simulation, one_update(5)).until("a/_delta_log")
    alone(simulation, lambda client: delta_writer.rewrite(client, "a", double), "foreign")
    helper = Process(simulation, recover, "helper").until(HEAD)
    alone(simulation, lambda client: delta_writer.restore(client, "a", 1), "restorer")
    with contextlib.suppress(ForeignConflict):
        process.finish()
    helper.finish()
    alone(simulation, one_update(0, "b"), "next")
    return settled(simulation)["a"]


def test_a_file_that_restore_brings_back_counts_as_removed():
    assert restored_after_it_was_reconciled() == {0: 105, 1: 100}


def test_a_helper_that_checks_the_last_entry_alone_misses_an_unfit_commit():
    with PLANTED["unfit_by_last_entry"].plant():
        try:
            found = restored_after_it_was_reconciled()
        except AssertionError:
            return
    assert found != {0: 105, 1: 100}


# ------------------------------------------------------------------ 5


def test_a_helper_publishes_though_log_entries_between_its_base_and_the_tip_are_cleaned_up():
    simulation = lake()
    process = Process(simulation, one_update(5)).until("a/_delta_log")
    alone(simulation, one_update(1, number=1), "next")  # publishes both

    def clean(client):
        yield from delta_writer.append(client, "a", [{"id": 8, "balance": 0, "items": ""}])
        yield from delta_cleaner.write_checkpoint(client, "a")
        simulation.now += DAY
        yield from delta_cleaner.clean_log(client, "a", 3600)

    alone(simulation, clean, "cleaner")
    process.finish()
    assert settled(simulation)["a"] == {0: 105, 1: 101, 8: 0}


def clean(simulation):
    """Append as another client, and clean up old log entries a day later."""

    def program(client):
        for number in (8, 9):
            yield from delta_writer.append(client, "a", [{"id": number, "balance": 0, "items": ""}])
        yield from delta_cleaner.write_checkpoint(client, "a")
        simulation.now += DAY
        yield from delta_cleaner.clean_log(client, "a", 3600)

    alone(simulation, program, "cleaner")


def test_a_writer_whose_tip_was_cleaned_up_lists_the_log_again():
    simulation = lake()
    process = Process(simulation, one_update(5, features=Feature.NONE)).until("a/lv-l")
    clean(simulation)
    process.finish()
    assert balances(simulation)["a"] == {0: 105, 1: 100, 8: 0, 9: 0}


def test_a_log_entry_created_where_clean_up_has_been_is_not_acknowledged():
    simulation = lake()
    process = Process(simulation, one_update(5, features=Feature.NONE)).until("a/_delta_log")
    clean(simulation)
    with pytest.raises(CommitOutcomeUnknown):
        process.finish()
    assert balances(simulation)["a"] == {0: 100, 1: 100, 8: 0, 9: 0}


@pytest.mark.parametrize("entries", [1, 3])
def test_a_pending_commit_is_void_on_a_table_that_was_dropped_and_created_again(entries):
    simulation = lake()
    Process(simulation, transfer).until("a/_delta_log")  # decided; and its owner dies
    row = {"id": 7, "balance": 1, "items": ""}

    def make_anew(client):
        yield from delta_writer.drop_and_recreate(client, "a", COLUMNS, [row])
        for _ in range(entries - 1):
            yield from delta_writer.append(client, "a", [])

    alone(simulation, make_anew, "foreign")
    alone(simulation, one_update(5, "b"), "next")
    alone(simulation, recover, "recoverer")
    assert balances(simulation) == {"a": {7: 1}, "b": {0: 106, 1: 100}}


# ------------------------------------------------------------------ 6


def test_a_reader_that_first_reads_a_table_that_has_joined_the_lake_since_conflicts():
    simulation = lake(tables=("a", "b", "c"), warm=False)
    alone(simulation, one_update(0, "a"), "first")

    def reader(client):
        txn = begin(client, read_only=True)
        yield from read(txn, "a")
        yield from read(txn, "c")

    process = Process(simulation, reader).until("c/_lakevilla", Get)
    alone(simulation, lambda client: transfer(client, "a", "c"), "writer")
    with pytest.raises(ConflictError):
        process.finish()


def test_a_reader_that_has_read_before_the_lake_was_made_conflicts():
    simulation = lake(warm=False)

    def reader(client):
        txn = begin(client, read_only=True)
        one = yield from read(txn, "a")
        two = yield from read(txn, "b")
        return one[0] + two[0]

    # The reader has read that there is no HEAD and no owner of b, and then the lake is made.
    process = Process(simulation, reader).until("b/_lakevilla/lake.json", Get)
    process.step()
    alone(simulation, transfer, "writer")
    with pytest.raises(ConflictError):
        process.finish()


# ------------------------------------------------------------------ 7


def test_a_drop_of_a_table_under_a_decided_commit_does_not_stop_the_commits_behind_it():
    simulation = lake()
    process = Process(simulation, transfer).until("a/_delta_log")

    def drop(client):
        txn = begin(client)
        yield from read_write.drop(txn, "a")
        return (yield from commit(txn))

    alone(simulation, drop, "dropper")
    process.finish()
    alone(simulation, one_update(5, "b"), "next")
    alone(simulation, recover, "recoverer")
    assert balances(simulation, "b")["b"][0] == 106


# ------------------------------------------------------------------ 8


def test_isolated_and_recoverable_transactions_lose_no_update_unreported():
    simulation = lake()
    isolated = Process(simulation, one_update(5), "isolated").until("a/_delta_log")
    alone(simulation, one_update(7, features=Feature.R), "recoverable")
    with pytest.raises(ForeignConflict):
        isolated.finish()
    assert settled(simulation)["a"][0] == 112


def test_a_recoverable_transaction_that_an_isolated_one_has_overtaken_is_redone():
    simulation = lake()
    plain = Process(simulation, one_update(7, features=Feature.R), "plain").until("a/_delta_log")
    alone(simulation, one_update(5), "isolated")
    plain.finish()
    assert settled(simulation)["a"][0] == 112


# ----------------------------------------------------------- 11, second half


def test_one_of_two_that_read_what_the_other_writes_is_refused():
    simulation = lake()

    def crosswise(source, target):
        def program(client):
            txn = begin(client)
            found = yield from read(txn, source, "id = 0")
            yield from add_to(txn, target, found[0])
            return (yield from commit(txn))

        return program

    one = Process(simulation, crosswise("a", "b"), "one").until(HEAD)
    Process(simulation, crosswise("b", "a"), "two").finish()
    with pytest.raises(ConflictError):
        one.finish()
    assert settled(simulation)["b"][0] == 100


# ------------------------------------------------------------------ 12


def test_a_commit_is_redone_on_a_foreign_commit_during_its_upload():
    simulation = lake()
    process = Process(simulation, one_update(5)).until("a/lv-h")
    alone(simulation, lambda client: delta_writer.rewrite(client, "a", double), "foreign")
    process.finish()
    assert settled(simulation)["a"] == {0: 205, 1: 200}


def test_a_foreign_commit_during_an_upload_is_found_too_late_without_the_probe():
    simulation = lake()
    with PLANTED["no_probe_before_validation"].plant():
        process = Process(simulation, one_update(5)).until("a/lv-h")
        alone(simulation, lambda client: delta_writer.rewrite(client, "a", double), "foreign")
        with pytest.raises(ForeignConflict):
            process.finish()


def test_two_helpers_that_reconcile_at_once_leave_no_orphan():
    simulation = lake()
    process = Process(simulation, one_update(5)).until("a/_delta_log")
    alone(simulation, lambda client: delta_writer.rewrite(client, "a", double), "foreign")
    helpers = [Process(simulation, recover, name).until(HEAD) for name in ("one", "two")]
    for helper in helpers:
        helper.finish()
    with pytest.raises(ForeignConflict):
        process.finish()
    assert settled(simulation)["a"] == {0: 205, 1: 200}
    simulation.now += 2 * DAY
    alone(simulation, collect, "collector")
    invariants.no_orphan_files(simulation.store, TABLES)


# ------------------------------------------------------------------ 13


def test_a_transaction_finds_more_than_a_page_of_commits_since_its_start():
    simulation = lake()
    process = Process(simulation, transfer).until(HEAD)
    for number in range(head.COMMITS_IN_HEAD + 10):
        alone(simulation, one_update(1, "b", 1), f"other {number}")
    assert process.finish() == "committed"
    found = settled(simulation)
    assert found["a"][0] == 99
    assert found["b"] == {0: 101, 1: 100 + head.COMMITS_IN_HEAD + 10}


def with_key(key, amount=5):
    def program(client):
        txn = begin(client, key=KeyUse(key, None))
        yield from bind_to_head(txn)
        yield from add_to(txn, "a", amount)
        return (yield from commit(txn))

    return program


def test_an_idempotency_key_reused_by_a_new_process_and_after_gc_commits_once():
    simulation = lake()
    first = alone(simulation, with_key("k"), "first")
    with pytest.raises(AlreadyCommitted) as caught:
        alone(simulation, with_key("k"), "second")
    assert caught.value.result.id == first.id
    simulation.now += 2 * DAY
    alone(simulation, collect, "collector")
    with pytest.raises(AlreadyCommitted):
        alone(simulation, with_key("k"), "third")
    assert settled(simulation)["a"][0] == 105


def test_an_idempotency_key_reused_while_its_first_user_sleeps_commits_once():
    simulation = lake()
    sleeper = Process(simulation, with_key("k"), "sleeper").until(HEAD)
    Process(simulation, with_key("k"), "second").finish()
    with pytest.raises(TransactionAborted):
        sleeper.finish()
    assert settled(simulation)["a"][0] == 105


# ------------------------------------------------------------------ 14


def test_a_client_whose_clock_is_behind_the_floor_gets_an_id_above_it():
    simulation = lake()
    simulation.now += 2 * DAY
    alone(simulation, collect, "collector")
    client = simulation_client(simulation, "late")
    client.clock.offset_seconds = -3 * DAY
    process = Process(simulation, one_update(5))
    process.finish()

    def late(_):
        return one_update(5)(client)

    alone(simulation, late, "late too")
    assert settled(simulation)["a"][0] == 110


def test_a_process_does_not_rely_on_a_tip_that_it_read_before_a_suspend():
    simulation = lake()
    client = simulation_client(simulation, "sleeper")
    context = context_of(client)

    def update(_):
        txn = begin(client, Feature.R, context)
        yield from add_to(txn, "a", 5)
        return (yield from commit(txn))

    alone(simulation, update, "before")

    clean(simulation)
    alone(simulation, update, "after")
    assert balances(simulation)["a"] == {0: 110, 1: 100, 8: 0, 9: 0}


# ------------------------------------------------------------------ the past


def test_a_state_whose_pending_commit_is_forgotten_is_not_returned_without_it():
    """The log entry that publishes it holds a later commit as well, so no log version is that
    state.
    """
    simulation = lake(settings=Settings(outcome_retention_seconds=600.0))

    def adds(table, number):
        def program(client):
            txn = begin(client)
            rows = pa.table({"id": [number], "balance": [0], "items": [""]}, schema=SCHEMA)
            yield from append(txn, table, rows.to_reader())
            return (yield from commit(txn))

        return program

    def rows_at(version):
        def program(client):
            txn = begin(client, read_only=True)
            yield from bind_to_past(txn, version=version)
            return (yield from read(txn, "a"))

        return program

    Process(simulation, adds("a", 7), "first").until("a/_delta_log")
    simulation.now += 300
    version = alone(simulation, adds("b", 8), "second").global_version
    expected = {0: 100, 1: 100, 7: 0}
    assert alone(simulation, rows_at(version), "reader") == expected
    simulation.now += 100
    alone(simulation, adds("a", 9), "third")
    assert alone(simulation, rows_at(version), "reader after") == expected
    simulation.now += 400
    # The first gc removes what is published from HEAD, the second one removes its history.
    for number in range(2):
        alone(simulation, collect, f"collector {number}")
    with pytest.raises(VersionNotFound, match="forgotten"):
        alone(simulation, rows_at(version), "late reader")


def test_a_state_whose_pending_commit_was_replaced_and_is_forgotten_is_not_returned_without_it():
    """A client without LakeVilla committed first, so another commit's entry publishes it."""
    simulation = lake(settings=Settings(outcome_retention_seconds=600.0))

    def rows_at(version):
        def program(client):
            txn = begin(client, read_only=True)
            yield from bind_to_past(txn, version=version)
            return (yield from read(txn, "a"))

        return program

    Process(simulation, one_update(5), "first").until("a/_delta_log")
    simulation.now += 300
    version = alone(simulation, one_update(1, "b"), "second").global_version
    assert alone(simulation, rows_at(version), "reader") == {0: 105, 1: 100}

    def rewrite(client):
        assert (yield from delta_writer.rewrite(client, "a", dict))

    alone(simulation, rewrite, "other")
    assert settled(simulation)["a"] == {0: 105, 1: 100}
    simulation.now += 500
    for number in range(2):
        alone(simulation, collect, f"collector {number}")
    with pytest.raises(VersionNotFound, match="forgotten"):
        alone(simulation, rows_at(version), "late reader")
