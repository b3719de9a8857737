"""Going on for ever: polls HEAD, tells what is new, and takes in what others have committed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic

from lakevilla.api.feed.absorbing import Absorber
from lakevilla.api.feed.asked import StopSignal
from lakevilla.api.feed.versions import Teller
from lakevilla.api.feed.walk import stretch
from lakevilla.api.frame import Frame
from lakevilla.errors import VersionNotFound
from lakevilla.global_log.head import Head
from lakevilla.global_log.repo import check_not_closed
from lakevilla.results import Version
from lakevilla.store.effects import sleep


@dataclass(slots=True)
class Follower(Generic[Frame]):
    """How one feed is followed."""

    teller: Teller[Frame]
    poll_seconds: float
    absorb_seconds: float | None
    stop: StopSignal | None

    def versions(self, position: int) -> Iterator[Version[Frame]]:
        """The versions after ``position``, and all that come."""
        client = self.teller.client
        clock = client.context.clock
        absorber = Absorber(client.context, self.teller.chosen)
        absorb_at = clock.elapsed()
        while not self._is_stopped():
            looked = clock.elapsed()
            if self.absorb_seconds is not None and looked >= absorb_at:
                absorb_at = looked + self.absorb_seconds
                client.run_safely(absorber.absorb())  # has looked at HEAD, too
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
    """Refuse to wait for what comes to a branch that has ended, or goes on from other tables.

    Raises ``RefNotFound``, ``VersionNotFound``.
    """
    life = head.life
    if life is not None and life.closed == "moved":
        raise VersionNotFound(
            f"branch {life.name!r} was rebased after version {head.sequence}, so its changes end "
            "there: take it as it is, by snapshot(), and follow it from that version on"
        )
    check_not_closed(head)
