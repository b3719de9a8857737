"""Begin transactions, run a function in them until one commits, and settle them by their ids."""

from __future__ import annotations

import inspect
import math
import threading
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial, wraps
from inspect import isasyncgenfunction, iscoroutinefunction, isgeneratorfunction
from typing import Any, Literal, TypeVar, get_args

from lakevilla.api.arguments import check_choice, check_flag, check_metadata, check_number
from lakevilla.api.client.client import LakeClient
from lakevilla.api.execution.executor import Executor
from lakevilla.api.execution.inserting import outcome_in_base, refuse_in_base
from lakevilla.api.frame import Frame
from lakevilla.display import HtmlList
from lakevilla.engines.spark.planned import Read, digest_of_plan, reader_below, reader_of_query
from lakevilla.engines.spark.streams import called_by_spark, checkpoint_of, session_of_connect
from lakevilla.errors import (
    AlreadyCommitted,
    CommitOutcomeUnknown,
    ConflictError,
    InvalidOperation,
    LakeVillaError,
    RefNotFound,
    StoreError,
    TransactionAborted,
)
from lakevilla.global_log.keys import parse_key
from lakevilla.global_log.repo import load_refs
from lakevilla.global_log.rules import Isolation, Validation
from lakevilla.ids import NO_TXN, mark_in, mark_of
from lakevilla.lake.context import Context
from lakevilla.lake.publishing import outcome
from lakevilla.lake.tables import registration
from lakevilla.maintenance import recovery
from lakevilla.maintenance import transactions as watching
from lakevilla.results import Outcome, TransactionInfo
from lakevilla.settings import MOST_SECONDS, shown
from lakevilla.store.effects import Program, delete, sleep
from lakevilla.sublogs.record import record_key
from lakevilla.transaction.commit.commit import end_turn_without_changes
from lakevilla.transaction.commit.together.chain import chain_of, may_run_in_turn, take_turn
from lakevilla.transaction.commit.together.combine import defer_if_hot
from lakevilla.transaction.state.parts import Options
from lakevilla.transaction.state.status import Status
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import Feature, KeyUse
from lakevilla.transaction.validation.others import name_writer
from lakevilla.transaction.verbs import save
from lakevilla.transaction.verbs.abort import abort, rerun
from lakevilla.transaction.verbs.begin import begin
from lakevilla.transaction.verbs.read_write import bind_to_ref

__all__ = [
    "ATTEMPTS",
    "BatchFunction",
    "Begin",
    "abort_transaction",
    "batch_function",
    "begin_or_rerun",
    "begin_transaction",
    "check_callable",
    "check_options",
    "check_timeout",
    "code_of",
    "list_transactions",
    "naming_writers",
    "outcome_of",
    "resume_transaction",
    "run",
    "run_each_call",
]

# -------------------- run
#
# Run a function in a transaction until that has committed, for ``lake.run``.
#
# A transaction that ended with a conflict is rerun under its id, with its record and its places in
# the queues, so the transaction that has waited longest stays first. If a transaction was aborted,
# or resumed by another process, its outcome is settled in HEAD before the function is called in a
# new transaction: its work must not be done twice.


T = TypeVar("T")

#: The number of calls of a function after which its conflict is raised.
ATTEMPTS = 10

#: A function that begins a new transaction, or reruns a given lost one in its places.
Begin = Callable[[TransactionState | None], Executor]


def run(
    client: LakeClient,
    begin: Begin,
    fn: Callable[[Executor], T],
    attempts: int,
    *,
    may_defer: bool = True,
    function: Hashable = None,
) -> T | None:
    """Call ``fn`` in a transaction, at most ``attempts`` times (``Lake.run``).

    ``may_defer``: defer the operations while other threads change the same rows (note 68).
    ``function``, if there is one: what stands for ``fn``, which waits for its turn in a chain after
    a conflict (note 69).
    """
    check_attempts(attempts)
    kept: TransactionState | None = None
    losses = 0
    try:
        for attempt in range(attempts):
            executor = _attempt(client, begin, kept, losses)
            kept = None
            if executor is None:
                return None  # another process has resumed and committed it, or its key is committed
            client = executor.client
            value: T | None = None
            is_last = attempt + 1 == attempts  # an error of a deferred operation takes one more
            try:
                with executor:
                    value = _call(client, executor, fn, function, may_defer and not is_last)
                return value
            except CommitOutcomeUnknown as unknown:
                if _settled(client, executor, unknown) == "committed":
                    return value
                error: LakeVillaError | None = None
            except (ConflictError, TransactionAborted, RefNotFound) as failed:
                is_lost = isinstance(failed, RefNotFound)
                is_its_own = _has_committed_itself(client, executor)
                if is_its_own or (is_lost and not client.follow(is_lost=True)):
                    raise
                error = failed
                if not is_lost:
                    _note_conflict(executor, function)
                    losses += 1
                    kept = _to_run_again(client, executor)
            except BaseException as caught:
                # The function may raise ``AlreadyCommitted`` for another transaction's key.
                if isinstance(caught, AlreadyCommitted) and executor.was_committed:
                    return None
                failure = executor.state.ending.failure
                if executor.is_deferred and isinstance(failure, InvalidOperation):
                    # The verb itself shall raise the error, within ``fn``.
                    return run(client, begin, fn, attempts - attempt - 1, may_defer=False)
                kept = executor.lost  # the function has turned a conflict into another error
                raise
            if is_last:
                raise _named(client, error) or _never_committed(executor.id, attempts)
            if error and kept is None and _has_been_committed(client, executor):
                return None
            if kept is None or kept.claims.queue is None:
                client.run(_pause(client.context, attempt))
    finally:
        if kept is not None:
            _end_kept(client, kept)
    raise AssertionError("unreachable: the last attempt returns or raises")


@contextmanager
def naming_writers(client: LakeClient) -> Iterator[None]:
    """Add, to a conflict that reaches the caller, what the other writer has said of itself."""
    try:
        yield
    except ConflictError as error:
        _named(client, error)
        raise


def _named(client: LakeClient, error: LakeVillaError | None) -> LakeVillaError | None:
    """Return an error; a conflict names the writer of the other commit."""
    if isinstance(error, ConflictError):
        with suppress(LakeVillaError):  # the conflict is what the caller has to know
            client.run(name_writer(client.context, error))
    return error


def code_of(fn: Callable[..., object]) -> Hashable:
    """Return what stands for a function: its code, which all functions of one place share."""
    while isinstance(fn, partial):
        fn = fn.func
    code: Hashable = getattr(inspect.unwrap(fn), "__code__", None)
    return id(type(fn)) if code is None else code


def _call(
    client: LakeClient,
    executor: Executor,
    fn: Callable[[Executor], T],
    function: Hashable,
    may_defer: bool,
) -> T:
    """Call a function in its turn, or with its operations deferred, if the lake is hot."""
    if _takes_turn(client, executor, function):
        return _called_in_turn(client, fn, executor)
    executor.is_deferred = may_defer and defer_if_hot(executor.state)
    return _called(fn, executor) if executor.is_deferred else fn(executor)


#: The threads whose function has the turn: a transaction that it runs inside has none.
_IN_TURN = threading.local()


def _takes_turn(client: LakeClient, executor: Executor, function: Hashable) -> bool:
    """Wait for the turn in the chain if the function needs it; return whether it has the turn."""
    if function is None or getattr(_IN_TURN, "has_turn", False):
        return False
    if not chain_of(executor.state.context).has_conflicts(executor.state.context, function):
        return False
    if not executor.may_take_turn:
        return False
    client.ensure_safe_store()
    return client.run(take_turn(executor.state, function))


def _called_in_turn(client: LakeClient, fn: Callable[[Executor], T], executor: Executor) -> T:
    """Call a function that has the turn in a chain.

    It reads rows that are not decided. If it raises an error of its own, this is let out only once
    they are: else the transaction has a conflict, and runs again (rule H3).
    """
    try:
        _IN_TURN.has_turn = True
        return fn(executor)
    except Exception as error:
        _let_out(client, executor, error)
        raise
    finally:
        _IN_TURN.has_turn = False


def _let_out(client: LakeClient, executor: Executor, error: Exception) -> None:
    """Wait until a function's own error may get out; raise the failure of its transaction, if any.

    The function may have suppressed the failure, or turned it into ``error``. That may be about
    rows that are never committed.
    """
    state = executor.state
    if state.ending.failure is not None and not state.ending.is_in_doubt:
        if error is not state.ending.failure:
            raise state.ending.failure from error
    elif state.state is Status.OPEN and not state.ending.tried and executor.is_of_this_process:
        with executor.verb_scope():
            client.run(end_turn_without_changes(state))


def _note_conflict(executor: Executor, function: Hashable) -> None:
    """Have the function wait for its turn from now on, if it may be performed in a chain."""
    state = executor.state
    chain, turn = chain_of(state.context), state.turn
    if turn is not None and turn.is_unfit:
        chain.note_unfit(function)
    elif function is not None and may_run_in_turn(state):
        chain.note_conflict(state.context, function)


def _called(fn: Callable[[Executor], T], executor: Executor) -> T:
    """Call a function whose operations are deferred by themselves.

    If it raises an error of its own, its operations are performed, to find out whether one of them
    would have raised an error before.
    """
    try:
        return fn(executor)
    except StoreError:
        raise
    except Exception:
        with suppress(LakeVillaError):  # an error of an operation is noted as the failure
            executor.perform_deferred()
        raise


def _to_run_again(client: LakeClient, executor: Executor) -> TransactionState | None:
    """Return the transaction that a conflict has ended, if it may run again in its places."""
    lost = _unless_moved(client, executor.lost)
    if lost is not None and executor.is_deferred:  # the next attempt decides that anew
        lost.options = replace(lost.options, defer=False)
    return lost


def _settled(client: LakeClient, executor: Executor, unknown: CommitOutcomeUnknown) -> str:
    """Return "committed" or "aborted"; raise the error again if the outcome can't be settled."""
    if unknown.idempotency_key is not None or executor.state.has_committed:
        raise unknown  # its key can't be settled; or it has committed: another one's error
    # Only HEAD can be read here; the caller must look for a log entry.
    ended = _outcome(client, executor.id) if executor.state.through_head else "expired"
    if ended not in ("committed", "aborted"):
        raise unknown
    executor.give_back()  # settled: it can't commit any more
    return ended


def _has_been_committed(client: LakeClient, executor: Executor) -> bool:
    """Return whether another process has committed the transaction, if it was saved."""
    return executor.state.ending.shared and _has_committed(client, executor.id)


def _never_committed(txn_id: str, attempts: int) -> TransactionAborted:
    return TransactionAborted(
        f"transaction {txn_id} was not committed in {attempts} attempts: run it again later",
        txn_id=txn_id,
    )


def run_each_call(
    run: Callable[..., Any], attempts: int, options: Mapping[str, Any]
) -> Callable[[Callable[..., T]], Callable[..., T | None]]:
    """Return the decorator of functions each call of which is run by ``run``.

    ``run``: ``Lake.run``. See ``Lake.transactional``.
    """
    check_options(options)
    check_attempts(attempts)

    def decorate(fn: Callable[..., T]) -> Callable[..., T | None]:
        check_callable(fn)

        @wraps(fn)
        def called(*args: Any, **kwargs: Any) -> T | None:
            work = partial(fn, **kwargs) if kwargs else fn  # by its code it has turns of its own
            result: T | None = run(work, *args, attempts=attempts, **options)
            return result

        return called

    return decorate


def batch_function(
    client: LakeClient,
    run: Callable[..., object],
    fn: Callable[..., object],
    query_id: str,
    checkpoint_location: str | None,
    options: dict[str, Any],
) -> BatchFunction:
    """Return the function that Spark calls for each batch; see ``Lake.foreach_batch``."""
    check_options(options)
    check_callable(fn)
    if type(query_id) is not str or not query_id:
        raise InvalidOperation("foreach_batch needs a query_id, the same after each restart")
    if check_flag("read_only", options.get("read_only", False)):
        raise InvalidOperation("foreach_batch writes: leave read_only out")
    if "idempotency_key" in options:
        raise InvalidOperation(
            "foreach_batch makes the idempotency_key of query_id and the batch's number: "
            "leave it out"
        )
    reader = None
    if checkpoint_location is not None:
        check_location(checkpoint_location)
        reader = partial(reader_below, checkpoint_location, client.root, client.run)
    return BatchFunction(run, client.beside, fn, query_id, options, reader=reader)


@dataclass(frozen=True)
class BatchFunction:
    """The function that Spark calls with each batch of a streaming query and the batch's number.

    On Spark Connect the function is pickled and called in a process of the server. There the lake
    and the client whose methods it has are opened again from their arguments.

    Attributes
    ----------
    run, beside : callable
        ``run`` runs a function with a key and a checkpoint; ``beside`` returns the block in which
        frames come from the session of the batch.
    known : dict
        The checkpoint, once Spark Connect has reported it. It is not pickled: an unpickled function
        serves one run of one query.
    started_in : SparkSession
        The session of Spark Connect in which the function was unpickled, which is the query's.
    reader : callable or None
        Reads the checkpoint's files if Spark can't report them and the caller has named their
        place.
    """

    run: Callable[..., object]
    beside: Callable[[object], AbstractContextManager[None]]
    fn: Callable[..., object]
    query_id: str
    options: Mapping[str, Any]
    known: dict[str, str] = field(default_factory=dict)
    started_in: object = None
    reader: Callable[[], Read | None] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "known": {}, "started_in": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, started_in=session_of_connect())

    def __call__(self, batch: Any, batch_id: int) -> None:
        gapless = called_by_spark()
        checkpoint = checkpoint_of(batch, self.query_id, self.known, self.started_in)
        planned = self._planned(batch, int(batch_id), checkpoint)
        options = {
            **self.options,
            "idempotency_key": (self.query_id, int(batch_id)),
            "batch": (checkpoint, planned, gapless),
        }
        states: list[str] = []

        def call(txn: Any) -> None:
            self.fn(txn, batch)
            states.append(txn.state)

        # The batch may have another session than the lake: a stream clones its session.
        with self.beside(batch):
            self.run(call, options)
            if gapless and states[-1:] == ["aborted"]:
                # The function has aborted its transaction. Spark takes the batch for done, so its
                # key must be committed.
                self.run(lambda txn: None, options)

    def _planned(self, batch: Any, number: int, checkpoint: str) -> str:
        read = reader_of_query(batch, checkpoint)
        if read is not None or self.reader is None or not checkpoint:
            return digest_of_plan(read, checkpoint, self.query_id, number)
        planned = digest_of_plan(self.reader(), checkpoint, self.query_id, number)
        if not planned:
            raise InvalidOperation(
                f"checkpoint_location of stream {self.query_id!r} is not that of its query, or "
                f"can't be read where its batches run: there is no file metadata of {checkpoint}"
            )
        return planned


def check_location(location: object) -> None:
    """Refuse a value that can't be the location of a checkpoint."""
    if not isinstance(location, str) or not location:
        raise InvalidOperation(
            f"checkpoint_location must be a path or a URI, as Spark has it, not {shown(location)}"
        )


def check_attempts(attempts: object) -> None:
    """Refuse a value that is not a number of attempts."""
    if not isinstance(attempts, int) or isinstance(attempts, bool) or attempts < 1:
        raise InvalidOperation(f"attempts must be a whole number from 1 on, not {shown(attempts)}")


def check_callable(fn: object) -> None:
    """Refuse a value that can't be called in a transaction."""
    if not callable(fn):
        raise InvalidOperation(
            f"run takes a function of the transaction, not {shown(fn)}: "
            "write `lake.run(lambda txn: ...)`"
        )
    if isgeneratorfunction(fn) or isasyncgenfunction(fn):
        raise InvalidOperation(
            f"{shown(fn)} is a generator function, whose body run would not execute: pass a "
            "function without yield"
        )
    if iscoroutinefunction(fn):
        raise InvalidOperation(
            f"{shown(fn)} is an async function, which run would not wait for: pass a plain one"
        )


def _attempt(
    client: LakeClient, begin: Begin, kept: TransactionState | None, losses: int
) -> Executor | None:
    """Return the executor of the next attempt: the lost transaction in its places, or a new one.

    Return None if the work is done: another process has resumed and committed the lost transaction,
    or the idempotency key is committed.
    """
    kept = _unless_moved(client, kept)
    if kept is not None:
        escalate = losses >= client.settings.escalate_after
        try:
            state = client.run(rerun(kept, escalate=escalate))
        except TransactionAborted:
            _end_kept(client, kept)  # another process has resumed the lost transaction
            if _has_committed(client, kept.id):
                return None
        else:
            executor = begin(state)
            executor.keeps_place = True
            return executor
    try:
        executor = begin(None)
    except AlreadyCommitted:
        return None  # on a branch, beginning a transaction already looks up its key
    executor.keeps_place = True
    return executor


def _unless_moved(client: LakeClient, lost: TransactionState | None) -> TransactionState | None:
    """Return the lost transaction; None if its branch was rebased, so a new one must begin."""
    if lost is None or not client.follow():
        return lost
    _end_kept(client, lost)
    return None


def _outcome(client: LakeClient, txn_id: str) -> str:
    client.ensure_safe_store()
    return client.run(outcome.outcome(client.context, txn_id)).state


def _has_committed_itself(client: LakeClient, executor: Executor[Any]) -> bool:
    """Return whether the function has, or may have, committed its transaction before it raised."""
    state = executor.state
    if not state.ending.is_in_doubt:
        return state.has_committed
    # The function has suppressed a ``CommitOutcomeUnknown``.
    return not state.through_head or _outcome(client, executor.id) != "aborted"


def _has_committed(client: LakeClient, txn_id: str) -> bool:
    """Return whether a transaction that another process may have resumed has committed.

    If not, it never will. This is checked before the work is done again under another id, so that
    it is not done twice.
    """
    # Saved transactions commit through HEAD alone, so a fence settles the outcome.
    if client.run(outcome.fence(client.context, txn_id)) is not None:
        return True
    held = client.context.held
    if held is not None and outcome.is_forgotten(held.head, txn_id):
        raise CommitOutcomeUnknown(
            f"transaction {txn_id} was resumed by another process, and whether it has committed "
            "is not known any more: check the tables for its rows",
            txn_id=txn_id,
        )
    # No transaction in a queue shall wait for the process that has resumed this one.
    client.run(delete(record_key(txn_id)))
    return False


def _end_kept(client: LakeClient, kept: TransactionState) -> None:
    """End a transaction that was kept for another attempt.

    Errors of ending it are only logged, because another error may be on its way to the caller.
    """

    def end() -> Program[None]:
        yield from save.forget(kept)
        yield from abort(kept)

    try:
        client.run(end())
    except LakeVillaError as error:
        client.log(f"could not clean up after transaction {kept.id}: {error}", kept.id)


def _pause(context: Context, attempt: int) -> Program[None]:
    settings = context.settings
    longest = min(settings.retry_cap_seconds, settings.retry_base_seconds * 2**attempt)
    yield from sleep(longest * context.ids.jitter())


# -------------------- begin
#
# Begin transactions, from the checked arguments of ``lake.transaction``.


def _with_identity(client: LakeClient, entries: dict[str, str]) -> dict[str, str]:
    """Return metadata with the identity of this client, if it has one."""
    identity = client.settings.identity
    return {"identity": identity, **entries} if identity else entries


def begin_transaction(
    client: LakeClient,
    executor: type[Executor[Frame]],
    features: Feature = Feature.R | Feature.I,
    *,
    isolation: Isolation = "serializable",
    validation: Validation = "precise",
    slack: int = 0,
    durability: Literal["lazy", "every_op"] = "lazy",
    wait: Literal["published", "decided"] = "published",
    idempotency_key: str | tuple[str, int] | None = None,
    read_only: bool = False,
    wait_timeout_seconds: float | None = None,
    idle_timeout_seconds: float | None = None,
    defer: bool = False,
    alone: bool = False,
    metadata: Mapping[str, str] | None = None,
    verify: bool = False,
    batch: tuple[str | None, str, bool] = (None, "", False),
) -> Executor[Frame]:
    """Begin a transaction and return its executor; see ``Lake.transaction``.

    ``verify``: compare the data files that the transaction reads with their hashes. ``batch``, for
    the key of a stream's batch: the checkpoint (note 46), a digest of the batch's plan (note 48),
    and whether Spark passes every batch of the stream to LakeVilla (note 49).

    Raises
    ------
    InvalidOperation
        An option is unknown or has a wrong value.
    """
    _check_choices(features, isolation, validation, durability, wait)
    slack = check_number("slack", slack)
    entries = _with_identity(client, check_metadata(metadata))
    _check_timeouts(wait_timeout_seconds, idle_timeout_seconds)
    client = client.newest()
    through_head = bool(features & (Feature.I | Feature.CT)) or idempotency_key is not None
    if client.branch is not None:
        _refuse_on_branch(client.branch, features, idempotency_key)
        through_head = True  # on a branch, no log entry is created
    use = None if idempotency_key is None else _use_of(idempotency_key, *batch)
    options = Options(
        features,
        owner=client.owner,
        read_only=check_flag("read_only", read_only),
        isolation=isolation,
        validation=validation,
        slack=slack,
        wait_timeout_seconds=wait_timeout_seconds,
        defer=check_flag("defer", defer),
        verify=verify,
        alone=check_flag("alone", alone),
        metadata=entries,
        applications={} if use is None or use.version is None else {use.key: use.version},
    )

    def begun(client: LakeClient) -> Executor[Frame]:
        held = client.context.held
        floor = NO_TXN if held is None else held.head.floor
        txn_id = client.context.new_txn_id(above=floor, by_entry=not through_head)
        state = begin(TransactionState(client.context, txn_id, options, through_head=through_head))
        state.claims.key = use
        if client.at is not None:
            if not options.read_only:
                raise client.only_reads()
            bind_to_ref(state, client.at)
        idle = idle_timeout_seconds or math.inf  # 0 means no limit, as in other databases
        return executor(client, state, wait=wait, durability=durability, idle_timeout_seconds=idle)

    return begun(client) if client.branch is None else _on_branch(client, begun, use)


#: The options of ``lake.transaction``.
_OPTIONS = tuple(inspect.signature(begin_transaction).parameters)[2:-2]


def check_options(options: Mapping[str, object]) -> None:
    """Refuse a misspelt option in the call that has it, not at the first transaction."""
    unknown = sorted(options.keys() - set(_OPTIONS))
    if unknown:
        raise InvalidOperation(
            f"unknown transaction option {unknown[0]!r}: choose from {', '.join(_OPTIONS)}"
        )


def begin_or_rerun(
    client: LakeClient,
    executor: type[Executor[Frame]],
    options: Mapping[str, Any],
    lost: TransactionState | None = None,
) -> Executor[Frame]:
    """Begin a new transaction with ``options``, or rerun the lost one in its places."""
    if lost is None:
        return begin_transaction(client, executor, **options)
    given = {name: options[name] for name in ("wait", "durability") if name in options}
    return executor(client.newest(), lost, **given)


def _use_of(key: object, checkpoint: str | None, planned: str, gapless: bool) -> KeyUse:
    return KeyUse(*parse_key(key), checkpoint, planned, gapless)


def _on_branch(
    client: LakeClient, begun: Callable[[LakeClient], Executor[Frame]], use: KeyUse | None
) -> Executor[Frame]:
    """Begin a transaction in the present epoch of a branch.

    The transaction is bound to HEAD at once, by a read that it needs anyway: if its epoch was
    closed by a rebase, it begins in the next one. So a committed idempotency key is reported here.
    """
    while True:
        made = begun(client)
        try:
            if use is not None:
                client.run(client.context.head())  # the key is looked up in this epoch's base
                refuse_in_base(client, use.key)
            made.state_of_lake()
        except (ConflictError, RefNotFound) as error:
            if not client.follow(is_lost=isinstance(error, RefNotFound)):
                raise
            client = client.newest()
        else:
            return made


def _refuse_on_branch(name: str, features: Feature, idempotency_key: object) -> None:
    if Feature.CT in features:
        raise InvalidOperation(
            f"branch {name!r} has no queues: begin the transaction without Feature.CT"
        )
    if isinstance(idempotency_key, tuple):
        raise InvalidOperation(
            f"branch {name!r} takes no (application, version) as idempotency_key, and so no "
            "foreach_batch: it is not known which version the lake had when the branch was "
            "created; use a string"
        )


def _check_choices(
    features: object, isolation: object, validation: object, durability: object, wait: object
) -> None:
    check_choice("isolation", isolation, *get_args(Isolation))
    check_choice("validation", validation, *get_args(Validation))
    check_choice("durability", durability, "lazy", "every_op")
    check_choice("wait", wait, "published", "decided")
    if not isinstance(features, Feature):
        raise InvalidOperation(f"features must be a lakevilla.Feature, not {shown(features)}")


def _check_timeouts(wait: float | None, idle: float | None) -> None:
    check_timeout("wait_timeout_seconds", wait)
    check_timeout("idle_timeout_seconds", idle)


def check_timeout(name: str, seconds: object) -> None:
    if seconds is None:
        return
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    endless = seconds == math.inf
    if not is_number or not (endless or 0 <= seconds <= MOST_SECONDS):  # type: ignore[operator]
        raise InvalidOperation(
            f"{name} must be a number of seconds from 0 to {MOST_SECONDS:.12g}, or "
            f"infinite, not {shown(seconds)}"
        )


# -------------------- by their ids
#
# List, settle, resume and abort transactions that this or another process has begun.


def list_transactions(client: LakeClient) -> list[TransactionInfo]:
    """Return the transactions that are in a queue or were saved; see ``Lake.transactions``."""
    client = client.current()
    return HtmlList(client.run(watching.transactions(client.context)))


def outcome_of(
    client: LakeClient, txn_id: str | None, idempotency_key: str | tuple[str, int] | None
) -> Outcome:
    """Return how a transaction ended; end it if it is undecided. See ``Lake.outcome``."""
    if (txn_id is None) == (idempotency_key is None):
        raise InvalidOperation("outcome takes a transaction id or an idempotency key")
    client = client.current()
    client.ensure_safe_store()
    if txn_id is not None:
        outcome.check_id(txn_id)
        client = _where_it_began(client, txn_id)
        found = client.committed_before(txn_id) or client.run(
            outcome.outcome(client.context, txn_id)
        )
    else:
        key, version = parse_key(idempotency_key)
        found = client.run(registration.outcome_of_key(client.context, key, version))
        if found.state == "expired" and version is None:
            return outcome_in_base(client, key)
    if found.result is None:
        return found
    return Outcome(found.state, client.named(found.result))


def _where_it_began(client: LakeClient, txn_id: str) -> LakeClient:
    """Return the client of the branch, or of the lake itself, on which a transaction was begun.

    No other HEAD has its commit: there it would look like a transaction that has not committed.

    Raises
    ------
    CommitOutcomeUnknown
        The transaction was begun on a branch that does not exist any more.
    """
    mark = mark_in(txn_id)
    if mark == mark_of(client.context.branch_id):
        return client
    lake = client.lake or client
    if not mark:
        return lake.current()
    held = lake.run(lake.context.head())
    names = []
    if held is not None:
        lake.run(load_refs(held.head))
        refs = held.head.refs.items()
        names = [name for name, one in refs if one.kind == "branch" and mark_of(one.id) == mark]
    if len(names) == 1:
        with suppress(RefNotFound):  # the branch may be deleted at this time
            found = lake.on(names[0]).current()
            # it was not deleted and created again meanwhile
            if mark_of(found.context.branch_id) == mark:
                return found
    raise CommitOutcomeUnknown(
        f"transaction {txn_id} was begun neither on this lake itself nor on any of its branches: "
        "check the id; if its branch was deleted, what was merged is in the lake's history",
        txn_id=txn_id,
    )


def resume_transaction(
    client: LakeClient, executor: type[Executor[Frame]], txn_id: str
) -> Executor[Frame]:
    """Resume a saved transaction of another process; see ``Lake.resume``."""
    client = client.writing("resume")
    client.ensure_safe_store()
    outcome.check_id(txn_id)
    # if raised, it was never saved, or its branch has ended: ``save.resume`` reports that
    with suppress(CommitOutcomeUnknown):
        client = _where_it_began(client, txn_id)
    client.refuse_begun_before(txn_id)
    return executor(client, client.run(save.resume(client.context, txn_id, client.owner)))


def abort_transaction(client: LakeClient, txn_id: str) -> None:
    """Abort a transaction of this or another client; see ``Lake.abort``."""
    client = client.writing("abort")
    outcome.check_id(txn_id)
    try:
        client = _where_it_began(client, txn_id)
    except CommitOutcomeUnknown as unknown:
        raise InvalidOperation(unknown.message, txn_id=txn_id) from None
    if client.committed_before(txn_id) is not None:
        raise InvalidOperation(
            f"transaction {txn_id} committed before its branch was rebased and can't be aborted",
            txn_id=txn_id,
        )
    client.run_safely(recovery.abort(client.context, txn_id))
