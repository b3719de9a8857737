"""Where the commits of one lake meet in a process, and what it knows of the crowd beside it."""

from __future__ import annotations

from collections.abc import Iterable

from lakevilla.global_log.head import Head
from lakevilla.global_log.inbox.proposal import Proposal, is_over
from lakevilla.lake.context import Context
from lakevilla.lake.lanes import Lane
from lakevilla.transaction.commit.together.candidate import Candidate

#: Own commits in one replacement; with more, one that fails would hold up too many.
MOST = 32
#: Races lost in a row that make a crowd, and for how long it counts as one.
_RACES = 2
_CROWDED_SECONDS = 2.0
#: For how long a process proposes nothing that relies on rows, once others could not tell of such a
#: commit whether it was touched: it waits for them in vain, and races may win.
DOUBTFUL_SECONDS = 5.0
#: Commits that went together in the last group of several processes, for it to be a crowd.
CROWD = 2


class CommitLane(Lane[Candidate]):
    """The lane of a lake's commits.

    Attributes
    ----------
    races : int
        How many it has lost since it won one.
    proposal, key : Proposal or None, str
        What it has proposed last, as long as that may be taken.
    read : dict
        Others' proposals that were read, by key; None for one that can't be.
    """

    def __init__(self) -> None:
        super().__init__()
        self.races = 0
        self.proposal: Proposal | None = None
        self.key = ""
        self.read: dict[str, Proposal | None] = {}
        self._over: list[str] = []
        self._crowded_until = self._doubtful_until = float("-inf")

    def note_doubt(self, context: Context) -> None:
        """Note that nobody has taken a commit along, because of what it relies on."""
        self._doubtful_until = context.clock.elapsed() + DOUBTFUL_SECONDS

    def has_doubts(self, context: Context) -> bool:
        """Whether commits that rely on rows race for HEAD for now."""
        return context.clock.elapsed() < self._doubtful_until

    def note_lost(self, context: Context) -> None:
        """Note that a race for HEAD was lost."""
        self.races += 1
        if self.races >= _RACES:
            self._crowded_until = context.clock.elapsed() + _CROWDED_SECONDS

    def has_proposed(self, candidates: Iterable[Candidate]) -> bool:
        """Whether one of them is in the last proposal."""
        proposal = self.proposal  # another thread may let go of it
        if proposal is None:
            return False
        digests = {one.digest for one in proposal.commits}
        return any(candidate.digest in digests for candidate in candidates)

    def is_over(self, head: Head) -> bool:
        """Whether nobody can take the last proposal any more."""
        return self.proposal is not None and is_over(self.proposal.replacement, head)

    def let_go_of_proposal(self) -> None:
        """Forget the last proposal: nobody here needs it any more."""
        with self._lock:
            if self.key:
                self._over.append(self.key)
            self.proposal, self.key = None, ""

    def proposals_to_delete(self) -> list[str]:
        """Keys of proposals that nobody here needs, for whoever ends now to delete.

        With the last one, if none of those who wait is in it: its leader was interrupted.
        """
        if not self.has_proposed(self.present()):
            self.let_go_of_proposal()
        with self._lock:
            keys, self._over = self._over, []
        return keys

    def is_crowded(self, context: Context) -> bool:
        """Whether so many replace HEAD that it pays to let one do it for all."""
        if not context.proposes():
            return False
        held = context.held
        is_shared = held is not None and held.head.crowd >= CROWD
        return is_shared or context.clock.elapsed() < self._crowded_until


def commits_of(context: Context) -> CommitLane:
    """Where the commits of a lake meet."""
    lane = context.lanes.named("commits", CommitLane)
    assert isinstance(lane, CommitLane)
    return lane
