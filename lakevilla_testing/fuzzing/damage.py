"""Damage of one object: bytes that are cut, flipped or exchanged, and documents with odd parts."""

from __future__ import annotations

import io
import json
import struct
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from lakevilla_testing.fuzzing import avro, trees
from lakevilla_testing.fuzzing.choices import Choices

#: Numbers that a length or a count in a binary form should not be.
_NUMBERS = (0, 1, -1, 127, 2**15, 2**16 - 1, 2**31 - 1, 2**31, 2**32 - 1, 2**62, 2**63 - 1)


class Damaged(NamedTuple):
    """An object's damaged body, and the kind of damage."""

    body: bytes
    how: str


def damaged(key: str, body: bytes, choices: Choices, others: list[bytes]) -> Damaged:
    """Return the object with damage that fits its form. ``others`` are other objects of a lake."""
    ways: list[tuple[str, Callable[[], bytes | None]]] = [
        ("cut", lambda: body[: choices.number(len(body))]),
        ("cut at a line", lambda: _cut_at_a_line(body, choices)),
        ("bit flipped", lambda: flipped(body, choices)),
        ("bytes exchanged", lambda: overwritten(body, choices)),
        ("bytes inserted", lambda: inserted(body, choices)),
        ("of another object", lambda: choices.one_of(others)),
        ("raw", lambda: choices.taken(16)),
    ]
    if key.endswith((".json", "_last_checkpoint")):
        ways += [("part exchanged", lambda: _json(body, choices))] * 14
        ways += [("line dropped or doubled", lambda: _lines(body, choices))] * 2
    elif key.endswith(".avro"):
        change = choices.one_of((flipped, overwritten, inserted, _cut))
        within = lambda: avro.within_block(body, lambda plain: change(plain, choices))  # noqa: E731
        ways += [("within a block", within)] * 9
        ways += [("cut at a block", lambda: choices.one_of(avro.cut_at_blocks(body)))] * 2
        ways += [("count changed", lambda: avro.with_count(body, choices.one_of(_NUMBERS)))] * 2
    elif key.endswith(".parquet"):
        ways += [("cells exchanged", lambda: _cells(body, choices))] * 7
        ways += [("footer changed", lambda: _footer(body, choices))] * 3
    elif key.endswith((".bin", ".puffin")):
        ways += [("checksum mended", lambda: with_checksums(body, flipped(body, choices)))] * 4
        ways += [("checksum mended", lambda: with_checksums(body, overwritten(body, choices)))] * 4
    how, made = choices.one_of(ways)
    found = made()
    return Damaged(body[: len(body) // 2], "cut") if found is None else Damaged(found, how)


def flipped(body: bytes, choices: Choices) -> bytes:
    """Return a body with one bit flipped."""
    if not body:
        return body
    at, bit = choices.number(len(body)), 1 << choices.number(8)
    return body[:at] + bytes([body[at] ^ bit]) + body[at + 1 :]


def overwritten(body: bytes, choices: Choices) -> bytes:
    """Return a body of the same length with a number in place of some bytes."""
    form = choices.one_of(("<H", "<I", "<Q", ">I", ">Q"))
    size = struct.calcsize(form)
    number = struct.pack(form, choices.one_of(_NUMBERS) % (1 << (8 * size)))
    at = choices.number(max(1, len(body) - size + 1))
    return (body[:at] + number + body[at + size :])[: len(body)]


def inserted(body: bytes, choices: Choices) -> bytes:
    """Return a body in which Avro's form of a number stands where one byte was, or between two."""
    at = choices.number(len(body) + 1)
    return body[:at] + avro.varint(choices.one_of(_NUMBERS)) + body[at + choices.number(2) :]


def with_checksums(before: bytes, after: bytes) -> bytes:
    """Return a file of deletion vectors with the checksum of each part as the part is now.

    A part is found by its length and checksum in the sound file.
    """
    made = bytearray(after)
    at = 0
    while at + 8 < len(before):
        size = int.from_bytes(before[at : at + 4], "big")
        end = at + 4 + size
        if size > 0 and end + 4 <= len(before):
            part = before[at + 4 : end]
            if zlib.crc32(part).to_bytes(4, "big") == before[end : end + 4]:
                made[end : end + 4] = zlib.crc32(made[at + 4 : end]).to_bytes(4, "big")
                at = end + 4
                continue
        at += 1
    return bytes(made)


def _cut(body: bytes, choices: Choices) -> bytes:
    return body[: choices.number(len(body) + 1)]


def _cut_at_a_line(body: bytes, choices: Choices) -> bytes | None:
    lines = body.splitlines(keepends=True)
    return b"".join(lines[: choices.number(len(lines))]) if len(lines) > 1 else None


def _json(body: bytes, choices: Choices) -> bytes:
    try:
        lines = [json.loads(line) for line in body.splitlines()]
    except ValueError:
        return flipped(body, choices)
    for _ in range(1 + choices.number(2)):
        at = choices.number(len(lines))
        if not isinstance(lines[at], trees.Written):
            lines[at] = trees.damaged(lines[at], choices)
    return "\n".join(map(trees.rendered, lines)).encode("utf-8", "surrogatepass")


def _lines(body: bytes, choices: Choices) -> bytes:
    lines = body.splitlines()
    at = choices.number(len(lines))
    part: list[bytes] = choices.one_of(([], [lines[at]] * 2, [b""], [lines[at], b"{}"]))
    return b"\n".join([*lines[:at], *part, *lines[at + 1 :]])


def _cells(body: bytes, choices: Choices) -> bytes | None:
    """Return a Parquet file with rows dropped or doubled, or with a column or cells exchanged."""
    try:
        table = pq.read_table(io.BytesIO(body))
        made = _changed(table, choices)
        sink = io.BytesIO()
        pq.write_table(made, sink)
    except (pa.ArrowException, OSError, OverflowError, TypeError, ValueError):
        return None
    return sink.getvalue()


def _changed(table: pa.Table, choices: Choices) -> pa.Table:
    at = choices.number(max(1, table.num_rows))
    place = choices.number(max(1, table.num_columns))
    match choices.number(6):
        case 0:
            return pa.concat_tables([table.slice(0, at), table.slice(at + 1)])
        case 1:
            return pa.concat_tables([table, table.slice(at, 1)])
        case 2:
            return table.remove_column(place)
        case 3:
            name = choices.one_of((table.column_names[0], "x", ""))
            return table.rename_columns(
                [*table.column_names[:place], name, *table.column_names[place + 1 :]]
            )
        case 4:
            kind = choices.one_of((pa.string(), pa.int64(), pa.null(), pa.binary(), pa.float64()))
            values: Any = pa.nulls(table.num_rows, kind)
            return table.set_column(place, table.column_names[place], values)
        case _:
            rows = table.to_pylist()
            rows[at] = trees.damaged(rows[at], choices)
            return pa.Table.from_pylist(rows, schema=table.schema)


def _footer(body: bytes, choices: Choices) -> bytes | None:
    size = int.from_bytes(body[-8:-4], "little")
    if size + 8 > len(body):
        return None
    begin = len(body) - 8 - size
    made = choices.one_of((flipped, overwritten, inserted))(body[begin:-8], choices)
    return body[:begin] + made + len(made).to_bytes(4, "little") + body[-4:]
