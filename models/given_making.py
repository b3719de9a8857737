"""Tables that Iceberg clients make under one name, each at a place of its own.

Each scenario has some of these at the same time:

- an Iceberg *client*: it has stored its files at a place that no table had, and asks for a table
  there under the name. The answer of HEAD's replacement may be lost, and land late, and so may the
  gateway's; then it asks again.
- a *rename*, which gives a client's table another name, and a *drop*, which takes it from the lake
  and leaves its files.
- another *table* under the name, and a *path*: a client without LakeVilla stores one at the path
  that the name would be, which moves no HEAD.

Rules
-----
G10 is the design note's, in three parts.

place     A table at the request's place shows that the request took effect, whatever its name.
left      A table that was there, and left the lake, leaves the outcome unknown.
settle    A request is refused by a name that is taken once HEAD was replaced: an earlier write of
          the same request can't land any more.
head      The name is free in the HEAD that is replaced.

Invariants
----------
once      No request takes effect twice.
name      No table of HEAD takes a name that another one has.
truth     A request that was told yes took effect. One that was told no did not, and never will.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from models.asking import ENDS, Asking, Write, landings


class Ask(NamedTuple):
    """An Iceberg client; ``loses`` the answer of HEAD, of the gateway, or none."""

    name: str
    loses: Literal["", "head", "gateway"] = ""


class Beside(NamedTuple):
    """Another client, which does one thing."""

    name: Literal["rename", "drop", "table", "path"]


Actor = Ask | Beside

SCENARIOS: dict[str, tuple[Actor, ...]] = {
    "two clients": (Ask("g", "head"), Ask("h", "gateway")),
    "renamed": (Ask("g", "gateway"), Beside("rename"), Beside("table")),
    "renamed, lost": (Ask("g", "head"), Beside("rename"), Ask("h")),
    "dropped": (Ask("g", "gateway"), Beside("drop")),
    "dropped, lost": (Ask("g", "head"), Beside("drop"), Ask("h")),
    "table": (Ask("g", "head"), Beside("table")),
    "path": (Ask("g", "head"), Beside("path")),
}

#: Mistakes that the checker must find, by the part of the rule that each leaves out.
FLAWS = {
    "looked_for_by_its_name": "G10, place",
    "left_taken_for_absent": "G10, left",
    "refused_while_it_may_land": "G10, settle",
    "name_not_compared": "G10, head",
}


@dataclass(frozen=True, slots=True)
class Client:
    """Where a client, or the gateway that it asks, is; ``seen``: the HEAD that was compared."""

    at: str = "look"
    seen: int = -1
    tries: int = 0


@dataclass(frozen=True, slots=True)
class State(Asking[Client]):
    actors: tuple[Actor, ...] = ()
    #: Whose table has the name in HEAD, and whether a path has it.
    holder: str = ""
    has_path: bool = False
    there: frozenset[str] = frozenset()
    left: frozenset[str] = frozenset()
    effects: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GivenMaking:
    """The model; ``flaw`` leaves a part of the rule out."""

    flaw: str = ""

    def initial(self) -> State:
        return State()

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        if not state.clients:
            for name, actors in SCENARIOS.items():
                clients = tuple(Client() for _ in actors)
                yield name, replace(state, actors=actors, clients=clients)
            return
        yield from landings(state, lambda rest, write: _landed(rest, write.name))
        for number, (actor, client) in enumerate(zip(state.actors, state.clients, strict=True)):
            if client.at in ENDS:
                continue
            if isinstance(actor, Beside):
                yield actor.name, _beside(state, actor).at(number, at="done")
            else:
                yield from self._ask(state, number, actor, client)

    def violation(self, state: State) -> str | None:
        if state.wrong:
            return state.wrong
        if len(set(state.effects)) < len(state.effects):
            return "once"
        for actor, client in zip(state.actors, state.clients, strict=True):
            took_effect = actor.name in state.effects
            if (client.at == "yes" and not took_effect) or (client.at == "no" and took_effect):
                return "truth"
        return None

    def _ask(
        self, state: State, number: int, actor: Ask, client: Client
    ) -> Iterator[tuple[str, State]]:
        name = actor.name
        if client.at == "look":
            yield self._looked(state, number, name)
        elif client.at == "settle":
            if client.seen != state.replacement:
                yield f"{name} compares again", state.at(number, at="look")
            else:
                after = replace(state, replacement=state.replacement + 1)
                yield f"{name} replaces HEAD, and is refused", after.at(number, at="no")
        elif client.at == "send":
            yield from self._send(state, number, actor, client)
        elif actor.loses == "gateway" and client.tries == 0:
            yield f"{name} hears nothing", state.at(number, at="look", tries=1)
        else:
            yield f"{name} is answered", state.at(number, at="yes")

    def _looked(self, state: State, number: int, name: str) -> tuple[str, State]:
        is_there = name in state.there
        if self.flaw == "looked_for_by_its_name":
            is_there = state.holder == name
        if is_there:
            return f"{name} is there", state.at(number, at="yes")
        if name in state.left and self.flaw != "left_taken_for_absent":
            return f"{name} has left", state.at(number, at="unknown")
        if not (state.holder or state.has_path):
            return f"{name} holds", state.at(number, at="send", seen=state.replacement)
        at = "no" if self.flaw == "refused_while_it_may_land" else "settle"
        return f"{name} is taken", state.at(number, at=at, seen=state.replacement)

    def _send(
        self, state: State, number: int, actor: Ask, client: Client
    ) -> Iterator[tuple[str, State]]:
        name = actor.name
        if client.seen != state.replacement and self.flaw != "name_not_compared":
            yield f"{name} loses the race", state.at(number, at="look")
        elif actor.loses == "head" and client.tries == 0:
            again = state.at(number, at="look", tries=1)
            yield f"{name} has landed without an answer", _landed(again, name)
            yield f"{name} is on its way", again.sent(Write(state.replacement, name))
        else:
            yield f"{name} is decided", _landed(state.at(number, at="tell"), name)


def _landed(state: State, name: str) -> State:
    """Return the state after a replacement of HEAD that makes a client's table."""
    return replace(
        state,
        replacement=state.replacement + 1,
        holder=name,
        there=state.there | {name},
        effects=(*state.effects, name),
        wrong=state.wrong or ("name" if state.holder else ""),
    )


def _beside(state: State, actor: Beside) -> State:
    if actor.name == "path":
        return replace(state, has_path=not state.holder)
    moved = replace(state, replacement=state.replacement + 1)
    if actor.name == "table":
        return state if state.holder else replace(moved, holder="another")
    if state.holder not in state.there:
        return state
    if actor.name == "rename":
        return replace(moved, holder="")
    gone = {state.holder}
    return replace(moved, holder="", there=state.there - gone, left=state.left | gone)
