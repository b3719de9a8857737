"""The state of the lake that a page shows, and the parameters of its request."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lakevilla.api.lake import Lake
from lakevilla.errors import InvalidOperation, RefNotFound
from lakevilla.serve.page.text import short
from lakevilla.serve.refusal import Refusal
from lakevilla.serve.states import State

MAIN = "main"
_VERSION = re.compile(r"v(\d{1,18})")
_NUMBER = re.compile(r"\d{1,18}")
#: A parameter has at most so many characters.
_MOST_CHARACTERS = 20_000


@dataclass(frozen=True, slots=True)
class Shown:
    """A state of the lake, as the parameter ``on`` names it.

    Attributes
    ----------
    name : str
        A ref, a version (as in v57), or ``main``.
    main : Lake
        The lake on its main line.
    lake : Lake
        The lake at that ref.
    version : int or None
        The global version; None for the newest.
    """

    name: str
    main: Lake
    lake: Lake
    version: int | None = None

    @property
    def state(self) -> State:
        return State(self.lake, self.version)

    @property
    def on(self) -> str | None:
        """The parameter that names it; None for the newest state of the lake."""
        return None if self.name == MAIN else self.name


def shown_state(lake: Lake, name: str) -> Shown:
    """Return the state with a name.

    Raises
    ------
    RefNotFound, VersionNotFound, InvalidOperation
        The lake has no such state.
    """
    if name in ("", MAIN):
        return Shown(MAIN, lake, lake)
    try:
        return Shown(name, lake, lake.on(name))
    except RefNotFound:
        version = version_of(name)
        if version is None:
            raise
        return Shown(name, lake, lake, version)


def version_of(name: str) -> int | None:
    """Return the global version that a name (as in v57) stands for, if it does."""
    found = _VERSION.fullmatch(name)
    return None if found is None else int(found[1])


@dataclass(frozen=True, slots=True)
class Params:
    """The parameters of a request.

    Attributes
    ----------
    given : Mapping of str to str
        As they were sent.
    from_elsewhere : bool
        Whether a page of another place has led here: it must not have the gateway work.
    """

    given: Mapping[str, str]
    from_elsewhere: bool = False

    def text(self, name: str) -> str:
        """Return a parameter; empty if it was not given."""
        found = self.given.get(name, "")
        if len(found) > _MOST_CHARACTERS:
            raise _bad(f"{name} has more than {_MOST_CHARACTERS} characters")
        return found

    def needed(self, name: str) -> str:
        """Return a parameter without which there is nothing to show."""
        found = self.text(name)
        if not found:
            raise _bad(f"{name} is missing: choose it on the page before")
        return found

    def number(self, name: str) -> int | None:
        """Return a whole number; None if it was not given."""
        found = self.text(name)
        if not found:
            return None
        if not _NUMBER.fullmatch(found):
            raise _bad(f"{name} is {short(found, 30)!r}: give a whole number")
        return int(found)


def _bad(message: str) -> Refusal:
    return Refusal(400, InvalidOperation.__name__, message)


@dataclass(frozen=True, slots=True)
class Body:
    """The answer of a view: a template, and its values."""

    template: str
    title: str
    values: Mapping[str, Any] = field(default_factory=dict)
    status: int = 200
