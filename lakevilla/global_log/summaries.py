"""Summaries: what a commit wrote in one table, short enough to be in HEAD (design, section 9).

A client that validates a transaction checks whether any commit since the transaction's state can
have changed what the transaction relies on. A summary often answers that without a request: it has
bounds of a few columns for each file that the commit added, and a fingerprint for each file that it
removed. It may cover more than the commit wrote, and never less.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from blake3 import blake3

from lakevilla.arrow.nesting import JsonDecoder
from lakevilla.formats.base import Change
from lakevilla.formats.files import FileRef

#: The most bytes that the summaries of one commit take in HEAD, for all its tables together.
SUMMARY_BYTES = 448
#: A summary has bounds of this many leading columns of a table: keys are mostly among them.
_COLUMNS = 4
_FINGERPRINT = 11

#: The least and greatest value, as written in the log, and the number of nulls. The values are
#: never parsed here: to parse and write a number might round it beyond the true bound.
Bounds = tuple[msgspec.Raw, msgspec.Raw, int | None]


class Added(msgspec.Struct, frozen=True, array_like=True):
    """A file that a commit added, with as much of its statistics as there was room for."""

    rows: int | None
    bounds: dict[str, Bounds]
    partition_values: dict[str, str | None]


class Summary(msgspec.Struct, frozen=True, omit_defaults=True):
    """All files that a commit added to a table, and the fingerprints of all that it removed."""

    added: tuple[Added, ...] = ()
    removed: tuple[int, ...] = ()


class _Statistics(msgspec.Struct, rename="camel", omit_defaults=True):
    num_records: int | None = None
    min_values: dict[str, msgspec.Raw] = {}
    max_values: dict[str, msgspec.Raw] = {}
    null_count: dict[str, msgspec.Raw] = {}


_decoder = JsonDecoder(_Statistics)
_NULL = msgspec.Raw(b"null")


def fingerprint(ref: FileRef) -> int:
    """Return a short hash of a file's identity. Equal hashes may belong to different files."""
    path, vector = ref
    name = path if vector is None else f"{path}\0{vector}"
    return int.from_bytes(blake3(name.encode()).digest(4), "big")


def summarize(changes: Sequence[Change], columns: Sequence[str], allowance: int) -> Summary | None:
    """Return a summary of changes in at most ``allowance`` bytes of JSON; None if it does not fit.

    Parameters
    ----------
    changes
        The changes of one table, in order.
    columns
        Physical names of the table's columns, the most useful first.
    allowance
        Bytes.
    """
    adds = [file for change in changes for file in change.adds]
    removed = sorted({fingerprint(file.ref) for change in changes for file in change.removes})
    left = allowance - _FINGERPRINT * len(removed)
    if left < 0:
        return None
    added = []
    for number, file in enumerate(adds):
        share = left // (len(adds) - number)
        short = _shortened(file.stats, file.partition_values, columns, share)
        if short is None:
            return None
        left -= len(msgspec.json.encode(short)) + 1
        added.append(short)
    return Summary(tuple(added), tuple(removed))


def together(summaries: Sequence[Summary]) -> Summary:
    """Return one summary that has the content of all ``summaries``."""
    return Summary(
        tuple(file for one in summaries for file in one.added),
        tuple(file for one in summaries for file in one.removed),
    )


def statistics_text(added: Added) -> str:
    """Return the statistics as the log's JSON, with the columns that are known."""
    bounds = added.bounds
    return msgspec.json.encode(
        {
            "numRecords": added.rows,
            "minValues": {name: least for name, (least, _, _) in bounds.items()},
            "maxValues": {name: greatest for name, (_, greatest, _) in bounds.items()},
            "nullCount": {name: nulls for name, (_, _, nulls) in bounds.items()},
        }
    ).decode()


def _shortened(
    stats: str | None,
    partition_values: dict[str, str | None],
    columns: Sequence[str],
    allowance: int,
) -> Added | None:
    """Return bounds of as many columns of a file as fit; None if they don't restrict its rows."""
    try:
        known = _Statistics() if stats is None else _decoder.decode(stats)
    except ValueError:
        known = _Statistics()
    short = Added(known.num_records, {}, partition_values)
    if len(msgspec.json.encode(short)) >= allowance:
        return None
    for name in columns[:_COLUMNS]:
        bounds = _bounds(known, name)
        if bounds is None:
            continue
        wider = msgspec.structs.replace(short, bounds={**short.bounds, name: bounds})
        if len(msgspec.json.encode(wider)) < allowance:
            short = wider
    return short if short.bounds or partition_values else None


def _bounds(known: _Statistics, name: str) -> Bounds | None:
    least = known.min_values.get(name, _NULL)
    greatest = known.max_values.get(name, _NULL)
    nulls = bytes(known.null_count.get(name, _NULL))
    if not nulls.isdigit() and nulls != b"null":
        return None  # a nested column: its null count is an object
    count = int(nulls) if nulls.isdigit() else None
    if bytes(least) == bytes(greatest) == b"null" and count is None:
        return None
    return least, greatest, count
