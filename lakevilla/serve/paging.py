"""Tokens of pages of namespaces: like those of tables, they name one state of the lake (note 85).

Namespaces follow from the tables of that state, and from the namespaces that were made by name.
Those have no versions, so a token has a digest of them: if they have changed, the page is refused.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Sequence
from typing import Self

import msgspec
from blake3 import blake3

from lakevilla.global_log.namespaces import Namespace
from lakevilla.serve.refusal import Refusal


class NamespaceToken(msgspec.Struct, frozen=True, array_like=True):
    """The content of a token.

    Attributes
    ----------
    tables : str
        The token of the state of all tables; empty for a lake without any commit.
    made : str
        A digest of the namespaces that were made by name.
    last : tuple of str
        The namespace behind which the page begins.
    """

    tables: str
    made: str
    last: Namespace

    @property
    def text(self) -> str:
        """The token as clients pass it."""
        return base64.urlsafe_b64encode(msgspec.json.encode(self)).decode()

    @classmethod
    def read(cls, text: str) -> Self:
        """Return what a token says.

        Raises
        ------
        Refusal
            It is no token of a page of namespaces.
        """
        try:
            return msgspec.json.decode(base64.urlsafe_b64decode(text.encode("ascii")), type=cls)
        except (msgspec.MsgspecError, binascii.Error, ValueError, RecursionError):
            raise token_refused(f"{text[:80]!r} is of no page of namespaces") from None


def digest_of(made: Iterable[Namespace]) -> str:
    """Return a digest of the namespaces that were made by name."""
    return blake3(msgspec.json.encode(sorted(made))).hexdigest(8)


def page_of(
    found: Sequence[Namespace], size: int | None, token: NamespaceToken, *, begun: bool
) -> tuple[Sequence[Namespace], str | None]:
    """Return a page of sorted namespaces, and the token of the next one.

    ``begun``: the page follows another one, so it begins behind the last name of the token.
    """
    left = [one for one in found if one > token.last] if begun else found
    page = left if size is None else left[:size]
    if len(page) == len(left):
        return page, None
    return page, NamespaceToken(token.tables, token.made, page[-1]).text


def token_refused(why: str) -> Refusal:
    """Return the answer to a token whose page can't be shown."""
    return Refusal(400, "BadRequestException", f"pageToken: {why}")
