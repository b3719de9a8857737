"""Pages of a list of tables, and the tokens by which callers request the next page.

A token names the state that its page was of (docs/design/0085-paging.md); nothing is stored for it.
"""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from datetime import datetime
from typing import TypeVar

import msgspec

from lakevilla.display import HtmlFields, HtmlList
from lakevilla.errors import InvalidOperation, VersionNotFound
from lakevilla.formats.base import FormatName
from lakevilla.settings import shown

__all__ = ["ListedTable", "PageToken", "TablePage", "gone", "read_token"]

T = TypeVar("T")
_FORMAT = 2


@dataclass(frozen=True, slots=True)
class ListedTable(HtmlFields):
    """A table that was not opened, as the lake's HEAD describes it.

    Attributes
    ----------
    name : str
        The table's name in the lake.
    uri : str
        The location of the table's directory.
    format : {"delta", "iceberg"}
        The format of the table.
    table_id : str
        The table's own id in its format. A table that is dropped and created again gets another id.
    guarded : bool
        True if clients without LakeVilla refuse to write the table: see ``Lake.guard``.
    files : int or None
        The number of live data files; None if it is not known.
    rows : int or None
        The number of rows; None if it is not known.
    bytes : int or None
        The size of the live data files, in bytes; None if it is not known.
    changed_version : int or None
        The last global version that changed the table; None if it is not known.
    changed : datetime or None
        The time of that version, if it is one of the newest that HEAD itself lists: at least 64.
    changed_by : str or None
        The kind of that commit, as in ``HistoryEntry.kind``, if ``changed`` is known.

    Examples
    --------
    >>> [one.name for one in lake.tables("st", details=False)]
    ['stock']
    """

    name: str
    uri: str
    format: FormatName
    table_id: str
    guarded: bool
    files: int | None
    rows: int | None
    bytes: int | None
    changed_version: int | None = None
    changed: datetime | None = None
    changed_by: str | None = None


class TablePage(HtmlList[T]):
    """A list of some of the lake's tables.

    Attributes
    ----------
    next : str or None
        The value of ``after`` for the next page; None if no table follows.
    version : int
        The global version that the page, and each page after it, is of; 0 in an empty lake.

    Examples
    --------
    >>> page = lake.tables("st", limit=100, details=False)
    >>> len(page), page.next, page.version
    (1, None, 2)
    """

    next: str | None = None
    version: int = 0


class PageToken(msgspec.Struct, frozen=True, array_like=True):
    """The content of a page's ``next``, which base64 encodes.

    Attributes
    ----------
    lake_id : str
        The lake that the page was of.
    line : str
        The epoch of the branch, or the tag or clone, that it was of; empty for the lake itself.
    version : int
        The global version that the page was of.
    marks : str
        A digest of the names that the page was sorted by, and of what else no commit tells.
    last : str
        The name after which the next page begins.
    """

    lake_id: str
    line: str
    version: int
    marks: str
    last: str

    @property
    def text(self) -> str:
        """The token as callers pass it."""
        body = msgspec.json.encode([_FORMAT, *msgspec.structs.astuple(self)])
        return base64.urlsafe_b64encode(body).decode()


def read_token(token: object, lake_id: str | None, line: str) -> PageToken:
    """Return what a token says; ``line`` is the one that the caller lists.

    Raises
    ------
    InvalidOperation
        The value is no token, or a token of another lake, branch or tag, or in another release's
        format.
    """
    if not isinstance(token, str):
        raise InvalidOperation(
            f"after takes `next` of a page of `tables`, a string, not {shown(token)}"
        )
    try:
        body = base64.urlsafe_b64decode(token.encode("ascii"))
        format_, *fields = msgspec.json.decode(body, type=list)
        if format_ != _FORMAT:
            raise InvalidOperation(
                f"after is a token of format {shown(format_)}, and this library reads format "
                f"{_FORMAT}: begin with the first page again"
            )
        read = msgspec.convert(fields, PageToken)
    except (msgspec.MsgspecError, binascii.Error, ValueError, RecursionError):
        raise InvalidOperation(
            f"after is {shown(token)}, which is no `next` of a page of `tables`: begin with the "
            "first page again, or pass the token unchanged"
        ) from None
    if read.lake_id != lake_id:
        raise InvalidOperation(
            f"after is a token of lake {read.lake_id}, and this one is "
            f"{'empty' if lake_id is None else lake_id}: begin with the first page again"
        )
    if read.line != line:
        raise InvalidOperation(
            "after is a token of another branch or tag of this lake, or of a branch that was "
            "rebased since: begin with the first page again"
        )
    return read


def gone(version: int, why: str) -> VersionNotFound:
    """Return the error for a page whose state is not known any more."""
    return VersionNotFound(
        f"after is a token of global version {version}, of which the next page is not known: "
        f"{why}; begin with the first page again"
    )
