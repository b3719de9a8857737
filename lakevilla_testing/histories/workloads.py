"""The workload of a history's clients: transactions, rerun after conflicts, and disturbances."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, Literal

from lakevilla.errors import (
    AlreadyCommitted,
    CommitOutcomeUnknown,
    ConflictError,
    CorruptObject,
    ForeignConflict,
    InvalidOperation,
    LakeVillaError,
    StoreError,
    TableExists,
    TableNotFound,
    TransactionAborted,
    TransactionNotFound,
    VersionNotFound,
)
from lakevilla.global_log.head import Head
from lakevilla.ids import NO_TXN
from lakevilla.lake.context import Context
from lakevilla.lake.publishing.outcome import fence, is_forgotten, outcome
from lakevilla.lake.publishing.publish import publish_table
from lakevilla.lake.table_log import refresh
from lakevilla.maintenance import recovery
from lakevilla.sql.expressions.parse import parse_predicate
from lakevilla.sql.expressions.render import render_sql
from lakevilla.store.effects import Program, parallel, sleep
from lakevilla.sublogs.operations import Update
from lakevilla.transaction.commit.commit import commit, end_turn_without_changes
from lakevilla.transaction.commit.together.chain import may_take_turn, take_turn
from lakevilla.transaction.state.parts import Options
from lakevilla.transaction.state.status import Status
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import Feature, KeyUse
from lakevilla.transaction.verbs import save
from lakevilla.transaction.verbs.abort import abort, rerun
from lakevilla.transaction.verbs.begin import begin
from lakevilla.transaction.verbs.bind import bind_to_head
from lakevilla.transaction.verbs.carry import carried, resumed
from lakevilla_testing.histories.attempts import Hand, Try, World, context_of
from lakevilla_testing.histories.kinds import BODIES, lists
from lakevilla_testing.histories.plan import Level
from lakevilla_testing.world.client import Client
from lakevilla_testing.world.faults import Fault
from lakevilla_testing.world.heartbeat import SimulatedHeartbeat, think
from lakevilla_testing.world.interrupts import Moment, interrupted


def user(world: World) -> Callable[[Client], Program[None]]:
    """Return a client that runs transactions as ``lake.run`` does, and sometimes works for another
    client.
    """

    def program(client: Client) -> Program[None]:
        context = context_of(client)
        context.notify = world.notice
        heartbeat = SimulatedHeartbeat(client, context.settings.lease_seconds)
        context.renewed = heartbeat.add
        epochs = client.name.count("'")
        if epochs >= 3:
            client.restart = None
        if epochs:
            yield from _quietly(recovery.recover(context))
        threads = [_thread(world, context, client, heartbeat) for _ in range(world.plan.threads)]
        yield from parallel(threads)

    return program


def _thread(
    world: World, context: Context, client: Client, heartbeat: SimulatedHeartbeat
) -> Program[None]:
    for _ in range(world.plan.transactions):
        longest = 3 * 3600.0 if world.plan.long and client.random.random() < 0.3 else 1.0
        yield from sleep(longest * client.random.random())
        kind = client.random.choice(world.plan.kinds)
        yield from _run(world, context, client, kind, heartbeat)
        if client.random.random() < 0.15:
            yield from _meddle(world, context, client, heartbeat)
        yield from _write_checkpoints(context)


def _run(
    world: World, context: Context, client: Client, kind: str, heartbeat: SimulatedHeartbeat
) -> Program[None]:
    """Run as ``lake.run`` does: rerun on conflict, under the same id; settle unknown outcomes."""
    features = client.random.choice(world.plan.features)
    levels = world.plan.levels
    level = client.random.choice(levels) if len(levels) > 1 else levels[0]
    key: tuple[str, int | None] | None = None
    if kind == "keyed":
        key = (client.random.choice(("k1", "k2")), None)
    elif kind == "numbered":
        key = ("application", world.value())
    if kind == "shared" and Feature.R not in features:
        kind = "lists"
    kept: Try | None = None
    for number in range(world.plan.attempts):
        core = None
        if kept is not None:
            escalate = number >= context.settings.escalate_after
            core = yield from _again(kept, escalate=escalate)
            if core is None:
                return
        if core is None:
            core = _begin(world, context, client, kind, features, level, key)
        attempt, ending = yield from _once(world, context, client, kind, core, key)
        kept = attempt if ending == "lost" else None
        if kept is None:
            heartbeat.drop(core)
        if ending == "over":
            return
        if kept is None or kept.core.claims.queue is None:
            yield from sleep(0.2 * 2**number * context.ids.jitter())
    if kept is not None:
        heartbeat.drop(kept.core)
        yield from _quietly(_undo(kept.core))


def _again(old: Try, *, escalate: bool) -> Program[TransactionState | None]:
    """Return a lost attempt's transaction for another run; None if it must not run again."""
    try:
        core = yield from rerun(old.core, escalate=escalate)
    except (TransactionAborted, StoreError, CommitOutcomeUnknown):
        # Another process has resumed it, or its state is unknown: drop it.
        yield from _quietly(_undo(old.core))
        return None
    old.lost = True
    return core


def _begin(
    world: World,
    context: Context,
    client: Client,
    kind: str,
    features: Feature,
    level: Level,
    key: tuple[str, int | None] | None,
) -> TransactionState:
    floor = NO_TXN if context.held is None else context.held.head.floor
    read_only = kind == "snapshot" and client.random.random() < 0.7
    options = Options(
        features,
        owner=client.name,
        read_only=read_only,
        isolation=level.isolation,
        validation=level.validation,
        slack=level.slack,
        defer=world.plan.combined,
        applications={} if key is None or key[1] is None else {key[0]: key[1]},
    )
    if world.plan.told:
        options = replace(options, **_told(world, client))
    core = begin(TransactionState(context, context.ids.txn_id(above=floor), options))
    core.through_head = bool(features & (Feature.I | Feature.CT)) or key is not None
    core.claims.key = None if key is None else KeyUse(*key)
    return core


def _told(world: World, client: Client) -> dict[str, Any]:
    """Return options of a transaction that no other transaction can have on its behalf."""
    number = world.value()
    draws: tuple[dict[str, Any], ...] = (
        {},
        {"metadata": {f"note {number}.": "it was"}},
        {"applications": {f"application {number}.": number}},
        {"validation": "rules"},
    )
    return client.random.choice(draws)


#: The end of one attempt: its transaction is rerun in its place, or under a new id, or not at all.
_Ending = Literal["lost", "again", "over"]


def _once(
    world: World,
    context: Context,
    client: Client,
    kind: str,
    core: TransactionState,
    key: tuple[str, int | None] | None,
) -> Program[tuple[Try, _Ending]]:
    attempt = world.begin(context, client, kind, core)
    attempt.key = key

    def body() -> Program[TransactionState]:
        if key is not None:
            yield from bind_to_head(core)
        if world.plan.chained and may_take_turn(core) and client.random.random() < 0.8:
            yield from take_turn(core, kind)
        yield from BODIES[kind](Hand(world, attempt), client)
        if kind == "shared" and core.work.done:
            yield from save.save(core)
            world.saved.append(attempt)
            if client.random.random() < 0.4:
                # Ends without an answer; any client may continue it.
                raise _GoneAwayError
            if client.random.random() < 0.5:
                yield from think(core, 3 * client.random.random())
                yield from lists(Hand(world, attempt), client)
        if kind == "carried" and core.work.done and core.claims.queue is None:
            attempt.core = yield from _carried(core, client)
        if kind == "raises" and core.turn is not None:
            yield from end_turn_without_changes(core)
        return attempt.core

    return attempt, (yield from _conclude(world, context, client, attempt, body()))


def _carried(core: TransactionState, client: Client) -> Program[TransactionState]:
    """Return the transaction in another process, some time later, unless it is never continued."""
    bundle = yield from carried(core)
    if client.random.random() < 0.2:
        raise _GoneAwayError
    yield from sleep(client.random.choice((0.1, 10.0, 200.0)) * client.random.random())
    return (yield from resumed(context_of(client), bundle, client.name))


class _GoneAwayError(Exception):
    pass


def _conclude(
    world: World, context: Context, client: Client, attempt: Try, body: Program[TransactionState]
) -> Program[_Ending]:
    """Run a body and commit its result; note the answer to the caller."""
    core = attempt.core
    again: _Ending = "again"
    try:
        core = yield from body
        decided_only = client.random.random() < (0.6 if world.plan.neglected else 0.15)
        yield from _commit(world, client, core, publish=not decided_only)
        world.end(attempt, "committed")
        if decided_only and core.ending.decided is not None and not world.plan.neglected:
            for location in core.ending.decided.summary.tables:
                publishing = publish_table(context, core.ending.decided.held.head, location)
                client.simulation.spawn(client, _quietly(publishing))
        return "over"
    except _GoneAwayError:
        return "over"
    except ConflictError:
        world.end(attempt, "aborted")
        if core.state is Status.FAILED and attempt.kind != "resumed":
            return "lost"
    except TransactionAborted:
        world.end(attempt, "aborted")
    except (TableExists, TableNotFound, InvalidOperation, VersionNotFound, CorruptObject) as error:
        torn_down = "recreate" in world.plan.foreign
        expected = attempt.kind == "lifecycle" and error.kind.startswith("table_")
        # A stale list may lack the very version that is requested.
        stale = Fault.STALE_LIST in client.simulation.fired
        expected |= error.kind == "version_not_found" and stale
        if not (torn_down or expected):
            raise
        world.end(attempt, "aborted")
        again = "over"
    except AlreadyCommitted:
        # this attempt did not commit, but the other use of the key or id has
        world.end(attempt, "aborted")
        again = "over"
    except ForeignConflict:
        attempt.foreign = True
        world.end(attempt, "committed")
        return "over"
    except CommitOutcomeUnknown:
        if not core.through_head:
            return "over"
        state = yield from _settle(world, context, core.id)
        if state == "committed" and not core.ending.shared:
            # Otherwise another process may have committed it.
            world.end(attempt, "committed")
        if state != "aborted":
            return "over"
        world.end(attempt, "aborted")
    except StoreError:
        if core.state is Status.COMMITTED:
            world.end(attempt, "committed")
            return "over"
        if core.ending.tried and core.state is not Status.FAILED:
            return "over"  # the commit itself was not refused
        world.end(attempt, "aborted")
        again = "over"
    yield from _quietly(_undo(core))
    return again


#: The greatest number of calls of one commit.
_COMMITS = 4
#: Ctrl-C strikes at one of this many requests; a commit sends few more.
_REQUESTS = 12


def _commit(
    world: World, client: Client, core: TransactionState, *, publish: bool
) -> Program[None]:
    """Commit; in some histories interrupt it by Ctrl-C, and call it again after that and after no
    answer.
    """
    if not world.plan.commits_again:
        yield from commit(core, publish=publish)
        return
    source = client.random
    for number in range(1, _COMMITS + 1):
        strikes = number < _COMMITS and source.random() < 0.5
        at = source.randint(1, _REQUESTS) if strikes else 0
        instant: Moment = source.choice(("before", "after"))
        try:
            yield from interrupted(commit(core, publish=publish), at, instant)
            return
        except KeyboardInterrupt:
            world.events["interrupted"] += 1
            if core.state is Status.COMMITTED:
                return  # interrupted while publishing: the next client continues it
            if source.random() < 0.2:
                yield from _quietly(_undo(core) if source.random() < 0.5 else core.context.head())
                raise _GoneAwayError from None
        except CommitOutcomeUnknown:
            if number == _COMMITS or core.state is not Status.OPEN:
                raise
        world.events["commit again"] += 1
        if source.random() < 0.6:
            # Other threads of the process read the new state.
            looks = [_quietly(refresh(core.context, table)) for table in core.work.tables]
            yield from parallel([*looks, _quietly(core.context.head())])
        yield from sleep(source.choice((0.0, 1.0, 100.0)) * source.random())


def _undo(core: TransactionState) -> Program[None]:
    yield from save.forget(core)
    yield from abort(core)


def _settle(world: World, context: Context, txn_id: str) -> Program[str]:
    """Query an outcome; return "unknown" where the store does not let it be settled."""
    try:
        found = yield from outcome(context, txn_id)
    except (CommitOutcomeUnknown, StoreError):
        return "unknown"
    world.verdicts.append((txn_id, found.state))
    return found.state


def _meddle(
    world: World, context: Context, client: Client, heartbeat: SimulatedHeartbeat
) -> Program[None]:
    """Resume a saved transaction, or abort another client's, or query its outcome."""
    if world.saved and client.random.random() < 0.7:
        old = client.random.choice(world.saved)
        yield from _take_over(world, context, client, old, heartbeat)
        return
    through_head = [attempt for attempt in world.attempts if attempt.core.through_head]
    if not through_head:
        return
    # By its present id: a transaction below the floor gets another id.
    victim = client.random.choice(through_head[-6:]).id
    if client.random.random() < 0.5:
        yield from _settle(world, context, victim)
        return
    try:
        found = yield from fence(context, victim)
    except (CommitOutcomeUnknown, StoreError):
        return
    if context.held is not None and not is_forgotten(context.held.head, victim):
        world.verdicts.append((victim, "aborted" if found is None else "committed"))


def _take_over(
    world: World, context: Context, client: Client, old: Try, heartbeat: SimulatedHeartbeat
) -> Program[None]:
    try:
        core = yield from save.resume(context, old.id, client.name)
    except (
        AlreadyCommitted,
        TransactionAborted,
        TransactionNotFound,
        CommitOutcomeUnknown,
        StoreError,
        TableNotFound,
        VersionNotFound,
        CorruptObject,  # its sublog is deleted once it has ended
    ):
        return
    # The sublog saved under an id is that of its newest attempt: a rerun first deletes the older
    # saved sublog, or finds that the transaction was resumed.
    old = next(a for a in reversed(world.attempts) if a.id == core.id and a.kind != "resumed")
    attempt = world.begin(context, client, "resumed", core)
    _inherit(attempt, old)

    def body() -> Program[TransactionState]:
        if client.random.random() < 0.5:
            yield from lists(Hand(world, attempt), client)
        return core

    yield from _conclude(world, context, client, attempt, body())
    heartbeat.drop(core)


def _inherit(attempt: Try, old: Try) -> None:
    """Note the work of the resumed transaction until its last save, as far as its sublog shows."""
    core = attempt.core
    attempt.record.invoked = old.record.invoked
    attempt.tables = {done.table for done in core.work.done}
    pushes = sum(isinstance(done.operation, Update) for done in core.work.done)
    seen = {f"{table} {render_sql(where)}" for table, where in core.work.reads if where is not None}
    kept = 0
    for operation in old.record.operations:
        if hasattr(operation, "value"):
            kept += 1
            if kept > pushes:
                break
        elif f"{operation.key[0]} {_of_key(int(operation.key[1:]))}" not in seen:
            continue  # the transaction read it after the save
        attempt.record.operations.append(operation)


def _of_key(key: int) -> str:
    return render_sql(parse_predicate(f"id = {key}"))


def _quietly(program: Program[Any]) -> Program[None]:
    """Run a program that may fail on a failing store without harm."""
    try:
        yield from program
    except LakeVillaError as error:
        torn_down = error.kind in ("corrupt_object", "version_not_found", "table_not_found")
        if not (torn_down or isinstance(error, StoreError | CommitOutcomeUnknown)):
            raise


def _write_checkpoints(context: Context) -> Program[None]:
    while context.checkpoints_due:
        location, version = context.checkpoints_due.popleft()
        yield from _quietly(recovery.checkpoint(context, location, version))


def head_of(world: World, client: Client) -> Program[Head | None]:
    """Return HEAD, read by a fresh process."""
    held = yield from context_of(client).head()
    return None if held is None else held.head
