"""The change feed of a lake, and its followers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Generic

from lakevilla.api.arguments import check_flag
from lakevilla.api.client.client import LakeClient
from lakevilla.api.execution.executor import Executor
from lakevilla.api.feed.absorbing import Absorber, absorb_all
from lakevilla.api.feed.versions import Teller
from lakevilla.api.feed.walk import (
    StopSignal,
    check_kept,
    check_seconds,
    check_stop,
    chosen_of,
    columns_of,
    moving,
    number_of,
    refuse_idle,
    stretch,
)
from lakevilla.api.frame import Frame
from lakevilla.errors import InvalidOperation, VersionNotFound
from lakevilla.global_log.head import Head, shown_names
from lakevilla.global_log.repo import check_not_closed
from lakevilla.results import Version
from lakevilla.store.effects import sleep

# -------------------- lake feed
#
# The feed, ``lake.changes`` and ``lake.follow``: the changes of all tables, version by version.


__all__ = ["ChangeFeed"]


class ChangeFeed(Generic[Frame]):
    """The reports of a lake on its commits, and on the rows that they changed."""

    _client: LakeClient
    _executor: type[Executor[Frame]]

    def changes(
        self,
        since: int | datetime,
        until: int | datetime | None = None,
        *,
        tables: Sequence[str] | None = None,
        columns: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
        net: bool = False,
    ) -> Iterator[Version[Frame]]:
        """The versions after ``since``, up to ``until``: each once, in order, with all its tables.

        It is bound to the lake's state at the time of the call. If the rows of the tables at
        ``since`` are known, and each version's ``left`` and ``tables`` are applied, they become
        those at ``until``. For the changes of one table alone, use ``txn.changes``.

        Parameters
        ----------
        since : int or datetime
            A global version; it is not included itself. 0 for all that is kept; for a branch, its
            ``base_version``. A time stands for the newest version that is not later.
        until : int or datetime, optional
            The last version; the newest if not given.
        tables : sequence of str, optional
            Names, or patterns of names and paths with ``*`` and ``?``. Versions that touched
            none of them are left out. All tables if not given.
        columns : sequence of str, or Mapping of str to sequence of str, optional
            For all tables alike, or by table. All columns if not given.
        net : bool
            Return one version for the whole range, of kind ``net``: the differences at its end.

        Raises
        ------
        VersionNotFound
            There is no such version, or it is not kept any more: the message says since which
            version changes are kept. Also raised when a table of a version is read whose files were
            removed.
        TableNotFound
            A name in ``tables`` or ``columns`` means no table.
        InvalidOperation
            The range is no range, or the lake is that of a tag, which is a single state.

        Examples
        --------
        >>> _ = lake.run(lambda txn: txn.update("stock", {"qty": "qty - 1"}, where="sku = 'tea'"))
        >>> [version] = lake.changes(2)
        >>> version.version, version.kind, list(version.tables)
        (3, 'transaction', ['stock'])
        >>> rows = version.tables["stock"].select(["_change_type", "qty"]).to_pylist()
        >>> sorted(row["qty"] for row in rows)
        [4, 5]
        """
        client = moving(self._client, "changes")
        net = check_flag("net", net)
        head = client.head()
        first = number_of(client, head, "changes", "since", since)
        newest = 0 if head is None else head.sequence
        last = newest if until is None else number_of(client, head, "changes", "until", until)
        if first > last:
            raise InvalidOperation(
                f"changes: since is global version {first}, and until the older {last}: "
                "exchange them"
            )
        chosen = chosen_of(client, head, tables)
        teller = Teller(client, self._executor, chosen, columns_of(client, head, columns))
        if head is None:
            return iter(())
        found = client.run(stretch(client.context, head, first, last))
        client.run(refuse_idle(head, chosen, found.names))
        return teller.versions(found, net=net)

    def absorb(self, tables: Sequence[str] | None = None) -> list[str]:
        """Give the commits of other clients their places in the lake's order, by tables.

        Every transaction does this for the tables that it writes. Until then readers of these
        tables see the commits, and reports on the lake as a whole do not: ``changes``, ``history``,
        and the catalog tables of SQL. It costs a read of HEAD and of each log, and for each 256
        tables one replacement of HEAD if a log has grown.

        Parameters
        ----------
        tables : sequence of str, optional
            Names, or patterns of names and paths with ``*`` and ``?``. All tables if not given.

        Returns
        -------
        list of str
            The tables whose foreign commits were absorbed.

        Raises
        ------
        TableNotFound
            A name means no table.
        InvalidOperation
            This is a branch or a tag: other clients commit to the lake alone.

        Examples
        --------
        >>> import deltalake, pyarrow as pa
        >>> row = pa.table({"sku": ["rum"], "qty": pa.array([1], pa.int64())})
        >>> deltalake.write_deltalake(lake["stock"].uri, row, mode="append")
        >>> lake.sql("SELECT rows FROM lakevilla_tables WHERE name = 'stock'").to_pylist()
        [{'rows': 1}]
        >>> lake.absorb()
        ['stock']
        >>> lake.sql("SELECT rows FROM lakevilla_tables WHERE name = 'stock'").to_pylist()
        [{'rows': 2}]
        """
        client = self._client.main("absorb")
        head = client.head()
        chosen = chosen_of(client, head, tables)
        if head is None:
            return []
        client.run(refuse_idle(head, chosen, ()))
        taken = client.run_safely(absorb_all(client.context, chosen))
        held = client.context.held
        names = {} if held is None else shown_names(held.head)
        return sorted(names.get(place, place) for place in taken)

    def follow(
        self,
        start: int | datetime,
        *,
        tables: Sequence[str] | None = None,
        columns: Sequence[str] | Mapping[str, Sequence[str]] | None = None,
        poll_seconds: float = 1.0,
        absorb_seconds: float | None = None,
        stop: StopSignal | None = None,
    ) -> Iterator[Version[Frame]]:
        """Wait for new versions and yield them: as ``changes``, without an end.

        Keep the ``version`` of the last version that was processed, where its effects are kept: it
        is ``start`` after a restart, and no version is missed or yielded twice. While nothing
        happens a poll is one request.

        Commits of other clients are yielded when the next transaction that writes their table, or
        ``absorb_seconds``, has given them a place in the lake's order.

        Parameters
        ----------
        start : int or datetime
            A global version; later versions are yielded. A time stands for the newest version that
            is not later.
        tables, columns : optional
            As for ``changes``. A pattern also stands for future tables.
        poll_seconds : float
            The interval of its checks for new versions.
        absorb_seconds : float, optional
            The interval at which it absorbs the commits of other clients to the tables that it
            follows: a read of the log of each (at most 256 at a time), and one write if there are
            any. If not given, it never absorbs commits: then it writes nothing.
        stop : threading.Event, optional
            Ends the iteration once it is set.

        Raises
        ------
        VersionNotFound, TableNotFound, InvalidOperation
            As ``changes``; also while it runs, if it has fallen behind what is kept.

        Examples
        --------
        >>> import threading
        >>> enough = threading.Event()
        >>> for version in lake.follow(0, stop=enough):
        ...     print(version.version, list(version.tables))
        ...     if version.version == 2:
        ...         enough.set()
        1 ['stock']
        2 ['orders']
        """
        client = moving(self._client, "follow")
        poll_seconds = check_seconds("poll_seconds", poll_seconds)
        if absorb_seconds is not None:
            absorb_seconds = check_seconds("absorb_seconds", absorb_seconds)
            if client.branch is not None:
                raise InvalidOperation(
                    "absorb_seconds: only clients of this lake commit to branch "
                    f"{client.branch!r}: leave it out"
                )
        check_stop(stop)
        head = client.head()
        first = number_of(client, head, "follow", "start", start)
        if head is not None:
            check_kept(head, first)
        chosen = chosen_of(client, head, tables)
        teller = Teller(client, self._executor, chosen, columns_of(client, head, columns))
        return Follower(teller, poll_seconds, absorb_seconds, stop).versions(first)


# -------------------- following
#
# The endless feed: it polls HEAD, yields new versions, and absorbs the commits of other clients.


@dataclass(slots=True)
class Follower(Generic[Frame]):
    """One feed that is followed."""

    teller: Teller[Frame]
    poll_seconds: float
    absorb_seconds: float | None
    stop: StopSignal | None

    def versions(self, position: int) -> Iterator[Version[Frame]]:
        """Yield the versions after ``position``, and all later ones."""
        client = self.teller.client
        clock = client.context.clock
        absorber = Absorber(client.context, self.teller.chosen)
        absorb_at = clock.elapsed()
        while not self._is_stopped():
            looked = clock.elapsed()
            if self.absorb_seconds is not None and looked >= absorb_at:
                absorb_at = looked + self.absorb_seconds
                client.run_safely(absorber.absorb())  # has read HEAD, too
                held = client.context.held
            else:
                held = client.run(client.context.head())
            if held is not None:
                _refuse_closed(held.head)
            if held is not None and held.head.sequence > position:
                until = held.head.sequence
                found = client.run(stretch(client.context, held.head, position, until))
                for version in self.teller.versions(found):
                    yield version
                    if self._is_stopped():
                        return
                position = until
            self._wait(looked + self.poll_seconds - clock.elapsed())

    def _is_stopped(self) -> bool:
        return self.stop is not None and self.stop.is_set()

    def _wait(self, seconds: float) -> None:
        if seconds <= 0:
            return
        if self.stop is not None:
            self.stop.wait(seconds)
        else:
            self.teller.client.run(sleep(seconds))


def _refuse_closed(head: Head) -> None:
    """Refuse to wait for new versions of a branch that has ended, or goes on from other tables.

    Raises ``RefNotFound``, ``VersionNotFound``.
    """
    epoch = head.epoch
    if epoch is not None and epoch.closed == "moved":
        raise VersionNotFound(
            f"branch {epoch.name!r} was rebased after version {head.sequence}, so its changes end "
            "there: read its present state, by snapshot(), and follow it from that version on"
        )
    check_not_closed(head)
