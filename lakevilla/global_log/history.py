"""The history of a lake: its commits, and the lineage of branches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lakevilla.errors import CorruptObject, VersionNotFound
from lakevilla.global_log.bases import Base, load_base
from lakevilla.global_log.head import HEAD_KEY, CommitSummary, Head, Page, PageRef
from lakevilla.global_log.repo import load_page
from lakevilla.store.effects import Program

# -------------------- history
#
# The lake's history: its commits, from HEAD back through as many pages as a caller needs.


@dataclass(slots=True)
class Timeline:
    """The commits up to ``head`` that are cached, oldest first, and the page before them.

    Each page names the page before it, so pages are read one after the other, and only as far back
    as a caller needs.
    """

    head: Head
    commits: list[CommitSummary]
    older: PageRef | None
    _base: Base | None = None

    @classmethod
    def of(cls, head: Head) -> Timeline:
        return cls(head, list(head.commits), head.page)

    def base(self) -> Program[Base]:
        """Return the branch's base: the state with which its history begins."""
        assert self.head.epoch is not None, "only a branch begins with a state"
        if self._base is None:
            self._base = yield from load_base(self.head.epoch.base)
        return self._base

    @property
    def first(self) -> int:
        """The oldest cached sequence."""
        return self.commits[0].sequence if self.commits else self.head.sequence + 1

    def at(self, sequence: int) -> Program[CommitSummary | None]:
        """Return one commit; None for a version whose commit is not kept, as the last forgotten."""
        found = yield from self.after(sequence - 1) if self._is_kept(sequence) else ()
        return found[0] if found else None

    def after(self, sequence: int) -> Program[Sequence[CommitSummary]]:
        """Return all commits after ``sequence``, oldest first.

        Raises
        ------
        VersionNotFound
            The version does not exist yet, or some of the commits are not kept any more.
        """
        self.check(sequence)
        while self.first > sequence + 1:
            page = None if self.older is None else (yield from self._load(self.older))
            if page is None:
                raise self._forgotten(sequence)
            self.commits[:0] = page.commits
            self.older = page.previous
        return self.commits[sequence + 1 - self.first :]

    def newest(
        self, limit: int | None, last: int | None = None
    ) -> Program[Sequence[CommitSummary]]:
        """Return the newest kept commits, up to ``last`` if that is given, newest first."""
        start, last = self.head.history_start, self.head.sequence if last is None else last
        if limit is not None:
            start = max(start, last - limit)
        if last < start:
            return []
        return [c for c in reversed((yield from self.after(start))) if c.sequence <= last]

    def by(self, timestamp_ms: int) -> Program[int]:
        """Return the newest version that was not committed after ``timestamp_ms``.

        Raises ``VersionNotFound`` if all kept versions are later.

        The commit of the last forgotten version is not kept, but its state is, and its time: its
        commit is cached, or was the last of the newest deleted page, whose time the next page
        names.
        """
        # No state is known from before a rebuild of HEAD.
        start = max(self.head.history_start, self.head.rebuilt)
        while self.first > start + 1 and self.commits[0].timestamp_ms > timestamp_ms:
            yield from self.after(self.first - 2)
        # Timestamps grow strictly: ``successor`` raises each above the one before.
        for commit in reversed(self.commits):
            if commit.timestamp_ms <= timestamp_ms and commit.sequence >= start:
                self.check(commit.sequence)
                return commit.sequence
        forgotten = self.older
        if (
            forgotten is not None
            and forgotten.last_sequence == start
            and forgotten.last_timestamp_ms <= timestamp_ms
        ):
            return start
        raise VersionNotFound(
            "no global version that is kept is as old as the requested time: the first is version "
            f"{start or 1}; request a later time"
        )

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
        following = yield from self.after(sequence)
        return sequence + 1 if following and following[0].kind == "reconcile" else sequence

    def _is_kept(self, sequence: int) -> bool:
        return self.head.history_start < sequence <= self.head.sequence

    def _load(self, ref: PageRef) -> Program[Page | None]:
        try:
            return (yield from load_page(ref))
        except VersionNotFound:
            return None

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
