"""Test a store that creates objects but can't replace them: HEAD is a log there.

See ``docs/design/0009-head-as-a-log.md``. A test with a parameter ``form`` also runs with a HEAD
that is replaced.
"""

import random
from collections import Counter
from contextlib import contextmanager, suppress
from dataclasses import replace

import msgspec
import pytest

from lakevilla.errors import (
    AlreadyCommitted,
    CommitOutcomeUnknown,
    ConflictError,
    InvalidOperation,
    StoreError,
)
from lakevilla.global_log import head_log, keys, numbered_log, repo
from lakevilla.global_log.head import HEAD_KEY
from lakevilla.global_log.repo import load_head
from lakevilla.lake.publishing.outcome import outcome
from lakevilla.maintenance import recovery
from lakevilla.maintenance.gc import gc
from lakevilla.settings import Settings
from lakevilla.store.base import ANY, Absent
from lakevilla.store.codec import encode
from lakevilla.store.effects import List, Put, delete, put, sleep
from lakevilla.transaction.commit.commit import commit
from lakevilla.transaction.state.late_reads import is_due
from lakevilla.transaction.state.values import Feature, KeyUse
from lakevilla.transaction.verbs import save
from lakevilla.transaction.verbs.bind import bind_to_head
from lakevilla_testing.histories import campaign
from lakevilla_testing.histories.attempts import context_of
from lakevilla_testing.histories.plan import draw
from lakevilla_testing.planted.bugs import instead
from lakevilla_testing.tables.reader import run_now
from lakevilla_testing.world.faults import (
    Fault,
    NoFaults,
    RandomFaults,
    ScriptedFaults,
    Strike,
    outages,
    swarm,
)
from lakevilla_testing.world.scheduler import Simulation
from lakevilla_testing.world.schedules import PrioritySchedule, RandomSchedule
from tests.support.search import WHOLE, how_many
from tests.support.simulated.commits import RCTI, Process, add_to, alone, balances, begin, end, lake

RI = (Feature.R | Feature.I,)
FORMS = pytest.mark.parametrize("form", ["replaced", "log"])


@contextmanager
def searching_early():
    """Search a log of four entries as if it had a thousand."""
    before, numbered_log._PAGE = numbered_log._PAGE, 4
    try:
        yield
    finally:
        numbered_log._PAGE = before


def history(seed, rates=None, **changes):
    """Play one history on a store that only creates; return its outcome and error."""
    plan = draw(seed)
    # Saving and queues need records that are replaced, which such a store refuses.
    kinds = tuple(kind for kind in plan.kinds if kind != "shared") or ("transfer",)
    mixes = tuple(f for f in plan.features if Feature.CT not in f) or RI
    plan = replace(plan, **{"features": mixes, "kinds": kinds, **changes})
    schedule, faults = random.Random(f"{seed}/schedule"), random.Random(f"{seed}/faults")
    if rates is None:
        lost = outages(random.Random(f"{seed}/outages"), plan.intensity)
        rates = {**swarm(faults, plan.intensity), **lost} if plan.intensity else {}
    simulation = Simulation(
        seed,
        schedule=PrioritySchedule(schedule) if seed % 2 else RandomSchedule(schedule),
        faults=RandomFaults(rates, faults, plan.settings.lease_seconds) if rates else NoFaults(),
        settings=plan.settings,
        content_tags=plan.content_tags,
        clock_rates=seed % 3 == 0,
    )
    simulation.store.replaces = False
    with searching_early():
        outcome, _, error = campaign.replay(seed, plan=plan, simulation=simulation)
    return outcome, error


def heads_of(store):
    return sorted(key for key in store.objects if head_log.is_head(key))


BLOCK = how_many(1, whole=40)


@pytest.mark.parametrize("first", range(0, how_many(1, whole=120), BLOCK))
def test_every_invariant_holds_where_head_is_a_log(first):
    """Draw all faults, clients without LakeVilla, gc, and idempotency keys."""
    fired, ended, longest = Counter(), Counter(), 0
    for seed in range(first, first + BLOCK):
        outcome, error = history(seed)
        assert error is None, f"seed {seed} as this test draws it: {error}"
        fired += outcome.fired
        ended += Counter(status.rsplit(" ", 1)[1] for status in outcome.ended.elements())
        longest = max(longest, len(heads_of(outcome.store)))
        assert any(
            key.startswith(head_log.HEADS_PREFIX) for key in outcome.store.objects
        ) or not any(mutation.key == HEAD_KEY for mutation in outcome.store.journal)
        written = Counter(m.key for m in outcome.store.journal if head_log.is_head(m.key))
        assert set(written.values()) <= {1}, "no HEAD is ever written twice, or deleted"
    if WHOLE:
        assert longest > 10
        assert fired.keys() == set(Fault)
        assert ended["committed"] > ended["aborted"] > 0


def test_every_invariant_holds_for_isolated_transactions_with_gc_and_short_retention():
    for seed in range(how_many(1, whole=15)):
        settings = Settings(max_age_seconds=60.0, outcome_retention_seconds=120.0)
        changes = {"features": RI, "collects": True, "short": True, "settings": settings}
        _, error = history(1000 + seed, kinds=("transfer", "keyed", "numbered"), **changes)
        assert error is None, f"seed {1000 + seed} as this test draws it: {error}"


# -- planted bugs ----------------------------------------------------------------------


def _hint_trusted():
    """Plant a bug: a process takes the HEAD that it has read last for the newest."""
    original = head_log.newest_head

    def newest_head(known, *, is_far):
        if not is_far:
            return None
        return (yield from original(known, is_far=True))

    return instead(original, newest_head)


def _list_trusted():
    """Plant a bug: a process takes a list for complete."""
    original = head_log.newest

    def newest(prefix, known, *, is_far=False):
        number = yield from numbered_log._search(prefix, known)
        if number == known:
            return None
        return number, (yield from numbered_log.get(numbered_log.entry_key(prefix, number)))

    return instead(original, newest)


def _head_overwritten():
    """Plant a bug: a client writes the next number unconditionally."""

    def replace_head(held, successor):
        return (yield from put(head_log.head_key(successor), encode(successor), ANY))

    return instead(repo.replace_head, replace_head)


def _key_overwritten():
    """Plant a bug: a client writes a key's next use unconditionally."""
    original = keys.put_key

    def put_key(name, held, record):
        if held is None:
            return (yield from original(name, held, record))
        key = numbered_log.entry_key(name.removesuffix(".json"), held.number + 1)
        record = msgspec.structs.replace(record, as_log=True)
        return (yield from put(key, encode(record), ANY))

    return instead(original, put_key)


def _old_heads_deleted():
    """Plant a bug: gc deletes the heads that were replaced, and a late create succeeds."""
    original = gc.gc

    def cleaned(context, *, dry_run=False):
        report = yield from original(context, dry_run=dry_run)
        for number in range(1, context.held.head.replacement):
            yield from delete(numbered_log.entry_key(head_log.HEADS_PREFIX, number))
        return report

    return instead(original, cleaned)


@pytest.mark.cases(None)
@pytest.mark.parametrize(
    ("plant", "first", "focus"),
    [
        (_hint_trusted, 1, {}),
        (_list_trusted, 5, {"rates": {Fault.STALE_LIST: 0.5}}),
        (_head_overwritten, 0, {}),
        (_old_heads_deleted, 0, {"collects": True}),
        (_key_overwritten, 0, {"kinds": ("keyed",), "attempts": 5}),
    ],
    ids=lambda value: getattr(value, "__name__", "").strip("_"),
)
def test_histories_find_each_planted_bug_of_a_head_log(plant, first, focus):
    changes = {"features": RI, "kinds": ("transfer", "lists", "add"), "foreign": (), **focus}
    changes = {"collects": False, "long": False, "intensity": 1.0, **changes}
    with plant():
        for seed in range(first, first + 200):
            if history(seed, **changes)[1] is not None:
                return
    raise AssertionError("not found in 200 histories")


# -- lost answers ------------------------------------------------------------------------


class Lossy(NoFaults):
    """Lose all answers to one client from its nth request on, for ``count`` requests."""

    def __init__(self, name, first, count, fault):
        self._name, self._numbers = name, range(first, first + count)
        self._fault = fault

    def strike(self, client, number, attempt):
        if client != self._name or number not in self._numbers:
            return None
        if not isinstance(attempt, Put):
            return Strike(Fault.REFUSED_503)
        return Strike(self._fault)


def made(form, faults=None, **options):
    """Return a lake with HEAD in this form, its tables in HEAD, and faults for one client."""
    simulation = lake(None, **options)
    if form == "log":
        # A client of a store that only creates makes the lake again.
        fresh = lake(None, warm=False, **options)
        fresh.store.replaces = False
        alone(fresh, warm_up, "setup")
        simulation = fresh
    simulation.faults = faults or NoFaults()
    return simulation


def warm_up(client):
    txn = begin(client)
    for table in ("a", "b"):
        yield from add_to(txn, table, 0)
    yield from commit(txn)


def transferring(key="k", told=None):
    """Make one transfer with a key, and settle it if its outcome is unknown."""

    def program(client):
        context = context_of(client)
        txn = begin(client, context=context)
        txn.claims.key = KeyUse(key, None)
        try:
            yield from bind_to_head(txn)
            yield from add_to(txn, "a", -1)
            yield from add_to(txn, "b", 1)
            yield from commit(txn)
        except CommitOutcomeUnknown:
            yield from sleep(3600)
            return (yield from outcome(context, txn.id)).state
        except AlreadyCommitted:
            return "done already"
        except (StoreError, ConflictError):
            with suppress(StoreError):  # gc deletes what is left
                yield from end(txn)
            return "aborted"
        return "committed"

    return program


def requests_of_a_transfer(form):
    simulation = made(form)
    client = simulation.add("mover", transferring())
    simulation.run()
    assert client.result == "committed"
    return client.requests


def moved(simulation):
    """Return how often a transfer moved one from a to b, as a reader without LakeVilla sees it."""
    client = Simulation(9)
    client.store = simulation.store
    client.now = simulation.now
    alone(client, lambda c: recovery.recover(context_of(c)), "recoverer")
    found = balances(simulation)
    assert found["a"][0] + found["b"][0] == 200, "all or nothing"
    return found["b"][0] - 100


def used_again(simulation, name="again"):
    """Run the same transfer under the same key in a new process."""
    simulation.faults = NoFaults()
    client = simulation.add(name, transferring())
    simulation.run()
    return client.result


@FORMS
@pytest.mark.parametrize("fault", [Fault.APPLIED_CUT, Fault.APPLIED_503])
def test_a_transfer_commits_once_though_the_answer_to_any_request_is_lost(form, fault):
    struck = 0
    for number in range(1, requests_of_a_transfer(form) + 1):
        simulation = made(form, ScriptedFaults({("mover", number): Strike(fault)}))
        client = simulation.add("mover", transferring())
        simulation.run()
        struck += simulation.fired[fault]
        assert client.result == "committed", number
        assert moved(simulation) == 1, number
        assert used_again(simulation) == "done already", number
        assert moved(simulation) == 1, number
    assert struck >= 5


@FORMS
@pytest.mark.parametrize("landing", ["now", "later", "never"])
def test_a_transfer_of_a_client_that_dies_at_any_request_commits_once_with_the_next_client(
    form, landing
):
    """The answer to its replacement of HEAD is lost, too; only the key shows the transfer."""
    ended = Counter()
    for number in range(1, requests_of_a_transfer(form) + 1):
        simulation = made(form, ScriptedFaults({("mover", number): Strike(Fault.CRASH, landing)}))
        simulation.add("mover", transferring())
        simulation.run()
        ended[used_again(simulation)] += 1
        simulation.land_delayed_writes()
        assert moved(simulation) == 1, number
        assert used_again(simulation, "and again") == "done already"
        assert moved(simulation) == 1, number
    assert ended["committed"] > 0
    assert ended["done already"] > 0
    assert ended.keys() == {"committed", "done already"}


@FORMS
@pytest.mark.parametrize("lands", [True, False])
def test_an_outcome_that_is_unknown_for_long_is_settled_by_head_in_the_end(form, lands):
    """Retries and read-backs fail too: the outcome is unknown until a client can read again."""
    fault = Fault.APPLIED_CUT if lands else Fault.REFUSED_503
    told = Counter()
    for number in range(1, requests_of_a_transfer(form) + 1):
        simulation = made(form, Lossy("mover", number, 60, fault))
        client = simulation.add("mover", transferring())
        simulation.run()
        told[client.result] += 1
        times = moved(simulation)
        assert times == (client.result == "committed"), (number, client.result)
        assert used_again(simulation) == ("done already" if times else "committed")
        assert moved(simulation) == 1, number
    assert told["committed"] > 0
    assert told["aborted"] > 0


@FORMS
def test_a_late_replacement_of_an_outdated_head_changes_nothing(form):
    """Scenario 1: a client gives a replacement up, and it arrives after another one of the same
    HEAD.
    """
    simulation = made(form)
    mover = Process(simulation, transferring("late"), "late")
    word = "HEAD.json" if form == "replaced" else "heads/"
    mover.until(word)
    late = mover.next
    assert alone(simulation, transferring("other"), "other") == "committed"
    before = dict(simulation.store.objects)
    answer = simulation.store.put(late.key, late.body, late.condition)
    assert answer.__class__.__name__ == "Refused"
    assert simulation.store.objects == before
    assert mover.finish() == "committed", "it finds the other's, and goes on from there"
    assert moved(simulation) == 2


# -- one form of HEAD for ever -----------------------------------------------------------


def adding(table, replaces):
    """Commit by a client that takes its store for one that replaces, or for one that
    only creates.
    """

    def asked():
        yield from ()
        return replaces

    def program(client):
        context = context_of(client)
        context.replaces = asked
        for _ in range(8):
            txn = begin(client, context=context)
            try:
                yield from add_to(txn, table, 1)
                yield from commit(txn)
                return context.held.head.as_log
            except ConflictError:
                yield from end(txn)
        raise AssertionError("eight conflicts in a row")

    return program


def test_clients_that_make_a_lake_at_once_agree_on_the_form_of_its_head():
    """Clients create the first HEAD under one key, whichever form it names: so there
    are never two.
    """
    forms = Counter()
    count = how_many(16, whole=60)
    for seed in range(count):
        simulation = lake(None, seed=seed, warm=False)
        simulation.schedule = RandomSchedule(random.Random(seed))
        clients = [
            simulation.add("through a gateway", adding("a", False)),
            simulation.add("directly", adding("b", True)),
            simulation.add("later", adding("a", seed % 2 == 0)),
        ]
        simulation.run()
        [form] = {client.result for client in clients}
        forms[form] += 1
        written = {m.key for m in simulation.store.journal if head_log.is_head(m.key)}
        assert (written == {HEAD_KEY}) != form
        held = run_now(simulation.store, load_head())
        assert len(held.head.commits) == 3
        assert balances(simulation)["a"][0] == 102
        assert balances(simulation)["b"][0] == 101
    assert min(forms[True], forms[False]) > count // 12


def test_a_client_whose_store_replaces_appends_where_head_is_a_log():
    simulation = made("log")
    simulation.store.replaces = True
    assert alone(simulation, adding("a", True), "able")
    assert all(
        isinstance(mutation.after, tuple) and mutation.before is None
        for mutation in simulation.store.journal
        if head_log.is_head(mutation.key)
    )


def test_a_client_whose_store_only_creates_is_refused_where_head_is_replaced():
    simulation = made("replaced")
    simulation.store.replaces = False
    before = dict(simulation.store.objects)

    def program(client):
        try:
            yield from adding("a", False)(client)
        except (StoreError, CommitOutcomeUnknown) as error:
            return error.message
        return "written"

    client = simulation.add("unable", program)
    simulation.run()
    assert "rejected put" in client.result
    after = simulation.store.objects
    assert after[HEAD_KEY] == before[HEAD_KEY]
    assert not any(key.startswith(head_log.HEADS_PREFIX) for key in after)


# -- costs and limits --------------------------------------------------------------------


def test_an_unchanged_head_costs_one_get_and_a_lost_race_no_list():
    simulation = made("log")
    reader = context_of(Process(simulation, lambda c: sleep(0), "reader").client)
    run_now(simulation.store, reader.head())
    seen = []

    def spy(effect):
        seen.append(effect)
        return apply(effect)

    apply, simulation.store.apply = simulation.store.apply, spy
    before = reader.held
    assert run_now(simulation.store, reader.head()) is before
    assert [type(effect).__name__ for effect in seen] == ["Get"]
    simulation.store.apply = apply

    mover = Process(simulation, transferring("slow"), "slow").until("heads/")
    assert alone(simulation, transferring("quick"), "quick") == "committed"
    requests = []
    while not mover.done:
        request, _ = mover.step()
        requests.append(request)
    assert mover.result == "committed"
    assert not any(isinstance(r, List) and head_log.HEADS_PREFIX in r.prefix for r in requests)
    lost, won = (
        n
        for n, r in enumerate(requests)
        if isinstance(r, Put) and head_log.is_head(r.key) and isinstance(r.condition, Absent)
    )
    assert lost == 0
    between = [r for r in requests[lost + 1 : won] if head_log.is_head(getattr(r, "key", ""))]
    assert len(between) == 2, "the one that came first, and that nothing came after it"


def test_queues_and_saves_are_refused_on_a_head_log_by_an_error_that_names_them():
    simulation = made("log")

    def program(client):
        context = context_of(client)
        txn = begin(client, RCTI, context)
        try:
            yield from add_to(txn, "a", 1)
        except InvalidOperation as error:
            queued = error.message
        yield from end(txn)
        txn = begin(client, context=context)
        yield from add_to(txn, "a", 1)
        try:
            yield from save.save(txn)
        except StoreError as error:
            saved = error.message
        client.simulation.now += 100
        assert not is_due(txn)
        yield from commit(txn)
        return queued, saved

    client = simulation.add("client", program)
    simulation.run()
    queued, saved = client.result
    assert "Feature.CT" in queued
    assert "can't be saved" in saved
    assert balances(simulation)["a"][0] == 101
    left = [key for key in simulation.store.objects if "/txns/" in key or "/markers/" in key]
    assert left == []


def test_a_key_is_reused_again_and_again_and_each_use_is_kept():
    """A stream uses ``(application, version)``; gc in between settles uses that HEAD forgets."""
    simulation = made("log")
    simulation.settings = Settings(max_age_seconds=60.0, outcome_retention_seconds=120.0)

    def used(version):
        def program(client):
            context = context_of(client)
            key = KeyUse("stream", version)
            txn = begin(client, context=context, key=key, applications={"stream": version})
            try:
                yield from bind_to_head(txn)
                yield from add_to(txn, "a", 1)
                yield from commit(txn)
            except AlreadyCommitted:
                yield from end(txn)
                return "done already"
            yield from sleep(1000)
            yield from gc.gc(context)
            return "committed"

        return program

    for version in range(8):
        for name in ("first", "second"):
            wanted = "committed" if name == "first" else "done already"
            assert alone(simulation, used(version), f"{name} {version}") == wanted
    assert balances(simulation)["a"][0] == 108
    assert alone(simulation, used(3), "late") == "done already"
    uses = [m.key for m in simulation.store.journal if m.key.startswith(keys.KEYS_PREFIX)]
    assert len(uses) == len(set(uses)) > 8, "each was created, none replaced"
    [first] = [key for key in uses if key.count("/") == 2]
    log = [numbered_log.entry_key(first.removesuffix(".json"), n) for n in range(1, len(uses))]
    assert uses == [first, *log]
