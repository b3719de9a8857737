"""Given commits on a branch: compared with states that no log has, and refused only if certain.

One table of a branch has a *chain* of commits above its log, which stands still. Each scenario has
some of these at the same time:

- an Iceberg *client*: it is shown the newest state, stores its files in the directory of the
  branch's epoch, and asks. HEAD's replacement may be without an answer, and land late; then it asks
  again, with the very same snapshot.
- a client of *LakeVilla*: it commits, and puts older commits of the chain into one object if there
  are more than ``MOST_APART``.
- a *rebase*: the branch goes on in another epoch, whose chain is one commit that has everything.
- an *end*: the branch is merged and deleted; the lake has all of its files.

Rules
-----
The names are those of the design note.

B1  A client's files lie in the directory of the epoch that it was shown.
B2  A request is decided in a HEAD whose chain is the one that was compared.
B3  A request is done if a commit of the chain has its snapshot. It is refused only if its client
    was shown a state of this epoch, which is in the chain, and all commits after it are known.
B4  Files of another epoch are never taken.

Invariants
----------
once      No request takes effect twice.
state     A request takes effect on the state that its client knew.
files     No request takes effect with files of an epoch that is over.
truth     A request that was told yes took effect. One that was told no did not, and never will.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from models.asking import ENDS, Asking, Write, landings

#: More commits than that are put into one object, but for the newest.
MOST_APART = 2
#: A request is sent twice at most: one answer of it is lost.
MOST_SENT = 2


class Ask(NamedTuple):
    """An Iceberg client; ``loses`` the answer of HEAD, of the gateway, or none."""

    name: str
    loses: Literal["", "head", "gateway"] = ""


class Own(NamedTuple):
    """A client of LakeVilla, which commits so many times."""

    name: str
    times: int = 1


class Rebase(NamedTuple):
    name: str = "rebase"


class End(NamedTuple):
    name: str = "end"


Actor = Ask | Own | Rebase | End

SCENARIOS: dict[str, tuple[Actor, ...]] = {
    "lakevilla": (Ask("g"), Own("w")),
    "two requests": (Ask("g", "head"), Ask("h", "gateway")),
    "lost, lakevilla": (Ask("g", "head"), Own("w")),
    "hidden": (Ask("g", "gateway"), Own("w", 3)),
    "hidden, lost": (Ask("g", "head"), Own("w", 3)),
    "rebased": (Ask("g", "gateway"), Own("w"), Rebase()),
    "rebased, lost": (Ask("g", "head"), Rebase()),
    "merged": (Ask("g", "head"), Ask("h"), End()),
    "all": (Ask("g", "gateway"), Own("w"), Rebase(), End()),
}

#: Mistakes that the checker must find, by the rule that each leaves out.
FLAWS = {
    "chain_not_compared": "B2",
    "not_looked_for": "B3",
    "refused_by_hope": "B3",
    "one_object_trusted": "B3",
    "refused_at_the_end": "B3",
    "epoch_not_compared": "B3",
    "old_files_taken": "B4",
}


class Link(NamedTuple):
    """A commit of the chain: the id of the state that it makes, and the requests that it has.

    ``is_known``: it says which they are.
    """

    state: str
    has: frozenset[str]
    is_known: bool = True


Chain = tuple[Link, ...]


@dataclass(frozen=True, slots=True)
class Client:
    """Where a client, or the gateway that it asks, is."""

    at: str = "start"
    epoch: int = 0
    parent: str = ""
    #: The HEAD that was compared, and its chain.
    seen: tuple[int, Chain] | None = None
    tries: int = 0
    left: int = 0


@dataclass(frozen=True, slots=True)
class State(Asking[Client]):
    actors: tuple[Actor, ...] = ()
    epoch: int = 0
    has_ended: bool = False
    chain: Chain = ()
    #: What took effect, in this epoch or an earlier one.
    effects: tuple[str, ...] = ()

    @property
    def newest(self) -> str:
        return self.chain[-1].state if self.chain else "base"


@dataclass(frozen=True, slots=True)
class GivenBranch:
    """The model; ``flaw`` leaves one of the rules out, ``scenarios`` are those that may begin."""

    flaw: str = ""
    scenarios: tuple[str, ...] = tuple(SCENARIOS)

    def initial(self) -> State:
        return State()

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        if not state.clients:
            for name in self.scenarios:
                actors = SCENARIOS[name]
                clients = tuple(Client(left=getattr(one, "times", 1)) for one in actors)
                yield name, replace(state, actors=actors, clients=clients)
            return
        yield from landings(
            state, lambda rest, write: self._landed(rest, write.what), is_open=not state.has_ended
        )
        for number, (actor, client) in enumerate(zip(state.actors, state.clients, strict=True)):
            if client.at in ENDS:
                continue
            if isinstance(actor, Ask):
                yield from self._ask(state, number, actor, client)
            else:
                yield actor.name, self._other(state, number, actor, client)

    def violation(self, state: State) -> str | None:
        if state.wrong:
            return state.wrong
        if len(set(state.effects)) < len(state.effects):
            return "once"
        for actor, client in zip(state.actors, state.clients, strict=True):
            there = actor.name in state.effects
            if (client.at == "yes" and not there) or (client.at == "no" and there):
                return "truth"
        return None

    # -- others --------------------------------------------------------------------

    def _other(self, state: State, number: int, actor: Actor, client: Client) -> State:
        if state.has_ended:
            return state.at(number, at="done")
        after = replace(state, replacement=state.replacement + 1)
        if isinstance(actor, End):
            return replace(after, has_ended=True).at(number, at="done")
        if isinstance(actor, Rebase):
            has = frozenset(state.effects)
            chain: Chain = (Link("rebased", frozenset()),) if has else ()
            return replace(after, epoch=state.epoch + 1, chain=chain).at(number, at="done")
        own = Link(f"{actor.name}{client.left}", frozenset())
        before = state.chain
        if len(before) > MOST_APART:
            has = frozenset().union(*(one.has for one in before))
            before = (Link(f"one {own.state}", has, is_known=False),)
        left = client.left - 1
        after = replace(after, chain=(*before, own))
        return after.at(number, left=left, at="done" if not left else "start")

    # -- an Iceberg client, and the gateway that it asks -----------------------------

    def _ask(
        self, state: State, number: int, actor: Ask, client: Client
    ) -> Iterator[tuple[str, State]]:
        name = actor.name
        if state.has_ended and client.at != "tell":
            told = "no" if self.flaw == "refused_at_the_end" else "unknown"
            yield f"{name} finds no branch", state.at(number, at=told)
        elif client.at == "start":
            shown = state.at(number, at="look", epoch=state.epoch, parent=state.newest)
            yield f"{name} is shown a state", shown
        elif client.at == "look":
            yield self._looked(state, number, name, client)
        elif client.at == "send":
            yield from self._send(state, number, actor, client)
        elif actor.loses == "gateway" and client.tries == 0:
            yield f"{name} hears nothing", state.at(number, at="look", tries=1)
        else:
            yield f"{name} is answered", state.at(number, at="yes")

    def _looked(self, state: State, number: int, name: str, client: Client) -> tuple[str, State]:
        known = frozenset().union(*(one.has for one in state.chain if one.is_known))
        if name in known and self.flaw != "not_looked_for":
            return f"{name} is there", state.at(number, at="yes")
        if client.parent == state.newest:
            if client.epoch != state.epoch and self.flaw != "old_files_taken":
                return f"{name} has old files", state.at(number, at="unknown")
            seen = state.replacement, state.chain
            return f"{name} holds", state.at(number, at="send", seen=seen)
        told = "no" if self._never_took_effect(state, client) else "unknown"
        return f"{name} does not hold", state.at(number, at=told)

    def _never_took_effect(self, state: State, client: Client) -> bool:
        if self.flaw == "refused_by_hope":
            return True
        if client.epoch != state.epoch and self.flaw != "epoch_not_compared":
            return False  # its files, or its state, are those of another epoch
        states = ["base", *(one.state for one in state.chain)]
        if client.parent not in states:
            return False
        later = state.chain[states.index(client.parent) :]
        return self.flaw == "one_object_trusted" or all(one.is_known for one in later)

    def _send(
        self, state: State, number: int, actor: Ask, client: Client
    ) -> Iterator[tuple[str, State]]:
        name = actor.name
        assert client.seen is not None
        replacement, chain = client.seen
        if state.replacement != replacement:
            is_same = state.chain == chain or self.flaw == "chain_not_compared"
            is_same = is_same and client.epoch == state.epoch
            seen = (state.replacement, state.chain) if is_same else None
            after = state.at(number, at="send" if is_same else "look", seen=seen)
            yield f"{name} loses the race", after
            return
        if actor.loses == "head" and client.tries == 0:
            again = state.at(number, at="look", tries=1, seen=None)
            yield f"{name} has landed without an answer", self._landed(again, number)
            yield f"{name} is on its way", again.sent(Write(replacement, name, number))
            return
        after = state.at(number, at="tell", seen=None)
        yield f"{name} is decided", self._landed(after, number)

    def _landed(self, state: State, number: int) -> State:
        """Return the state after a replacement of HEAD; note whether it was right to send it."""
        name, client = state.actors[number].name, state.clients[number]
        wrong = "" if client.parent == state.newest else "state"
        wrong = wrong or ("" if client.epoch == state.epoch else "files")
        return replace(
            state,
            replacement=state.replacement + 1,
            chain=(*state.chain, Link(f"S{name}", frozenset({name}))),
            effects=(*state.effects, name),
            wrong=state.wrong or wrong,
        )
