"""Gates: where the programs of one process wait for each other, without a request."""

from __future__ import annotations

from collections.abc import Callable


class Gate:
    """Shut until somebody opens it, and open from then on.

    Safe without a lock: whoever waits is noted before the gate is looked at, and the
    gate is open before those noted are told, so whichever of the two comes last tells.
    Some are told twice, which is all the same to them. Nothing is taken out of a
    list in between, so that opening it anew finishes what Ctrl-C has cut short.
    """

    __slots__ = ("_listeners", "is_open")

    def __init__(self) -> None:
        self.is_open = False
        self._listeners: list[Callable[[], object]] = []

    def open(self) -> None:
        """Let everybody through."""
        self.is_open = True
        for listener in list(self._listeners):
            listener()

    def when_open(self, listener: Callable[[], object]) -> None:
        """Call ``tell``, from any thread and maybe twice, once the gate is open."""
        self._listeners.append(listener)
        if self.is_open:
            listener()
