"""A request of an Iceberg REST client for some tables, and the answer to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from lakevilla.formats.iceberg.metadata.file import Metadata
from lakevilla.formats.iceberg.metadata.updates import added_snapshots, adds_files

Json = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class NewName:
    """The name of a table that a request makes, and its location if it were a path."""

    name: str
    place: str


@dataclass(frozen=True, slots=True)
class TableRequest:
    """The part of one table: requirements, and updates if the client does not only rely on it.

    ``admits`` returns whether they may name a data file outside of the table's directory.
    ``makes``: the request makes the table, under this name.
    """

    location: str
    requirements: tuple[Json, ...] = ()
    updates: tuple[Json, ...] = ()
    admits: Callable[[str], bool] = lambda uri: False
    makes: NewName | None = None

    @property
    def snapshots(self) -> set[int]:
        """The ids of the snapshots that the updates add."""
        ids = (one.get("snapshot-id") for one in added_snapshots(self.updates))
        return {number for number in ids if isinstance(number, int)}

    @property
    def adds_files(self) -> bool:
        """Return whether its client has stored files, which it deletes if it is refused."""
        return adds_files(self.updates)

    @property
    def table_id(self) -> str | None:
        """The id that the updates give the table."""
        given = [one.get("uuid") for one in self.updates if one.get("action") == "assign-uuid"]
        return str(given[-1]) if given else None

    def is_for(self, table_id: object) -> bool:
        """Return whether the client may mean the table that has this id."""
        wanted = (one for one in self.requirements if one.get("type") == "assert-table-uuid")
        return all(str(one.get("uuid")).lower() == str(table_id).lower() for one in wanted)

    @property
    def leaves_traces(self) -> bool:
        """Return whether the table shows that the request took effect on it."""
        return self.makes is not None or bool(self.snapshots)


Outcome = Literal[
    "done",
    "conflict",
    "exists",
    "busy",
    "invalid",
    "unsupported",
    "missing",
    "protected",
    "unknown",
]


@dataclass(frozen=True, slots=True)
class Answer:
    """The outcome of a request.

    Attributes
    ----------
    outcome : str
        ``done``: all its tables' logs have it. ``conflict``: none has, and none ever will: the
        client's state is not the newest. ``exists``: as before: a table that it makes has a name
        that is taken. ``busy``: as before, but only other commits came first: the same request may
        be sent again later. ``invalid``, ``unsupported``, ``missing``, ``protected``: nothing was
        done, and never will be. ``unknown``: some have it, or may.
    message : str
        The reason, if it is not done.
    tables : dict of str to Metadata
        The newest metadata files by location, if it is done.
    """

    outcome: Outcome
    message: str = ""
    tables: dict[str, Metadata] = field(default_factory=dict)


def no_table(message: str, *, adds_files: bool) -> Answer:
    """Return the answer to a request for a table that is not there.

    The request may have taken effect before the table has left the lake. A client that is told so
    deletes its files, which are the table's then.
    """
    return Answer("unknown" if adds_files else "missing", message)


def joined(requests: Iterable[TableRequest]) -> list[TableRequest]:
    """Put the parts of one table together, in their order."""
    found: dict[str, TableRequest] = {}
    for one in requests:
        known = found.get(one.location)
        if known is not None:
            one = replace(
                known,
                requirements=(*known.requirements, *one.requirements),
                updates=(*known.updates, *one.updates),
                makes=known.makes or one.makes,
            )
        found[one.location] = one
    return list(found.values())
