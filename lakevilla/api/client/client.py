"""One process at one lake: its requests, its cached state, and its work in the background.

``Lake``, ``Transaction``, ``Snapshot`` and ``Table`` share one client, and hide it from users.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from functools import partial
from typing import Any, Literal, Self, TypeVar
from weakref import ReferenceType, WeakMethod

from lakevilla.api.client.background import Background, empty_after_fork, is_callers
from lakevilla.api.client.bars import Bars
from lakevilla.api.client.catalogs import Catalogs, locate, pointer_of
from lakevilla.api.client.epochs import ClientOfEpoch
from lakevilla.api.client.heartbeat import Heartbeat
from lakevilla.api.client.names import TableNames, named, resolve
from lakevilla.api.client.progress import Progress, phase_event, transaction_event
from lakevilla.branches.create import open_ref
from lakevilla.clock import Clock, SystemClock
from lakevilla.engines.base import Engine
from lakevilla.engines.duckdb import DuckDBEngine
from lakevilla.errors import InvalidOperation, LakeVillaError, StoreError, UnsafeStore
from lakevilla.formats.registry import installed_formats
from lakevilla.global_log.head import Head, NameMap, shown_name
from lakevilla.global_log.refs import MAIN
from lakevilla.global_log.repo import load_names
from lakevilla.ids import Ids
from lakevilla.lake.context import Context, Event, is_relied_on
from lakevilla.lake.frozen.branch_head import Branch
from lakevilla.lake.frozen.frozen import Frozen
from lakevilla.lake.frozen.mounts import admit_sources, find_place
from lakevilla.lake.tables.claims import note_names
from lakevilla.lake.tables.dotted_names import meant, path_of
from lakevilla.maintenance import recovery
from lakevilla.phases import Phases, Span, during
from lakevilla.results import CommitResult
from lakevilla.settings import Settings
from lakevilla.store.backends.reach import Reach
from lakevilla.store.backends.routing import LakeStore
from lakevilla.store.base import Store
from lakevilla.store.data_files import DataFiles
from lakevilla.store.effects import Program
from lakevilla.store.location import is_external, root_location, seconds_between_writes
from lakevilla.store.probe import probe, probe_plain
from lakevilla.store.runner import Runner
from lakevilla.transaction.commit.publish import publish_or_tell, renamed_tables
from lakevilla.transaction.state.late_reads import PLACE_AFTER_SECONDS
from lakevilla.transaction.state.transaction import TransactionState

_LOG = logging.getLogger("lakevilla")
_LOG.addHandler(logging.NullHandler())

T = TypeVar("T")

#: For each store that this process has probed, the writes that are conditional there: all, only
#: creates, or none.
_PROBED: dict[str, Literal["all", "creates", "none"]] = {}

#: The time for which the location of a catalog's table is cached.
_LOCATED_SECONDS = 60.0

#: The interval at which idle transactions are checked for their time-out.
LOOK_AT_IDLE_SECONDS = 1.0


class LakeClient(ClientOfEpoch):
    """One process at one lake; safe across threads and forks, and pickled as its arguments.

    Attributes
    ----------
    root : str
    settings : Settings
    reach : Reach
        The objects outside of the root that this client may read.
    owner : str
        The name of this client in its records: ``Settings.identity``, and a random part.
    runner : Runner
        Carries out programs on the lake's store.
    saver : Heartbeat
        Saves the transactions that last long.
    context : Context
        The lake's state, as far as this process knows it.
    """

    #: The clock that measures the phases of transactions, if it is not the lake's clock.
    phase_clock: Clock | None = None

    def __init__(
        self,
        root: str,
        store: Store,
        *,
        settings: Settings,
        on_event: Callable[[Event], None] | None = None,
        progress: bool = False,
        conditional_writes: Literal["require", "check"] = "require",
        clock: Clock | None = None,
        ids: Ids | None = None,
        catalogs: Catalogs | None = None,
        reach: Reach | None = None,
        reopen: Callable[[], tuple[Any, ...]] | None = None,
    ) -> None:
        self.root = root
        self.settings = settings
        clock = clock or SystemClock()
        ids = ids or Ids(clock)
        # Use checks until the store is known to need none: a client that only reads may have no
        # right to probe, and with checks it reads only settled objects.
        checks = conditional_writes == "check" and _PROBED.get(self._store_key()) != "all"
        self._store = store
        place = store.place if isinstance(store, LakeStore) else root
        relied_on = is_relied_on if checks else None
        self.reach = Reach(root) if reach is None else reach
        self.runner = Runner(store, ids, settings, checked=relied_on, place=place, reach=self.reach)
        self.runner.share_caches(self._cached_as(), settings.cache_bytes)
        self._embedded = DuckDBEngine(DataFiles(self.runner), settings, ids)
        self.context = Context(
            root,
            clock,
            ids,
            settings,
            installed_formats(self.uri_of, self.runner.beginning),
            self._engine(self._embedded),
            notify=self.notify,
            connected=tuple(catalogs or ()),
            commits=self.runner.cached,
        )
        self._catalogs = catalogs or {}
        self._located: dict[str, tuple[str, float]] = {}
        self._listen(on_event, progress=progress)
        self._reopen = reopen
        #: The lake's own client, if this client is bound to a tag or a branch; None for the lake
        #: itself.
        self.lake: Self | None = None
        self.at: Frozen | None = None
        self.branch: str | None = None
        #: The client of the branch's next epoch, if the branch was rebased since this client was
        #: bound (docs/design/0034-rebase.md).
        self.next_epoch: Self | None = None
        #: The names that were requested last, while a caller still iterates over them.
        self.listing: ReferenceType[TableNames] | None = None
        self.owner = _owner(settings.identity, ids.nonce())
        # With checks, a write counts only after it has settled; a leader would read a proposal
        # earlier.
        self.context.proposes = lambda: self.runner.checked is None
        self._begin_threads()

    def _listen(self, on_event: Callable[[Event], None] | None, *, progress: bool) -> None:
        """Send events to the caller's function, and progress to the terminal."""
        self._listeners = [on_event] if on_event is not None else []
        self._tells_phases = on_event is not None
        if progress:
            self._listeners.append(Bars())
        self._progress = Progress(self.context.clock, self.notify) if self._listeners else None

    def _begin_threads(self) -> None:
        """Begin the threads that work for this context concurrently with its callers."""
        clock, settings = self.context.clock, self.settings
        # Threads refer to the runner. The runner must not keep alive a lake that its caller
        # dropped.
        self.runner.search = _weakly(self._find_place)
        self.context.replaces = self._replaces
        self._background = Background(self.runner)
        self._heartbeat = Heartbeat(self.runner, clock, settings.lease_seconds, self.log)
        self.context.renewed = self._heartbeat.add
        # Separate threads: a large upload must not delay a heartbeat or the taking of places.
        self.saver = self._thread("lakevilla-saver", settings.save_interval_seconds)
        self.placer = self._thread("lakevilla-placer", PLACE_AFTER_SECONDS)
        self.idlers = self._thread("lakevilla-idle", LOOK_AT_IDLE_SECONDS)
        empty_after_fork(self.context.groups)
        self.context.is_callers = is_callers

    def _find_place(self, key: str) -> Program[None]:
        return find_place(self.context, self.reach, key)

    def _thread(self, name: str, interval_seconds: float) -> Heartbeat:
        clock = self.context.clock
        return Heartbeat(self.runner, clock, 3 * interval_seconds, self.log, name)

    def __reduce__(self) -> tuple[Any, ...]:
        if self._reopen is None:
            raise TypeError("this lake was not made by lakevilla.connect and can't be pickled")
        again = self._reopen()
        name = self.branch if self.at is None else self.at.name
        return again if name is None else (_reopened_on, (name, *again))

    def on(self, name: str | None) -> Self:
        """Return a client of the same lake that stays bound to a ref; for None, the lake's own
        client.

        Raises
        ------
        RefNotFound
        """
        lake = self.lake or self
        if name is None:
            return lake
        found = lake.run(open_ref(lake.context, name))
        new = object.__new__(type(self))
        new.__dict__.update(lake.__dict__)
        new.lake = lake
        if isinstance(found, Frozen):
            new.at = found
            admit_sources(self.reach, found.base.clones)
        else:
            new._go_to(found)
        return new

    def _go_to(self, branch: Branch) -> None:
        """Bind this client to a branch, with its own HEAD, logs, records and threads."""
        self.branch = branch.name
        self.runner = self.runner.at(branch.entry.epoch)
        self.context = self.context.of_branch(branch.held)
        self._begin_threads()

    def head(self) -> Head | None:
        """Return the newest HEAD, or the HEAD of the ref to which the client is bound."""
        if self.at is not None:
            return self.at.head
        held = self.run(self.context.head()) if self.branch is None else self.current().context.held
        return None if held is None else held.head

    def main(self, verb: str) -> Self:
        """Return this client, if it is bound to no ref. Raises ``InvalidOperation``."""
        if self.branch is not None:
            raise InvalidOperation(
                f"{verb}: this is branch {self.branch!r}, and {verb} is for the lake itself, which "
                f'`lake.on("{MAIN}")` gives'
            )
        return self.writing(verb)

    def writing(self, verb: str) -> Self:
        """Return this client, if it is the lake's or a branch's. Raises ``InvalidOperation``."""
        if self.at is None:
            return self.current()
        raise InvalidOperation(
            f"{verb}: the lake at {self.at.base.kind} {self.at.name!r} only reads: "
            f'`lake.on("{MAIN}")` is the lake itself'
        )

    def only_reads(self) -> InvalidOperation:
        """Return the error for a transaction that would write, bound to a tag or clone."""
        assert self.at is not None
        return InvalidOperation(
            f"{self.at.base.kind} {self.at.name!r} only reads: begin the transaction on the lake "
            f'itself, which `lake.on("{MAIN}")` gives, or with read_only=True'
        )

    def run_safely(self, program: Program[T]) -> T:
        """Run a program that writes."""
        self.ensure_safe_store()
        return self.run(program)

    def run(self, program: Program[T]) -> T:
        """Run a program; return what it returns, and raise what it raises."""
        return self.runner.run(program)

    def close(self) -> None:
        """Wait for running background work, and stop renewing records.

        This also releases the tables that SQL keeps in memory, and the rows of hot tables. A client
        that is bound to a tag shares all of these with the lake's own client, so it closes nothing.
        A branch's client shares only these, so it leaves them.
        """
        if self.at is not None:
            return
        self.idlers.close()
        self.placer.close()
        self.saver.close()
        self._heartbeat.close()
        self._background.close()
        if self.next_epoch is not None:
            self.next_epoch.close()
        if self.branch is None:
            self._embedded.close()
            self.context.groups.release()
            self.runner.leave_caches()

    # -- what other kinds of lakes override ----------------------------------------

    def _engine(self, embedded: DuckDBEngine) -> Engine:
        """Return the engine of the lake's transactions."""
        return embedded

    @contextmanager
    def beside(self, frame: object) -> Iterator[None]:
        """Enter a block in which new frames come from the source of ``frame``, to be combined with
        it.
        """
        yield

    # -- the store -----------------------------------------------------------------

    def ensure_safe_store(self) -> None:
        """Probe conditional writes, once per store and process, before the first of them.

        If a store can create but not replace under a condition, HEAD is a log of objects there.
        With ``conditional_writes="check"``, a store that passes the probe is used without checks:
        that is cheaper and safe, and fits clients that require conditional writes. Only a store
        that fails the probe is used with checks.
        """
        if self.runner.checked is None:
            self.run(self._replaces())
            return
        key = self._store_key()
        if key not in _PROBED:
            _PROBED[key] = self._honoured()
        self.runner.replaces = _PROBED[key] == "all"
        # A lake whose HEAD is replaced under checks stays so: it was created before this store was
        # known to support conditional creates, or by clients that don't use them.
        held = self.run(self.context.head()) if _PROBED[key] == "creates" else None
        if _PROBED[key] == "all" or (
            _PROBED[key] == "creates" and (held is None or held.head.as_log)
        ):
            self.runner.checked = None

    def _replaces(self) -> Program[bool]:
        """Return whether the store replaces under a condition, probed once; with checks, True."""
        if self.runner.checked is not None:
            return True
        key = self._store_key()
        if key not in _PROBED:
            with during("metadata"):
                _PROBED[key] = "all" if (yield from self._probe()) else "creates"
        self.runner.replaces = _PROBED[key] == "all"
        return self.runner.replaces

    def _probe(self) -> Program[bool]:
        return probe(self.context.ids, seconds_between_writes(root_location(self.root).scheme))

    def _honoured(self) -> Literal["all", "creates", "none"]:
        place = self.runner.place
        plain = Runner(self.runner.store, self.context.ids, self.settings, place=place)
        try:
            return "all" if plain.run(self._probe()) else "creates"
        except (UnsafeStore, StoreError) as error:
            # If an unconditional write fails too, the store itself has failed: raise that error.
            plain.run(probe_plain(self.context.ids))
            message = (
                f"{self.root} is written with checks instead of conditional writes, which is best "
                f"effort: {error.message.partition(';')[0]}"
            )
            _LOG.warning(message)
            self.notify(Event("unsafe_store", None, message, {}))
            return "none"

    def _cached_as(self) -> Hashable:
        """Return the key under which the process's cache of objects keeps this lake's objects."""
        store = self.runner.store
        if not isinstance(store, LakeStore) or self.root == "memory://":
            return object()
        return store.place or self.root

    def _store_key(self) -> str:
        return f"{os.getpid()}:{self.root}"

    # -- names ---------------------------------------------------------------------

    def location_of(self, name: str) -> str:
        """Return the location of a table, looked up by its name in the newest HEAD.

        Raises
        ------
        InvalidOperation, TableNotFound
            The name is not valid, or its catalog has no such table.
        """
        head = self.head()
        return self.resolve(self.names(head, name), name, head)

    def resolve(
        self,
        names: Mapping[str, str],
        table: str,
        head: Head | None,
        *,
        also_renamed: bool = False,
    ) -> str:
        """Return the location of a table: a registered name, a path, a URI, or its name in a
        catalog.

        From now on the client may read objects at that location. ``also_renamed``: accept a path
        although its table has another name by now.

        Raises
        ------
        InvalidOperation, TableNotFound
            The name is not valid, could mean two tables, or its catalog has no such table.
        """
        return self.reach.admit(self._resolved(names, table, head, also_renamed=also_renamed))

    def _resolved(
        self, names: Mapping[str, str], table: str, head: Head | None, *, also_renamed: bool
    ) -> str:
        pointer = pointer_of(self._catalogs, table)
        if pointer is None or table in names:
            path = path_of(table)
            if path is None or table in names:
                location = resolve(self.root, names, table, also_renamed=also_renamed)
                return location if table in names else named(self._store, location)
            exact, other = (
                resolve(self.root, names, one, also_renamed=True) for one in (table, path)
            )
            with during("metadata"):
                if self.run(meant(self.context, head, exact, other)) == other:
                    table = path
            return resolve(self.root, names, table, also_renamed=also_renamed)
        now = self.context.clock.elapsed()
        location, at = self._located.get(table, ("", 0.0))
        if not location or now - at > _LOCATED_SECONDS:
            with during("metadata"):
                location = named(self._store, self.run(locate(self.context, pointer, table)))
            self._located[table] = location, now
        return location

    def place(self, given: str) -> str:
        """Return the location for a path or a URI, which is not looked up among the names.

        Raises
        ------
        InvalidOperation
        """
        return self.reach.admit(named(self._store, resolve(self.root, {}, given)))

    def name_place(self, uri: str) -> str:
        """Return a place that the caller has named: its objects may be read and written."""
        return self.reach.admit(named(self._store, uri))

    def place_of_name(self, old: str, new: str) -> str:
        """Return the location that a table's new name would have if it were a path.

        Raises
        ------
        InvalidOperation
            The new name is a path or a URI, or one of the two names is a name in a catalog.
        """
        if is_external(new):
            raise InvalidOperation(
                f"new is {new!r}, which is a path or a URI: give a name, such as 'sales'"
            )
        for name in (old, new):
            held = self.context.held
            known = self.names(None if held is None else held.head, name)
            if name not in known and pointer_of(self._catalogs, name) is not None:
                raise InvalidOperation(
                    f"{name!r} is a name in a catalog, where a table keeps its name: `register` "
                    "gives it another one in this lake",
                    table=old,
                )
        return resolve(self.root, {}, new)

    def names(self, head: Head | None, table: object) -> NameMap:
        """Return HEAD's names, with the parts loaded that the look-up of ``table`` needs."""
        if head is None or not isinstance(table, str):
            return NameMap()
        if head.names.refs:
            spellings = {table, table.replace(".", "/")}
            with suppress(InvalidOperation):
                spellings.add(resolve(self.root, {}, table))
            with during("version"):
                self.run(load_names(head, spellings))
        return head.names

    def uri_of(self, location: str) -> str:
        """Return a location as a path or a URI that other clients understand."""
        if "://" in location or location.startswith("/"):
            return location
        root = self.root if self.root == "memory://" else self.root.rstrip("/")
        return f"{root}/{location}"

    def named(self, result: CommitResult) -> CommitResult:
        """Return a commit's result with the names of its tables in place of their locations."""
        held = self.context.held
        if held is None or result.versions is None:
            return result
        # The transaction has looked up every name that it has used, so all are cached.
        head = held.head
        versions = {shown_name(head, key): one for key, one in result.versions.items()}
        return CommitResult(
            result.id, versions, result.global_version, result.retries, result.operations
        )

    # -- reports -------------------------------------------------------------------

    def log(self, message: str, txn_id: str | None) -> None:
        """Log a message with the logger ``lakevilla``."""
        _LOG.info(message, extra={"txn_id": txn_id})

    def notify(self, event: Event) -> None:
        """Report an event to the logger, and to the listener that ``connect`` was given."""
        loud = event.kind == "left_out" or event.detail.get("long")
        quiet = event.kind == "progress"
        level = logging.WARNING if loud else logging.DEBUG if quiet else logging.INFO
        _LOG.log(level, event.message, extra={"txn_id": event.txn_id})
        self._tell(event)

    def _tell(self, event: Event) -> None:
        for listener in self._listeners:
            try:
                listener(event)
            except Exception:  # an error of the caller's listener must not fail a commit
                _LOG.exception("on_event raised", extra={"txn_id": event.txn_id})

    def phases_of(self, state: TransactionState) -> Phases | None:
        """Return the meter of the phases of a transaction; None without a listener."""
        if not self._tells_phases:
            return None

        def tell(phases: Phases, span: Span) -> None:
            self._tell(phase_event(phases, span))

        return Phases(state.id, self.phase_clock or self.context.clock, tell)

    def tell_end(self, state: TransactionState, error: LakeVillaError | None = None) -> None:
        """Report once that a transaction has ended, and with which outcome."""
        self.saver.drop(id(state))
        self.idlers.drop(id(state))
        phases = state.phases
        if phases is not None and not phases.ended:
            phases.ended = True
            error = state.ending.failure or error
            now = (self.phase_clock or self.context.clock).elapsed()
            self._tell(transaction_event(state, error, phases.began, now))

    @contextmanager
    def ending(self, state: TransactionState) -> Iterator[None]:
        """Enter a block in which a transaction does all its work; report the end at its exit."""
        try:
            yield
        except LakeVillaError as error:
            self.tell_end(state, error)
            raise
        finally:
            self.tell_end(state)

    def measured(
        self, verb: str, table: object = None, txn_id: str | None = None
    ) -> AbstractContextManager[None]:
        """Enter a block whose progress is reported if it takes long and somebody listens."""
        if self._progress is None or not verb:
            return nullcontext()
        return self._progress.of(verb, table, txn_id)

    # -- the background ------------------------------------------------------------

    def after_commit(self, state: TransactionState, *, publish: bool) -> None:
        """Queue a commit's background work: checkpoints, and publishing unless ``publish`` is True.

        A branch publishes nothing: its commits are in no table's log.
        """
        decided = state.ending.decided
        if decided is not None and not publish and not state.context.epoch:
            for location in decided.summary.tables:
                self._soon(partial(publish_or_tell, state, decided, location))
            if named := renamed_tables(state):
                self._soon(partial(note_names, state.context, named))
        self.checkpoint_soon()

    def checkpoint_soon(self) -> None:
        """Queue the checkpoints that are due, of each table only the newest."""
        due = self.context.checkpoints_due
        newest: dict[str, int] = {}
        with suppress(IndexError):  # another thread may have taken the last entry
            while due:
                location, version = due.popleft()
                newest[location] = max(version, newest.get(location, version))
        for location, version in newest.items():
            program = partial(recovery.checkpoint, self.context, location, version)
            self._soon(program, key=("checkpoint", location))

    def _soon(self, program: Callable[[], Program[object]], key: object = None) -> None:
        self._background.soon(program, self.checkpoint_soon, key)


def _owner(identity: str, nonce: str) -> str:
    """Return a name that no other client has, with nothing that the caller has not given."""
    return f"{identity}:{nonce[:16]}" if identity else nonce[:16]


def _reopened_on(
    name: str, reopen: Callable[..., LakeClient], given: tuple[Any, ...]
) -> LakeClient:
    """Unpickle a client that is bound to a ref."""
    return reopen(*given).on(name)


def _weakly(find: Callable[[str], Program[None]]) -> Callable[[str], Program[None]]:
    """Return ``find`` with a weak reference to its client; without it, a search finds nothing."""
    method = WeakMethod(find)

    def search(key: str) -> Program[None]:
        found = method()
        if found is not None:
            yield from found(key)

    return search
