"""Histories of one client whose store breaks, and what must hold of the lake afterwards."""

from __future__ import annotations

import itertools
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from deltalake import DeltaTable

import lakevilla as lv
from lakevilla.formats.iceberg.catalog.object_store_catalog import ObjectStoreCatalog
from tests.support.store_faults.programs import (
    BY_NAME,
    ROWS,
    TABLES,
    State,
    Step,
    beginning,
    copied,
)

Format = Literal["delta", "iceberg"]

#: A client that gives up soon: what takes longer than ``BOUND_SECONDS`` waits for ever.
HASTY = lv.Settings(
    retry_limit=4,
    retry_base_seconds=0.005,
    retry_cap_seconds=0.02,
    request_timeout_seconds=1.0,
    publish_timeout_seconds=1.0,
    wait_timeout_seconds=2.0,
    wait_poll_seconds=0.05,
    in_memory_file_limit_bytes=64 * 1024,
)
BOUND_SECONDS = 120.0

#: A client of the sound store, which may be slow on a busy machine.
PATIENT = replace(
    HASTY,
    retry_limit=8,
    retry_cap_seconds=1.0,
    request_timeout_seconds=30.0,
    publish_timeout_seconds=60.0,
)

#: The parts of messages that show nobody's secrets; these are in the faults' answers.
_SECRETS = ("hunter2", "test-secret")


@dataclass(frozen=True)
class Place:
    """A lake's root, and the options by which it is reached without faults."""

    root: str
    format: Format
    options: dict[str, str] = field(default_factory=dict)

    def connect(
        self, options: dict[str, str] | None = None, settings: lv.Settings = PATIENT
    ) -> lv.Lake:
        known = (options or self.options) or None
        return lv.connect(self.root, storage_options=known, settings=settings)

    def seen(self, table: str) -> Counter[tuple[int, int]]:
        """Return the rows that deltalake, or pyiceberg, reads."""
        if self.format == "delta":
            opened = DeltaTable(f"{self.root}/{table}", storage_options=self.options or None)
            return _bag(opened.to_pyarrow_table())
        catalog = ObjectStoreCatalog("others", warehouse=self.root, **_of_pyiceberg(self.options))
        return _bag(catalog.load_table((table,)).scan().to_arrow())


def _of_pyiceberg(options: dict[str, str]) -> dict[str, str]:
    names = {
        "AWS_ENDPOINT_URL": "s3.endpoint",
        "AWS_ACCESS_KEY_ID": "s3.access-key-id",
        "AWS_SECRET_ACCESS_KEY": "s3.secret-access-key",
        "AWS_REGION": "s3.region",
    }
    return {names[key]: value for key, value in options.items() if key in names}


def _bag(rows: Any) -> Counter[tuple[int, int]]:
    return Counter(zip(rows["id"].to_pylist(), rows["balance"].to_pylist(), strict=True))


def set_up(place: Place) -> None:
    with place.connect() as lake, lake.transaction() as txn:
        for table in TABLES:
            txn.create_table(table, ROWS, format=place.format)


# -------------------- what happened


@dataclass
class Done:
    """A step, and how it ended: ``done``, ``refused``, or ``unknown`` with its transaction."""

    step: Step
    mark: int
    ended: Literal["done", "refused", "unknown"]
    error: BaseException | None = None
    txn: str | None = None

    def __str__(self) -> str:
        why = "" if self.error is None else f": {type(self.error).__name__}: {self.error}"
        return f"{self.step.name} ({self.mark}) was {self.ended}{why}"


@dataclass
class History:
    """What a client has done, and what was wrong with it."""

    done: list[Done] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return "\n".join([*map(str, self.done), *(f"WRONG: {one}" for one in self.wrong)])


def states(done: Sequence[Done]) -> Iterator[State]:
    """Yield each state that the steps may have left: those in doubt have happened or not."""
    doubts = [one.mark for one in done if one.ended == "unknown"]
    for happened in itertools.product((True, False), repeat=len(doubts)):
        taken = dict(zip(doubts, happened, strict=True))
        state = beginning()
        for one in done:
            if one.ended == "done" or taken.get(one.mark, False):
                one.step.effect(state, one.mark)
        yield state


def perform(history: History, lake: lv.Lake, step: Step, mark: int) -> None:
    """Do a step, and note how it ended; an error that is not LakeVilla's is wrong."""
    began = time.monotonic()
    try:
        step.work(lake, mark)
        history.done.append(Done(step, mark, "done"))
    except lv.CommitOutcomeUnknown as error:
        history.done.append(Done(step, mark, "unknown", error, error.txn_id))
    except (lv.ForeignConflict, lv.AlreadyCommitted) as error:
        history.done.append(Done(step, mark, "done", error))
        history.wrong.append(f"nobody else writes: {error!r}")
    except lv.LakeVillaError as error:
        history.done.append(Done(step, mark, "refused", error))
        if any(secret in error.message for secret in _SECRETS):
            history.wrong.append(f"a secret is in the message: {error.message}")
    except Exception as error:
        history.done.append(Done(step, mark, "refused", error))
        history.wrong.append(f"{step.name} raised a bare error: {traceback.format_exc()}")
    seconds = time.monotonic() - began
    if seconds > BOUND_SECONDS:
        history.wrong.append(f"{step.name} took {seconds:.0f} s")


def look(history: History, lake: lv.Lake) -> None:
    """Read both tables in one state while the store is broken: only a wrong row is wrong."""
    try:
        with lake.snapshot() as snapshot:
            seen = {table: _bag(snapshot.read(table)) for table in TABLES}
    except lv.LakeVillaError:
        return
    except Exception:
        history.wrong.append(f"a read raised a bare error: {traceback.format_exc()}")
        return
    if seen not in list(states(history.done)):
        history.wrong.append(f"a read while the store was broken: {shown(seen)}")


def shown(state: State) -> str:
    """Return a state in brief."""
    return "; ".join(
        f"{table}: {sorted(rows.items())[:12]}{' ...' if len(rows) > 12 else ''}"
        for table, rows in state.items()
    )


# -------------------- what must hold


def judge(history: History, place: Place) -> None:
    """Note what is wrong with a lake whose store is sound again."""
    with place.connect() as lake:
        for check in (_recovered, _settled, _as_acknowledged, _written_further, _cleaned):
            try:
                check(history, place, lake)
            except Exception:
                history.wrong.append(f"{check.__name__[1:]}: {traceback.format_exc()}")


def _recovered(history: History, place: Place, lake: lv.Lake) -> None:
    report = lake.recover()
    if not report.ok:
        history.wrong.append(f"recover: {report.findings}")


def _settled(history: History, place: Place, lake: lv.Lake) -> None:
    """Settle each outcome in doubt, once."""
    for one in history.done:
        if one.ended != "unknown" or one.txn is None:
            continue
        try:
            first, second = lake.outcome(one.txn).state, lake.outcome(one.txn).state
        except lv.CommitOutcomeUnknown:
            if "log entry" in one.step.name:
                continue  # such a transaction leaves no record: its rows show what it has done
            raise
        if first != second or first not in ("committed", "aborted"):
            history.wrong.append(f"the outcome of {one} is {first}, and then {second}")
        one.ended = "done" if first == "committed" else "refused"


def _as_acknowledged(history: History, place: Place, lake: lv.Lake) -> None:
    allowed = list(states(history.done))
    seen = {table: _bag(lake.read(table)) for table in TABLES}
    if seen not in allowed:
        history.wrong.append(f"rows are {shown(seen)}, and should be {shown(allowed[0])}")
    others = {table: place.seen(table) for table in TABLES}
    if others != seen:
        history.wrong.append(f"other clients see {shown(others)}, and this one {shown(seen)}")


def _written_further(history: History, place: Place, lake: lv.Lake) -> None:
    before = {table: _bag(lake.read(table)) for table in TABLES}
    after = copied(before)
    step = BY_NAME["append to both"]
    step.work(lake, 9_999)
    step.effect(after, 9_999)
    seen = {table: place.seen(table) for table in TABLES}
    if seen != after:
        history.wrong.append(f"after a further commit, others see {shown(seen)}")


def _cleaned(history: History, place: Place, lake: lv.Lake) -> None:
    for report in (lake.gc(), lake.doctor(files=True), lake.recover()):
        errors = [one for one in report.findings if one.severity == "error"]
        if errors:
            history.wrong.append(f"upkeep of the sound store: {errors}")


# -------------------- run


def _with_short_lease(place: Place) -> lv.Settings:
    """Return settings with the shortest lease that the store's pace allows: others wait for it."""
    for seconds in (2.0, 8.0):
        settings = replace(HASTY, lease_seconds=seconds)
        with suppress(lv.InvalidOperation):
            place.connect(settings=settings).close()
            return settings
    return HASTY


def run(
    place: Place,
    steps: Sequence[Step],
    faulty: Callable[[], AbstractContextManager[object]],
    options: dict[str, str] | None = None,
    *,
    is_warm: bool = True,
) -> History:
    """Run steps through a broken store, and judge what is left.

    Parameters
    ----------
    faulty : callable
        Returns a context in which the store is broken.
    options : dict, optional
        The options by which the client reaches the store that breaks.
    is_warm : bool
        Whether the client has read both tables before the store breaks.
    """
    history = History()
    set_up(place)
    settings = _with_short_lease(place) if any("queued" in one.name for one in steps) else HASTY
    with place.connect(options, settings) as lake:
        if is_warm:
            for table in TABLES:
                lake.read(table)
        with faulty():
            for number, step in enumerate(steps):
                perform(history, lake, step, 1_000 + number)
                look(history, lake)
        # The same client goes on once the store is sound.
        perform(history, lake, BY_NAME["transfer"], 7)
        if history.done[-1].ended != "done":
            history.wrong.append(f"the sound store: {history.done[-1]}")
    judge(history, place)
    return history
