"""Combined commits: many transactions in one replacement of HEAD.

Process 0 has the transactions ``a`` and ``b``. One of its threads *leads*: it performs a group of
them, one on what the other has left, and sends one replacement of HEAD that commits all. ``b`` may
instead be *proposed* to process 1, whose leader includes it beside its own transaction ``c``.
Process 1 commits further transactions, ``x...``, which only move HEAD.

An operation is ``n += 1``, and its *count* is the ``n`` that it finds. So a wrong order, or an
operation that was performed on another state than the one on which it is committed, shows in a
count.

Faults, as many as ``Combine.faults``: a leader is interrupted between two steps; an answer of the
store is lost; a write that was sent is lost, or arrives late; a transaction leaves (its caller
interrupts it) before anything of it was sent.

Rules
-----
The names are those of the design notes.

K4  A transaction is told the count that it has at its place in HEAD, not the one of its proposal.
K6  Between performing and sending nobody of the group may have left; else all are performed anew.
K7  No transaction of the group is in the HEAD that is replaced, as a member of a group neither.
K9  An attempt that may have arrived is sent again, the very same, until its outcome is known.
K10 A transaction that is proposed is not performed at home while another process may include it.
H3  Nobody is told anything before it is decided.
W   A proposal is included only in the ``WINDOW`` replacements after the HEAD that its owner knew.
P   Its owner tells nobody no before that, though its operations fail at home: they may succeed on
    the state on which another process performs them.

Invariants
----------
once      No transaction is in HEAD twice.
truth     A transaction that was told no is never in HEAD.
count     The count in HEAD, and the one that was told, are those of the serial order.
decided   A transaction that was told yes is in HEAD.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

#: A group: each transaction with its count.
Group = tuple[tuple[str, int], ...]
#: A replacement that was sent: the number of the HEAD that it replaces, and its group.
Write = tuple[int, Group]

OWN = ("a", "b")
WINDOW = 2
#: HEAD moves at most to this number by transactions that do nothing else.
LAST = 3

#: Mistakes that the checker must find, by the rule that each leaves out.
FLAWS = {
    "unsettled_performed_again": "K9",
    "left_but_performed": "K6",
    "kept_behind_a_dropped_one": "K6",
    "told_before_decided": "note 69, H3",
    "members_not_looked_for": "K7",
    "taken_after_window": "note 29, W",
    "refused_while_proposed": "note 29, P",
    "count_of_the_proposal": "K4",
}
#: Rules that no invariant needs. Without K10 a transaction may be performed at two places; K7 and
#: the condition on the replacement let one of them through. So K10 saves work, and is no more.
COSTS = {"proposed_and_performed": "note 70, K10"}


@dataclass(frozen=True, slots=True)
class Told:
    """What a transaction was told: nothing yet, yes with a count, or no, as it has left."""

    answer: Literal["nothing", "yes", "no"] = "nothing"
    count: int | None = None


@dataclass(frozen=True, slots=True)
class Attempt:
    """The group of process 0's leader: performed, sent, or sent and without an answer."""

    state: Literal["performed", "sent", "unsettled"]
    base: int
    group: Group

    @property
    def write(self) -> Write:
        return self.base, self.group


@dataclass(frozen=True, slots=True)
class State:
    """HEAD (its number and its groups), what each transaction knows, and what is under way."""

    number: int = 0
    groups: tuple[Group, ...] = ()
    told: tuple[tuple[str, Told], ...] = (("a", Told()), ("b", Told()), ("c", Told()))
    attempt: Attempt | None = None
    sent: tuple[Write, ...] = ()
    #: The HEAD that the owner of ``b`` knew, and the count that ``b`` would have there.
    proposal: tuple[int, int] | None = None
    #: What process 1's leader has performed.
    other: Write | None = None
    faults: int = 0

    def of(self, name: str) -> Told:
        return dict(self.told)[name]

    def telling(self, name: str, answer: Told) -> State:
        return replace(self, told=tuple((n, answer if n == name else t) for n, t in self.told))

    def faulty(self) -> State:
        return replace(self, faults=self.faults - 1)

    @property
    def members(self) -> list[str]:
        return [name for group in self.groups for name, _ in group]

    def counts(self) -> dict[str, int]:
        """Return the count in HEAD of each transaction that is there."""
        return {name: count for group in self.groups for name, count in group}

    def performed(self, names: list[str]) -> Group:
        """Return a group of transactions, one after the other on this HEAD."""
        return tuple((name, len(self.members) + place) for place, name in enumerate(names))

    def landed(self, write: Write) -> State | None:
        """Return the state after a replacement of HEAD; None if HEAD has moved."""
        base, group = write
        if base != self.number:
            return None
        return replace(self, number=base + 1, groups=(*self.groups, group))


@dataclass(frozen=True, slots=True)
class Combine:
    """The model; ``flaw`` leaves one of the rules out."""

    flaw: str = ""
    faults: int = 2

    def initial(self) -> State:
        return State(faults=self.faults)

    def steps(self, state: State) -> Iterator[tuple[str, State]]:
        yield from self._perform(state)
        if state.attempt is not None and state.attempt.state == "performed":
            yield from self._send(state, state.attempt)
        elif state.attempt is not None:
            yield from self._settle(state, state.attempt)
        yield from self._arrive(state)
        yield from self._leave(state)
        yield from self._propose(state)
        yield from self._other(state)

    def violation(self, state: State) -> str | None:
        members = state.members
        if len(set(members)) < len(members):
            return "once"
        order = {name: place for place, name in enumerate(members)}
        if state.counts() != order:
            return "count, in HEAD"
        for name, told in state.told:
            if told.answer == "yes" and name not in order:
                return "decided"
            if told.answer == "yes" and told.count != order[name]:
                return "count, as told"
            if told.answer == "no" and name in order:
                return "truth"
        return None

    # -- process 0 ---------------------------------------------------------------

    def _perform(self, state: State) -> Iterator[tuple[str, State]]:
        if state.attempt is not None:
            return
        waiting = [name for name in OWN if state.of(name).answer == "nothing"]
        for names in [waiting[:1], waiting[1:], waiting] if len(waiting) > 1 else [waiting]:
            if not names or self._is_elsewhere(state, names):
                continue
            if not set(names).isdisjoint(state.members):
                continue  # K7
            attempt = Attempt("performed", state.number, state.performed(names))
            yield f"perform {' '.join(names)}", replace(state, attempt=attempt)

    def _is_elsewhere(self, state: State, names: list[str]) -> bool:
        """K10."""
        if state.proposal is None or "b" not in names or self.flaw == "proposed_and_performed":
            return False
        return state.number < state.proposal[0] + WINDOW or "b" in state.members

    def _send(self, state: State, attempt: Attempt) -> Iterator[tuple[str, State]]:
        left = [name for name, _ in attempt.group if state.of(name).answer == "no"]
        if left and self.flaw == "kept_behind_a_dropped_one":
            group = tuple(one for one in attempt.group if one[0] not in left)
            kept = replace(attempt, group=group) if group else None
            yield "drop who has left", replace(state, attempt=kept)
        elif left and self.flaw != "left_but_performed":
            yield "perform anew", replace(state, attempt=None)  # K6
        else:
            after = replace(
                state,
                attempt=replace(attempt, state="sent"),
                sent=(*state.sent, attempt.write),
            )
            if self.flaw == "told_before_decided":
                after = _telling_all(after, dict(attempt.group))
            yield "send", after
        if state.faults:  # nothing was sent, so the transactions wait for the next leader
            yield "interrupt before sending", replace(state, attempt=None).faulty()

    def _settle(self, state: State, attempt: Attempt) -> Iterator[tuple[str, State]]:
        """A later HEAD shows whether the group is in it; H3: only then is anybody told."""
        if state.number > attempt.base:
            counts = state.counts()
            own = {name: counts[name] for name, _ in attempt.group if name in counts}
            yield "settle", _telling_all(replace(state, attempt=None), own)
            return
        if state.faults and attempt.state == "sent":
            lost = None if self.flaw == "unsettled_performed_again" else attempt
            kept = None if lost is None else replace(lost, state="unsettled")
            yield "interrupt after sending", replace(state, attempt=kept).faulty()
        if attempt.state == "unsettled" and attempt.write not in state.sent:  # K9
            again = replace(attempt, state="sent")
            yield "send again", replace(state, attempt=again, sent=(*state.sent, attempt.write))

    def _arrive(self, state: State) -> Iterator[tuple[str, State]]:
        for place, write in enumerate(state.sent):
            rest = replace(state, sent=state.sent[:place] + state.sent[place + 1 :])
            landed = rest.landed(write)
            yield ("refuse", rest) if landed is None else ("store", landed)
            if state.faults:
                yield "lose a write", rest.faulty()

    def _leave(self, state: State) -> Iterator[tuple[str, State]]:
        attempt = state.attempt
        under_way: set[str] = set()
        if attempt is not None and attempt.state != "performed":
            under_way.update(name for name, _ in attempt.group)
        if state.proposal is not None and self.flaw != "refused_while_proposed":
            under_way.add("b")  # P
        for name in OWN:
            is_free = name not in under_way and name not in state.members
            if state.faults and state.of(name).answer == "nothing" and is_free:
                yield f"{name} leaves", state.telling(name, Told("no")).faulty()

    # -- between the processes ---------------------------------------------------

    def _propose(self, state: State) -> Iterator[tuple[str, State]]:
        waits = state.of("b").answer == "nothing"
        if state.proposal is None:
            if waits and state.attempt is None:
                proposal = state.number, len(state.members)
                yield "propose b", replace(state, proposal=proposal)
            return
        base, count = state.proposal
        attempt = state.attempt
        is_own = attempt is not None and "b" in dict(attempt.group)
        if waits and "b" in state.members and not is_own:
            if self.flaw != "count_of_the_proposal":  # K4
                count = state.counts()["b"]
            yield "b finds itself in HEAD", state.telling("b", Told("yes", count))
        if waits and "b" not in state.members and state.number >= base + WINDOW:
            yield "the window is over", replace(state, proposal=None)

    def _other(self, state: State) -> Iterator[tuple[str, State]]:
        if state.other is not None:
            after = replace(state.landed(state.other) or state, other=None)
            if after.number > state.number and "c" in dict(state.other[1]):
                after = _telling_all(after, {"c": after.counts()["c"]})
            yield "process 1 replaces HEAD", after
            return
        names = ["c"] if state.of("c").answer == "nothing" else []
        if not names and state.number < LAST:
            names = [f"x{state.number}"]
        if not names:
            return
        write = state.number, state.performed(names)
        yield "process 1 performs", replace(state, other=write)
        if state.proposal is None:
            return
        is_open = state.number < state.proposal[0] + WINDOW or self.flaw == "taken_after_window"
        is_known = "b" in state.members and self.flaw != "members_not_looked_for"
        if is_open and not is_known:
            write = state.number, state.performed([*names, "b"])
            yield "process 1 includes b", replace(state, other=write)


def _telling_all(state: State, counts: dict[str, int]) -> State:
    for name, count in counts.items():
        if state.of(name).answer == "nothing":
            state = state.telling(name, Told("yes", count))
    return state
