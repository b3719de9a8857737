"""Call ``commit()`` again after no answer or an interrupt: it commits at most once (note 19; hazard
36).
"""

import pytest

from lakevilla.errors import (
    AlreadyCommitted,
    CommitOutcomeUnknown,
    ConflictError,
    InvalidOperation,
    StoreError,
)
from lakevilla.lake.publishing import outcome
from lakevilla.lake.table_log import refresh
from lakevilla.maintenance import recovery
from lakevilla.store.base import Stored
from lakevilla.store.effects import Get, Put, sleep
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.state.values import Feature
from lakevilla.transaction.verbs import save as saving
from lakevilla_testing.checks import invariants
from lakevilla_testing.histories.attempts import context_of
from lakevilla_testing.planted.every import PLANTED
from lakevilla_testing.tables import delta_cleaner, delta_writer, iceberg_writer
from lakevilla_testing.world.interrupts import interrupted
from tests.support.simulated.commits import (
    RCTI,
    RI,
    Process,
    add_to,
    alone,
    balances,
    begin,
    lake,
    transfer,
)

FORMATS = {"delta": delta_writer, "iceberg": iceberg_writer}
HEAD = "HEAD.json"


def made(kind, **options):
    return lake(iceberg=("a", "b") if kind == "iceberg" else (), **options)


def entry_of(kind):
    return "a/_delta_log" if kind == "delta" else "a/metadata/v"


def tried(program, *, after):
    """Run a program whose first commit gets no answer, then ``after(txn)``; return its result."""

    def owner(client, features=Feature.R):
        txn = begin(client, features)
        yield from add_to(txn, "a", 5)
        try:
            yield from commit(txn)
        except CommitOutcomeUnknown:
            return (yield from after(txn))
        raise AssertionError("the store has answered")

    return owner


def in_doubt(simulation, after, *, word, lands):
    """Return a process whose commit point gets no answer, and that write."""
    process = Process(simulation, tried(None, after=after)).until(word)
    write = process.next
    if lands:
        assert isinstance(simulation.store.apply(write), Stored)
    while process.next == write or asks_head(process.next):
        process.lose() if process.next == write else process.step()
    return process, write


def asks_head(request):
    """Before a client sends an entry again, it reads HEAD to see whether the table was dropped
    (note 50).
    """
    return isinstance(request, Get) and HEAD in request.key


def followed_and_again(txn):
    """Let another thread of the process follow the log, then let the owner commit again."""
    yield from refresh(txn.context, "a")
    result = yield from commit(txn)
    return result.versions


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("between", [False, True])
def test_an_entry_stored_without_an_answer_is_found_though_its_process_has_followed_the_log(
    kind, between
):
    simulation = made(kind)
    process, _ = in_doubt(simulation, followed_and_again, word=entry_of(kind), lands=True)
    if between:
        alone(simulation, one_more(kind), "other")
    assert process.finish() == {"a": 2}
    assert balances(simulation)["a"][0] == 105


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("between", [False, True])
def test_a_late_entry_is_refused_by_the_store_because_the_second_commit_took_its_number(
    kind, between
):
    simulation = made(kind)
    process, write = in_doubt(simulation, followed_and_again, word=entry_of(kind), lands=False)
    if between:
        alone(simulation, one_more(kind), "other")
    assert process.finish() == {"a": 3 if between else 2}
    assert not isinstance(simulation.store.apply(write), Stored)
    assert balances(simulation)["a"][0] == 105


def one_more(kind):
    def program(client):
        row = {"id": 7, "balance": 0, "items": ""}
        assert (yield from FORMATS[kind].append(client, "a", [row]))

    return program


def test_an_outcome_is_unknown_once_clean_up_has_removed_the_entry():
    simulation = lake()
    process, _ = in_doubt(simulation, followed_and_again, word=entry_of("delta"), lands=True)

    def others(client):
        yield from delta_writer.rewrite(client, "a", dict)
        yield from delta_cleaner.write_checkpoint(client, "a")

    alone(simulation, others, "other")
    clean_up(simulation)
    with pytest.raises(CommitOutcomeUnknown, match="cleaned up"):
        process.finish()
    assert balances(simulation)["a"][0] == 105


def test_an_entry_below_a_checkpoint_counts_as_committed_while_its_files_exist():
    simulation = lake()
    process, _ = in_doubt(simulation, followed_and_again, word=entry_of("delta"), lands=True)

    def others(client):
        yield from one_more("delta")(client)
        yield from delta_cleaner.write_checkpoint(client, "a")

    alone(simulation, others, "other")
    clean_up(simulation)
    assert process.finish() == {"a": 2}
    assert balances(simulation)["a"][0] == 105


def clean_up(simulation):
    """Let log clean-up delete the entry and all below it: hours later, as clean-up does it no
    sooner.
    """
    simulation.now += 3 * 3600
    for key in [key for key in simulation.store.objects if _number(key) in (0, 1, 2)]:
        simulation.store.delete(key)


def _number(key):
    name = key.rpartition("a/_delta_log/")[2]
    return int(name[:20]) if name.endswith(".json") and name[:20].isdigit() else None


def test_a_stored_entry_without_an_answer_is_not_reported_as_uncommitted_when_the_store_fails():
    simulation = lake()

    def again(txn):
        simulation.store.objects, kept = {}, simulation.store.objects
        try:
            yield from _fails(commit(txn))
        except CommitOutcomeUnknown:
            simulation.store.objects = kept
            return (yield from followed_and_again(txn))

    process, _ = in_doubt(simulation, again, word=entry_of("delta"), lands=True)
    assert process.finish() == {"a": 2}
    assert balances(simulation)["a"][0] == 105


def _fails(program):
    """Run a program against a store that can't be reached any more."""
    program.send(None)
    while True:
        program.throw(StoreError("the network is gone"))


# ------------------------------------------------------------------ save, and other verbs


def test_a_save_finds_an_entry_that_was_stored_without_an_answer():
    simulation = lake()

    def save(txn):
        yield from refresh(txn.context, "a")
        with pytest.raises(AlreadyCommitted) as told:
            yield from saving.save(txn)
        assert told.value.result.versions == {"a": 2}
        with pytest.raises(InvalidOperation, match="has committed"):
            yield from commit(txn)

    in_doubt(simulation, save, word=entry_of("delta"), lands=True)[0].finish()
    assert balances(simulation)["a"][0] == 105


def test_a_save_is_refused_while_the_entry_may_yet_be_stored():
    simulation = lake()

    def save(txn):
        with pytest.raises(CommitOutcomeUnknown, match="commit it again"):
            yield from saving.save(txn)
        return (yield from followed_and_again(txn))

    process, write = in_doubt(simulation, save, word=entry_of("delta"), lands=False)
    assert process.finish() == {"a": 2}
    assert not isinstance(simulation.store.apply(write), Stored)
    assert balances(simulation)["a"][0] == 105


def test_a_transaction_whose_entry_number_another_client_took_can_be_saved_and_resumed():
    simulation = lake()

    def save(txn):
        yield from saving.save(txn)
        return txn.id

    process, write = in_doubt(simulation, save, word=entry_of("delta"), lands=False)
    alone(simulation, one_more("delta"), "other")
    txn_id = process.finish()

    def resume(client):
        txn = yield from saving.resume(context_of(client), txn_id, "another")
        yield from commit(txn)

    alone(simulation, resume, "resumer")
    assert not isinstance(simulation.store.apply(write), Stored)
    assert balances(simulation)["a"][0] == 105


@pytest.mark.parametrize("features", [Feature.R, RI])
def test_a_transaction_that_may_have_committed_takes_no_more_changes(features):
    simulation = lake()

    def owner(client):
        txn = begin(client, features)
        yield from add_to(txn, "a", 5)
        with pytest.raises(KeyboardInterrupt):
            yield from commit(txn)
        with pytest.raises(InvalidOperation, match="commit it again"):
            yield from add_to(txn, "a", 1)
        return (yield from commit(txn))

    process = Process(simulation, owner).until(HEAD if features is RI else "a/_delta_log")
    assert isinstance(simulation.store.apply(process.interrupt()), Stored)
    process.finish()
    assert balances(simulation)["a"][0] == 105


# ------------------------------------------------------------------ through HEAD


def again_through_head(features, ids=None, *, observed=False):
    """Interrupt a transaction's replacement of HEAD, then commit it again."""

    def owner(client):
        txn = begin(client, features)
        if ids is not None:
            ids.append(txn.id)
        (yield from add_to(txn, "a", 5)).observed = observed
        with pytest.raises(KeyboardInterrupt):
            yield from commit(txn)
        # Another thread of the process reads HEAD, and the log.
        yield from txn.context.head()
        yield from refresh(txn.context, "a")
        return (yield from commit(txn))

    return owner


def without_first(client):
    """Delete the row that is updated, as a client without LakeVilla."""
    assert (yield from delta_writer.rewrite(client, "a", lambda row: row if row["id"] else None))


def test_a_conflict_after_an_interrupted_replacement_is_not_reported_as_undone():
    """The interrupted replacement may yet be stored as long as HEAD is the one that it replaces."""
    simulation, ids = lake(), []
    process = Process(simulation, again_through_head(RI, ids, observed=True)).until(HEAD)
    write = process.interrupt()
    alone(simulation, without_first, "other")
    with pytest.raises(CommitOutcomeUnknown, match="outcome"):
        process.finish()
    told = alone(simulation, lambda c: outcome.outcome(context_of(c), ids[0]), "asker")
    assert told.state == "aborted"
    assert not isinstance(simulation.store.apply(write), Stored)


def test_a_conflict_is_reported_if_an_interrupted_replacement_can_not_be_stored_any_more():
    simulation = lake()
    process = Process(simulation, again_through_head(RI, observed=True)).until(HEAD)
    write = process.interrupt()
    alone(simulation, without_first, "other")
    alone(simulation, lambda client: transfer(client, "b", "b"), "rival")
    assert not isinstance(simulation.store.apply(write), Stored)
    with pytest.raises(ConflictError):
        process.finish()


@pytest.mark.parametrize("features", [RI, RCTI])
def test_a_replacement_stored_without_an_answer_is_found_though_its_process_has_read_head(features):
    simulation = lake()
    process = Process(simulation, again_through_head(features)).until(HEAD)
    assert isinstance(simulation.store.apply(process.interrupt()), Stored)
    alone(simulation, lambda client: recovery.recover(context_of(client)), "helper")
    assert process.finish().global_version is not None
    assert balances(simulation)["a"][0] == 105


# ------------------------------------------------------------------ through HEAD, unanswered


def unanswered(simulation, features, *, observed=False):
    """Leave a transaction's replacement of HEAD unanswered, then commit it again.

    Returns its process, which is about to commit again, and the replacement.
    """
    told = []

    def owner(client):
        txn = begin(client, features)
        (yield from add_to(txn, "a", 5)).observed = observed
        with pytest.raises(CommitOutcomeUnknown, match="commit it again"):
            yield from commit(txn)
        with pytest.raises(InvalidOperation, match="commit it again"):
            yield from add_to(txn, "a", 1)
        told.append(True)
        yield from sleep(1)
        return (yield from commit(txn))

    process = Process(simulation, owner).until(HEAD)
    write = process.next
    while not told:
        if isinstance(process.next, Put):
            process.lose()
        else:
            process.step()
    return process, write


@pytest.mark.parametrize("features", [RI, RCTI])
def test_an_unanswered_replacement_that_has_landed_is_found(features):
    simulation = lake()
    process, write = unanswered(simulation, features)
    assert isinstance(simulation.store.apply(write), Stored)
    alone(simulation, lambda client: transfer(client, "b", "b"), "rival")
    result = process.finish()
    assert result.versions == {"a": 2}
    assert balances(simulation)["a"][0] == 105


@pytest.mark.parametrize("features", [RI, RCTI])
@pytest.mark.parametrize("table", ["a", "b"])
def test_an_unanswered_replacement_of_an_outdated_head_is_sent_once_more(features, table):
    simulation = lake()
    process, write = unanswered(simulation, features)
    assert alone(simulation, lambda client: transfer(client, table, table), "rival") == "committed"
    assert not isinstance(simulation.store.apply(write), Stored)
    assert process.finish().global_version is not None
    assert balances(simulation)["a"][0] == 105
    invariants.no_id_commits_twice(simulation.store, ("a", "b"))


def test_an_unanswered_replacement_of_an_outdated_head_may_conflict():
    simulation = lake()
    process, write = unanswered(simulation, RI, observed=True)
    alone(simulation, without_first, "other")
    alone(simulation, lambda client: transfer(client, "b", "b"), "rival")
    assert not isinstance(simulation.store.apply(write), Stored)
    with pytest.raises(ConflictError):
        process.finish()
    assert balances(simulation)["a"] == {1: 100}


@pytest.mark.parametrize("features", [RI, RCTI])
@pytest.mark.parametrize("late", [False, True])
def test_an_unanswered_replacement_is_sent_again_while_the_first_may_yet_be_stored(features, late):
    """Whichever of the two requests is stored first, the store refuses the second."""
    simulation = lake()
    process, write = unanswered(simulation, features)
    process.until(HEAD)
    again = process.next
    assert again.body != write.body
    if late:
        assert isinstance(simulation.store.apply(write), Stored)
    result = process.finish()
    assert not isinstance(simulation.store.apply(write), Stored)
    assert result.versions == {"a": 2}
    assert balances(simulation)["a"][0] == 105
    invariants.no_id_commits_twice(simulation.store, ("a", "b"))


# ------------------------------------------------------------------ Ctrl-C, everywhere


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize("features", [Feature.R, RI, RCTI], ids=str)
@pytest.mark.parametrize("moment", ["before", "after"])
@pytest.mark.parametrize("between", [False, True])
def test_a_commit_interrupted_anywhere_and_called_again_commits_once(
    kind, features, moment, between
):
    struck = 0
    for number in range(1, 100):
        simulation = made(kind)
        told = []

        def owner(client, simulation=simulation, told=told, number=number):
            txn = begin(client, features)
            yield from add_to(txn, "a", 5)
            try:
                yield from interrupted(commit(txn), number, moment)
            except KeyboardInterrupt:
                told.append("struck")
            if between:
                alone(simulation, one_more(kind), "other")
            yield from refresh(txn.context, "a")
            if told:
                result = yield from commit(txn)
                assert result.id == txn.id
            assert txn.state == "committed"
            with pytest.raises(InvalidOperation, match="has committed already"):
                yield from commit(txn)

        simulation.add("owner", owner)
        simulation.run()
        alone(simulation, lambda client: recovery.recover(context_of(client)), "recoverer")
        assert balances(simulation)["a"][0] == 105, (number, moment)
        invariants.no_id_commits_twice(simulation.store, ("a", "b"))
        struck += bool(told)
        if not told:
            break
    assert struck >= 2


# ------------------------------------------------------------------ planted bugs


@pytest.mark.cases(None)
@pytest.mark.parametrize(
    ("name", "caught"),
    [
        (
            "first_number_forgotten",
            lambda: (
                test_an_entry_stored_without_an_answer_is_found_though_its_process_has_followed_the_log(
                    "delta", False
                )
            ),
        ),
        (
            "doubt_reported_as_undone",
            test_a_conflict_after_an_interrupted_replacement_is_not_reported_as_undone,
        ),
    ],
)
def test_the_tests_find_each_planted_bug_of_a_second_commit(name, caught):
    with PLANTED[name].plant(), pytest.raises((AssertionError, ConflictError)):
        caught()
