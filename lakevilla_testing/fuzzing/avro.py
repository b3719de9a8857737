"""Avro files with damage inside of their blocks, which stay sound as containers."""

from __future__ import annotations

import zlib
from collections.abc import Callable

_MAGIC = b"Obj\x01"
_SYNC = 16


def within_block(body: bytes, change: Callable[[bytes], bytes]) -> bytes | None:
    """Return the file with the content of its first block changed; None if that is no such file.

    The block is decompressed before, and compressed after.
    """
    if not body.startswith(_MAGIC):
        return None
    begin, is_deflated = _header(body)
    records, at = _long(body, begin)
    content, end = _bytes(body, at)
    made = change(zlib.decompress(content, wbits=-15) if is_deflated else content)
    if is_deflated:
        compressor = zlib.compressobj(wbits=-15)
        made = compressor.compress(made) + compressor.flush()
    return body[:begin] + varint(records) + varint(len(made)) + made + body[end:]


def cut_at_blocks(body: bytes) -> list[bytes]:
    """Return the file as it is if it was cut after its header, or after a block but the last."""
    if not body.startswith(_MAGIC):
        return [b""]
    at, _ = _header(body)
    found = []
    while at < len(body):
        found.append(body[:at])
        _, at = _long(body, at)
        _, at = _bytes(body, at)
        at += _SYNC
    return found


def with_count(body: bytes, count: int) -> bytes | None:
    """Return the file with another number of records in its first block."""
    if not body.startswith(_MAGIC):
        return None
    begin, _ = _header(body)
    _, at = _long(body, begin)
    return body[:begin] + varint(count) + body[at:]


def _header(body: bytes) -> tuple[int, bool]:
    """Return where the first block begins, and whether blocks are compressed by deflate."""
    at, is_deflated = len(_MAGIC), False
    while True:
        count, at = _long(body, at)
        if not count:
            return at + _SYNC, is_deflated
        if count < 0:
            _, at = _long(body, at)
        for _ in range(abs(count)):
            key, at = _bytes(body, at)
            value, at = _bytes(body, at)
            is_deflated |= (key, value) == (b"avro.codec", b"deflate")


def varint(number: int) -> bytes:
    """Return a long as Avro encodes it."""
    zigzag = (number << 1) ^ (number >> 63) if -(2**63) <= number < 2**63 else number << 1
    parts = bytearray()
    while zigzag > 0x7F:
        parts.append(zigzag & 0x7F | 0x80)
        zigzag >>= 7
    parts.append(zigzag)
    return bytes(parts)


def _long(body: bytes, at: int) -> tuple[int, int]:
    found = shift = 0
    while True:
        byte = body[at]
        found |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return (found >> 1) ^ -(found & 1), at


def _bytes(body: bytes, at: int) -> tuple[bytes, int]:
    size, at = _long(body, at)
    if not 0 <= size <= len(body) - at:
        raise ValueError("the file was damaged before")
    return body[at : at + size], at + size
