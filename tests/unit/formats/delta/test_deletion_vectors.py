from __future__ import annotations

import contextlib
import zlib
from collections.abc import Iterator

import numpy as np
import pytest
from blake3 import blake3
from hypothesis import given
from hypothesis import strategies as st

from lakevilla.errors import CorruptObject, UnsupportedTableFeature
from lakevilla.formats.delta import deletion_vectors
from lakevilla.formats.delta.deletion_vectors import (
    among,
    decode_bitmap,
    encode_bitmap,
    read_vector,
    rows_in_file,
    united,
    vector_key,
    vectors_of,
)
from lakevilla.formats.files import DeletionVector
from lakevilla.store.cached import OF_PROCESS, CachedObjects, is_content, names_content
from lakevilla_testing.tables.delta_writer import inline_vector
from tests.support.delta_by_hand import Tables

pyroaring = pytest.importorskip("pyroaring")

# Written by Delta on Spark.
INLINE = DeletionVector("i", "^Bg9^0rr910000000000iXQKl0rr91000625c8Xg0rri41POJ5", 38, 3)
# The Delta protocol's own example has the big-endian form that no reader knows any more.
OLD_INLINE = DeletionVector("i", "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", 40, 6)
RELATIVE = DeletionVector("u", "ab^-aqEH.-t@S}K{vb[*k^", 40, 6, 4)


def encoded(rows: list[int] | np.ndarray, optimize: bool = True) -> bytes:
    bitmap = pyroaring.BitMap64(rows)
    if optimize:
        bitmap.run_optimize()
    return (1681511377).to_bytes(4, "little") + bitmap.serialize()


def test_an_inline_deletion_vector_is_read_without_a_request(tables: Tables) -> None:
    with tables.runner.requests.counting() as made:
        assert tables.run(read_vector("t", INLINE)).tolist() == [1, 3, 5]
    assert made.total == 0
    with pytest.raises(CorruptObject, match="magic"):
        tables.run(read_vector("t", OLD_INLINE))


def test_a_vector_may_have_no_rows() -> None:
    assert decode_bitmap(encoded([])).tolist() == []


def test_keys_of_deletion_vector_files_are_those_of_the_protocol() -> None:
    name = "deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    assert vector_key("t", RELATIVE) == f"t/ab/{name}"
    assert vector_key("t", DeletionVector("u", RELATIVE.path_or_inline[2:], 1, 1)) == f"t/{name}"
    assert vector_key("t", DeletionVector("p", "s3://b/x.bin", 1, 1)) == "s3://b/x.bin"


rows = st.lists(st.integers(0, 2**34), max_size=50) | st.tuples(
    st.integers(0, 2**33), st.integers(0, 200_000), st.integers(1, 7)
).map(lambda span: list(range(span[0], span[0] + span[1], span[2])))


@given(rows, st.booleans())
def test_any_roaring_bitmap_is_decoded(values: list[int], optimize: bool) -> None:
    assert decode_bitmap(encoded(values, optimize)).tolist() == sorted(set(values))


@given(rows)
def test_an_encoded_bitmap_is_read_by_the_library_of_roaring(values: list[int]) -> None:
    data = encode_bitmap(np.array(sorted(set(values)), dtype=np.int64))
    assert pyroaring.BitMap64.deserialize(data[4:]) == pyroaring.BitMap64(values)
    assert decode_bitmap(data).tolist() == sorted(set(values))


def test_vectors_that_are_written_are_read(tables: Tables) -> None:
    wanted = [
        np.array(values, dtype=np.int64)
        for values in ([0], [3, 70_000, 2**33], range(100_000), range(0, 2**20, 11), [])
    ]
    for one in wanted:
        assert tables.run(read_vector("t", inline_vector(one))).tolist() == one.tolist()
    offsets = store(tables, *map(encode_bitmap, wanted))
    for one, offset in zip(wanted, offsets, strict=True):
        size = len(encode_bitmap(one))
        vector = DeletionVector("u", RELATIVE.path_or_inline, size, len(one), offset)
        assert tables.run(read_vector("t", vector)).tolist() == one.tolist()


@pytest.mark.parametrize(("whole", "is_hashed"), [(256 << 10, True), (60, False)])
def test_the_vectors_of_one_statement_share_a_file(
    tables: Tables, whole: int, is_hashed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deletion_vectors, "_READ_WHOLE", whole)
    wanted = [np.array(rows, np.int64) for rows in ([5], [], [1, 2], range(0, 2**33, 2**24))]
    found, bodies = vectors_of(wanted, lambda directory: "lv-h-txn-ab.parquet")
    ((path, body),) = bodies.items()
    assert path.startswith("_lakevilla/v/lv-h-txn-ab")
    assert names_content(path) == is_content(path, body) == is_hashed
    (tables.root / "t" / path).parent.mkdir(parents=True)
    (tables.root / "t" / path).write_bytes(body)
    assert found.pop(1) is None
    del wanted[1]
    for rows, one in zip(wanted, found, strict=True):
        assert one is not None
        assert vector_key("t", one) == f"t/{path}"
        assert tables.run(read_vector("t", one)).tolist() == rows.tolist()
        assert rows_in_file(body, one).tolist() == rows.tolist()


def test_no_file_is_named_where_no_row_is_deleted() -> None:
    def refuse(_: str) -> str:
        raise AssertionError

    assert vectors_of([np.array([], np.int64)], refuse) == ([None], {})


@given(st.lists(st.lists(st.integers(0, 50)), min_size=1))
def test_rows_are_united_once_and_in_order(parts: list[list[int]]) -> None:
    found = united(*(np.array(sorted(part), np.int64) for part in parts))
    assert found.tolist() == sorted({row for part in parts for row in part})


@given(st.sets(st.integers(0, 50)), st.sets(st.integers(0, 50)))
def test_rows_are_found_among_others(some: set[int], others: set[int]) -> None:
    rows = np.array(sorted(some), np.int64)
    found = among(rows, np.array(sorted(others), np.int64))
    assert set(rows[found].tolist()) == some & others
    assert set(rows[~found].tolist()) == some - others


def store(tables: Tables, *bitmaps: bytes) -> list[int]:
    """Store a file of deletion vectors; return the offset of each."""
    body = b"\x01"
    offsets = []
    for bitmap in bitmaps:
        offsets.append(len(body))
        body += len(bitmap).to_bytes(4, "big") + bitmap + zlib.crc32(bitmap).to_bytes(4, "big")
    file = tables.root / vector_key("t", RELATIVE)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(body)
    return offsets


def vector(bitmap: bytes, cardinality: int, offset: int | None) -> DeletionVector:
    return DeletionVector("u", RELATIVE.path_or_inline, len(bitmap), cardinality, offset)


def test_one_of_several_deletion_vectors_in_a_file_is_read_by_one_range_request(
    tables: Tables,
) -> None:
    first, second = encoded([1, 2]), encoded(list(range(5, 90_000, 3)))
    offsets = store(tables, first, second)
    with tables.runner.requests.counting() as made:
        found = tables.run(read_vector("t", vector(second, 29999, offsets[1])))
    assert made.total == 1
    assert found.tolist() == list(range(5, 90_000, 3))
    assert tables.run(read_vector("t", vector(first, 2, None))).tolist() == [1, 2]


def test_a_damaged_deletion_vector_is_reported_with_its_key(tables: Tables) -> None:
    bitmap = encoded([1, 70_000, 2**33])
    (offset,) = store(tables, bitmap)
    file = tables.root / vector_key("t", RELATIVE)
    whole = file.read_bytes()
    for position in range(offset, len(whole)):
        damaged = bytearray(whole)
        damaged[position] ^= 0x41
        file.write_bytes(bytes(damaged))
        with pytest.raises(CorruptObject) as caught:
            tables.run(read_vector("t", vector(bitmap, 3, offset)))
        assert caught.value.key == vector_key("t", RELATIVE)
    file.write_bytes(whole[:-5])
    with pytest.raises(CorruptObject, match="bytes"):
        tables.run(read_vector("t", vector(bitmap, 3, offset)))
    file.unlink()
    with pytest.raises(CorruptObject, match="missing"):
        tables.run(read_vector("t", vector(bitmap, 3, offset)))


def test_a_deletion_vector_with_another_row_count_than_the_log_is_refused(tables: Tables) -> None:
    bitmap = encoded([1, 2])
    (offset,) = store(tables, bitmap)
    with pytest.raises(CorruptObject, match="has 2 rows, the log says 3"):
        tables.run(read_vector("t", vector(bitmap, 3, offset)))


def full_blocks(count: int) -> bytes:
    """A vector of ``count`` times 65,536 rows in ten bytes each (and four where it begins)."""
    cookie = (12347 | (count - 1) << 16).to_bytes(4, "little")
    flags = b"\xff" * ((count + 7) // 8)
    header = b"".join(n.to_bytes(2, "little") + b"\xff\xff" for n in range(count))
    begins = bytes(4 * count) if count >= 4 else b""
    runs = b"\x01\x00\x00\x00\xff\xff" * count
    one = bytes(4) + cookie + flags + header + begins + runs
    return (1681511377).to_bytes(4, "little") + (1).to_bytes(8, "little") + one


def test_a_deletion_vector_of_more_rows_than_logged_is_refused_before_it_is_expanded(
    tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(decode_bitmap(full_blocks(4))) == 4 * 65_536
    bomb = full_blocks(400)
    assert len(bomb) < 6_000
    (offset,) = store(tables, bomb)

    def made(*_: object) -> None:
        raise AssertionError("rows were made")

    monkeypatch.setattr(deletion_vectors, "_runs", made)
    for cardinality in (-1, 0, 3, 400 * 65_536 - 1):
        with pytest.raises(CorruptObject, match=f"more rows than the {cardinality} that") as caught:
            tables.run(read_vector("t", vector(bomb, cardinality, offset)))
        assert caught.value.key == vector_key("t", RELATIVE)


def test_a_bitmap_container_with_more_rows_than_its_header_is_refused_before_it_is_expanded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lying = full_blocks(1).replace(b"\x00\x00\xff\xff\x01\x00", b"\x00\x00\x00\x00\x01\x00", 1)
    monkeypatch.setattr(np, "repeat", None)
    with pytest.raises(CorruptObject, match="not as many rows as it says"):
        decode_bitmap(lying, limit=1)


@given(st.lists(st.integers(0, 2**34), max_size=20), st.integers(-1, 20))
def test_a_bitmap_is_decoded_if_and_only_if_its_rows_are_within_the_limit(
    values: list[int], limit: int
) -> None:
    bitmap = encoded(values)
    if len(set(values)) <= limit:
        assert decode_bitmap(bitmap, limit).tolist() == sorted(set(values))
    else:
        with pytest.raises(CorruptObject):
            decode_bitmap(bitmap, limit)


@given(st.binary(max_size=80))
def test_random_bytes_as_a_deletion_vector_are_decoded_or_reported_as_damage(noise: bytes) -> None:
    body = encoded([1, 2, 3, 500_000])[:12] + noise
    with contextlib.suppress(CorruptObject):
        decode_bitmap(body)


@pytest.mark.parametrize("text", ["ü", "abc", "a b c", "~~~~~", "#####"])
def test_text_that_is_not_z85_is_refused(tables: Tables, text: str) -> None:
    with pytest.raises(CorruptObject):
        tables.run(read_vector("t", DeletionVector("i", text, 4, 1)))


def test_a_deletion_vector_of_an_unknown_storage_type_is_refused_with_that_type(
    tables: Tables,
) -> None:
    vector = DeletionVector("r", "vectors/a.bin", 34, 2, 1)
    match = "table t has a deletion vector of storage type 'r'"
    with pytest.raises(UnsupportedTableFeature, match=match):
        tables.run(read_vector("t", vector))
    with pytest.raises(UnsupportedTableFeature, match=match):
        vector_key("t", vector)


@pytest.fixture
def keeping() -> Iterator[None]:
    """Let the process keep what it decodes, as it does while a lake is open."""
    lake = CachedObjects("a place", 1 << 20, OF_PROCESS)
    yield
    lake.leave()


@pytest.mark.usefixtures("keeping")
def test_a_process_decodes_a_vector_once_and_none_that_it_has_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    other = encode_bitmap(np.array([1, 2, 70_000]))
    OF_PROCESS.keep(deletion_vectors._DECODED, blake3(other).hexdigest(), None, 0)
    first = decode_bitmap(other)
    own = encode_bitmap(np.array([3, 5]))
    monkeypatch.setattr(deletion_vectors, "_decoded", None)
    assert decode_bitmap(other) is first
    assert decode_bitmap(own).tolist() == [3, 5]
    with pytest.raises(CorruptObject, match="more rows than the 1 that"):
        decode_bitmap(own, 1)
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 7
