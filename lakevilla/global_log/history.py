"""The history of a lake: its commits, and the lineage of branches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lakevilla.errors import CorruptObject, VersionNotFound
from lakevilla.global_log.bases import Base, load_base
from lakevilla.global_log.head import HEAD_KEY, CommitSummary, Head, Page, PageRef, TableMap
from lakevilla.global_log.repo import load_page, load_pages
from lakevilla.store.effects import Program

# -------------------- history
#
# The lake's history: its commits, in HEAD and in as many pages as a caller needs.


#: The number of pages of which a timeline keeps the content, besides their commits.
_PAGES = 4


@dataclass(frozen=True, slots=True)
class KnownHead:
    """A HEAD from which older states are derived: its tables, and the last commits up to it.

    ``is_now``: it is the newest HEAD that the client knows. Else it is the HEAD from which a page
    was made, without what only the newest HEAD says: how much of the history is kept.
    """

    tables: TableMap
    commits: Sequence[CommitSummary]
    is_now: bool

    def after(self, sequence: int) -> Sequence[CommitSummary]:
        """Return the commits after ``sequence``, all of which must be known."""
        first = self.commits[0].sequence if self.commits else sequence + 1
        assert first <= sequence + 1, (first, sequence)
        return self.commits[sequence + 1 - first :]

    @property
    def first(self) -> int | None:
        """The oldest known commit; None for a HEAD without any."""
        return self.commits[0].sequence if self.commits else None


@dataclass(slots=True)
class Timeline:
    """The commits up to ``head`` that are cached, oldest first, and other pages that were read.

    HEAD names the last pages, and of older ones the ends of blocks, which name the others (see
    ``with_page``). So any page is found in a few rounds, and many pages are read in as few.
    """

    head: Head
    commits: list[CommitSummary]
    _pages: list[Page] = field(default_factory=list)
    _base: Base | None = None

    @classmethod
    def of(cls, head: Head) -> Timeline:
        return cls(head, list(head.commits))

    def base(self) -> Program[Base]:
        """Return the branch's base: the state with which its history begins."""
        assert self.head.epoch is not None, "only a branch begins with a state"
        if self._base is None:
            self._base = yield from load_base(self.head.epoch.base)
        return self._base

    @property
    def first(self) -> int:
        """The oldest sequence from which on all commits are cached."""
        return self.commits[0].sequence if self.commits else self.head.sequence + 1

    def at(self, sequence: int) -> Program[CommitSummary | None]:
        """Return one commit; None for a version whose commit is not kept, as the last forgotten."""
        if not self._is_kept(sequence):
            return None
        return (yield from self.between(sequence - 1, sequence))[0]

    def after(self, sequence: int) -> Program[Sequence[CommitSummary]]:
        """Return all commits after ``sequence``, oldest first.

        Raises
        ------
        VersionNotFound
            The version does not exist yet, or some of the commits are not kept any more.
        """
        commits = yield from self._back_to(sequence)
        first = commits[0].sequence if commits else self.head.sequence + 1
        return commits[sequence + 1 - first :]

    def _back_to(self, sequence: int) -> Program[list[CommitSummary]]:
        """Return the cached commits up to HEAD, at least those after ``sequence``."""
        self.check(sequence)
        if self.first > sequence + 1:
            found = yield from self._paged(sequence + 1, self.first - 1)
            # Programs that run in parallel may have done the same meanwhile.
            older = [one for one in found if one.sequence < self.first]
            self.commits = [*older, *self.commits]
        return self.commits

    def between(self, sequence: int, last: int) -> Program[Sequence[CommitSummary]]:
        """Return the commits after ``sequence``, up to ``last``; errors are those of ``after``."""
        self.check(sequence)
        if last <= sequence:
            return []
        found: Sequence[CommitSummary]
        if last >= self.first - 1:
            found = yield from self.after(sequence)
        else:
            found = yield from self._paged(sequence + 1, last)
        return [commit for commit in found if sequence < commit.sequence <= last]

    def newest(
        self, limit: int | None, last: int | None = None
    ) -> Program[Sequence[CommitSummary]]:
        """Return the newest kept commits, up to ``last`` if that is given, newest first."""
        start, last = self.head.history_start, self.head.sequence if last is None else last
        if limit is not None:
            start = max(start, last - limit)
        if last <= start:
            return []
        return (yield from self.between(start, last))[::-1]

    def known_after(self, sequence: int) -> Program[KnownHead]:
        """Return a HEAD that has a version and all commits since: if possible, a page's HEAD.

        That one has few commits after the version. If no page describes it, the HEAD is the newest
        one, and all commits since the version are read. Errors are those of ``after``.
        """
        self.check(sequence)
        # The commit of the last forgotten version is not kept, but the one after it is.
        known = yield from self.described(max(sequence, self.head.history_start + 1))
        return (yield from self.newest_known(sequence)) if known is None else known

    def newest_known(self, sequence: int) -> Program[KnownHead]:
        """Return the newest HEAD, with all commits since a version. Errors are those of ``after``.

        The leaves of its tables may not be cached.
        """
        return KnownHead(self.head.tables, (yield from self._back_to(sequence)), is_now=True)

    def described(self, sequence: int) -> Program[KnownHead | None]:
        """Return the HEAD from which the page of a commit was made, if the page describes it."""
        own = self.head.commits
        if not own or sequence >= own[0].sequence:
            return None
        for page in (yield from self._load(sequence, sequence)):
            if page.tables is not None:
                return KnownHead(page.tables, (*page.commits, *page.later), is_now=False)
        return None

    def by(self, timestamp_ms: int) -> Program[int]:
        """Return the newest version that was not committed after ``timestamp_ms``.

        Raises ``VersionNotFound`` if all kept versions are later.

        The commit of the last forgotten version is not kept, but its state is, and its time: its
        commit is cached, or was the last of the newest deleted page, whose time HEAD or the page
        that ends its block names.
        """
        # No state is known from before a rebuild of HEAD.
        start = max(self.head.history_start, self.head.rebuilt)
        version = yield from self._newest_by(timestamp_ms)
        if version is None or version < start:
            raise VersionNotFound(
                "no global version that is kept is as old as the requested time: the first is "
                f"version {start or 1}; request a later time"
            )
        return version

    def _newest_by(self, timestamp_ms: int) -> Program[int | None]:
        """Return the last version up to a time, if it is kept; else None, or one that is not kept.

        Timestamps grow strictly: ``successor`` raises each above the one before.
        """
        if self.commits and self.commits[0].timestamp_ms <= timestamp_ms:
            return _last_by(self.commits, timestamp_ms)
        refs: Sequence[PageRef] = self.head.pages
        before: int | None = None  # the last version of a page that is older than the time
        while True:
            older = [ref for ref in refs if ref.last_timestamp_ms <= timestamp_ms]
            before = older[-1].last_sequence if older else before
            if len(older) == len(refs):
                return before
            end = refs[len(older)]
            is_in_it = end.first_timestamp_ms <= timestamp_ms
            if end.last_sequence <= self.head.history_start or not (is_in_it or end.level):
                return before
            page = yield from load_page(end)
            if is_in_it:
                return _last_by(page.commits, timestamp_ms)
            refs = page.older

    def check(self, sequence: int) -> None:
        """Refuse a global version that is not kept, or does not exist yet.

        Raises
        ------
        VersionNotFound
        """
        if sequence > self.head.sequence:
            epoch = self.head.epoch
            whose = "the lake" if epoch is None else f"branch {epoch.name!r}"
            raise VersionNotFound(
                f"{whose} has no global version {sequence}; its newest is {self.head.sequence}"
            )
        if sequence < self.head.history_start:
            raise self._forgotten(sequence)

    def settled(self, sequence: int) -> Program[int]:
        """Return the version to read for ``sequence``: the next one if that is a reconcile.

        A ``reconcile`` commit is in one replacement with the ``foreign`` commit before it, so no
        HEAD ever had only the latter. Between the two the table has no state, because the decided
        commits do not fit its log.
        """
        following = (yield from self.known_after(sequence)).after(sequence)
        return sequence + 1 if following and following[0].kind == "reconcile" else sequence

    def _is_kept(self, sequence: int) -> bool:
        return self.head.history_start < sequence <= self.head.sequence

    def _paged(self, first: int, last: int) -> Program[list[CommitSummary]]:
        """Return all commits of the pages that have these."""
        pages = yield from self._load(first, last)
        if not pages or pages[0].commits[0].sequence > first:
            raise self._forgotten(first - 1)
        return [commit for page in pages for commit in page.commits]

    def _load(self, first: int, last: int) -> Program[list[Page]]:
        """Return the pages with these commits; none if gc has released one of them meanwhile."""
        known = [p for p in self._pages if p.commits[0].sequence <= first]
        known = [p for p in known if last <= p.commits[-1].sequence]
        if known:
            return known[-1:]
        try:
            pages = yield from load_pages(self.head.pages, first, last)
        except VersionNotFound:
            return []
        self._pages = [*self._pages, *pages][-_PAGES:]
        return pages

    def _forgotten(self, sequence: int) -> VersionNotFound:
        epoch = self.head.epoch
        if epoch is not None:
            return VersionNotFound(
                f"branch {epoch.name!r} begins with version {self.head.history_start}, from which "
                f"it was created or rebased: request that one or a newer one (version {sequence} "
                "may be one of the lake itself)"
            )
        return VersionNotFound(
            f"global version {sequence} is not kept any more: the lake's history begins with "
            f"version {self.head.history_start}; request that one or a newer one"
        )


def _last_by(commits: Sequence[CommitSummary], timestamp_ms: int) -> int:
    return max(one.sequence for one in commits if one.timestamp_ms <= timestamp_ms)


# -------------------- lineage
#
# Lineage: a HEAD that a client reads descends from every HEAD that the client has read before.
#
# HEAD is only ever replaced by its successor. So if a client has read one HEAD, and then finds an
# older HEAD, or a descendant of an older HEAD, a user has put an old copy of HEAD back. If the
# client continued with that HEAD, sequences would be assigned a second time; the tables' logs mark
# them as published already, so acknowledged rows would be lost.


#: The remedy for a HEAD that was set back, for error messages.
NEWEST = (
    "restore the newest copy of it (from the bucket's older versions, or a backup); if there is "
    "none, `lakevilla recover ROOT --reset-head N` continues from HEAD number N, this one or "
    "another that is kept, and `--rebuild-head --force` rebuilds it from the tables"
)


def went_back(
    head: Head, evidence: str, *, before: str = "", table: str | None = None
) -> CorruptObject:
    """Return the error for a HEAD that was set back, as ``evidence`` shows."""
    return CorruptObject(
        f"{before}{HEAD_KEY} (global version {head.sequence}, replacement {head.replacement}) was "
        f"set back, as by an old backup: {evidence}; {NEWEST}",
        key=HEAD_KEY,
        table=table,
    )


def check_lineage(known: Head, found: Head | None) -> None:
    """Refuse a HEAD that can't descend from ``known``.

    ``found`` must have been requested after ``known`` was read: the answer to an earlier request
    may be older without an error.

    Raises
    ------
    CorruptObject
        HEAD is missing, is older, or has other past commits. A HEAD with another lake id belongs to
        another lake (adopted, or created again): it is not refused here.
    """
    if found is None:
        raise CorruptObject(
            f"{HEAD_KEY} is missing, and this client has seen global version {known.sequence} of "
            f"lake {known.lake_id}: restore the newest copy, or rebuild it with "
            "`lakevilla recover ROOT --rebuild-head`; if the lake was removed on "
            "purpose, connect again",
            key=HEAD_KEY,
        )
    if found.lake_id != known.lake_id:
        return
    if found.replacement < known.replacement or not _holds(found, known):
        raise CorruptObject(
            f"{HEAD_KEY} shows global version {found.sequence} (replacement {found.replacement}), "
            f"and this client has seen version {known.sequence} (replacement {known.replacement}): "
            f"HEAD was set back, as by an old backup; {NEWEST}",
            key=HEAD_KEY,
        )


def _holds(found: Head, known: Head) -> bool:
    """Return whether ``found`` has the last commit of ``known``; True if that can't be seen."""
    if found.replacement == known.replacement:
        return found.nonce == known.nonce
    if not known.commits or not found.commits:
        return True
    last = known.commits[-1]
    index = last.sequence - found.commits[0].sequence
    if index < 0:
        return True  # the commit has moved to a page
    return index < len(found.commits) and found.commits[index] == last
