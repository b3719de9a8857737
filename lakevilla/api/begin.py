"""Transactions as they begin: what ``lake.transaction`` is given, looked at and written down."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Literal, get_args

from lakevilla.api.arguments import check_choice, check_flag, check_metadata, check_number
from lakevilla.api.client.client import LakeClient
from lakevilla.api.execution.executor import Executor
from lakevilla.api.execution.keys import refuse_in_base
from lakevilla.api.frame import Frame
from lakevilla.errors import ConflictError, InvalidOperation, RefNotFound
from lakevilla.global_log.keys import parse_key
from lakevilla.global_log.rules import Isolation, Validation
from lakevilla.ids import NO_TXN
from lakevilla.settings import MOST_SECONDS, shown
from lakevilla.transaction.state.features import Feature
from lakevilla.transaction.state.parts import Options
from lakevilla.transaction.state.transaction import TransactionState
from lakevilla.transaction.state.values import KeyUse
from lakevilla.transaction.verbs.begin import begin
from lakevilla.transaction.verbs.past import bind_to_ref

__all__ = ["begin_transaction", "check_timeout"]


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
    metadata: Mapping[str, str] | None = None,
    verify: bool = False,
    batch: tuple[str | None, str, bool] = (None, "", False),
) -> Executor[Frame]:
    """A new transaction in the hands of an executor; see ``Lake.transaction``.

    ``verify``: it only reads, and compares data files with their hashes. ``batch``: the key is a
    batch of a stream: its checkpoint (note 46), a digest of its plan (note 48), whether each batch
    of the stream comes here (note 49).

    Raises
    ------
    InvalidOperation
        An option is unknown or has a wrong value.
    """
    _check_choices(features, isolation, validation, durability, wait)
    slack = check_number("slack", slack)
    entries = check_metadata(metadata)
    check_timeout("wait_timeout_seconds", wait_timeout_seconds)
    check_timeout("idle_timeout_seconds", idle_timeout_seconds)
    client = client.newest()
    in_head = Feature.I | Feature.CT
    through_head = bool(features & in_head) or idempotency_key is not None
    if client.branch is not None:
        _refuse_on_branch(client.branch, features, idempotency_key)
        through_head = True  # no log entry is made there
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
        metadata=entries,
        applications={} if use is None or use.version is None else {use.key: use.version},
    )

    def begun(client: LakeClient) -> Executor[Frame]:
        held = client.context.held
        floor = NO_TXN if held is None else held.head.floor
        txn_id = client.context.ids.txn_id(above=floor, by_entry=not through_head)
        state = begin(TransactionState(client.context, txn_id, options, through_head=through_head))
        state.standing.key = use
        if client.at is not None:
            if not options.read_only:
                raise client.only_reads()
            bind_to_ref(state, client.at)
        idle = idle_timeout_seconds or math.inf  # 0 is none, as with other databases
        return executor(client, state, wait=wait, durability=durability, idle_timeout_seconds=idle)

    return begun(client) if client.branch is None else _on_branch(client, begun, use)


def _use_of(key: object, checkpoint: str | None, planned: str, gapless: bool) -> KeyUse:
    return KeyUse(*parse_key(key), checkpoint, planned, gapless)


def _on_branch(
    client: LakeClient, begun: Callable[[LakeClient], Executor[Frame]], use: KeyUse | None
) -> Executor[Frame]:
    """A transaction in the life in which a branch is now.

    It is bound at once, with the look at HEAD that it needs anyhow: in a life that was closed since
    nothing can be done. So a key that is done is told here.
    """
    while True:
        made = begun(client)
        try:
            if use is not None:
                client.run(client.context.head())  # the life whose base is asked is this one
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
            "foreach_batch: nobody can tell which version the lake had when it was made; a string "
            "can be used"
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
