"""Names of Iceberg's REST protocol are names of a lake's tables, and none leads elsewhere."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lakevilla.serve.names import (
    ROOT,
    identifier_of,
    lake_names,
    new_name,
    parse_namespace,
    prefix_of,
)
from lakevilla.serve.refusal import Refusal
from lakevilla.store.location import normalise_location

PARTS = st.text(st.characters(codec="utf-8"), min_size=1, max_size=8)
NAMESPACES = st.lists(PARTS, min_size=1, max_size=3).map(tuple)
#: Names that lead elsewhere in a path, or to what is hidden.
ODD = [".", "..", "_lakevilla", "_delta_log", ".hidden", "/", "a/b", "\\", "%", "%2F", "%5F", "\0"]


@given(NAMESPACES, PARTS)
def test_a_name_of_a_client_is_found_again(namespace: tuple[str, ...], table: str) -> None:
    assert identifier_of(new_name(namespace, table)) == (namespace, table)


@given(NAMESPACES | st.sampled_from([(one,) for one in ODD]), PARTS | st.sampled_from(ODD))
def test_a_new_name_is_a_path_of_visible_directories(
    namespace: tuple[str, ...], table: str
) -> None:
    name = new_name(namespace, table)
    assert normalise_location("s3://lake/root", name) == name
    depth = 0 if namespace == ROOT else len(namespace)
    parts = name.split("/")
    assert len(parts) == depth + 1
    assert all(part[0] not in "._" and part.isprintable() for part in parts)


@given(st.lists(PARTS.filter(lambda part: "/" not in part), min_size=1, max_size=3))
def test_a_table_of_the_lake_has_a_name_that_finds_it(parts: list[str]) -> None:
    name = "/".join(parts)
    assert name in lake_names(*identifier_of(name))


@given(NAMESPACES, PARTS)
def test_the_tables_of_a_namespace_begin_with_its_prefix(
    namespace: tuple[str, ...], table: str
) -> None:
    prefix = prefix_of(namespace)
    assert prefix is None or new_name(namespace, table).startswith(prefix)


@pytest.mark.parametrize("text", ["", "\x1f", "a\x1f", "\x1fa", "a\x1f\x1fb"])
def test_a_namespace_with_an_empty_part_is_refused(text: str) -> None:
    with pytest.raises(Refusal, match="is empty"):
        parse_namespace(text)


def test_a_new_name_fits_into_a_stores_keys() -> None:
    assert new_name(("a" * 200,), "t" * 200)
    for namespace, table in (
        (("a",), "t" * 201),
        (("ä" * 101,), "t"),
        (("_" + "a" * 199,), "t"),
        (("a" * 200,) * 3, "t"),
    ):
        with pytest.raises(Refusal, match="at most 200 bytes"):
            new_name(namespace, table)
