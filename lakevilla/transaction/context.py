"""What the programs of one lake share: injected parts, and caches of immutable things."""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from lakevilla.clock import Clock
from lakevilla.engines.base import Engine
from lakevilla.errors import InvalidOperation
from lakevilla.formats.base import TableFormat
from lakevilla.global_log.commits import CommitObject
from lakevilla.global_log.head import Head
from lakevilla.global_log.repo import HeldHead, load_commit, load_head
from lakevilla.ids import Ids
from lakevilla.markers.marker import Marker
from lakevilla.markers.repo import Unreadable
from lakevilla.settings import MOST_LEASE_SECONDS, Settings
from lakevilla.store.base import Token
from lakevilla.store.effects import Program
from lakevilla.sublogs.lease import Leases
from lakevilla.transaction.tail import Tail

if TYPE_CHECKING:
    from lakevilla.transaction.core import Transaction

__all__ = ["Context", "Event"]

_COMMITS_CACHED = 256
_MARKERS_CACHED = 65_536


@dataclass(frozen=True, slots=True)
class Event:
    """Something worth telling: ``on_event`` and the logger ``lakevilla`` get the same.

    ``detail`` holds plain values, among them the tables concerned.
    """

    kind: Literal[
        "redo",
        "retry",
        "helping",
        "published",
        "reconcile",
        "foreign",
        "abort",
        "gc",
        "waiting",
        "shift",
        "stale",
        "escalation",
        "unsafe_store",
    ]
    txn_id: str | None
    message: str
    detail: Mapping[str, object] = field(default_factory=dict)


@dataclass(slots=True)
class Context:
    """One lake as one process sees it.

    The caches hold immutable values under single assignments, so threads may
    share a context: a lost update costs a request, never a wrong answer.

    ``leases`` is what was seen of others' records. ``departed`` are holders of
    reservations that were found dead, ``passed`` unreadable markers that nobody
    waits for any more. ``renewed`` is told of each transaction that has a record now.
    ``is_callers`` tells whether the running thread has the transaction open itself.
    """

    root: str
    clock: Clock
    ids: Ids
    settings: Settings
    format: TableFormat
    engine: Engine
    notify: Callable[[Event], None] = lambda event: None
    renewed: Callable[[Transaction], None] = lambda txn: None
    is_callers: Callable[[str], bool] = lambda txn_id: False
    held: HeldHead | None = None
    tails: dict[str, Tail] = field(default_factory=dict)
    commits: OrderedDict[tuple[str, str], CommitObject] = field(default_factory=OrderedDict)
    ended: set[str] = field(default_factory=set)
    checkpoints_due: deque[tuple[str, int]] = field(default_factory=deque)
    markers: dict[tuple[str, Token], Marker | Unreadable] = field(default_factory=dict)
    departed: set[str] = field(default_factory=set)
    passed: set[Token] = field(default_factory=set)
    leases: Leases = field(init=False)

    def __post_init__(self) -> None:
        self.leases = Leases(self.settings.lease_seconds, MOST_LEASE_SECONDS)

    def head(self) -> Program[HeldHead | None]:
        """HEAD as it is now, by one conditional GET; remembered."""
        held = yield from load_head(self.held)
        self.remember(held)
        return held

    def remember(self, held: HeldHead | None) -> None:
        """Keep the newest HEAD seen: another thread may have seen a newer one meanwhile."""
        known = self.held
        if (
            held is not None
            and known is not None
            and known.head.lake_id == held.head.lake_id
            and known.head.replacement > held.head.replacement
        ):
            return
        self.held = held
        if held is not None and held is not known:
            for location, tail in self.tails.copy().items():
                if _is_of_another(held.head, location, tail):
                    self.tails.pop(location, None)

    def commit_object(self, txn: str, digest: str) -> Program[CommitObject]:
        """A commit object, cached: it is immutable."""
        found = self.commits.get((txn, digest))
        if found is None:
            found = yield from load_commit(txn, digest)
            self.keep_commit(digest, found)
        return found

    def keep_commit(self, digest: str, commit: CommitObject) -> None:
        self.commits[(commit.txn, digest)] = commit
        while len(self.commits) > _COMMITS_CACHED:
            try:
                self.commits.popitem(last=False)
            except KeyError:  # another thread was quicker
                break

    def known_markers(self) -> dict[tuple[str, Token], Marker | Unreadable]:
        """Markers read so far; they never change."""
        if len(self.markers) > _MARKERS_CACHED:
            self.markers = {}
        return self.markers

    def keep_tail(self, tail: Tail) -> Tail:
        """Remember how far a table's log has come; another thread may know more by now."""
        if self.held is not None and _is_of_another(self.held.head, tail.location, tail):
            return tail  # a thread may have walked it since: listed anew at the next use
        known = self.tails.get(tail.location)
        ahead = known is not None and known.tip > tail.tip
        if known is None or not ahead or known.snapshot.table_id != tail.snapshot.table_id:
            self.tails[tail.location] = tail
        return tail

    def note_unpublished(self, txn_id: str, table: str, error: Exception) -> None:
        """Tell that a decided commit could not be published now; the next client does it."""
        self.notify(
            Event(
                "published",
                txn_id,
                f"table {table} could not be published now and will be by whoever comes next: "
                f"{error}",
                {"table": table, "complete": False},
            )
        )

    def now_ms(self) -> int:
        return int(self.clock.now() * 1000)

    def refuse_foreign_root(self) -> None:
        """Refuse to write a lake that was copied or moved here (hazard 30)."""
        if self.held is not None and self.held.head.root != self.root:
            raise InvalidOperation(
                f"this lake's HEAD names the root {self.held.head.root}, not {self.root}: it was "
                "copied or moved and is read-only here; `lakevilla doctor --adopt` gives it a "
                "new identity"
            )


def _is_of_another(head: Head, location: str, tail: Tail) -> bool:
    """Whether the known log is that of a table in whose place HEAD has another.

    Its numbers then say nothing of the log that is there now. (A client that replaces a
    table in its log gives it another id too: that costs a LIST until HEAD knows it. One that
    is dropped and not made again stays known: a list that is behind would not show its log.)
    """
    state = head.tables.get(location)
    if state is None or state.dropped or tail.tip < 0:
        return False
    return state.table_id != tail.snapshot.table_id
