"""The decoder of Avro values stays within its bytes."""

from __future__ import annotations

import pytest
from pyiceberg.avro.decoder import BinaryDecoder, new_decoder

from lakevilla.formats.iceberg.manifests.decoder import BoundedDecoder
from lakevilla_testing.fuzzing.avro import varint

LENGTHS = [4, 40, 1 << 20, 1 << 40, (1 << 63) - 1, -1, -(1 << 63)]


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("verb", ["read_bytes", "read_utf8", "skip_bytes", "skip_utf8"])
def test_a_length_beyond_the_block_is_refused(verb: str, length: int) -> None:
    decoder = BoundedDecoder(varint(length) + b"abc")
    with pytest.raises(EOFError, match="are expected at byte"):
        getattr(decoder, verb)()


@pytest.mark.parametrize("count", LENGTHS)
def test_a_count_beyond_the_block_is_refused(count: int) -> None:
    with pytest.raises(EOFError):
        BoundedDecoder(b"abc").read_ints(count)
    with pytest.raises(EOFError):
        BoundedDecoder(b"abc").read_int_bytes_dict(count, {})


def test_very_many_numbers_are_read() -> None:
    count = 1_000_000
    assert list(BoundedDecoder(bytes(count)).read_ints(count)) == [0] * count


def test_numbers_that_end_beyond_the_block_are_refused() -> None:
    with pytest.raises(EOFError):
        BoundedDecoder(b"\xff" * 4000).read_ints(4000)


def test_a_value_within_a_map_does_not_end_beyond_the_block() -> None:
    with pytest.raises(EOFError):
        BoundedDecoder(varint(1) + varint(2) + b"ab" + varint(2) + varint(50)).read_int_bytes_dict(
            2, {}
        )


VALUES = ["int", "boolean", "float", "double"]


@pytest.mark.parametrize("value", VALUES)
@pytest.mark.parametrize("verb", ["read", "skip"])
def test_no_value_begins_behind_the_block(verb: str, value: str) -> None:
    with pytest.raises(EOFError):
        getattr(BoundedDecoder(b""), f"{verb}_{value}")()


def test_a_number_without_an_end_does_not_pass_for_a_whole_block() -> None:
    decoder = BoundedDecoder(b"\xff" * 30)
    decoder.read_int()
    with pytest.raises(ValueError, match="end at byte"):
        decoder.check_end()


def test_sound_values_are_read_as_by_pyiceberg() -> None:
    pairs = b"".join(varint(number) + varint(3) + b"abc" for number in range(700))
    body = (
        b"".join(map(varint, range(3000))) + pairs + varint(2) + "é".encode() + b"\x01" + bytes(12)
    )

    def read(decoder: BinaryDecoder) -> list[object]:
        found: dict[int, bytes] = {}
        numbers = decoder.read_ints(3000)
        decoder.read_int_bytes_dict(700, found)
        return [
            numbers,
            found,
            decoder.read_utf8(),
            decoder.read_boolean(),
            decoder.read_float(),
            decoder.read_double(),
        ]

    bounded = BoundedDecoder(body)
    assert read(bounded) == read(new_decoder(body))
    bounded.check_end()
