"""A runner of programs against a real store, which turns effects into requests."""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import math
import queue
import time
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal, TypeVar, assert_never

from lakevilla.errors import InvalidOperation, StoreError, UnsafeStore
from lakevilla.forked import lock
from lakevilla.ids import Ids
from lakevilla.mailbox import Mailbox
from lakevilla.meter import Meter, running
from lakevilla.settings import Settings
from lakevilla.store.backends.local import beginning_of
from lakevilla.store.backends.reach import Reach
from lakevilla.store.base import Failure, Found, Match, NewKey, Store, Stored
from lakevilla.store.cached import (
    FILES_OF_PROCESS,
    OF_PROCESS,
    SMALL_FILE_BYTES,
    CachedObjects,
    is_content,
)
from lakevilla.store.check_mode import ReliedOn, expand_checked
from lakevilla.store.effects import (
    Await,
    CopyObject,
    DeleteObject,
    Effect,
    Get,
    List,
    ListNames,
    Parallel,
    Program,
    Put,
    PutFile,
    Sleep,
    Stat,
)
from lakevilla.store.formats import check_written
from lakevilla.store.location import at_home, is_external, is_in_catalog
from lakevilla.store.parallel import run_parallel
from lakevilla.store.readback import Attempts, Request, expand

T = TypeVar("T")

#: The interval at which a waiting thread checks whether it was interrupted.
_LOOKS_UP_SECONDS = 0.5

#: The size of a small body: two cores copy two larger ones at the same time.
_SMALL = 1024 * 1024

#: A log entry's first line mostly ends within this many bytes; a longer one is not compared.
_BEGINNING = 64 * 1024


@dataclass(slots=True)
class Requests:
    """The number of requests by verb: every attempt counts, including read-backs."""

    get: int = 0
    put: int = 0
    head: int = 0
    list: int = 0
    delete: int = 0

    @property
    def total(self) -> int:
        return self.get + self.put + self.head + self.list + self.delete

    def minus(self, earlier: Requests) -> Requests:
        return Requests(
            self.get - earlier.get,
            self.put - earlier.put,
            self.head - earlier.head,
            self.list - earlier.list,
            self.delete - earlier.delete,
        )


class RequestCounter:
    """A counter of the requests of all threads; ``counting`` counts those of a block of code."""

    def __init__(self) -> None:
        self._lock = lock()
        self._counts = Requests()

    def add(self, verb: Literal["get", "put", "head", "list", "delete"]) -> None:
        with self._lock:
            setattr(self._counts, verb, getattr(self._counts, verb) + 1)

    def snapshot(self) -> Requests:
        with self._lock:
            return self._counts.minus(Requests())

    @contextlib.contextmanager
    def counting(self) -> Iterator[Requests]:
        """Count the requests made inside the block; the result is complete when the block ends."""
        before, within = self.snapshot(), Requests()
        try:
            yield within
        finally:
            made = self.snapshot().minus(before)
            for verb in ("get", "put", "head", "list", "delete"):
                setattr(within, verb, getattr(made, verb))


class Runner:
    """The executor of effects against a store; safe to use from many threads.

    Parameters
    ----------
    store : Store
        Answers single attempts.
    ids : Ids
        Gives the jitter of the back-off.
    settings : Settings
        Retry limits.
    on_failure : callable, optional
        Called with each attempt that failed; its exception ends the request.
    checked : callable, optional
        The store has no conditional writes: check instead, and let objects at the
        keys that this names settle before they are returned. None: the store decides.
    place : str
        The lake's root and endpoint, with which errors begin: keys are relative to it.
    reach : Reach, optional
        The objects beyond the root that are read; without it all are.

    Attributes
    ----------
    checked : callable, optional
        As given; may be changed while programs run, for requests that begin later.
    replaces : bool
        Whether the store replaces under a condition. If not, no such request is sent: a store that
        ignores the condition would overwrite another client's object.
    requests : RequestCounter
        Every attempt made, by verb.
    cached : CachedObjects
        Cached immutable objects: no request is made for these.
    written : CachedObjects
        Small objects that were stored under new keys, as data files are: ``get_immutable`` makes no
        request for these. None is kept of a local lake, whose files are read where they are.
    life : str
        The branch epoch at whose home programs run; ``""`` for the lake itself.
    search : callable, optional
        Admits an object's place if it belongs to a table of the lake that ``reach`` lacks.
    """

    def __init__(
        self,
        store: Store,
        ids: Ids,
        settings: Settings,
        on_failure: Callable[[Request, Failure], None] | None = None,
        checked: ReliedOn | None = None,
        place: str = "",
        reach: Reach | None = None,
    ) -> None:
        self.reach = reach
        self.search: Callable[[str], Program[None]] | None = None
        self.store = store
        self.place = place
        self.checked = checked
        self.replaces = True
        self.requests = RequestCounter()
        self.cached = CachedObjects()
        self.written = CachedObjects()
        self.epoch = ""
        self._ids = ids
        self._settings = settings
        self._on_failure = on_failure

    def share_caches(self, place: Hashable, limit_bytes: int) -> None:
        """Cache objects within the budgets that all lakes of the process share."""
        self.cached = CachedObjects(place, limit_bytes, OF_PROCESS)
        self.written = CachedObjects(place, limit_bytes // 4, FILES_OF_PROCESS)

    def leave_caches(self) -> None:
        """Request no budget any more: the lake is closed."""
        self.cached.leave()
        self.written.leave()

    def run(self, program: Program[T]) -> T:
        """Run a program to its end and return its result.

        The exception of a request is thrown into the program at the point where it waits, so that
        the program may handle it. Ctrl-C is such an exception: requests under way end first
        (a second Ctrl-C does not wait for them).
        """
        program = at_home(self.epoch, program)
        value: Any = None
        error: BaseException | None = None
        try:
            while True:
                try:
                    if error is None:
                        effect = program.send(value)
                    else:
                        thrown, error = error, None
                        effect = program.throw(thrown)
                except StopIteration as end:
                    result: T = end.value
                    return result
                value = None
                try:
                    value = self._perform(effect)
                except BaseException as caught:
                    error = caught
        finally:
            program.close()

    def at(self, epoch: str) -> Runner:
        """Return the same runner at the home of a branch."""
        other = copy.copy(self)
        other.epoch = epoch
        return other

    def without_retries(self) -> Runner:
        """Return the same runner without retries: a request that fails is not made again."""
        single = copy.copy(self)
        single._settings = dataclasses.replace(self._settings, retry_limit=1)
        return single

    def _perform(self, effect: Effect) -> Any:
        if isinstance(effect, Parallel):
            meter = running()
            request = self._request if meter is None else partial(self._metered, meter)
            return run_parallel(effect, request, self._is_quick, self._refuse_beyond)
        if isinstance(effect, Sleep):
            time.sleep(max(0.0, effect.seconds))
            return None
        if isinstance(effect, Await):
            # A queue, because Ctrl-C ends its wait and leaves no lock of it held.
            opened: Mailbox[None] = Mailbox()
            effect.gate.when_open(lambda: opened.put(None))
            end = time.monotonic() + (math.inf if effect.seconds is None else effect.seconds)
            while not effect.gate.is_open and (left := end - time.monotonic()) > 0:
                # Ctrl-C just before the wait begins is noticed when the wait ends.
                with contextlib.suppress(queue.Empty):
                    opened.get(timeout=min(left, _LOOKS_UP_SECONDS))
            return None
        self._refuse_beyond(effect)
        meter = running()
        if meter is not None:
            return self._metered(meter, effect, time.sleep)
        return self._request(effect, time.sleep)

    def admit(self, key: str, table: str | None = None) -> None:
        """Refuse an object that the lake does not read.

        Raises
        ------
        InvalidOperation
            It is beyond the root, in no table of the lake, and the caller does not allow it.
        """
        reach = self.reach
        if reach is None or not is_external(key) or reach.holds(key):
            return
        if self.search is not None:
            self.run(self.search(key))
        if not reach.holds(key):
            raise reach.refusal(key, table)

    def _refuse_beyond(self, effect: Request) -> None:
        """Refuse a request for objects that the lake does not read, in the requesting thread."""
        reach = self.reach
        if reach is None:
            return
        match effect:
            case Get(key=key) | CopyObject(source=key):
                self.admit(key)
            case Stat(key=key):
                if not reach.opens(key):
                    self.admit(key)
            case _:
                key = effect.prefix if isinstance(effect, List | ListNames) else effect.key
                if not reach.opens(key, reading=False):
                    raise reach.refusal(key)
        if isinstance(effect, CopyObject) and not reach.opens(effect.key, reading=False):
            raise reach.refusal(effect.key)

    def _is_quick(self, request: Request) -> bool:
        """Return whether a request ends in this machine's memory, before a pool thread would begin
        it.

        Requests for small files of a local directory do so, where no caller waits for its disk. A
        request whose lock is held by another process delays its round, but never the request for
        which the other process waits: no request keeps a lock.
        """
        if self._settings.durable_files:
            return False
        if isinstance(request, PutFile | CopyObject) or (
            isinstance(request, Put) and len(request.body) > _SMALL
        ):
            return False
        key = request.prefix if isinstance(request, List | ListNames) else request.key
        try:
            return self._local_path(key) is not None
        except InvalidOperation:
            return False  # the request itself is refused, and not the others of its round

    def beginning(self, key: str) -> bytes | None:
        """Return the first bytes of a local file, no bytes if it is missing; None for other files.

        This is no request: it is not counted, and proves nothing.
        """
        path = self._local_path(key)
        return None if path is None else beginning_of(path, _BEGINNING)

    def _local_path(self, key: str) -> str | None:
        return None if is_in_catalog(key) else self.store.local_path(key)

    def _metered(self, meter: Meter, effect: Request, pause: Callable[[float], object]) -> Any:
        """Make a request that counts for the running verb: a thread of the pool runs no verb."""
        answer = self._request(effect, pause)
        meter.add(requests=1, deleted=int(isinstance(effect, DeleteObject)))
        return answer

    def _request(self, effect: Request, pause: Callable[[float], object]) -> Any:
        """Make one request with retries and read-backs, in this thread; none if it is cached."""
        if isinstance(effect, Get) and effect.immutable:
            known = self.cached.get(effect.key) or self.written.get(effect.key)
            if isinstance(known, Found):
                return known
        answer = self._asked(effect, pause)
        match effect, answer:
            case Get(immutable=True), Found(body) if is_content(effect.key, body):
                self.cached.keep(effect.key, answer, len(body))
            case Put(key, body, NewKey()), Stored(token):
                if len(body) <= SMALL_FILE_BYTES and self.store.local_path(key) is None:
                    self.written.keep(key, Found(body, token, len(body)), len(body))
        return answer

    def _asked(self, effect: Request, pause: Callable[[float], object]) -> Any:
        # The abilities of the store do not apply to a catalog, which has its own compare-and-swap.
        key = effect.prefix if isinstance(effect, List | ListNames) else effect.key
        in_catalog = is_in_catalog(key)
        if isinstance(effect, Put) and isinstance(effect.condition, Match) and not in_catalog:
            self._check_replaces(effect.key)
        if isinstance(effect, Put) and self._settings.format_limit:
            check_written(effect.key, effect.body, self._settings.format_limit)
        attempts: Attempts = (
            expand(effect, self._ids, self._settings)
            if self.checked is None or in_catalog
            else expand_checked(effect, self._ids, self._settings, self.checked)
        )
        answer: Any = None
        while True:
            try:
                attempt = attempts.send(answer)
            except StopIteration as end:
                return end.value
            except StoreError as error:
                # A table elsewhere has an absolute key: the request went to that place.
                place = "/".join(key.split("/", 3)[:3]) if "://" in key else self.place
                if in_catalog or not place:
                    raise
                message = f"{place}: {error.message}"
                raise StoreError(message, permanent=error.permanent) from None
            if isinstance(attempt, Sleep):
                pause(attempt.seconds)
                answer = None
                continue
            answer = self._attempt(attempt)
            if isinstance(answer, Failure) and self._on_failure is not None:
                self._on_failure(attempt, answer)

    def _check_replaces(self, key: str) -> None:
        if not self.replaces and self.checked is None:
            raise UnsafeStore(
                f"{key} has to be replaced under a condition, which this store does not do: the "
                "lake was made through an endpoint that does, so write it through that one, or, "
                'if few clients write at the same time, connect with conditional_writes="check" '
                "(best effort)"
            )

    def _attempt(self, request: Request) -> Any:
        match request:
            case Get(key, known, byte_range, _):
                self.requests.add("get")
                return self.store.get(key, known, byte_range)
            case Put(key, body, condition):
                self.requests.add("put")
                return self.store.put(key, body, condition)
            case PutFile(key, path):
                self.requests.add("put")
                return self.store.put_file(key, path)
            case CopyObject(key, source):
                self.requests.add("put")
                return self.store.copy_object(source, key)
            case Stat(key):
                self.requests.add("head")
                return self.store.head(key)
            case List(prefix, start_after, until):
                self.requests.add("list")
                return self.store.list(prefix, start_after, until)
            case ListNames(prefix):
                self.requests.add("list")
                return self.store.list_names(prefix)
            case DeleteObject(key):
                self.requests.add("delete")
                return self.store.delete(key)
            case _:
                assert_never(request)
