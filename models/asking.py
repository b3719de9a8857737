"""What models of Iceberg clients have in common: where clients are, and replacements of HEAD that
have no answer.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Generic, NamedTuple, Self, TypeVar

C = TypeVar("C", bound=Hashable)
S = TypeVar("S", bound="Asking[Any]")

#: Where a client is that asks no more.
ENDS = ("yes", "no", "unknown", "done")


class Write(NamedTuple):
    """A replacement of HEAD that was sent, and has no answer; ``what``: what it would store."""

    replacement: int
    name: str
    what: Any = None


@dataclass(frozen=True, slots=True)
class Asking(Generic[C]):
    """A state with clients, and with writes under way; ``wrong``: what no state may have."""

    clients: tuple[C, ...] = ()
    replacement: int = 0
    flying: tuple[Write, ...] = ()
    wrong: str = ""

    def at(self, number: int, **changes: object) -> Self:
        """Return the state with a client changed."""
        changed = replace(self.clients[number], **changes)  # type: ignore[type-var]
        clients = (*self.clients[:number], changed, *self.clients[number + 1 :])
        return replace(self, clients=clients)

    def sent(self, write: Write) -> Self:
        """Return the state with a write under way."""
        return replace(self, flying=(*self.flying, write))


def landings(
    state: S, landed: Callable[[S, Write], S], *, is_open: bool = True
) -> Iterator[tuple[str, S]]:
    """Yield the ends of writes: each needs the HEAD that it names, and ``is_open``."""
    for place, write in enumerate(state.flying):
        rest = replace(state, flying=state.flying[:place] + state.flying[place + 1 :])
        if is_open and write.replacement == state.replacement:
            yield f"{write.name} lands late", landed(rest, write)
        else:
            yield f"{write.name} never lands", rest
