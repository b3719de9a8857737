"""Markers are parsed without trusting any byte of objects with such names."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakevilla.errors import CorruptObject, LakeVillaError, UnsupportedFormat
from lakevilla.markers.marker import (
    LAST_TICKET,
    Marker,
    marker_key,
    markers_prefix,
    read_marker,
    ticket_of,
)
from lakevilla.store.codec import encode

TXN = "01a1fd3e-938f-7a0d-bcd3-691a01e45256"
MARKER = Marker(1, "15691fd60ca94d1765f706d7990de792", TXN, "sales/orders", 12, "append")
BODY = encode(MARKER)
KEY = "sales/orders/_lakevilla/markers/00000000000000000012.json"


def read(body: bytes) -> Marker:
    return read_marker(KEY, "sales/orders", 12, body)


def test_a_marker_key_names_its_table_and_its_ticket() -> None:
    assert marker_key("sales/orders", 12) == KEY
    assert markers_prefix("sales/orders") == "sales/orders/_lakevilla/markers"
    assert ticket_of(KEY) == 12
    assert read(BODY) == MARKER


@pytest.mark.parametrize("location", ["t", "a b/ü", "s3://other/t", "/data/t", "t\nu"])
@pytest.mark.parametrize("number", [1, 10**9, LAST_TICKET])
def test_a_ticket_number_is_unchanged_after_formatting_and_parsing_its_key(
    location: str, number: int
) -> None:
    assert ticket_of(marker_key(location, number)) == number


@pytest.mark.parametrize(
    "name",
    [
        "00000000000000000000.json",  # the number of reservations in HEAD
        f"{LAST_TICKET + 1}.json",
        "99999999999999999999.json",
        "12.json",
        "000000000000000000012.json",
        "00000000000000000012.json.tmp",
        "00000000000000000012",
        "0000000000000000001x.json",
        "٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠٠١٢.json",  # digits, though not ASCII ones
        "old/00000000000000000012.json",
        "README.md",
    ],
)
def test_object_names_that_are_no_tickets_are_ignored(name: str) -> None:
    assert ticket_of(f"t/_lakevilla/markers/{name}") is None


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"table": "sales/stock"}, "it is of table 'sales/stock'"),
        ({"ticket": 13}, "it has ticket 13, its name says 12"),
        ({"txn": "../../HEAD"}, "is no transaction id"),
        ({"txn": ""}, "is no transaction id"),
        ({"access": "drop"}, "access"),
    ],
)
def test_a_marker_that_contradicts_its_key_is_corrupt(change: dict[str, object], why: str) -> None:
    body = encode(msgspec.structs.replace(MARKER, **change))
    with pytest.raises(CorruptObject, match=KEY) as raised:
        read(body)
    assert why in raised.value.message
    assert raised.value.key == KEY


def test_a_marker_of_a_newer_format_is_recognised_whatever_else_it_has() -> None:
    for body in (encode(msgspec.structs.replace(MARKER, format=2)), b'{"format":2,"x":[]}'):
        with pytest.raises(UnsupportedFormat, match="format version 2"):
            read(body)


@given(st.data())
def test_mutated_marker_bytes_give_a_marker_or_a_library_error(data: st.DataObject) -> None:
    body = bytearray(BODY)
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(body)))
        end = data.draw(st.integers(start, len(body)))
        body[start:end] = data.draw(st.binary(max_size=8))
    try:
        marker = read(bytes(body))
    except (CorruptObject, UnsupportedFormat) as error:
        reported = error.message
    else:
        reported = marker_key(marker.table, marker.ticket)
    assert KEY in reported


@given(st.binary(max_size=200) | st.text().map(str.encode) | st.just(b"[" * 100_000))
def test_arbitrary_bytes_as_a_marker_give_a_library_error(body: bytes) -> None:
    with pytest.raises(LakeVillaError):
        read(body)


@given(st.recursive(st.none() | st.integers() | st.text(), lambda x: st.lists(x, max_size=3)))
def test_a_marker_with_a_field_of_another_type_is_corrupt(value: object) -> None:
    whole = msgspec.to_builtins(MARKER)
    for field in whole:
        body = msgspec.json.encode({**whole, field: value})
        try:
            marker = read(body)
        except (CorruptObject, UnsupportedFormat):
            continue
        # Other values of the same type are possible only in the fields format and nonce.
        assert msgspec.structs.replace(marker, format=1, nonce=MARKER.nonce) == MARKER
