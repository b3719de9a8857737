"""Traces of the model of refs on the code.

Compared are the branch's entry in HEAD, the HEADs of its epochs, the bases, and what committing
clients were told. A run ends early where the code does more than the model: a client that finds a
closed branch, or comes too late, finishes what another one has begun.
"""

from __future__ import annotations

from lakevilla.errors import ConflictError
from lakevilla.global_log.head import HEAD_KEY, Head
from lakevilla.global_log.refs import BASES_PREFIX, number_of_epoch
from lakevilla.store.location import HOMES_PREFIX
from lakevilla_testing.histories.exhaustive import set_up_once
from lakevilla_testing.tables import delta_writer
from lakevilla_testing.world.following import Diverged
from lakevilla_testing.world.scheduler import Simulation
from models.refs import SCENARIOS, Refs, State
from tests.support.simulated.branches import appends, ends, makes, rebases, shows
from tests.support.simulated.commits import alone, begin, lake, read
from tests.support.simulated.traced import Traced
from tests.support.simulated.upkeep import collects, merges

TRACED = tuple(SCENARIOS)
#: Steps in which a client finds that others were quicker. The code then begins again at once, or
#: finishes the work of others; the model does it later, or leaves it to other clients.
_LATE = (
    "finds no open branch",
    "finds another epoch",
    "finds no HEAD",
    "finds a branch",
    "finds a commit",
    "reads again",
    "is late",
    "has nothing to do",
)
#: The reasons for which a HEAD is closed: the model's, and the code's.
_CLOSED = {"": "", "ended": "deleted", "moved": "moved"}


#: The id of the row that the first client appends.
_FIRST_ROW = 10
#: The numbers of an entry's epochs, of its base, and of the base that was last merged.
_Entry = tuple[tuple[int, ...], int, int | None]


class TracedRefs(Traced):
    """A run of the model of refs, and the real clients that follow it."""

    def __init__(self, scenario: str, seed: int, flaw: str = "") -> None:
        super().__init__(scenario, seed, flaw)
        self.first = self.head()

    def tables(self) -> Simulation:
        return _lake()

    def model(self) -> Refs:
        return Refs(self.flaw, faults=0, scenarios=(self.scenario,))

    # -- clients ---------------------------------------------------------------------

    def begin(self, state: State) -> None:
        for number, (kind, name) in enumerate(state.actors):
            self.clients[name] = self.simulation.add(name, _program(kind, number))

    # -- steps -----------------------------------------------------------------------

    def step(self, name: str) -> bool:
        who, _, what = name.partition(" ")
        client, leader = self.clients[who], self.leader
        if what in _LATE:
            return False
        if what in ("is refused", "finds nothing to merge", "deletes"):
            leader.until(client, lambda verb, key: False)
        elif leader.next_of(client) is None:
            return False
        elif what == "reads the entry":
            leader.until(client, lambda verb, key: key == HEAD_KEY)
            leader.once(client)
        elif what == "reads":
            leader.until(client, lambda verb, key: _is_own_head(key))
            self.expect(client, "get", "", "found")
        elif what in ("stores base and HEAD", "stores its base"):
            leader.until(client, _replaces_head)
        elif what == "stores its file":
            leader.until(client, _replaces_own_head)
        elif what == "stores base and new HEAD":
            leader.until(client, _replaces_a_head)
        elif what == "lists":
            leader.until(client, lambda verb, key: "/recent/" in key and verb.startswith("put"))
            if isinstance(client.result, ConflictError):
                return False  # it has met a base that was stored for a later HEAD
        elif what == "closes the old epoch" and leader.next_of(client) == ("put match", HEAD_KEY):
            pass  # it has closed that epoch before it lost a race
        elif what in ("commits", "closes", "closes the old epoch"):
            leader.until(client, _replaces_own_head)
            self.expect(client, "put", "", "stored")
        elif what in ("makes the branch", "merges", "names the new epoch", "replaces HEAD"):
            self._replace_head(client, "stored")
        elif what == "ends the branch":
            if self._replace_head(client, None).outcome.startswith("refused"):
                self._replace_head(client, "stored")
        elif what == "loses the race":
            self._replace_head(client, "refused")
        else:
            raise Diverged(f"no client can be led to {name}")
        if what == "makes the branch":
            # The lake moves on, without its HEAD: a rebase of a branch has nothing to do else.
            row = {"id": 5, "balance": 0, "items": ""}
            alone(self.simulation, lambda client: delta_writer.append(client, "a", [row]), "other")
        return True

    def _replace_head(self, client, outcome):
        self.leader.until(client, _replaces_head)
        return self.expect(client, "put", HEAD_KEY, outcome or "")

    # -- what is compared --------------------------------------------------------------

    def compare(self, state: State) -> None:
        head = self.head()
        self.same("replacements of HEAD", self._after(head.replacement), state.number)
        self.same("the branch's entry", self._entry(head), _entry_of(state))
        bases = {self._after(_number_in(key)) for key in self._keys(f"{BASES_PREFIX}/")}
        self.same("bases", bases, {one.number for one in state.bases})
        own = {
            (self._after(number_of_epoch(one.epoch.id)), one.epoch.closed)
            for one in map(self.head, filter(_is_own_head, self._keys(f"{HOMES_PREFIX}/")))
        }
        heads = {(epoch.number, _CLOSED[one.closed]) for epoch, one in state.heads}
        self.same("HEADs of the branch", own, heads)
        self._compare_answers(state)

    def compare_ends(self, state: State) -> None:
        """Compare the rows that readers of the lake and of the branch find."""
        ops = {_FIRST_ROW + number: name for number, (_, name) in enumerate(state.actors)}
        rows = alone(self.simulation, _reads, "reader")
        self.same("rows of the lake", {ops[one] for one in rows if one in ops}, set(state.main))
        if state.entry is not None:
            head = state.head(state.entry.epochs[-1])
            assert head is not None
            rows = alone(self.simulation, shows(), "looker")
            found = {ops[one] for one in rows if one in ops}
            self.same("rows of the branch", found, set(head.state))

    def _entry(self, head: Head) -> _Entry | None:
        entry = head.refs.peek("etl")
        if entry is None:
            return None
        epochs = tuple(self._after(number_of_epoch(one)) for one in entry.epochs)
        synced = None if entry.synced is None else self._after(entry.synced.made)
        return epochs, self._after(entry.base.made), synced

    def _compare_answers(self, state: State) -> None:
        for (kind, name), client in zip(state.actors, state.clients, strict=True):
            if kind == "commit" and client.told:
                self.leader.until(self.clients[name], lambda verb, key: False)
                told = "yes" if self.clients[name].result == "committed" else "no"
                self.same(f"{name} was told", told, client.told)

    def _after(self, number: int | None) -> int:
        """Return the number of a replacement of HEAD, counted from the run's first HEAD."""
        assert number is not None
        return number - self.first.replacement

    def _keys(self, prefix: str) -> list[str]:
        return [key for key in self.simulation.store.objects if key.startswith(prefix)]


@set_up_once
def _lake(faults=None, schedule=None):
    return lake(faults, schedule, tables=("a",))


def _program(kind: str, number: int):
    if kind == "make":
        return makes()
    if kind == "commit":
        return appends(_FIRST_ROW + number)
    if kind == "merge":
        return _merges
    if kind == "rebase":
        return rebases()
    return ends() if kind == "end" else _collects


def _reads(client):
    txn = begin(client, read_only=True)
    return (yield from read(txn, "a"))


def _merges(client):
    """Merge, and once more after a lost race, as `lake.run` does."""
    first = yield from merges(client)
    return first if first == "merged" else (yield from merges(client))


def _collects(client):
    """Clean up; return the error of a clean-up that has met what is stored for a later HEAD."""
    try:
        yield from collects(client)
    except ConflictError as error:
        return error


def _replaces_head(verb: str, key: str) -> bool:
    return verb == "put match" and key == HEAD_KEY


def _replaces_own_head(verb: str, key: str) -> bool:
    return verb == "put match" and _is_own_head(key)


def _replaces_a_head(verb: str, key: str) -> bool:
    return _replaces_head(verb, key) or _replaces_own_head(verb, key)


def _is_own_head(key: str) -> bool:
    return key.startswith(f"{HOMES_PREFIX}/") and key.endswith("/HEAD.json")


def _entry_of(state: State) -> _Entry | None:
    entry = state.entry
    if entry is None:
        return None
    synced = None if entry.synced is None else entry.synced.number
    return tuple(one.number for one in entry.epochs), entry.base.number, synced


def _number_in(key: str) -> int:
    return int(key.rpartition("/")[2].partition("-")[0])
