"""The epochs of a branch: the client of the next epoch, once the branch is rebased."""

from __future__ import annotations

from typing import Any, Self

from lakevilla.branches.branches import committed_before, refuse_begun_before
from lakevilla.errors import RefNotFound
from lakevilla.lake.context import Context
from lakevilla.lake.frozen.branch_head import ended, has_moved
from lakevilla.results import Outcome
from lakevilla.store.effects import Program


class ClientOfEpoch:
    """A client that is bound to one epoch of a branch, and knows the next epoch's client."""

    context: Context
    branch: str | None
    lake: Self | None
    next_epoch: Self | None

    def on(self, name: str | None) -> Self:
        raise NotImplementedError

    def run(self, program: Program[Any]) -> Any:
        raise NotImplementedError

    def newest(self) -> Self:
        """Return the client of the newest epoch that is known, which may be this client.

        Each epoch has its own client, because a transaction ends in the epoch in which it began.
        """
        newest = self
        while newest.next_epoch is not None:
            newest = newest.next_epoch
        if newest is not self:
            self.next_epoch = newest  # the clients of the epochs in between are not used any more
        return newest

    def follow(self, *, is_lost: bool = False) -> bool:
        """Return whether the branch has a newer epoch; if it has, ``newest`` returns that one's
        client.

        ``is_lost``: this epoch's HEAD does not exist any more, so the branch is looked up in the
        lake's HEAD. Raises ``RefNotFound`` if the branch was rebased, and deleted since.
        """
        held, lake = self.context.held, self.lake
        epoch = None if held is None else held.head.epoch
        if held is None or epoch is None or lake is None or self.branch is None:
            return False
        moved = has_moved(held)
        if self.next_epoch is not None or not (moved or (is_lost and not epoch.closed)):
            return self.next_epoch is not None
        try:
            found = lake.on(self.branch)
        except RefNotFound:
            if moved:
                raise
            return False
        now = None if found.context.held is None else found.context.held.head.epoch
        if now is not None and now.ref_id == epoch.ref_id and now.id != epoch.id:
            self.next_epoch = found
        elif moved:
            raise ended(self.branch)  # a branch created again under the name is another one
        return self.next_epoch is not None

    def committed_before(self, txn_id: str) -> Outcome | None:
        """Return the outcome of a transaction that committed in an older epoch of its branch."""
        lake = self.lake
        if lake is None or self.branch is None:
            return None
        found = lake.run(committed_before(lake.context, self.branch, txn_id))
        return None if found is None else Outcome("committed", found)

    def refuse_begun_before(self, txn_id: str) -> None:
        """Refuse to resume a transaction that was saved in an older epoch of its branch.

        Raises ``AlreadyCommitted`` or ``TransactionAborted``.
        """
        if self.lake is not None and self.branch is not None:
            self.lake.run(refuse_begun_before(self.lake.context, self.branch, txn_id))

    def current(self) -> Self:
        """Return ``newest``, after a check whether the branch was rebased meanwhile."""
        client = self.newest()
        if client.branch is None:
            return client
        try:
            client.run(client.context.head())
        except RefNotFound:
            if not client.follow(is_lost=True):
                raise
        return client.newest().current() if client.follow() else client
