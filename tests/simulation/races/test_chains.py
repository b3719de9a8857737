"""Test chains: threads that read what they change, one on what the others have left (note 69)."""

import pytest

from lakevilla.errors import ConflictError, LakeVillaError, TransactionAborted
from lakevilla.maintenance import recovery
from lakevilla.store.effects import sleep
from lakevilla.transaction.commit.commit import commit, end_turn_without_changes
from lakevilla.transaction.commit.together import chain
from lakevilla.transaction.commit.together.chain import chain_of, take_turn
from lakevilla.transaction.redo.rebase import Examination
from lakevilla_testing.checks import invariants
from lakevilla_testing.histories.attempts import context_of
from lakevilla_testing.histories.exhaustive import crash_everywhere
from lakevilla_testing.tables.reader import table_rows
from lakevilla_testing.world.faults import Fault, NoFaults
from lakevilla_testing.world.interrupts import interrupted
from tests.support.search import STRIDE
from tests.support.simulated.commits import (
    TABLES,
    alone,
    balances,
    begin,
    end,
    lake,
    read,
    set_to,
)
from tests.support.simulated.threads import AtHead, asking, process, recover
from tests.support.simulated.transfers import check_whole_or_absent, commits, moved

THREADS = 4
AMOUNTS = (1, 10, 100, 1000)


def move(txn, amount):
    """Read both balances, and write what the caller computes of them."""
    with txn.turn.used():
        source = (yield from read(txn, "a", "id = 0"))[0]
        target = (yield from read(txn, "b", "id = 0"))[0]
        yield from set_to(txn, "a", source + amount)
        yield from set_to(txn, "b", target - amount)
    return source


def once(context, client, amount, begun=None, wait=0.0):
    """Move an amount in a turn; return "lost" if the transaction must run again."""
    txn = begin(client, context=context)
    if begun is not None:
        begun[amount] = txn
    try:
        assert (yield from take_turn(txn, "move"))
        yield from move(txn, amount)
        yield from sleep(wait)
        yield from commit(txn)
    except (ConflictError, TransactionAborted):
        yield from end(txn)
        return "lost"
    except BaseException:
        txn.turn and txn.turn.give_back()
        raise
    return "committed"


def moving(context, client, amount):
    """Move an amount, again after each conflict, as ``lake.run`` does."""
    for number in range(10):
        if (yield from once(context, client, amount)) == "committed":
            return "committed"
        yield from sleep(0.2 * 2**number * client.random.random())
    return "lost"


def moves(work=moving, amounts=AMOUNTS, **given):
    return [
        lambda context, client, amount=amount: work(context, client, amount, **given)
        for amount in amounts
    ]


# ------------------------------------------------------------- going together


@pytest.mark.parametrize("iceberg", [(), TABLES, ("b",)])
def test_threads_that_read_what_they_change_commit_together_and_run_once(iceberg):
    for seed in range(4):
        simulation = lake(seed=seed, iceberg=iceberg)
        client = simulation.add("threads", process(*moves(once)))
        simulation.run()
        assert client.result == ["committed"] * THREADS
        assert moved(simulation) == sum(AMOUNTS)
        made = commits(simulation)
        assert sum(len(one.members) for one in made) == THREADS
        assert len(made) < THREADS
        invariants.tables_follow_head(simulation.store, TABLES)
        invariants.no_id_commits_twice(simulation.store, TABLES)


def test_the_chain_is_refused_as_a_whole_if_another_process_changes_what_a_member_has_read():
    simulation = lake()

    def program(client):
        context = context_of(client)
        txns = [begin(client, context=context) for _ in range(2)]
        for txn in txns:
            yield from take_turn(txn, "move")
            yield from move(txn, 1)
            if txn is txns[0]:
                own = chain_of(context)
                link = chain.Waiting(txn, 0)
                txn.turn.waiting = link
                own.end_turn(txn.turn, undo=False)
        rival = begin(client)
        yield from set_to(rival, "a", 7)
        yield from commit(rival)
        lost = []
        for txn in reversed(txns):
            with pytest.raises(ConflictError, match=f"transaction {txn.id} was performed after"):
                yield from commit(txn)
            lost.append(txn.state)
        return lost

    client = simulation.add("threads", program)
    simulation.run()
    assert client.result == ["failed", "failed"]
    assert balances(simulation)["a"][0] == 7


def test_processes_that_chain_their_threads_lose_no_update_to_each_other():
    for seed in range(6):
        simulation = lake(seed=seed)
        names = [("one", AMOUNTS), ("two", tuple(10_000 * n for n in AMOUNTS))]
        clients = [simulation.add(name, process(*moves(amounts=of))) for name, of in names]
        simulation.run()
        found = [one for client in clients for one in client.result]
        committed = sum(
            amount
            for (_, of), client in zip(names, clients, strict=True)
            for amount, one in zip(of, client.result, strict=True)
            if one == "committed"
        )
        assert found.count("committed") >= THREADS
        assert moved(simulation) == committed
        invariants.no_id_commits_twice(simulation.store, TABLES)


# ------------------------------------------------------- what gets out


def looking(context, client, *, seen):
    """Read what those before have left, and raise an error of its own."""
    yield from sleep(0.001)
    txn = begin(client, context=context)
    yield from take_turn(txn, "look")
    with txn.turn.used():
        seen.append((yield from read(txn, "a", "id = 0"))[0])
        yield from set_to(txn, "a", 0)
    try:
        yield from end_turn_without_changes(txn)
    except ConflictError:
        yield from end(txn)
        return "runs again"
    yield from end(txn)
    return "raises"


@pytest.mark.parametrize("refused", [False, True])
def test_an_error_of_a_function_gets_out_only_if_what_it_has_read_is_committed(
    refused, monkeypatch
):
    simulation = lake()
    if refused:

        def examine(txn, head, **given):
            yield from ()
            return Examination(conflict=ConflictError("another was faster"))

        monkeypatch.setattr("lakevilla.transaction.commit.together.join.examine", examine)
    seen = []
    threads = moves(once, amounts=(1,), wait=2.0)
    client = simulation.add("threads", process(*threads, lambda c, k: looking(c, k, seen=seen)))
    simulation.run()
    assert seen == [101], "it has read what the thread before has left"
    assert client.result == (["lost", "runs again"] if refused else ["committed", "raises"])
    assert moved(simulation) == (0 if refused else 1)


def test_rows_that_were_only_read_are_compared_with_the_newest_head():
    simulation = lake()

    def program(client):
        context = context_of(client)
        txn = begin(client, context=context)
        yield from take_turn(txn, "look")
        with txn.turn.used():
            yield from read(txn, "a", "id = 0")
        rival = begin(client)
        yield from set_to(rival, "a", 7)
        yield from commit(rival)
        with pytest.raises(ConflictError, match="what it has read has changed"):
            yield from commit(txn)
        again = begin(client, context=context)
        yield from take_turn(again, "look")
        found = yield from read(again, "a", "id = 0")
        yield from commit(again)
        return found

    client = simulation.add("threads", program)
    simulation.run()
    assert client.result == {0: 7}


# ------------------------------------------------------------------ the turn


def test_the_chain_goes_on_without_a_transaction_that_keeps_its_turn():
    simulation = lake()
    kept = []

    def keeps(context, client):
        txn = begin(client, context=context)
        yield from take_turn(txn, "slow")
        yield from move(txn, 5)
        yield from sleep(3600)
        with pytest.raises(ConflictError, match=r"kept others .* waiting for more than 5 s"):
            yield from commit(txn)
        kept.append(chain_of(context).has_conflicts(context, "slow"))
        return "over time"

    client = simulation.add("threads", process(keeps, *moves(once)))
    simulation.run()
    assert client.result == ["over time"] + ["committed"] * THREADS
    assert moved(simulation) == sum(AMOUNTS), "nothing of the slow one stays"
    assert kept == [False]


def test_members_do_not_wait_for_a_verb_that_takes_very_long():
    simulation = lake()

    def keeps(context, client):
        yield from sleep(0.001)
        txn = begin(client, context=context)
        yield from take_turn(txn, "slow")
        with txn.turn.used():
            yield from read(txn, "a", "id = 0")
            yield from set_to(txn, "a", 5)
            yield from sleep(3600)
            yield from set_to(txn, "b", 5)
        with pytest.raises(ConflictError, match=r"kept others .* waiting"):
            yield from commit(txn)
        yield from end(txn)
        return "over time"

    def timed(context, client, amount):
        began = context.clock.elapsed()
        done = yield from moving(context, client, amount)
        return done, context.clock.elapsed() - began < 60

    first, *others = moves(timed)
    client = simulation.add("threads", process(first, keeps, *others))
    simulation.run()
    assert client.result == [("committed", True), "over time"] + [("committed", True)] * 3
    assert moved(simulation) == sum(AMOUNTS), "nothing of the slow one stays"
    invariants.no_id_commits_twice(simulation.store, TABLES)


def test_a_turn_that_is_given_back_leaves_nothing_in_the_chain():
    simulation = lake()

    def leaves(context, client):
        txn = begin(client, context=context)
        yield from take_turn(txn, "move")
        yield from move(txn, 5)
        yield from end(txn)
        return "left"

    client = simulation.add("threads", process(*moves(once)[:2], leaves, *moves(once)[2:]))
    simulation.run()
    assert client.result == ["committed", "committed", "left", "committed", "committed"]
    assert moved(simulation) == sum(AMOUNTS)


def test_a_members_reads_are_validated_though_a_later_transaction_has_left_the_chain():
    simulation = lake()

    def program(client):
        context = context_of(client)
        first, second = (begin(client, context=context) for _ in range(2))
        yield from take_turn(first, "move")
        with first.turn.used():
            yield from read(first, "a", "id = 0")
            yield from set_to(first, "b", 7)
        link = chain.Waiting(first, 0)
        first.turn.waiting = link
        chain_of(context).end_turn(first.turn, undo=False)
        yield from take_turn(second, "move")
        yield from move(second, 1)
        yield from end(second)
        rival = begin(client)
        yield from set_to(rival, "a", 7)
        yield from commit(rival)
        with pytest.raises(ConflictError, match=f"transaction {first.id} was performed after"):
            yield from commit(first)

    simulation.add("threads", program)
    simulation.run()
    assert balances(simulation)["b"][0] != 7


def _leaves_behind(context, client, monkeypatch, *, holder):
    """Interrupt the only member of a chain, while another transaction has the turn or none has."""
    first, second = (begin(client, context=context) for _ in range(2))
    yield from take_turn(first, "move")
    yield from move(first, 1)
    asks = take_turn(second, "move")
    if holder:
        next(asks)  # it asks for the turn, and gets that when the first one commits
        commits_first = commit(first)
        next(commits_first)
        with pytest.raises(KeyboardInterrupt):
            commits_first.throw(KeyboardInterrupt)
        with pytest.raises(StopIteration, match="True"):
            next(asks)
        yield from end(second)
    else:
        own = chain_of(context)
        with monkeypatch.context() as patch:
            ends = own.end_turn

            def interrupted_after(turn, *, undo):
                ends(turn, undo=undo)
                raise KeyboardInterrupt

            patch.setattr(own, "end_turn", interrupted_after)
            with pytest.raises(KeyboardInterrupt):
                yield from commit(first)
    yield from end(first)


@pytest.mark.parametrize("holder", [True, False])
def test_a_chain_whose_members_have_all_left_keeps_nobody_waiting(holder, monkeypatch):
    simulation = lake()

    def program(client):
        context = context_of(client)
        yield from _leaves_behind(context, client, monkeypatch, holder=holder)
        yield from sleep(chain._CHAIN_SECONDS + 1)
        began = context.clock.elapsed()
        done = yield from once(context, client, 10)
        return done, context.clock.elapsed() - began < 1

    client = simulation.add("threads", program)
    simulation.run()
    assert client.result == ("committed", True)
    assert moved(simulation) == 10


def test_a_member_that_has_only_read_has_the_version_in_which_that_is_true():
    simulation = lake()
    results = {}

    def reads(context, client):
        yield from sleep(0.001)
        txn = begin(client, context=context)
        yield from take_turn(txn, "look")
        with txn.turn.used():
            found = yield from read(txn, "a", "id = 0")
        results["read"] = yield from commit(txn)
        return found

    threads = moves(once, amounts=(1,), wait=2.0)
    client = simulation.add("threads", process(*threads, reads))
    simulation.run()
    assert client.result == ["committed", {0: 101}]
    assert results["read"].global_version == commits(simulation)[-1].sequence


def test_a_chain_is_refused_if_it_was_moved_in_a_turn_of_which_nothing_is_left():
    simulation = lake()

    def program(client):
        context = context_of(client)
        first, second = (begin(client, context=context) for _ in range(2))
        yield from take_turn(first, "move")
        yield from move(first, 1)
        asks = take_turn(second, "move")
        next(asks)
        commits_first = commit(first)
        waits = next(commits_first)
        with pytest.raises(StopIteration, match="True"):
            next(asks)
        other = begin(client)
        yield from set_to(other, "b", 5, 1)
        yield from commit(other)
        second.bound.held = yield from context.head()
        second.turn.give_back()
        assert waits.gate.is_open
        with pytest.raises(ConflictError, match="it was moved halfway"):
            yield from commits_first
        yield from end(first)
        return (yield from once(context, client, 10))

    client = simulation.add("threads", program)
    simulation.run()
    assert client.result == "committed"


@pytest.mark.parametrize("instant", ["before", "after"])
def test_an_interrupted_leader_commits_nothing_that_it_has_not_redone(instant):
    """Another process has rewritten the file, and the leader's caller commits again at once."""
    ends = set()
    for at in range(16, 20):
        simulation = lake()

        def committed(txn, *attempts):
            try:
                for attempt in attempts:
                    try:
                        return (yield from attempt) and "committed"
                    except KeyboardInterrupt:
                        continue
            except ConflictError:
                yield from end(txn)
                return "lost"

        def leading(context, client, at=at):
            txn = begin(client, context=context)
            yield from take_turn(txn, "move")
            yield from move(txn, 1)
            return (yield from committed(txn, interrupted(commit(txn), at, instant), commit(txn)))

        def following(context, client):
            txn = begin(client, context=context)
            yield from take_turn(txn, "move")
            yield from move(txn, 10)
            other = begin(client)
            yield from set_to(other, "a", 7, 1)
            yield from commit(other)
            return (yield from committed(txn, commit(txn)))

        client = simulation.add("threads", process(leading, following))
        simulation.run()
        ends.add(tuple(client.result))
        gained = 11 if client.result[1] == "committed" else 0
        rows = sorted((row["id"], row["balance"]) for row in table_rows(simulation.store, "a"))
        assert rows == [(0, 100 + gained), (1, 7)], (at, client.result)
    assert ends == {("committed", "committed"), ("lost", "lost")}


# ------------------------------------------------------------------ mishaps


def test_a_crash_of_the_process_at_any_request_leaves_each_member_whole_or_absent():
    def setting(faults, schedule):
        simulation = lake(faults, schedule)
        simulation.add("owner", process(*moves(once, AMOUNTS[:3])), restart=recover)
        return simulation

    assert crash_everywhere(setting, check_whole_or_absent, "owner", every=STRIDE) > 20 // STRIDE


@pytest.mark.parametrize("fault", [Fault.APPLIED_503, Fault.APPLIED_CUT, Fault.DELAYED_WRITE])
@pytest.mark.parametrize("times", [1, 2, 4])
def test_a_lost_acknowledgement_is_settled_for_all_members(fault, times):
    simulation = lake(NoFaults())
    simulation.faults = AtHead(fault, times)
    client = simulation.add("threads", process(*moves()))
    simulation.run()
    simulation.land_delayed_writes()
    assert client.result == ["committed"] * THREADS
    assert moved(simulation) == sum(AMOUNTS)
    invariants.no_id_commits_twice(simulation.store, TABLES)


def _ctrl_c(at, instant, begun, amount, *, again):
    """Interrupt a thread at its effect ``at``; then commit it again, or end it."""

    def program(context, client):
        try:
            return (yield from interrupted(once(context, client, amount, begun), at, instant))
        except KeyboardInterrupt:
            txn = begun[amount]
            if again and txn.state == "open" and txn.turn is not None and txn.turn.waiting:
                try:
                    yield from commit(txn)
                except LakeVillaError:
                    yield from end(txn)
                    return "lost"
                return "committed"
            yield from end(txn)
            return "never" if not txn.ending.tried else "unknown"

    return program


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("instant", ["before", "after"])
@pytest.mark.parametrize("struck", [0, 1, 3])
def test_ctrl_c_in_one_thread_neither_stops_nor_repeats_the_work_of_the_others(
    struck, instant, again
):
    endings = set()
    for at in range(1, 60):
        simulation = lake(seed=at)
        begun = {}
        threads = moves()
        mine = AMOUNTS[struck]
        threads[struck] = _ctrl_c(at, instant, begun, mine, again=again)
        client = simulation.add("threads", process(*threads))
        simulation.run()
        results = list(client.result)
        ending = results.pop(struck)
        endings.add(ending)
        assert results == ["committed"] * (THREADS - 1)
        alone(simulation, lambda client: recovery.recover(context_of(client)), "other")
        there = moved(simulation) - (sum(AMOUNTS) - mine)
        assert there in (0, mine)
        assert ending != "committed" or there
        assert ending not in ("never", "lost") or not there
        told = alone(simulation, asking(begun[mine].id), "asker")
        assert told.state == ("committed" if there else "aborted")
        invariants.no_id_commits_twice(simulation.store, TABLES)
    assert endings >= {"never", "committed"}
