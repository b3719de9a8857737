"""The formats of stored objects by what needs them, and the limit of a rolling upgrade (note 87).

Each kind of object counts its formats by itself. The *lake's format* is one number for all kinds:
that of HEAD. A client of format n reads HEAD up to n, and of the other kinds what was made up to
then.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

import msgspec

from lakevilla.errors import InvalidOperation


@dataclass(frozen=True, slots=True)
class Need:
    """Something that needs a format of its object, and the first lake's format with it."""

    lake: int
    what: str


MEMBERS = Need(4, "transactions that share a version")
RELIANCES = Need(3, "a commit that relies on rows")
INTENTS = Need(5, "operations for others to perform")
_VECTORS = Need(4, "deletion vectors in an Iceberg table")
_GIVEN = Need(5, "a commit of an Iceberg REST client")

#: By the directory or the name of an object: what needs each of its formats above 1.
NEEDS: dict[str, dict[int, Need]] = {
    "HEAD": {
        2: Need(2, "a tag, a branch, protection, or a table's size or vacuum"),
        3: Need(3, "a clone"),
        4: MEMBERS,
        5: _GIVEN,
        6: Need(6, "a view of SQL"),
        7: Need(7, "a field that older clients would drop, as of a rebased branch"),
    },
    "commits": {2: _VECTORS, 3: MEMBERS, 4: _GIVEN, 5: Need(7, "a need of a newer client")},
    "inbox": {2: RELIANCES, 3: INTENTS},
    "keys": {5: Need(6, "a request that was refused for good")},
    "txns": {2: _VECTORS, 3: Need(7, "commits of a branch's earlier epoch")},
}

_KEY = re.compile(
    r"(?:.*/)?_lakevilla/(?:branches/[^/]+/)?"
    r"(?:(?P<head>HEAD\.json|heads/\d+\.json)|(?P<kind>commits|inbox|keys|txns)/.+\.json)"
)


class _Numbered(msgspec.Struct):
    #: The probe of a store's time, beside the records, has no number.
    format: int = 1


_decoder = msgspec.json.Decoder(_Numbered)


def kind_of(key: str) -> str:
    """Return the kind of the object with this key, as in ``NEEDS``; ``""`` if it has one format."""
    found = _KEY.fullmatch(key)
    if found is None:
        return ""
    return "HEAD" if found["head"] else found["kind"]


def check_written(key: str, body: bytes, limit: int) -> None:
    """Refuse to store an object that a client of the lake's format ``limit`` could not read.

    Raises
    ------
    InvalidOperation
        It names what needs the newer format.
    """
    needs = NEEDS.get(kind_of(key))
    if needs is None:
        return
    number = _decoder.decode(body).format
    # What needs the number itself is named; a number in between may need more of a client.
    used = {of: need for of, need in needs.items() if of <= number}
    newest = max((need.lake for need in used.values()), default=1)
    if newest > limit:
        need = used[max(used)]
        raise InvalidOperation(
            f"{key} would have format {number}, because of {need.what}, which clients of format "
            f"{limit} can't read: it takes Settings(format_limit={newest}) or more, once all "
            "clients are upgraded"
        )
