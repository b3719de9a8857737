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
# The feed of ``lake.changes`` and ``lake.follow``: the changes of all tables, by version.


__all__ = ["absorb", "changes", "follow"]


def changes(
    client: LakeClient,
    executor: type[Executor[Frame]],
    since: int | datetime | str,
    until: int | datetime | str | None,
    *,
    tables: Sequence[str] | None,
    columns: Sequence[str] | Mapping[str, Sequence[str]] | None,
    net: bool,
) -> Iterator[Version[Frame]]:
    """Return the versions after ``since``, up to ``until``; see ``Lake.changes``."""
    client = moving(client, "changes")
    net = check_flag("net", net)
    head = client.head()
    first = number_of(client, head, "changes", "since", since)
    newest = 0 if head is None else head.sequence
    last = newest if until is None else number_of(client, head, "changes", "until", until)
    if first > last:
        raise InvalidOperation(
            f"changes: since is global version {first}, and until the older {last}: exchange them"
        )
    chosen = chosen_of(client, head, tables)
    teller = Teller(client, executor, chosen, columns_of(client, head, columns))
    if head is None:
        return iter(())
    found = client.run(stretch(client.context, head, first, last))
    client.run(refuse_idle(head, chosen, found.names))
    return teller.versions(found, net=net)


def absorb(client: LakeClient, tables: Sequence[str] | None) -> list[str]:
    """Give foreign commits their places in the lake's order; see ``Lake.absorb``."""
    client = client.main("absorb")
    head = client.head()
    chosen = chosen_of(client, head, tables)
    if head is None:
        return []
    client.run(refuse_idle(head, chosen, ()))
    taken = client.run_safely(absorb_all(client.context, chosen))
    held = client.context.held
    names = {} if held is None else shown_names(held.head)
    return sorted(names.get(location, location) for location in taken)


def follow(
    client: LakeClient,
    executor: type[Executor[Frame]],
    start: int | datetime | str,
    *,
    tables: Sequence[str] | None,
    columns: Sequence[str] | Mapping[str, Sequence[str]] | None,
    poll_seconds: float,
    absorb_seconds: float | None,
    stop: StopSignal | None,
) -> Iterator[Version[Frame]]:
    """Wait for new versions and yield them; see ``Lake.follow``."""
    client = moving(client, "follow")
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
    teller = Teller(client, executor, chosen, columns_of(client, head, columns))
    return Follower(teller, poll_seconds, absorb_seconds, stop).versions(first)


# -------------------- following
#
# The endless feed, which polls HEAD, yields new versions, and absorbs foreign commits.


@dataclass(slots=True)
class Follower(Generic[Frame]):
    """The state of one ``lake.follow``."""

    teller: Teller[Frame]
    poll_seconds: float
    absorb_seconds: float | None
    stop: StopSignal | None

    def versions(self, position: int) -> Iterator[Version[Frame]]:
        """Yield the versions after ``position``, without an end."""
        client = self.teller.client
        clock = client.context.clock
        absorber = Absorber(client.context, self.teller.chosen)
        absorb_at = clock.elapsed()
        while not self._is_stopped():
            read_at = clock.elapsed()
            if self.absorb_seconds is not None and read_at >= absorb_at:
                absorb_at = read_at + self.absorb_seconds
                client.run_safely(absorber.absorb())  # absorbing reads HEAD, too
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
            self._wait(read_at + self.poll_seconds - clock.elapsed())

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
    """Refuse to wait for new versions of a branch that has ended or was rebased.

    Raises ``RefNotFound``, ``VersionNotFound``.
    """
    epoch = head.epoch
    if epoch is not None and epoch.closed == "moved":
        raise VersionNotFound(
            f"branch {epoch.name!r} was rebased after version {head.sequence}, so its changes end "
            "there: read its present state, by snapshot(), and follow it from that version on"
        )
    check_not_closed(head)
