"""Pages of tables, and the tokens by which a list goes on."""

from __future__ import annotations

import base64
import binascii
from dataclasses import dataclass
from typing import TypeVar

import msgspec

from lakevilla.display import HtmlFields, HtmlList
from lakevilla.errors import InvalidOperation
from lakevilla.formats.base import FormatName
from lakevilla.global_log.head import Head
from lakevilla.settings import shown

__all__ = ["ListedTable", "TablePage", "last_name", "token_of"]

T = TypeVar("T")
_FORMAT = 1


@dataclass(frozen=True, slots=True)
class ListedTable(HtmlFields):
    """What a lake says of a table that was not opened.

    ``files``, ``rows`` and ``bytes`` are None where they are not known.

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


class TablePage(HtmlList[T]):
    """Some of the lake's tables; ``next`` goes on after them, and is None where there are no more.

    Examples
    --------
    >>> page = lake.tables("st", limit=100, details=False)
    >>> len(page), page.next
    (1, None)
    """

    next: str | None = None


class _Token(msgspec.Struct, frozen=True, array_like=True):
    """``next`` of a page, under base64: no state is kept for it."""

    format: int
    lake_id: str
    last: str


def token_of(head: Head, last: str) -> str:
    """What goes on after the name ``last``."""
    body = msgspec.json.encode(_Token(_FORMAT, head.lake_id, last))
    return base64.urlsafe_b64encode(body).decode()


def last_name(head: Head | None, token: object) -> str:
    """The name after which a page is to begin.

    Raises
    ------
    InvalidOperation
        It is no token, another lake's, or of another release's format.
    """
    if not isinstance(token, str):
        raise InvalidOperation(
            f"after takes `next` of a page of `tables`, a string, not {shown(token)}"
        )
    try:
        body = base64.urlsafe_b64decode(token.encode("ascii"))
        format_ = msgspec.json.decode(body, type=list)[0]
        if format_ != _FORMAT:
            raise InvalidOperation(
                f"after is a token of format {shown(format_)}, and this library reads format "
                f"{_FORMAT}: begin with the first page again"
            )
        read = msgspec.json.decode(body, type=_Token)
    except (msgspec.MsgspecError, binascii.Error, ValueError, IndexError, RecursionError):
        raise InvalidOperation(
            f"after is {shown(token)}, which is no `next` of a page of `tables`: begin with the "
            "first page again, or give the token as it was"
        ) from None
    if head is None or read.lake_id != head.lake_id:
        raise InvalidOperation(
            f"after is a token of lake {read.lake_id}, and this one is "
            f"{'empty' if head is None else head.lake_id}: begin with the first page again"
        )
    return read.last
