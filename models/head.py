"""HEAD: transactions on two tables, decided by one replacement, and published in the tables' logs.

A table is a set of files. One of them is its *root*: an update by ``a`` replaces root ``r`` by
``r+a``; an append by ``a`` adds the file ``a``. HEAD has the commits in order and, for each table,
the version of its log that it knows and the commits that are pending. Each scenario has some of
these at the same time:

- a *writer*: it reads HEAD, then the tables one after the other, stores its objects, looks above
  what it knows of the logs, validates, replaces HEAD, and publishes. Its answer may be lost; then
  the replacement has landed, or lands later, or never.
- a *foreign* client: it creates the next version of a log, and knows nothing of HEAD.
- a *helper*: it publishes what HEAD has decided, with a HEAD that may be old by then.
- an *outcome*: a client that asks for the outcome of a writer, which settles it.
- a *gc*: it lists commit objects, fences in HEAD, and deletes.

Faults, as many as ``Head.faults``: a writer dies between two steps, or loses the answer of its
replacement.

Rules
-----
Notes 2, 3 and 4 have no names for their rules; these are ours.

note 2, condition     HEAD is replaced only if it is the one that was validated against.
note 2, validated     After a lost race what was read is compared with the newer HEAD.
note 2, probe         Logs are looked at for foreign commits before the transaction is validated.
note 2, id            A client whose answer is lost looks for its id before it does anything else.
note 2, fence         A fenced id is not in the HEAD that replaces the one with the fence.
note 2, commit point  Nothing is published before HEAD is replaced.
note 3, order         Commits are published in HEAD's order.
note 3, once          A publisher has read all entries below the one that it creates.
note 3, unfit         A commit whose files a foreign entry has removed is not published.
note 3, reconcile     It is performed again, with those behind it, by one replacement of HEAD.
note 4, fence first   gc lists, then fences in HEAD, then deletes.
note 4, pending       gc keeps the objects of pending commits.
note 4, outcome       An outcome is no only after a replacement of HEAD that fences the id.

Invariants
----------
once      No transaction is in HEAD, or in a log, twice.
serial    What a transaction has read, and replaced, is there in the HEAD that it replaces, but for
          foreign versions that came after its look at the logs.
decided   A log has no transaction that is not in HEAD.
order     A log has transactions in HEAD's order.
rows      An entry removes files that are there, and adds files that are not.
lost      Each commit of HEAD is in its logs, or pending, or replayed.
objects   The object of a pending commit is there.
truth     Who was told yes is in HEAD, and who was told no is not, and never will be.
end       From each state all can be published.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

from models.asking import Asking, Write, landings

Files = frozenset[str]
TABLES = ("x", "y")

#: Mistakes that the checker must find. Each has the name of the planted bug that is the same
#: mistake in the code, where there is one.
FLAWS = {
    "match_dropped": "note 2, condition",
    "not_validated": "note 2, validated",
    "no_probe_before_validation": "note 2, probe",
    "id_not_looked_for": "note 2, id",
    "fence_not_looked_at": "note 2, fence",
    "publish_before_commit_point": "note 2, commit point",
    "own_entry_first": "note 3, order",
    "published_again": "note 3, once",
    "unfit_is_published": "note 3, unfit",
    "unfit_is_dropped": "note 3, reconcile",
    "gc_deletes_before_moving_head": "note 4, fence first",
    "gc_forgets_pending": "note 4, pending",
    "told_by_an_unchanged_head": "note 4, outcome",
}


class Change(NamedTuple):
    """What a commit does to one table: files that it removes and adds."""

    removes: Files
    adds: Files


class Entry(NamedTuple):
    """A version of a log, with the ids of the transactions in it; a foreign one has none."""

    ids: tuple[str, ...]
    change: Change


class Commit(NamedTuple):
    """A commit in HEAD; ``stands_for``: the transactions that a reconcile commit has replayed."""

    txn: str
    changes: tuple[tuple[str, Change], ...]
    stands_for: tuple[str, ...] = ()


class Place(NamedTuple):
    """What HEAD says of one table."""

    published: int
    pending: tuple[str, ...]


class HeadState(NamedTuple):
    number: int
    commits: tuple[Commit, ...]
    places: tuple[Place, Place]
    fenced: frozenset[str] = frozenset()

    def place(self, table: str) -> Place:
        return self.places[TABLES.index(table)]

    def commit(self, txn: str) -> Commit:
        return next(one for one in self.commits if one.txn == txn)

    def has(self, txn: str) -> bool:
        return any(txn in (one.txn, *one.stands_for) for one in self.commits)

    def with_place(self, table: str, place: Place) -> HeadState:
        places = [place if one == table else self.place(one) for one in TABLES]
        return self._replace(places=(places[0], places[1]))


_EMPTY = HeadState(0, (), (Place(1, ()), Place(1, ())))


class Writer(NamedTuple):
    """A transaction; each of the three names tables: read, updated, appended to."""

    name: str
    reads: str = ""
    updates: str = ""
    appends: str = ""

    @property
    def tables(self) -> tuple[str, ...]:
        return tuple(one for one in TABLES if one in self.reads + self.updates + self.appends)

    @property
    def written(self) -> tuple[str, ...]:
        return tuple(one for one in self.tables if one in self.updates + self.appends)


class Foreign(NamedTuple):
    name: str
    table: str
    updates: bool = False


class Helper(NamedTuple):
    name: str = "helper"


class Outcome(NamedTuple):
    """A client that asks for the outcome of a writer."""

    name: str
    of: str


class Gc(NamedTuple):
    name: str = "gc"


Actor = Writer | Foreign | Helper | Outcome | Gc

SCENARIOS: dict[str, tuple[Actor, ...]] = {
    "two updates": (Writer("a", updates="x"), Writer("b", updates="x")),
    "write skew": (Writer("a", reads="x", updates="y"), Writer("b", reads="y", updates="x")),
    "a foreign update": (Writer("a", updates="x"), Foreign("f", "x", True), Helper()),
    "a foreign update, no helper": (Writer("a", updates="x"), Foreign("f", "x", True)),
    "a foreign append": (Writer("a", reads="x", appends="y"), Foreign("f", "x")),
    "two appends": (Writer("a", appends="x"), Writer("b", reads="y", appends="x")),
    "its outcome": (Writer("a", appends="x"), Outcome("o", "a"), Helper()),
    "gc": (Writer("a", appends="x"), Gc(), Helper()),
    "behind another": (Writer("a", updates="x"), Writer("b", appends="x"), Helper()),
}
#: Those that take minutes, for the campaign.
LARGE: dict[str, tuple[Actor, ...]] = {
    "foreign and behind": (
        Writer("a", updates="x"),
        Writer("b", appends="x"),
        Foreign("f", "x", True),
        Helper(),
    ),
    "three writers": (
        Writer("a", updates="xy"),
        Writer("b", reads="x", updates="y", appends="x"),
        Writer("c", updates="x", appends="y"),
        Foreign("f", "x", True),
        Foreign("g", "y"),
        Helper(),
    ),
    "all": (
        Writer("a", reads="y", updates="x"),
        Writer("b", updates="xy"),
        Foreign("f", "x", True),
        Outcome("o", "a"),
        Gc(),
        Helper(),
    ),
}


@dataclass(frozen=True, slots=True)
class Client:
    """Where a client is, and what it knows."""

    at: str = "start"
    held: HeadState | None = None
    #: By table, the files that it has seen; and the version up to which it knows the log.
    seen: tuple[tuple[str, Files], ...] = ()
    known: tuple[tuple[str, int], ...] = ()
    #: The same as the logs were when the objects were stored.
    there: tuple[tuple[str, int], ...] = ()
    #: The entry that is about to be created: its table, its version, and itself.
    put: tuple[str, int, Entry] | None = None
    #: Ids that were listed, or are to be deleted.
    listed: frozenset[str] = frozenset()
    was_sent: bool = False


@dataclass(frozen=True, slots=True)
class State(Asking[Client]):
    """The store: HEAD, logs and commit objects; and the clients. ``told``: who was told what."""

    actors: tuple[Actor, ...] = ()
    head: HeadState = _EMPTY
    logs: tuple[tuple[Entry, ...], tuple[Entry, ...]] = ((), ())
    objects: frozenset[str] = frozenset()
    told: frozenset[tuple[str, str]] = frozenset()
    faults: int = 0

    def log(self, table: str) -> tuple[Entry, ...]:
        return self.logs[TABLES.index(table)]

    def with_entry(self, table: str, entry: Entry) -> State:
        logs = [(*self.log(one), entry) if one == table else self.log(one) for one in TABLES]
        return replace(self, logs=(logs[0], logs[1]))

    def with_head(self, head: HeadState) -> State:
        number = self.head.number + 1
        return replace(self, head=head._replace(number=number), replacement=number)

    def telling(self, txn: str, what: str) -> State:
        return replace(self, told=self.told | {(txn, what)})


def applied(files: Files, change: Change) -> Files:
    return (files - change.removes) | change.adds


def root(files: Files) -> str:
    return next((one for one in files if one.startswith("r")), "")


def of_log(entries: tuple[Entry, ...]) -> Files:
    files: Files = frozenset()
    for entry in entries:
        files = applied(files, entry.change)
    return files


def ids_in(entries: tuple[Entry, ...]) -> set[str]:
    return {txn for entry in entries for txn in entry.ids}


def view(head: HeadState, table: str, log: tuple[Entry, ...]) -> Files | None:
    """Return a table's files: the log, with HEAD's pending commits laid over it.

    None if one of them does not fit there: it has to be reconciled first.
    """
    files, have = of_log(log), ids_in(log)
    for txn in head.place(table).pending:
        change = dict(head.commit(txn).changes)[table]
        if txn in have:
            continue
        if not change.removes <= files:
            return None
        files = applied(files, change)
    return files


def known_part(head: HeadState, table: str, log: tuple[Entry, ...]) -> tuple[Entry, ...]:
    """Return a log up to the first entry of a transaction that HEAD does not know."""
    for number in range(head.place(table).published, len(log)):
        if any(not head.has(txn) for txn in log[number].ids):
            return log[:number]
    return log


def settled(head: HeadState, table: str, log: tuple[Entry, ...]) -> HeadState:
    """Return HEAD once it knows all of a log: what is published is not pending any more."""
    have = ids_in(log)
    pending = tuple(one for one in head.place(table).pending if one not in have)
    return head.with_place(table, Place(len(log), pending))


@dataclass(frozen=True, slots=True)
class Head:
    """The model; ``flaw`` leaves one of the rules out, ``scenarios`` are those that may begin."""

    flaw: str = ""
    faults: int = 1
    scenarios: tuple[str, ...] = tuple(SCENARIOS)

    def initial(self) -> State:
        first = (Entry((), Change(frozenset(), frozenset({"r"}))),)
        return State(logs=(first, first), faults=self.faults)

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        if not state.clients:
            for name in self.scenarios:
                actors = {**SCENARIOS, **LARGE}[name]
                yield name, replace(state, actors=actors, clients=tuple(Client() for _ in actors))
            return
        yield from landings(state, lambda rest, write: self._landed(rest, write.what))
        for number, (actor, client) in enumerate(zip(state.actors, state.clients, strict=True)):
            if client.at in ("done", "dead"):
                continue
            if client.put is not None:
                yield self._create(state, number, client)
            elif client.at in ("publish", "take"):
                yield from self._publish(state, number, client)
            elif isinstance(actor, Writer):
                yield from self._write(state, number, actor, client)
            elif isinstance(actor, Foreign):
                yield self._commit_beside(state, number, actor)
            elif isinstance(actor, Helper):
                yield "helper begins", state.at(number, at="publish")
            elif isinstance(actor, Outcome):
                yield self._ask(state, number, actor, client)
            else:
                yield self._collect(state, number, client)
            if state.faults and isinstance(actor, Writer) and client.at != "start":
                dead = Client(at="dead", was_sent=client.was_sent)
                clients = (*state.clients[:number], dead, *state.clients[number + 1 :])
                gone = replace(state, clients=clients, faults=state.faults - 1)
                yield f"{actor.name} dies", gone

    def has_ended(self, state: object) -> bool:
        """Whether all is published, or nobody is there that would publish it."""
        assert isinstance(state, State)
        if any(one.at not in ("done", "dead") for one in state.clients) or not state.clients:
            return False
        died = any(one.at == "dead" for one in state.clients)
        return died or all(self._next(state.head, one, state.log(one)) is None for one in TABLES)

    # -- what must hold ------------------------------------------------------------

    def violation(self, state: State) -> str | None:
        if state.wrong:
            return state.wrong
        ids = [txn for one in state.head.commits for txn in (one.txn, *one.stands_for)]
        # A transaction that was replayed has the place of the commit that has replayed it.
        order = {txn: place for place, txn in enumerate(ids)}
        whole = [one.txn for one in state.head.commits if one.changes]
        if len(set(whole)) < len(whole):
            return "once, in HEAD"
        for table in TABLES:
            wrong = self._wrong_in_log(state, table, order)
            if wrong:
                return wrong
        for txn, what in state.told:
            if (what == "yes") != state.head.has(txn):
                return "truth"
        return None

    def _wrong_in_log(self, state: State, table: str, order: dict[str, int]) -> str:
        log = state.log(table)
        files: Files = frozenset()
        for entry in log:
            if not entry.change.removes <= files or entry.change.adds & files:
                return "rows"
            files = applied(files, entry.change)
        logged = [txn for entry in log for txn in entry.ids]
        if len(set(logged)) < len(logged):
            return "once, in a log"
        if any(txn not in order for txn in logged):
            return "decided"
        if logged != sorted(logged, key=order.__getitem__):
            return "order"
        pending = state.head.place(table).pending
        for commit in state.head.commits:
            if table in dict(commit.changes) and commit.txn not in (*logged, *pending):
                later = [one.stands_for for one in state.head.commits if one.txn in pending]
                if not any(commit.txn in one for one in later):
                    return "lost"
        lost = [one for one in pending if one not in logged and one not in state.objects]
        return "objects" if lost else ""

    # -- a writer --------------------------------------------------------------------

    def _write(
        self, state: State, number: int, actor: Writer, client: Client
    ) -> Iterator[tuple[str, State]]:
        name, held = actor.name, client.held
        if client.at == "start":
            yield f"{name} reads HEAD", state.at(number, at="read", held=state.head)
            return
        assert held is not None
        if client.at == "read":
            yield self._read(state, number, actor, client, held)
        elif client.at == "upload":
            yield self._upload(state, number, actor, client)
        elif client.at == "replace":
            yield from self._replace(state, number, actor, client, held)
        elif client.at == "unknown":
            yield self._look(state, number, actor, client)

    def _read(
        self, state: State, number: int, actor: Writer, client: Client, held: HeadState
    ) -> tuple[str, State]:
        table = actor.tables[len(client.seen)]
        log = known_part(held, table, state.log(table))
        if len(log) < len(state.log(table)):
            newer = self._may_move(state, client)
            if newer:
                return f"{actor.name} finds a newer HEAD by {table}", state.at(
                    number, held=state.head
                )
        files = view(held, table, log)
        if files is None:  # a transaction that may write reconciles when it opens the table
            return f"{actor.name} finds an unfit commit", self._refused(state, number, actor)
        after = state.at(
            number,
            seen=(*client.seen, (table, files)),
            known=(*client.known, (table, len(log))),
            at="read" if len(client.seen) + 1 < len(actor.tables) else "upload",
        )
        return f"{actor.name} reads {table}", after

    def _may_move(self, state: State, client: Client) -> bool:
        """Whether all that a transaction has seen is the same at the newest HEAD."""
        versions = dict(client.known)
        return all(
            view(state.head, table, state.log(table)[: versions[table]]) == files
            for table, files in client.seen
        )

    def _upload(
        self, state: State, number: int, actor: Writer, client: Client
    ) -> tuple[str, State]:
        """Store the objects, and look above what is known of the logs in the same round."""
        head = client.held
        assert head is not None
        logs = [(state.log(one), known_part(head, one, state.log(one))) for one in actor.tables]
        if any(len(known) < len(log) for log, known in logs):
            head = state.head  # a log shows a commit of a newer one
            state = state.at(number, held=head)
        there = tuple((one, len(known_part(head, one, state.log(one)))) for one in actor.tables)
        known = there
        if self.flaw == "no_probe_before_validation":
            known = client.known
        stored = replace(state, objects=state.objects | {actor.name})
        after = stored.at(number, known=known, there=there)
        if self.flaw == "publish_before_commit_point":
            after = after.at(number, put=self._own_entry(state, actor, client), at="replace")
            return f"{actor.name} uploads", after
        if self._is_valid(after, actor, client, known, head):
            return f"{actor.name} uploads", after.at(number, at="replace")
        return self._in_conflict(after, number, actor, head)

    def _in_conflict(
        self, state: State, number: int, actor: Writer, head: HeadState
    ) -> tuple[str, State]:
        """Perform the updates again if the caller has read nothing, else refuse the transaction."""
        if actor.reads:
            return f"{actor.name} is in conflict", self._refused(state, number, actor)
        again = state.at(number, at="read", held=head, seen=(), known=(), there=())
        return f"{actor.name} redoes", again

    def _own_entry(self, state: State, actor: Writer, client: Client) -> tuple[str, int, Entry]:
        table = actor.written[0]
        change = dict(self._commit(actor, client).changes)[table]
        return table, len(state.log(table)), Entry((actor.name,), change)

    def _is_valid(
        self,
        state: State,
        actor: Writer,
        client: Client,
        known: tuple[tuple[str, int], ...],
        head: HeadState,
    ) -> bool:
        """Compare what was read, and what is removed, with HEAD and the known parts of the logs."""
        versions = dict(known)
        for table, files in client.seen:
            now = view(head, table, state.log(table)[: versions[table]])
            if now is None or (table in actor.reads and now != files):
                return False
            if table in actor.updates and root(files) not in now:
                return False
        return True

    def _commit(self, actor: Writer, client: Client) -> Commit:
        seen, changes = dict(client.seen), []
        for table in actor.written:
            old = root(seen[table])
            removes = frozenset({old}) if table in actor.updates else frozenset()
            adds = {f"{old}{actor.name}"} if table in actor.updates else {actor.name}
            changes.append((table, Change(removes, frozenset(adds))))
        return Commit(actor.name, tuple(changes))

    def _replace(
        self, state: State, number: int, actor: Writer, client: Client, held: HeadState
    ) -> Iterator[tuple[str, State]]:
        name = actor.name
        if name in held.fenced and self.flaw != "fence_not_looked_at":
            yield f"{name} is fenced", self._refused(state, number, actor)
            return
        head = held
        for table, version in client.known:
            head = settled(head, table, state.log(table)[:version])
        head = head._replace(commits=(*head.commits, self._commit(actor, client)))
        for table in actor.written:
            place = head.place(table)
            head = head.with_place(table, place._replace(pending=(*place.pending, name)))
        has_moved = state.head.number != held.number
        if has_moved and self.flaw != "match_dropped":
            then, after = self._look(state, number, actor, client)
            yield f"{name} loses the race, {then.partition(' ')[2]}", after
            return
        if has_moved:
            head = head._replace(number=state.head.number)
        sent = state.at(number, was_sent=True)
        what = number, head
        landed = self._landed(sent, what)
        yield f"{name} replaces HEAD", landed.at(number, at="take", held=landed.head)
        if state.faults:
            lost = replace(sent, faults=state.faults - 1).at(number, at="unknown")
            yield f"{name} has landed without an answer", self._landed(lost, what)
            yield f"{name} is on its way", lost.sent(Write(held.number, name, what))

    def _landed(self, state: State, what: tuple[int, HeadState]) -> State:
        """Store a HEAD, and note whether it was right: the reads of its commit are those of the
        serial order, and the files that it removes are there.
        """
        number, head = what
        actor, client = state.actors[number], state.clients[number]
        after = state.with_head(head)
        if not isinstance(actor, Writer) or client.at == "dead":
            return after
        missed = any(not head.has(one.txn) for one in state.head.commits)
        if missed or not self._is_valid(state, actor, client, client.there, state.head):
            return replace(after, wrong="serial")
        return after

    def _look(self, state: State, number: int, actor: Writer, client: Client) -> tuple[str, State]:
        """Look for the own id in the newest HEAD, and validate on it if it is not there."""
        name, head = actor.name, state.head
        if head.has(name) and self.flaw != "id_not_looked_for":
            return f"{name} finds itself", state.at(number, at="take", held=head)
        assert client.held is not None
        if client.at == "unknown" and head.number == client.held.number:
            # The very same replacement is sent again; it is stored once at most.
            return f"{name} sends again", state.at(number, at="replace")
        behind = tuple((one, max(at, head.place(one).published)) for one, at in client.known)
        after = state.at(number, at="replace", held=head, known=behind, there=behind)
        if self.flaw == "not_validated" or self._is_valid(after, actor, client, behind, head):
            return f"{name} moves to HEAD", after
        return self._in_conflict(after, number, actor, head)

    def _refused(self, state: State, number: int, actor: Writer) -> State:
        """A replacement that was sent has a newer HEAD above it by now, so it never lands."""
        return state.at(number, at="done").telling(actor.name, "no")

    # -- publishing ------------------------------------------------------------------

    def _next(
        self, head: HeadState, table: str, log: tuple[Entry, ...]
    ) -> tuple[tuple[str, ...], Change] | None:
        """Return the commits that are published next, and what they change together.

        None if all is published. There are no commits if the first one does not fit.
        """
        have = set(log[-1].ids) if self.flaw == "published_again" else ids_in(log)
        files = before = of_log(log)
        whole = Change(frozenset(), frozenset())
        txns: list[str] = []
        waiting = [txn for txn in head.place(table).pending if txn not in have]
        for txn in waiting:
            change = dict(head.commit(txn).changes)[table]
            if not change.removes <= files and self.flaw != "unfit_is_published":
                break
            if txns and not change.removes <= before:
                break  # it touches a file of another commit in the entry
            files = applied(files, change)
            whole = Change(whole.removes | change.removes, whole.adds | change.adds)
            txns.append(txn)
        return (tuple(txns), whole) if waiting else None

    def _publish(self, state: State, number: int, client: Client) -> Iterator[tuple[str, State]]:
        actor = state.actors[number]
        name, head = actor.name, client.held
        if client.at == "publish":
            yield f"{name} takes HEAD", state.at(number, at="take", held=state.head)
            return
        assert head is not None
        for table in actor.written if isinstance(actor, Writer) else TABLES:
            log = state.log(table)
            found = self._next(head, table, log)
            if found is None:
                continue
            txns, change = found
            if self.flaw == "own_entry_first" and name in head.place(table).pending:
                txns, change = (name,), dict(head.commit(name).changes)[table]
            if txns:
                ids = [one for txn in txns for one in (txn, *head.commit(txn).stands_for)]
                put = table, len(log), Entry(tuple(ids), change)
                yield f"{name} prepares {table}", state.at(number, put=put)
            elif head.number != state.head.number:
                yield f"{name} takes HEAD", state.at(number, held=state.head)
            else:
                yield self._reconcile(state, number, table, head)
            return
        after = state.at(number, at="done", held=None)
        yield (
            f"{name} has published",
            (after.telling(name, "yes") if isinstance(actor, Writer) else after),
        )

    def _create(self, state: State, number: int, client: Client) -> tuple[str, State]:
        assert client.put is not None
        table, version, entry = client.put
        name = state.actors[number].name
        after = state.at(number, put=None)
        if version != len(state.log(table)):
            return f"{name} is refused in {table}", after
        return f"{name} creates {table}", after.with_entry(table, entry)

    def _reconcile(
        self, state: State, number: int, table: str, head: HeadState
    ) -> tuple[str, State]:
        """Replay the first unfit commit, and all behind it, and replace HEAD once."""
        name = state.actors[number].name
        log = state.log(table)
        have = ids_in(log)
        waiting = [one for one in head.place(table).pending if one not in have]
        if self.flaw == "unfit_is_dropped":
            dropped = Place(len(log), tuple(waiting[1:]))
            after = state.with_head(head.with_place(table, dropped))
            return f"{name} drops a commit", after.at(number, held=after.head)
        files = before = of_log(log)
        members: list[str] = []
        for txn in waiting:
            commit = head.commit(txn)
            for member in commit.stands_for or (txn,):
                members.append(member)
                if dict(commit.changes)[table].removes:
                    old = root(files)
                    files = (files - {old}) | {f"{old}{member}"}
                else:
                    files |= {member}
        made = f"reconcile {head.number}"
        commit = Commit(made, ((table, Change(before - files, files - before)),), tuple(members))
        newer = head.with_place(table, Place(len(log), (made,)))
        newer = newer._replace(commits=(*newer.commits, commit))
        after = replace(state, objects=state.objects | {made}).with_head(newer)
        return f"{name} reconciles {table}", after.at(number, held=after.head)

    # -- the others ------------------------------------------------------------------

    def _commit_beside(self, state: State, number: int, actor: Foreign) -> tuple[str, State]:
        log = state.log(actor.table)
        files = of_log(log)
        old = root(files)
        removes = frozenset({old}) if actor.updates else frozenset()
        adds = frozenset({f"{old}{actor.name}" if actor.updates else actor.name})
        put = actor.table, len(log), Entry((), Change(removes, adds))
        if state.clients[number].at == "prepared":
            return f"{actor.name} has committed", state.at(number, at="done")
        return f"{actor.name} prepares", state.at(number, put=put, at="prepared")

    def _ask(self, state: State, number: int, actor: Outcome, client: Client) -> tuple[str, State]:
        """Settle an outcome: an id that is not in HEAD is fenced by a replacement of HEAD."""
        if client.at == "start":
            return f"{actor.name} reads HEAD", state.at(number, at="fence", held=state.head)
        head = client.held
        assert head is not None
        if head.has(actor.of):
            return f"{actor.name} says yes", state.at(number, at="done").telling(actor.of, "yes")
        if self.flaw == "told_by_an_unchanged_head":
            return f"{actor.name} says no", state.at(number, at="done").telling(actor.of, "no")
        if head.number != state.head.number:
            return f"{actor.name} loses the race", state.at(number, at="start", held=None)
        newer = head._replace(fenced=head.fenced | {actor.of})
        after = state.with_head(newer).at(number, at="done")
        return f"{actor.name} fences, and says no", after.telling(actor.of, "no")

    def _collect(self, state: State, number: int, client: Client) -> tuple[str, State]:
        if client.at == "start":
            after = state.at(number, at="fence", held=state.head, listed=state.objects)
            return "gc lists", after
        head = client.held
        assert head is not None
        if client.at == "fence" and self.flaw != "gc_deletes_before_moving_head":
            if head.number != state.head.number:
                return "gc loses the race", state.at(number, held=state.head)
            for table in TABLES:
                head = settled(head, table, known_part(head, table, state.log(table)))
            fenced = {one for one in client.listed if not head.has(one)}
            newer = head._replace(fenced=head.fenced | fenced)
            after = state.with_head(newer)
            return "gc fences", after.at(number, at="delete", held=after.head)
        kept = {one for place in head.places for one in place.pending}
        if self.flaw == "gc_forgets_pending":
            kept = set()
        gone = client.listed - kept
        return "gc deletes", replace(state, objects=state.objects - gone).at(number, at="done")
