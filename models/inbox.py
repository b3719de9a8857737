"""The inbox: processes propose commits, and whoever replaces HEAD includes them.

HEAD is its list of replacements. An *update* removes the newest root file and adds one; an *append*
adds a file. Each owner may race for HEAD, or propose its commit; then it waits, or leads: it lists
the inbox, reads HEAD, and replaces it with its own commit and those proposals that fit. It may be
interrupted, may give up, and may perform its operation again, under another *digest*. A transaction
may have two owners: one of them has resumed it.

An *outcome* settles a transaction by a fence in HEAD; a *gc* does the same, and then deletes files
that it had listed before.

A proposal may be included while HEAD's number is less than ``WINDOW`` above the one that its owner
knew; HEAD's own list of commits reaches back over ``REACH`` replacements.

Rules
-----
Note 29 has no names for its rules; these are ours.

window    A proposal is included only in a HEAD that its window allows.
once      No commit is included whose id is in HEAD since then, or in the same group.
fence     No commit is included whose id the HEAD that is replaced fences.
cleared   A commit is compared with those before it in the group, and with all since the state on
          which its owner has validated it; if HEAD's list is cut off there, it is left.
verdict   While a proposal lives, its owner refuses nothing and performs nothing again.
stored    A proposal is made after all that it names is stored, and may have been stored if its
          write was sent at all.
files     An owner deletes no files of a commit that it has proposed.
digest    An owner tells the results of the digest that HEAD has.

Invariants
----------
once      No transaction is in HEAD twice.
update    An update removes the root file that is the newest at its place.
files     The files of a commit in HEAD are there.
truth     Who was told yes is in HEAD with what it was told; who was told no is not.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import NamedTuple

#: Mistakes that the checker must find, by the rule that each leaves out; those that are planted in
#: the code, too, have the same name there.
FLAWS = {
    "taken_too_late": "window",
    "taken_twice": "once",
    "fenced_and_taken": "fence",
    "touched_within_the_group": "cleared",
    "cleared_since_a_later_state": "cleared",
    "cleared_though_the_list_is_cut_off": "cleared",
    "no_while_it_lives": "verdict",
    "taken_back": "verdict",
    "object_alone_consents": "stored",
    "proposed_and_reported_as_undone": "stored",
    "interrupted_and_deleted": "files",
    "digest_of_the_last_try": "digest",
}

WINDOW = 2
REACH = 2
#: HEAD is replaced so many times at most.
LAST = 3
ROOT = "r"


class Owner(NamedTuple):
    """A process that commits a transaction; ``redoes``: it may perform its operation again."""

    name: str
    txn: str
    updates: bool = False
    redoes: bool = False


class Settler(NamedTuple):
    """A client that fences a transaction, and deletes its files then if it is a gc."""

    name: str
    of: str
    collects: bool = False


class Racer(NamedTuple):
    """A client that replaces HEAD with an update of its own, without the inbox."""

    name: str


Actor = Owner | Settler | Racer

SCENARIOS: dict[str, tuple[Actor, ...]] = {
    "two appends": (Owner("a", "a"), Owner("b", "b")),
    "two updates": (Owner("a", "a", True), Owner("b", "b", True)),
    "a short list": (Owner("a", "a", True), Racer("r"), Owner("b", "b")),
    "performed again": (Owner("a", "a", redoes=True), Settler("o", "a")),
    "outcome": (Owner("a", "a"), Settler("o", "a")),
    "gc": (Owner("a", "a"), Settler("g", "a", True)),
    "resumed": (Owner("a", "a"), Owner("a2", "a")),
}
#: Those that take a tenth of the time.
QUICK = ("performed again", "outcome", "gc")
#: The window and the reach of scenarios that have other ones.
LIMITS = {"a short list": (3, 1)}
LARGE: dict[str, tuple[Actor, ...]] = {
    "update and outcome": (Owner("a", "a", True), Owner("b", "b"), Settler("o", "a")),
    "three updates": (Owner("a", "a", True), Owner("b", "b", True), Owner("c", "c", True)),
    "three appends": (Owner("a", "a"), Owner("b", "b"), Owner("c", "c")),
    "resumed beside another": (Owner("a", "a"), Owner("a2", "a"), Owner("b", "b")),
    "four": (
        Owner("a", "a", True),
        Owner("b", "b", True),
        Owner("c", "c"),
        Settler("g", "a", True),
    ),
    "resumed beside two": (
        Owner("a", "a", True, redoes=True),
        Owner("a2", "a", True),
        Owner("b", "b", True),
        Settler("o", "a"),
    ),
}


class Commit(NamedTuple):
    """A commit: the transaction, its digest, and the files that it removes and adds."""

    txn: str
    digest: str
    removes: str
    adds: str


class Fence(NamedTuple):
    txn: str


class Proposal(NamedTuple):
    """A commit in the inbox, and the number of HEAD that its owner knew."""

    commit: Commit
    number: int


Replacements = tuple[tuple[Commit | Fence, ...], ...]


@dataclass(frozen=True, slots=True)
class Client:
    at: str = "start"
    #: The number of HEAD that it has read, and the commit that is validated there.
    number: int = 0
    commit: Commit | None = None
    proposal: Proposal | None = None
    listed: frozenset[Proposal] = frozenset()
    files: frozenset[str] = frozenset()
    tries: int = 0
    was_sent: bool = False
    told: str = ""


@dataclass(frozen=True, slots=True)
class State:
    actors: tuple[Actor, ...] = ()
    clients: tuple[Client, ...] = ()
    head: Replacements = ()
    inbox: frozenset[Proposal] = frozenset()
    flying: frozenset[Proposal] = frozenset()
    gone: frozenset[str] = frozenset()
    window: int = WINDOW
    reach: int = REACH

    def at(self, number: int, /, **changes: object) -> State:
        changed = replace(self.clients[number], **changes)  # type: ignore[arg-type]
        clients = (*self.clients[:number], changed, *self.clients[number + 1 :])
        return replace(self, clients=clients)

    def with_head(self, *events: Commit | Fence) -> State:
        return replace(self, head=(*self.head, events))

    @property
    def number(self) -> int:
        return len(self.head)


def commits(head: Replacements, since: int = 0) -> list[Commit]:
    return [one for events in head[since:] for one in events if isinstance(one, Commit)]


def of_txn(head: Replacements, txn: str) -> Commit | None:
    return next((one for one in commits(head) if one.txn == txn), None)


def is_fenced(head: Replacements, txn: str) -> bool:
    return any(one == Fence(txn) for events in head for one in events)


def root(head: Replacements) -> str:
    return next((one.adds for one in reversed(commits(head)) if one.removes), ROOT)


@dataclass(frozen=True, slots=True)
class Inbox:
    """The model; ``flaw`` leaves one of the rules out, ``scenarios`` are those that may begin."""

    flaw: str = ""
    scenarios: tuple[str, ...] = tuple(SCENARIOS)

    def initial(self) -> State:
        return State()

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        if not state.clients:
            for name in self.scenarios:
                actors = {**SCENARIOS, **LARGE}[name]
                window, reach = LIMITS.get(name, (WINDOW, REACH))
                clients = tuple(Client() for _ in actors)
                begun = replace(state, actors=actors, clients=clients)
                yield name, replace(begun, window=window, reach=reach)
            return
        for proposal in state.flying:
            landed = replace(state, flying=state.flying - {proposal})
            name = f"the proposal of {proposal.commit.digest} lands"
            yield name, replace(landed, inbox=state.inbox | {proposal})
        for number, (actor, client) in enumerate(zip(state.actors, state.clients, strict=True)):
            if client.at in ("done", "dead"):
                continue
            if isinstance(actor, Racer):
                if state.number < LAST:
                    newest = root(state.head)
                    won = state.with_head(Commit(actor.name, "r1", newest, f"{newest}r"))
                    yield "a racer wins", won.at(number, at="done")
                continue
            if isinstance(actor, Settler):
                yield self._settle(state, number, actor, client)
                continue
            yield from self._own(state, number, actor, client)
            if client.at != "start":
                yield f"{actor.name} is interrupted", self._interrupt(state, number, client)

    def violation(self, state: State) -> str | None:
        there = commits(state.head)
        ids = [one.txn for one in there]
        if len(set(ids)) < len(ids):
            return "once"
        newest = ROOT
        for one in there:
            if one.removes and one.removes != newest:
                return "update"
            newest = one.adds if one.removes else newest
            if one.adds in state.gone:
                return "files"
        for actor, client in zip(state.actors, state.clients, strict=True):
            if isinstance(actor, Racer):
                continue
            txn = actor.txn if isinstance(actor, Owner) else actor.of
            found = of_txn(state.head, txn)
            if client.told == "no" and found is not None and not self._shares(state, actor):
                return "truth"
            if client.told not in ("", "no") and (found is None or found.digest != client.told):
                return "truth"
        return None

    def _shares(self, state: State, actor: Actor) -> bool:
        """Whether another client owns the same transaction: it may be the one that commits."""
        if not isinstance(actor, Owner):
            return False
        others = [one for one in state.actors if isinstance(one, Owner) and one != actor]
        return any(one.txn == actor.txn for one in others)

    # -- an owner --------------------------------------------------------------------

    def _own(
        self, state: State, number: int, actor: Owner, client: Client
    ) -> Iterator[tuple[str, State]]:
        if client.at == "start":
            yield self._perform(state, number, actor, client)
        elif client.at == "ready":
            yield from self._propose(state, number, actor, client)
            yield from self._race(state, number, actor, client)
        elif client.at == "wait":
            yield from self._wait(state, number, actor, client)
        elif client.at == "listed":
            yield f"{actor.name} reads HEAD", state.at(number, at="lead", number=state.number)
        elif client.at == "lead":
            yield from self._lead(state, number, actor, client)
        elif client.at == "judge":
            yield from self._judge(state, number, actor, client)

    def _perform(
        self, state: State, number: int, actor: Owner, client: Client
    ) -> tuple[str, State]:
        found = of_txn(state.head, actor.txn)
        if found is not None:  # resumed: another process was first
            return f"{actor.name} is late", state.at(number, at="done", told=found.digest)
        digest = f"{actor.name}{client.tries + 1}"
        removes = root(state.head) if actor.updates else ""
        commit = Commit(actor.txn, digest, removes, f"{removes}{digest}")
        after = state.at(
            number, at="ready", number=state.number, commit=commit, tries=client.tries + 1
        )
        return f"{actor.name} performs", after

    def _propose(
        self, state: State, number: int, actor: Owner, client: Client
    ) -> Iterator[tuple[str, State]]:
        assert client.commit is not None
        proposal = Proposal(client.commit, client.number)
        sent = replace(state, flying=state.flying | {proposal})
        yield f"{actor.name} proposes", sent.at(number, at="wait", proposal=proposal, was_sent=True)
        if self.flaw == "proposed_and_reported_as_undone":
            yield f"{actor.name} has no answer", self._no(sent, number, client)
        if self.flaw == "object_alone_consents":
            stored = replace(state, inbox=state.inbox | {proposal})
            yield f"{actor.name} stores no file", self._no(stored, number, client)

    def _race(
        self, state: State, number: int, actor: Owner, client: Client
    ) -> Iterator[tuple[str, State]]:
        commit = client.commit
        assert commit is not None
        if client.number != state.number:
            yield f"{actor.name} loses a race", state.at(number, at="judge")
        elif state.number < LAST and not is_fenced(state.head, actor.txn):
            after = state.with_head(commit).at(number, at="done", told=commit.digest)
            yield f"{actor.name} wins a race", after

    def _wait(
        self, state: State, number: int, actor: Owner, client: Client
    ) -> Iterator[tuple[str, State]]:
        assert client.proposal is not None
        found = of_txn(state.head, actor.txn)
        if found is not None:
            yield f"{actor.name} finds itself", self._yes(state, number, client, found)
            return
        if self._is_over(state, client.proposal):
            yield f"{actor.name} may judge", state.at(number, at="judge")
        elif state.number < LAST:  # it has a reason to judge, and ends the window
            yield f"{actor.name} advances HEAD", state.with_head()
        if self.flaw == "taken_back" and client.proposal in state.inbox:
            back = replace(state, inbox=state.inbox - {client.proposal})
            yield f"{actor.name} takes it back", back.at(number, at="done", told="no")
        yield f"{actor.name} lists", state.at(number, at="listed", listed=state.inbox)

    def _is_over(self, state: State, proposal: Proposal) -> bool:
        """Whether nobody can include a proposal any more."""
        if self.flaw == "no_while_it_lives":
            return True
        is_late = state.number - proposal.number >= state.window
        return is_late or is_fenced(state.head, proposal.commit.txn)

    def _lead(
        self, state: State, number: int, actor: Owner, client: Client
    ) -> Iterator[tuple[str, State]]:
        assert client.commit is not None
        assert client.proposal is not None
        back = state.at(number, at="wait", listed=frozenset())
        own = client.proposal
        group = [client.commit] if self._fits(state, own, [], own=True) else []
        if client.number != state.number or state.number >= LAST or not group:
            yield f"{actor.name} does not lead", back
            return
        for proposal in sorted(client.listed - {own}):
            if self._fits(state, proposal, group):
                group.append(proposal.commit)
        digests = ", ".join(one.digest for one in group)
        led = back.with_head(*group)
        yield f"{actor.name} leads {digests}", led.at(number, at="done", told=client.commit.digest)
        yield f"{actor.name} leads {digests}, unanswered", led

    def _fits(
        self, state: State, proposal: Proposal, group: list[Commit], *, own: bool = False
    ) -> bool:
        """Whether a leader that replaces a HEAD may include a commit behind others."""
        commit, head = proposal.commit, state.head
        if is_fenced(head, commit.txn) and self.flaw != "fenced_and_taken":
            return False
        is_late = len(head) - proposal.number >= state.window
        if is_late and not own and self.flaw != "taken_too_late":
            return False
        since = proposal.number
        if since < len(head) - state.reach:
            if self.flaw != "cleared_though_the_list_is_cut_off" and not own:
                return False
            since = since if own else len(head) - state.reach
        earlier = commits(head, since)
        if any(one.txn == commit.txn for one in [*earlier, *group]) and self.flaw != "taken_twice":
            return False
        if self.flaw == "cleared_since_a_later_state":
            earlier = []
        if self.flaw != "touched_within_the_group":
            earlier = [*earlier, *group]
        return not commit.removes or not any(one.removes for one in earlier)

    def _judge(
        self, state: State, number: int, actor: Owner, client: Client
    ) -> Iterator[tuple[str, State]]:
        found = of_txn(state.head, actor.txn)
        if found is not None:
            yield f"{actor.name} finds itself", self._yes(state, number, client, found)
            return
        yield f"{actor.name} gives up", self._no(state, number, client)
        if actor.redoes and client.tries < 2:
            yield self._perform(state, number, actor, client)

    def _yes(self, state: State, number: int, client: Client, found: Commit) -> State:
        digest = found.digest
        if self.flaw == "digest_of_the_last_try" and client.commit is not None:
            digest = client.commit.digest
        return state.at(number, at="done", told=digest)

    def _no(self, state: State, number: int, client: Client) -> State:
        """Refuse the transaction, and delete its files."""
        assert client.commit is not None
        after = replace(state, gone=state.gone | {client.commit.adds})
        return after.at(number, at="done", told="no")

    def _interrupt(self, state: State, number: int, client: Client) -> State:
        assert client.commit is not None
        if not client.was_sent or self.flaw == "interrupted_and_deleted":
            state = replace(state, gone=state.gone | {client.commit.adds})
        return state.at(number, at="dead")

    # -- others ------------------------------------------------------------------------

    def _settle(
        self, state: State, number: int, actor: Settler, client: Client
    ) -> tuple[str, State]:
        if client.at == "start":
            own = [one.commit for one in state.clients if one.commit is not None]
            files = frozenset(one.adds for one in own if one.txn == actor.of)
            read = state.at(number, at="fence", number=state.number, files=files)
            return f"{actor.name} reads HEAD", read
        if client.at == "fence":
            found = of_txn(state.head[: client.number], actor.of)
            if found is not None:
                return f"{actor.name} says yes", state.at(number, at="done", told=found.digest)
            if client.number != state.number or state.number >= LAST:
                return f"{actor.name} reads HEAD again", state.at(number, at="start")
            at = "delete" if actor.collects else "done"
            fenced = state.with_head(Fence(actor.of)).at(number, at=at, told="no")
            return f"{actor.name} fences {actor.of}", fenced
        named = {one.adds for one in commits(state.head)}
        gone = replace(state, gone=state.gone | (client.files - named))
        return f"{actor.name} deletes", gone.at(number, at="done")
