"""Branches: made, committed to, merged, rebased, ended, and cleaned up behind.

The lake's HEAD has the operations of main, and at most one entry, for the branch. The entry has an
id, its epochs, a base, and the base that was last merged. Each epoch has a HEAD of its own with the
operations that were committed there. An operation is a file, stored under the epoch in which it was
performed. Each scenario has some of these at the same time: clients that make the branch, commit to
it, merge, rebase, end it, or give it another epoch where a rebase was cut off; and gc.

Faults, as many as ``Refs.faults``: a client dies between two steps, or loses the answer of its
commit, which has landed.

Rules
-----
Notes 30, 31 and 34 have no names for their rules; these are ours.

note 30, kept    gc keeps the bases that HEAD names.
note 31, named   A base, and an epoch, has the number of the replacement for which it is stored.
note 31, close   The branch's HEAD is closed before its entry leaves the lake's HEAD.
note 31, closed  No commit replaces a closed HEAD.
note 31, epochs  gc keeps all that is stored under an epoch that the entry names.
note 31, synced  A merge notes in the entry the base that it has merged.
note 31, entry   A merge replaces HEAD only if the entry is the one that it has read.
note 31, gone    Who finds no HEAD after it has tried to commit says that the outcome is unknown.
note 34, close   A rebase closes the old epoch before the lake's HEAD names the new one.
note 34, epochs  A rebase keeps the epochs whose files the new HEAD names.
note 34, moved   Who has tried to commit looks for its commit in the closed HEAD.

Invariants
----------
lost      What was committed on a branch is there, or on main, as long as the entry is there.
objects   The bases that HEAD names are there, and the HEAD of the present epoch.
files     The files of main and of the branch are there.
twice     No operation is on main, or on the branch, twice.
truth     Who was told yes has committed; who was told no has not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

#: Mistakes that the checker must find, with the names of the planted bugs that are the same.
FLAWS = {
    "gc_knows_no_refs": "note 30, kept",
    "samelife": "note 31, named",
    "dereg_first": "note 31, close",
    "closed_is_not_looked_at": "note 31, closed",
    "gc_knows_no_epochs": "note 31, epochs",
    "nosync": "note 31, synced",
    "blindmerge": "note 31, entry",
    "goneno": "note 31, gone",
    "noclose": "note 34, close",
    "droplives": "note 34, epochs",
    "movedlost": "note 34, moved",
}

Ops = tuple[str, ...]


class Base(NamedTuple):
    """A state that is kept, stored for a replacement of HEAD."""

    number: int
    by: str
    ops: Ops


class EpochHead(NamedTuple):
    """The HEAD of an epoch: its number, whether it is closed, its base, and what it has."""

    base: Base
    ops: Ops
    number: int = 0
    closed: str = ""

    @property
    def state(self) -> Ops:
        return self.base.ops + self.ops


class Epoch(NamedTuple):
    number: int
    by: str


class Entry(NamedTuple):
    made: int
    epochs: tuple[Epoch, ...]
    base: Base
    synced: Base | None = None

    @property
    def since(self) -> Ops:
        """What is merged already."""
        return (self.synced or self.base).ops


#: What a client does, and its name.
Actor = tuple[str, str]
MAKE, END, GC = ("make", "m"), ("end", "e"), ("gc", "g")
C1, C2 = ("commit", "c1"), ("commit", "c2")
MERGE, REBASE, FINISH = ("merge", "g1"), ("rebase", "r"), ("finish", "f")

SCENARIOS: dict[str, tuple[Actor, ...]] = {
    "commit, end, gc": (MAKE, C1, END, GC),
    "commit, rebase, gc": (MAKE, C1, REBASE, GC),
    "commit, merge, merge": (MAKE, C1, MERGE, ("merge", "g2")),
    "merge, end, gc": (MAKE, C1, MERGE, END),
    "made twice": (MAKE, C1, END, ("make", "m2")),
}
LARGE: dict[str, tuple[Actor, ...]] = {
    "all": (MAKE, C1, C2, MERGE, REBASE, FINISH, END, GC),
    "two rebases": (MAKE, C1, C2, REBASE, ("rebase", "r2"), FINISH, MERGE, GC),
    "made again": (MAKE, C1, MERGE, END, ("make", "m2"), C2, ("merge", "g2"), GC, ("gc", "h")),
}


@dataclass(frozen=True, slots=True)
class Client:
    at: str = "start"
    number: int = 0
    entry: Entry | None = None
    head: EpochHead | None = None
    #: The epoch that it has stored for the entry to be.
    made: Epoch | None = None
    base: Base | None = None
    kept: tuple[Epoch, ...] = ()
    listed: frozenset[object] = frozenset()
    tries: int = 0
    told: str = ""


@dataclass(frozen=True, slots=True)
class State:
    actors: tuple[Actor, ...] = ()
    clients: tuple[Client, ...] = ()
    number: int = 0
    entry: Entry | None = None
    main: Ops = ()
    heads: frozenset[tuple[Epoch, EpochHead]] = frozenset()
    bases: frozenset[Base] = frozenset()
    #: Operations with the epochs in which their files are.
    files: frozenset[tuple[str, Epoch]] = frozenset()
    gone: frozenset[tuple[str, Epoch]] = frozenset()
    #: What was committed to the branch of an entry: its id, and the operation.
    done: frozenset[tuple[int, str]] = frozenset()
    faults: int = 0
    wrong: str = ""

    def at(self, who: int, /, **changes: object) -> State:
        changed = replace(self.clients[who], **changes)  # type: ignore[arg-type]
        return replace(self, clients=(*self.clients[:who], changed, *self.clients[who + 1 :]))

    def head(self, epoch: Epoch) -> EpochHead | None:
        return dict(self.heads).get(epoch)

    def with_epoch(self, epoch: Epoch, head: EpochHead) -> State:
        others = frozenset(one for one in self.heads if one[0] != epoch)
        return replace(self, heads=others | {(epoch, head)})

    def with_entry(self, entry: Entry | None) -> State:
        """Replace the lake's HEAD."""
        return replace(self, number=self.number + 1, entry=entry)

    def epoch_of(self, op: str) -> Epoch | None:
        return next((epoch for one, epoch in self.files if one == op), None)


@dataclass(frozen=True, slots=True)
class Refs:
    """The model; ``flaw`` leaves one of the rules out, ``scenarios`` are those that may begin."""

    flaw: str = ""
    faults: int = 1
    scenarios: tuple[str, ...] = tuple(SCENARIOS)

    def initial(self) -> State:
        return State(faults=self.faults)

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        if not state.clients:
            for name in self.scenarios:
                actors = {**SCENARIOS, **LARGE}[name]
                yield name, replace(state, actors=actors, clients=tuple(Client() for _ in actors))
            return
        for who, ((kind, name), client) in enumerate(zip(state.actors, state.clients, strict=True)):
            if client.at in ("done", "dead") or (
                kind == "make" and state.entry and client.made is None
            ):
                continue
            if kind not in ("make", "gc") and client.at == "start" and state.entry is None:
                continue  # there is no branch
            for step, after in self._go_on(state, who, kind, name, client):
                yield f"{name} {step}", after
            if state.faults and client.at != "start":
                yield f"{name} dies", replace(state, faults=state.faults - 1).at(who, at="dead")

    def violation(self, state: State) -> str | None:
        if state.wrong:
            return state.wrong
        if len(set(state.main)) < len(state.main):
            return "twice"
        there = set(state.main)
        entry = state.entry
        if entry is not None:
            head = state.head(entry.epochs[-1])
            named = {entry.base, entry.synced or entry.base}
            if head is None or not named <= state.bases:
                return "objects"
            if len(set(head.state)) < len(head.state):
                return "twice"
            there |= set(head.state)
            if any(made == entry.made and op not in there for made, op in state.done):
                return "lost"
        if any(op in there for op, _ in state.gone):
            return "files"
        committed = {op for _, op in state.done}
        for (_, name), client in zip(state.actors, state.clients, strict=True):
            if (
                client.told
                and client.told != "unknown"
                and (client.told == "yes") != (name in committed)
            ):
                return "truth"
        return None

    def _go_on(
        self, state: State, who: int, kind: str, name: str, client: Client
    ) -> Iterator[tuple[str, State]]:
        if kind == "commit":
            yield from self._commit(state, who, name, client)
        elif kind == "gc":
            yield self._collect(state, who, client)
        elif kind == "make":
            yield self._make(state, who, name, client)
        elif client.at == "start":
            assert state.entry is not None
            head = state.head(state.entry.epochs[-1])
            read = state.at(
                who, at="read", number=state.number, entry=state.entry, head=head, made=None
            )
            yield "reads", read
        elif kind == "merge":
            yield self._merge(state, who, name, client)
        elif kind == "end":
            yield self._end(state, who, client)
        else:
            yield self._rebase(state, who, name, client, finishes=kind == "finish")

    # -- making and ending -------------------------------------------------------------

    def _make(self, state: State, who: int, name: str, client: Client) -> tuple[str, State]:
        if client.made is None:
            number = 0 if self.flaw == "samelife" else state.number + 1
            base = Base(number, name if number else "", state.main)
            epoch = Epoch(number, name if number else "")
            stored = replace(state, bases=state.bases | {base})
            if state.head(epoch) is None:
                stored = stored.with_epoch(epoch, EpochHead(base, ()))
            return "stores base and HEAD", stored.at(
                who, at="made", made=epoch, base=base, number=state.number
            )
        if client.number != state.number:
            again = client.tries < 1
            return "loses the race", state.at(
                who, at="start" if again else "done", made=None, tries=client.tries + 1
            )
        if state.entry is not None:
            return "finds a branch", state.at(who, at="done")
        assert client.base is not None
        entry = Entry(state.number + 1, (client.made,), client.base)
        return "makes the branch", state.with_entry(entry).at(who, at="done")

    def _end(self, state: State, who: int, client: Client) -> tuple[str, State]:
        entry = client.entry
        assert entry is not None
        epoch = entry.epochs[-1]
        if client.at == "read" and self.flaw != "dereg_first":
            head = state.head(epoch)
            if head is None or head != client.head:
                return "reads again", state.at(who, at="start")
            closed = head._replace(number=head.number + 1, closed=head.closed or "ended")
            return "closes", state.with_epoch(epoch, closed).at(who, at="closed")
        if state.entry != entry:
            if state.entry is not None and state.entry.made == entry.made:
                return "finds another epoch", state.at(who, at="start")
            return "is late", state.at(who, at="done")
        return "ends the branch", state.with_entry(None).at(who, at="done")

    # -- commits -----------------------------------------------------------------------

    def _commit(
        self, state: State, who: int, name: str, client: Client
    ) -> Iterator[tuple[str, State]]:
        if client.at == "start":
            yield "reads the entry", state.at(who, at="entry", entry=state.entry)
            return
        assert client.entry is not None
        epoch = client.entry.epochs[-1]
        head = state.head(epoch)
        if client.at == "entry":
            if head is None or head.closed:
                yield "finds no open branch", state.at(who, at="done", told="no")
                return
            stored = replace(state, files=state.files | {(name, epoch)})
            yield "stores its file", stored.at(who, at="replace", head=head)
            return
        if client.at == "unknown":
            yield self._look(state, who, name, head)
            return
        is_open = head is not None and (not head.closed or self.flaw == "closed_is_not_looked_at")
        is_same = head is not None and client.head is not None and head.ops == client.head.ops
        if head is None or not is_open or not is_same:
            yield "is refused", state.at(who, at="done", told="no")
            return
        after = state.with_epoch(
            epoch, head._replace(number=head.number + 1, ops=(*head.ops, name))
        )
        after = replace(after, done=after.done | {(client.entry.made, name)})
        if state.entry is None or state.entry.made != client.entry.made:
            after = replace(after, wrong="lost")
        yield "commits", after.at(who, at="done", told="yes")
        if state.faults:
            lost = replace(after, faults=state.faults - 1)
            yield "commits without an answer", lost.at(who, at="unknown")

    def _look(self, state: State, who: int, name: str, head: EpochHead | None) -> tuple[str, State]:
        if head is None:
            told = "no" if self.flaw == "goneno" else "unknown"
            return "finds no HEAD", state.at(who, at="done", told=told)
        is_read = not head.closed or self.flaw != "movedlost"
        if name in head.ops and is_read:
            return "finds itself", state.at(who, at="done", told="yes")
        return "is not there", state.at(who, at="done", told="no")

    # -- merge and rebase ----------------------------------------------------------------

    def _merge(self, state: State, who: int, name: str, client: Client) -> tuple[str, State]:
        entry, head = client.entry, client.head
        assert entry is not None
        if head is None or head.closed:
            return "finds no open branch", state.at(who, at="done")
        brings = tuple(one for one in head.state if one not in entry.since)
        base = Base(client.number + 1, name, head.state)
        if client.at == "read":
            if not brings:
                return "finds nothing to merge", state.at(who, at="done")
            stored = replace(state, bases=state.bases | {base})
            return "stores its base", stored.at(who, at="replace")
        if client.number != state.number and self.flaw != "blindmerge":
            # The entry is compared in the very HEAD that is replaced.
            again = "start" if client.tries < 1 else "done"
            return "loses the race", state.at(who, at=again, tries=client.tries + 1)
        synced = entry if self.flaw == "nosync" else entry._replace(synced=base)
        after = replace(state, main=state.main + brings)
        return "merges", after.with_entry(synced).at(who, at="done")

    def _rebase(
        self, state: State, who: int, name: str, client: Client, *, finishes: bool
    ) -> tuple[str, State]:
        entry, head = client.entry, client.head
        assert entry is not None
        if head is None or (finishes and head.closed != "moved") or head.closed == "ended":
            return "has nothing to do", state.at(who, at="done")
        again = state.at(
            who, at="start" if client.tries < 1 else "done", made=None, tries=client.tries + 1
        )
        if client.at == "read":
            return self._new_epoch(state, who, name, client, entry, head, finishes=finishes)
        if client.at == "close":
            old = state.head(entry.epochs[-1])
            if old != head:
                return "finds a commit", again
            closed = old._replace(number=old.number + 1, closed=old.closed or "moved")
            return "closes the old epoch", state.with_epoch(entry.epochs[-1], closed).at(
                who, at="replace"
            )
        if client.number != state.number:
            return "loses the race", again
        assert client.made is not None
        assert client.base is not None
        kept = (client.made,) if self.flaw == "droplives" else (*client.kept, client.made)
        if finishes:
            newer = entry._replace(epochs=kept)
        else:
            newer = Entry(entry.made, kept, client.base)
        return "names the new epoch", state.with_entry(newer).at(who, at="done")

    def _new_epoch(
        self,
        state: State,
        who: int,
        name: str,
        client: Client,
        entry: Entry,
        head: EpochHead,
        *,
        finishes: bool,
    ) -> tuple[str, State]:
        """Store a base, which is main as it is, and the HEAD of an epoch that has the rest."""
        if client.number != state.number:
            return "reads again", state.at(who, at="start")
        number = state.number + 1
        base = head.base if finishes else Base(number, name, state.main)
        rest = tuple(one for one in head.state if one not in entry.since)
        rest = head.ops if finishes else rest
        epoch = Epoch(number, name)
        after = replace(state, bases=state.bases | {base})
        after = after.with_epoch(epoch, EpochHead(base, rest))
        at = "replace" if finishes or self.flaw == "noclose" else "close"
        kept = entry.epochs  # as long as outcomes are kept, the old ones stay
        return "stores base and new HEAD", after.at(who, at=at, made=epoch, base=base, kept=kept)

    # -- gc ------------------------------------------------------------------------------

    def _collect(self, state: State, who: int, client: Client) -> tuple[str, State]:
        if client.at == "start":
            listed = {*state.bases, *state.files, *(epoch for epoch, _ in state.heads)}
            return "lists", state.at(who, at="replace", listed=frozenset(listed))
        if client.at == "replace":
            after = state.with_entry(state.entry)
            return "replaces HEAD", after.at(
                who, at="delete", number=after.number, entry=state.entry
            )
        return "deletes", self._deleted(state, client).at(who, at="done")

    def _deleted(self, state: State, client: Client) -> State:
        """Delete what was listed, is of this HEAD's number or an older one, and is not kept."""
        entry = client.entry
        named = set() if entry is None else {entry.base, entry.synced or entry.base}
        if self.flaw == "gc_knows_no_refs":
            named = set()
        owned = set() if entry is None else set(entry.epochs)
        kept_ops = set(state.main) | {op for base in named for op in base.ops}

        def is_dead(one: object) -> bool:
            if isinstance(one, Base):
                return one.number <= client.number and one not in named
            return isinstance(one, Epoch) and one.number <= client.number and one not in owned

        files = {
            one
            for one in state.files & client.listed
            if one[0] not in kept_ops
            and (is_dead(one[1]) or (self.flaw == "gc_knows_no_epochs" and one[1].number))
        }
        return replace(
            state,
            bases=frozenset(b for b in state.bases if not (b in client.listed and is_dead(b))),
            heads=frozenset(
                h for h in state.heads if not (h[0] in client.listed and is_dead(h[0]))
            ),
            gone=state.gone | files,
        )
