"""Keys of partition values: one for each meaning of a partition field id."""

from __future__ import annotations

from typing import Any

from lakevilla.formats.iceberg.metadata.partition_values import partition_keys


def spec(number: int, *fields: tuple[int, int, str]) -> dict[str, Any]:
    names = ("field-id", "source-id", "transform")
    return {"spec-id": number, "fields": [dict(zip(names, field, strict=True)) for field in fields]}


def test_a_partition_field_in_several_specs_has_one_key() -> None:
    specs = [spec(0, (1000, 1, "day")), spec(1, (1000, 1, "day"), (1001, 2, "identity"))]
    assert partition_keys(specs) == {0: {1000: "1000"}, 1: {1000: "1000", 1001: "1001"}}


def test_a_field_id_with_several_meanings_has_a_key_for_each() -> None:
    specs = [
        spec(0, (1000, 1, "identity")),
        spec(1, (1000, 2, "identity")),
        spec(2, (1000, 1, "day")),
        spec(3, (1000, 2, "identity"), (1001, 1, "identity")),
    ]
    wanted = {
        0: {1000: "1000"},
        1: {1000: "1000-1"},
        2: {1000: "1000-2"},
        3: {1000: "1000-1", 1001: "1001"},
    }
    assert partition_keys(specs) == wanted
    assert partition_keys(specs[::-1]) == wanted, "the order of the list means nothing"
    for count in range(1, 5):  # a file keeps its keys, whatever specs are added
        assert partition_keys(specs[:count]).items() <= wanted.items()


def test_a_void_field_has_no_key_and_leaves_its_id_to_the_next_meaning() -> None:
    specs = [spec(0, (1000, 1, "void")), spec(1, (1000, 2, "identity"))]
    assert partition_keys(specs) == {0: {}, 1: {1000: "1000"}}
