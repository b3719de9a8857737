"""Given commits: an Iceberg client's snapshot, decided in HEAD and published as it is.

Two tables have a log each, whose versions are whole states, and HEAD has their pending commits.
*Gateways* keep nothing, so a client that asks again may ask any of them. Each scenario has some of
these at the same time:

- an Iceberg *client*: it loads its tables, makes snapshots on what it was shown, and asks for one
  commit of them. It may rely on a table that it does not write. The answer of HEAD's replacement
  may be lost, and so may the gateway's; then it asks again, with the very same snapshots.
- a client of *LakeVilla*: it decides a commit on the state at HEAD, and leaves it pending.
- a *foreign* client: it creates the next version of a log.
- a *helper*: it publishes what is pending, one version at a time.

A file is a name, a key and a sequence number; an equality delete takes the rows with its key from
the files of lower numbers. A name that ends with ``*`` is the file before the star with rows marked
as deleted.

Rules
-----
The names are those of the design note.

G1  Before anything is compared, what is pending on the tables is published.
G2  If all snapshots of the request are in the logs, it is done. If some are, it is never refused.
G3  The requirements are compared with the logs' newest versions. If they do not hold on a version
    that HEAD does not know, the HEAD that was compared is replaced before the request is refused:
    an earlier write of the same request can't land any more.
G5  The HEAD that is replaced has nothing pending on the tables of the request, among them those on
    which the client only relies.
G7  On another version than the client's, the snapshot keeps its id and gets a list of that
    version's files. Only files that are there under the same name and marks are removed, only
    files that the client has added are added, and a commit with deletes is void.
G8  A request whose replacement of HEAD was sent is refused only if it is void on all tables.

Invariants
----------
rows      A version has the rows of the one before it, without those that its commit removes, and
          with those that it adds. An equality delete removes those that its client knew.
once      No commit is in a log twice, and no request takes effect twice.
order     Commits of HEAD are in a log in HEAD's order.
state     A commit is decided on the states that its client knew, except for foreign versions.
truth     A request that was told yes is in all its tables' logs. One that was told no is in none,
          and is not pending.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from models.asking import ENDS, Asking, Write, landings

File = tuple[str, str, int]
#: A key, and the sequence number of its equality delete.
Deletion = tuple[str, int]
#: What a client does to a table: append, rewrite the root file, mark rows in it, append and write
#: the root file's entry into its manifest, delete a key by equality, or append rows of that key.
Kind = Literal["append", "rewrite", "mark", "merge", "delete", "key"]
TABLES = ("x", "y")
#: A request is sent twice at most: one answer of it is lost.
MOST_SENT = 2


class Version(NamedTuple):
    """One version of a log, ``published`` up to a sequence of HEAD."""

    files: frozenset[File]
    deletes: frozenset[Deletion]
    snapshot: str
    snapshots: frozenset[str]
    published: int
    by: str

    @property
    def next_number(self) -> int:
        numbers = [file[2] for file in self.files] + [one[1] for one in self.deletes]
        return max(numbers, default=0) + 1

    @property
    def rows(self) -> frozenset[str]:
        """The files of which rows are left."""
        return frozenset(
            name
            for name, key, number in self.files
            if not any(key == other and number < later for other, later in self.deletes)
        )

    @property
    def names(self) -> frozenset[str]:
        return frozenset(name for name, _, _ in self.files)


class Part(NamedTuple):
    """The change of one table. ``files_then`` and ``deletes_then`` are the client's own list."""

    snapshot: str
    parent: str
    adds: frozenset[tuple[str, str]]
    removes: frozenset[str]
    deletes: frozenset[str]
    manifest: frozenset[tuple[str, str]]
    files_then: frozenset[File]
    deletes_then: frozenset[Deletion]
    is_given: bool


Parts = tuple[tuple[str, Part], ...]
Pending = tuple[tuple[int, str], ...]


class Ask(NamedTuple):
    """An Iceberg client's request; ``loses`` the answer of HEAD, of the gateway, or none."""

    name: str
    kinds: tuple[tuple[str, Kind], ...]
    relies: tuple[str, ...] = ()
    loses: Literal["", "head", "gateway"] = ""


class Own(NamedTuple):
    """A client of LakeVilla."""

    name: str
    table: str
    kind: Kind


class Foreign(NamedTuple):
    name: str
    table: str
    kind: Kind


class Helper(NamedTuple):
    name: str = "helper"


Actor = Ask | Own | Foreign | Helper

SCENARIOS: dict[str, tuple[Actor, ...]] = {
    "foreign append": (Ask("g", (("x", "append"),)), Foreign("f", "x", "append"), Helper()),
    "foreign rewrite": (Ask("g", (("x", "rewrite"),)), Foreign("f", "x", "rewrite"), Helper()),
    "foreign marks": (Ask("g", (("x", "rewrite"),)), Foreign("f", "x", "mark"), Helper()),
    "old entries": (Ask("g", (("x", "merge"),)), Foreign("f", "x", "rewrite"), Helper()),
    "lakevilla": (Ask("g", (("x", "append"),)), Own("w", "x", "rewrite"), Helper()),
    "two tables": (
        Ask("g", (("x", "append"), ("y", "rewrite"))),
        Own("w", "y", "append"),
        Helper(),
    ),
    "two tables, foreign": (
        Ask("g", (("x", "append"), ("y", "append"))),
        Foreign("f", "y", "append"),
        Own("w", "x", "append"),
    ),
    "two requests": (Ask("g", (("x", "append"),)), Ask("h", (("x", "append"),))),
    "lost answers": (
        Ask("g", (("x", "append"),), loses="head"),
        Ask("h", (("x", "append"),), loses="gateway"),
    ),
    "lost answer, lakevilla": (
        Ask("g", (("x", "append"), ("y", "append")), loses="head"),
        Own("w", "x", "append"),
        Helper(),
    ),
    "lost answer, foreign": (
        Ask("g", (("x", "append"),), loses="head"),
        Foreign("f", "x", "append"),
        Helper(),
    ),
    "lost yes, foreign": (
        Ask("g", (("x", "append"),), loses="gateway"),
        Foreign("f", "x", "append"),
        Helper(),
    ),
    "equality delete": (Ask("g", (("x", "delete"),)), Foreign("f", "x", "key"), Helper()),
    "equality delete, lakevilla": (Ask("g", (("x", "delete"),)), Own("w", "x", "key"), Helper()),
    "relied on": (
        Ask("g", (("x", "append"),), relies=("y",)),
        Ask("h", (("y", "append"),), relies=("x",)),
    ),
    "relied on, lakevilla": (
        Ask("g", (("x", "append"),), relies=("y",)),
        Own("w", "y", "append"),
        Helper(),
    ),
    "half void": (
        Ask("g", (("x", "append"),), relies=("y",), loses="head"),
        Ask("h", (("y", "append"), ("x", "rewrite")), loses="gateway"),
        Foreign("f", "x", "rewrite"),
    ),
}

#: Mistakes that the checker must find, by the rule that each leaves out.
FLAWS = {
    "pending_ignored": "G1",
    "sent_again": "G2",
    "half_refused": "G2",
    "refused_while_it_may_land": "G3",
    "reliance_not_compared": "G5",
    "list_on_another_version": "G7",
    "another_id": "G7",
    "deletes_moved": "G7",
    "old_entries_kept": "G7",
    "removed_by_path": "G7",
    "refused_in_doubt": "G8",
}


class Seen(NamedTuple):
    """The HEAD that a gateway has compared, and where the logs of the tables ended."""

    replacement: int
    pending: tuple[tuple[str, Pending], ...]
    tips: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Client:
    """Where a client, or the gateway that it asks, is."""

    at: str = "start"
    made: Parts = ()
    relied: tuple[tuple[str, str], ...] = ()
    tries: int = 0
    seen: Seen | None = None
    #: The version that is about to be created: table, version, number.
    put: tuple[str, Version, int] | None = None
    back: str = ""


class Sent(NamedTuple):
    """The commit that a write would store in HEAD."""

    commit: str
    parts: Parts
    relied: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class State(Asking[Client]):
    actors: tuple[Actor, ...] = ()
    sequence: int = 0
    pending: tuple[Pending, ...] = ((), ())
    logs: tuple[tuple[Version, ...], ...] = ()
    commits: tuple[tuple[str, Parts], ...] = ()
    void: frozenset[tuple[str, str]] = frozenset()
    landed: frozenset[str] = frozenset()

    def log(self, table: str) -> tuple[Version, ...]:
        return self.logs[TABLES.index(table)]

    def tip(self, table: str) -> Version:
        return self.log(table)[-1]

    def waiting(self, table: str) -> Pending:
        published = self.tip(table).published
        return tuple(one for one in self.pending[TABLES.index(table)] if one[0] > published)

    def part(self, commit: str, table: str) -> Part:
        return dict(dict(self.commits)[commit])[table]

    def with_pending(self, table: str, pending: Pending) -> State:
        rows = tuple(
            pending if one == table else self.pending[place] for place, one in enumerate(TABLES)
        )
        return replace(self, pending=rows)

    def with_version(self, table: str, version: Version) -> State:
        logs = tuple(
            (*self.logs[place], version) if one == table else self.logs[place]
            for place, one in enumerate(TABLES)
        )
        return replace(self, logs=logs)


def _first() -> Version:
    files = frozenset({("root", "r", 0), ("old", "k", 0)})
    return Version(files, frozenset(), "s", frozenset({"s"}), 0, "")


def part_of(version: Version, name: str, kind: Kind, *, is_given: bool) -> Part:
    """Return what a client does to the state that it knows."""
    key = {"delete": "k", "key": "k", "rewrite": "r", "mark": "r"}.get(kind, "a")
    adds = frozenset({(name, key)})
    removes: frozenset[str] = frozenset()
    if kind in ("rewrite", "mark"):
        removes = frozenset(one for one, other, _ in version.files if other == "r")
    if kind == "rewrite":
        adds = frozenset({(f"root{name}", "r")})
    if kind == "mark":
        adds = frozenset({("root*", "r")})
    deletes = frozenset({"k"}) if kind == "delete" else frozenset()
    old = frozenset({("root", "r")}) if kind == "merge" else frozenset()
    number = version.next_number
    files = frozenset(one for one in version.files if one[0] not in removes)
    return Part(
        f"S{name}",
        version.snapshot,
        adds,
        removes,
        deletes,
        adds | old,
        files | {(one, of, number) for one, of in adds},
        version.deletes | {(one, number) for one in deletes},
        is_given,
    )


@dataclass(frozen=True, slots=True)
class Given:
    """The model; ``flaw`` leaves one of the rules out, ``scenarios`` are those that may begin."""

    flaw: str = ""
    scenarios: tuple[str, ...] = tuple(SCENARIOS)

    def initial(self) -> State:
        return State(logs=((_first(),), (_first(),)))

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        if not state.clients:
            for name in self.scenarios:
                actors = SCENARIOS[name]
                clients = tuple(Client() for _ in actors)
                yield name, replace(state, actors=actors, clients=clients)
            return
        yield from landings(state, self._landed)
        for number, (actor, client) in enumerate(zip(state.actors, state.clients, strict=True)):
            if client.at in ENDS:
                continue
            if client.put is not None:
                yield from self._put(state, number, client)
            elif isinstance(actor, Ask):
                yield from self._ask(state, number, actor, client)
            elif isinstance(actor, Own):
                yield from self._decide_own(state, number, actor)
            elif isinstance(actor, Foreign):
                yield from self._create(state, number, actor, client)
            else:
                yield from self._publish(state, number, client, "done")

    # -- what must hold ------------------------------------------------------------

    def violation(self, state: State) -> str | None:
        if state.wrong:
            return state.wrong
        for log in state.logs:
            wrong = self._wrong_in(state, log)
            if wrong:
                return wrong
        for actor, client in zip(state.actors, state.clients, strict=True):
            if isinstance(actor, Ask) and not self._is_true(state, actor, client):
                return "truth"
        return None

    def _wrong_in(self, state: State, log: tuple[Version, ...]) -> str:
        """Only the newest version is compared: the others were compared in earlier states."""
        if len(log) < 2:
            return ""
        before, after = log[-2:]
        if after.by in {one.by for one in log[:-1]}:
            return "once, in a log"
        if after.published < before.published:
            return "order"
        table = TABLES[state.logs.index(log)]
        part = state.part(after.by, table)
        added = {name for name, _ in part.adds}
        wanted = (before.rows - part.removes) | added
        if part.deletes:
            known = {name for name, _, _ in part.files_then}
            gone = {name for name, key, _ in before.files if key in part.deletes}
            wanted -= (gone & known) - added
        return "" if after.rows == wanted else "rows"

    def _is_true(self, state: State, actor: Ask, client: Client) -> bool:
        own = {f"{actor.name}{tries}" for tries in range(MOST_SENT)}
        in_log = [any(one.by in own for one in state.log(table)) for table, _ in actor.kinds]
        waits = any(commit in own for one in TABLES for _, commit in state.waiting(one))
        if client.at == "yes":
            return all(in_log)
        return not (client.at == "no" and (any(in_log) or waits))

    # -- publishing ----------------------------------------------------------------

    def _rendered(self, version: Version, part: Part, commit: str, sequence: int) -> Version | None:
        """Return the version after another, or None if the commit does not fit there (G7)."""
        is_same = version.snapshot == part.parent
        if part.is_given and (is_same or self.flaw == "list_on_another_version"):
            files, deletes = part.files_then, part.deletes_then
        else:
            gone = part.removes
            if self.flaw == "removed_by_path" and part.is_given:
                paths = {name.rstrip("*") for name in gone}
                gone = frozenset(one for one in version.names if one.rstrip("*") in paths)
            if not gone <= version.names or len(gone) < len(part.removes):
                return None
            if part.deletes and part.is_given and self.flaw != "deletes_moved":
                return None
            number = version.next_number
            is_kept = self.flaw == "old_entries_kept" and part.is_given
            added = part.manifest if is_kept else part.adds
            kept = frozenset(one for one in version.files if one[0] not in gone)
            there = {name for name, _, _ in kept}
            files = kept | {(name, key, number) for name, key in added if name not in there}
            deletes = version.deletes | {(key, number) for key in part.deletes}
        is_another = self.flaw == "another_id" and part.is_given and not is_same
        snapshot = part.snapshot + ("'" if is_another else "")
        return Version(files, deletes, snapshot, version.snapshots | {snapshot}, sequence, commit)

    def _publish(
        self, state: State, number: int, client: Client, then: str
    ) -> Iterator[tuple[str, State]]:
        """Prepare the next version of the first table with something pending, or void it."""
        name = state.actors[number].name
        for table in TABLES:
            waiting = state.waiting(table)
            if not waiting:
                continue
            sequence, commit = waiting[0]
            version = self._rendered(state.tip(table), state.part(commit, table), commit, sequence)
            if version is None:
                rest = tuple(one for one in state.pending[TABLES.index(table)] if one != waiting[0])
                after = replace(
                    state.with_pending(table, rest),
                    replacement=state.replacement + 1,
                    void=state.void | {(commit, table)},
                )
                yield f"{name} voids {commit} on {table}", after
            else:
                put = table, version, len(state.log(table))
                yield f"{name} prepares {commit} on {table}", state.at(number, put=put)
            return
        yield f"{name} finds nothing pending", state.at(number, at=then)

    def _put(self, state: State, number: int, client: Client) -> Iterator[tuple[str, State]]:
        assert client.put is not None
        table, version, length = client.put
        after = state.at(number, put=None)
        name = state.actors[number].name
        if len(state.log(table)) == length:
            yield f"{name} creates {table}{length}", after.with_version(table, version)
        else:
            yield f"{name} is refused {table}{length}", after

    # -- others --------------------------------------------------------------------

    def _at_head(self, state: State, table: str) -> Version | None:
        """Return the state at HEAD; None if what is decided does not fit the log."""
        version: Version | None = state.tip(table)
        for sequence, commit in state.waiting(table):
            if version is None:
                return None
            version = self._rendered(version, state.part(commit, table), commit, sequence)
        return version

    def _decide_own(self, state: State, number: int, actor: Own) -> Iterator[tuple[str, State]]:
        version = self._at_head(state, actor.table)
        if version is None:
            return
        part = part_of(version, actor.name, actor.kind, is_given=False)
        after = _decided(state, actor.name, ((actor.table, part),))
        yield f"{actor.name} decides", after.at(number, at="done")

    def _create(
        self, state: State, number: int, actor: Foreign, client: Client
    ) -> Iterator[tuple[str, State]]:
        log = state.log(actor.table)
        if client.at == "start":
            seen = Seen(0, (), ((actor.table, len(log)),))
            yield f"{actor.name} reads", state.at(number, at="write", seen=seen)
            return
        assert client.seen is not None
        if dict(client.seen.tips)[actor.table] != len(log):
            yield f"{actor.name} begins again", state.at(number, at="start", seen=None)
            return
        tip = log[-1]
        part = part_of(tip, actor.name, actor.kind, is_given=True)
        version = Version(
            part.files_then,
            part.deletes_then,
            part.snapshot,
            tip.snapshots | {part.snapshot},
            tip.published,
            actor.name,
        )
        commits = (*state.commits, (actor.name, ((actor.table, part),)))
        after = replace(state, commits=commits).with_version(actor.table, version)
        yield f"{actor.name} creates", after.at(number, at="done", seen=None)

    # -- an Iceberg client, and the gateway that it asks -----------------------------

    def _ask(
        self, state: State, number: int, actor: Ask, client: Client
    ) -> Iterator[tuple[str, State]]:
        if client.at == "start":  # a load publishes what is pending, and shows the newest version
            yield from self._publish(state, number, client, "make")
        elif client.at == "make":
            made = tuple(
                (table, part_of(state.tip(table), actor.name, kind, is_given=True))
                for table, kind in actor.kinds
            )
            relied = tuple((table, state.tip(table).snapshot) for table in actor.relies)
            yield f"{actor.name} asks", state.at(number, at="begin", made=made, relied=relied)
        elif client.at == "begin":
            if self.flaw == "pending_ignored":
                yield f"{actor.name} looks", state.at(number, at="look")
            else:
                yield from self._publish(state, number, client, "look")
        elif client.at == "look":
            yield from self._look(state, number, actor, client)
        elif client.at == "settle":  # G3: an earlier write of the request can't land any more
            assert client.seen is not None
            if client.seen.replacement != state.replacement:
                yield f"{actor.name} compares again", state.at(number, at="begin", seen=None)
                return
            after = replace(state, replacement=state.replacement + 1)
            after = after.at(number, at="no", seen=None)
            yield f"{actor.name} replaces HEAD, and is refused", after
        elif client.at == "send":
            yield from self._send(state, number, actor, client)
        elif client.at == "tell":
            yield from self._publish(state, number, client, "answer")
        else:
            yield from self._answer(state, number, actor, client)

    def _look(
        self, state: State, number: int, actor: Ask, client: Client
    ) -> Iterator[tuple[str, State]]:
        name = actor.name
        tables = [*dict(client.made), *actor.relies]
        if self.flaw != "pending_ignored" and any(map(state.waiting, tables)):
            yield f"{name} sees what is pending", state.at(number, at="begin")
            return
        there = [part.snapshot in state.tip(table).snapshots for table, part in client.made]
        if all(there) and self.flaw != "sent_again":
            yield f"{name} is there", state.at(number, at="yes")
            return
        if any(there) and self.flaw not in ("sent_again", "half_refused"):
            yield f"{name} is half there", state.at(number, at="unknown")
            return
        holds = all(state.tip(table).snapshot == part.parent for table, part in client.made)
        holds = holds and all(state.tip(table).snapshot == one for table, one in client.relied)
        if not holds:
            is_foreign = any(state.tip(table).by not in self._in_head(state) for table in tables)
            settles = is_foreign and self.flaw != "refused_while_it_may_land"
            if settles:
                seen = Seen(state.replacement, (), ())
                yield f"{name} does not hold", state.at(number, at="settle", seen=seen)
            else:
                yield f"{name} does not hold, and is refused", state.at(number, at="no")
            return
        seen = Seen(
            state.replacement,
            tuple((table, state.pending[TABLES.index(table)]) for table in tables),
            tuple((table, len(state.log(table))) for table in tables),
        )
        yield f"{name} holds", state.at(number, at="send", seen=seen)

    def _in_head(self, state: State) -> set[str]:
        """Return the commits that HEAD has decided."""
        foreign = {actor.name for actor in state.actors if isinstance(actor, Foreign)}
        return {commit for commit, _ in state.commits} - foreign | {""}

    def _send(
        self, state: State, number: int, actor: Ask, client: Client
    ) -> Iterator[tuple[str, State]]:
        name, seen = actor.name, client.seen
        assert seen is not None
        if state.replacement != seen.replacement:
            compared = dict(client.made) if self.flaw == "reliance_not_compared" else None
            moved = any(
                state.pending[TABLES.index(table)] != known
                for table, known in seen.pending
                if compared is None or table in compared
            )
            at = "begin" if moved else "send"
            newer = None if moved else seen._replace(replacement=state.replacement)
            yield f"{name} loses the race", state.at(number, at=at, seen=newer)
            return
        sends = Sent(f"{name}{client.tries}", client.made, client.relied)
        write = Write(seen.replacement, name, sends)
        if actor.loses == "head" and client.tries == 0:
            at = "no" if self.flaw == "refused_in_doubt" else "begin"
            after = state.at(number, at=at, tries=1, seen=None)
            yield f"{name} has landed without an answer", self._landed(after, write)
            again = state.sent(write).at(number, at="begin", tries=1, seen=None)
            yield f"{name} is on its way", again
            return
        yield f"{name} is decided", self._landed(state, write).at(number, at="tell", seen=None)

    def _landed(self, state: State, write: Write) -> State:
        """Return the state after a replacement of HEAD; note whether it was right to send it."""
        wrong = "once, in HEAD" if write.name in state.landed else ""
        foreign = {actor.name for actor in state.actors if isinstance(actor, Foreign)}
        relied = [*((table, part.parent) for table, part in write.what.parts), *write.what.relied]
        for table, snapshot in relied:
            version = self._at_head(state, table)
            if version is not None and version.snapshot != snapshot and version.by not in foreign:
                wrong = wrong or "state"
        after = _decided(state, write.what.commit, write.what.parts)
        return replace(after, landed=state.landed | {write.name}, wrong=wrong)

    def _answer(
        self, state: State, number: int, actor: Ask, client: Client
    ) -> Iterator[tuple[str, State]]:
        commit = f"{actor.name}{client.tries}"
        void = [table for table, _ in client.made if (commit, table) in state.void]
        if actor.loses == "gateway" and client.tries == 0:
            yield f"{actor.name} hears nothing", state.at(number, at="begin", tries=1)
        elif len(void) == len(client.made):
            yield f"{actor.name} is void", state.at(number, at="no")
        else:
            yield f"{actor.name} is answered", state.at(number, at="unknown" if void else "yes")


def _decided(state: State, commit: str, parts: Parts) -> State:
    """Return the state after a replacement of HEAD that decides a commit."""
    sequence = state.sequence + 1
    after = replace(
        state,
        replacement=state.replacement + 1,
        sequence=sequence,
        commits=(*state.commits, (commit, parts)),
    )
    for table, _ in parts:
        after = after.with_pending(table, (*state.waiting(table), (sequence, commit)))
    return after
