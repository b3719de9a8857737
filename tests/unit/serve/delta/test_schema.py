"""A Delta table's definition as Iceberg clients are shown it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec
import pytest

from lakevilla.errors import UnsupportedTableFeature
from lakevilla.formats.delta.metadata.layout import DeltaDefinition
from lakevilla.serve.delta.footers import Footer, check_ids
from lakevilla.serve.delta.schema import Shown, shown_definition

MAPPED = {"delta.columnMapping.mode": "name", "delta.columnMapping.maxColumnId": "40"}


def field(name: str, kind: Any, number: int | None = None, **metadata: Any) -> dict[str, Any]:
    mapped = {
        "delta.columnMapping.id": number,
        "delta.columnMapping.physicalName": f"col-{number}",
    }
    told = {**metadata, **({} if number is None else mapped)}
    return {"name": name, "type": kind, "nullable": False, "metadata": told}


def struct(*fields: Any) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def array(kind: Any) -> dict[str, Any]:
    return {"type": "array", "elementType": kind, "containsNull": True}


def shown(*fields: Any, properties: Mapping[str, str] | None = None) -> Shown:
    text = msgspec.json.encode(struct(*fields)).decode()
    configuration = dict(properties or {})
    features = ["columnMapping"] if configuration else []
    definition = DeltaDefinition(
        "t",
        "t",
        {"id": "no uuid", "schemaString": text, "configuration": configuration},
        {
            "minReaderVersion": 3,
            "minWriterVersion": 7,
            "readerFeatures": features,
            "writerFeatures": features,
        },
    )
    return shown_definition(definition, "file:///lake/t", 2)


def mapping(of: Shown) -> list[Any]:
    found: list[Any] = msgspec.json.decode(
        of.definition["properties"]["schema.name-mapping.default"]
    )
    return found


def test_columns_without_a_mapping_are_counted_and_optional() -> None:
    found = shown(field("a", "byte"), field("b", struct(field("c", "timestamp"))))
    (schema,) = found.definition["schemas"]
    assert [(one["id"], one["type"], one["required"]) for one in schema["fields"]] == [
        (1, "int", False),
        (
            2,
            {
                "type": "struct",
                "fields": [{"id": 3, "name": "c", "required": False, "type": "timestamptz"}],
            },
            False,
        ),
    ]
    assert found.definition["last-column-id"] == 3
    assert found.ids == {("a",): 1, ("b",): 2, ("b", "c"): 3}


def test_mapped_columns_have_the_ids_of_delta_and_the_names_in_files_alone() -> None:
    nested = {"delta.columnMapping.nested.ids": {"col-9.element": 11}}
    found = shown(
        field("a", "long", 7), field("l", array("string"), 9, **nested), properties=MAPPED
    )
    assert found.ids == {("col-7",): 7, ("col-9",): 9, ("col-9", "element"): 11}
    assert found.definition["last-column-id"] == 40
    assert mapping(found) == [
        {"field-id": 7, "names": ["col-7"]},
        {"field-id": 9, "names": ["col-9"], "fields": [{"field-id": 11, "names": ["element"]}]},
    ]


@pytest.mark.parametrize(
    ("old", "new", "is_known"),
    [
        ("byte", "long", True),
        ("short", "integer", True),
        ("float", "double", True),
        ("decimal(5,2)", "decimal(9,2)", True),
        ("decimal(5,2)", "decimal(9,3)", False),
        ("integer", "double", False),
        ("integer", "decimal(10,0)", False),
        ("date", "timestamp_ntz", False),
    ],
)
def test_a_widened_column_is_shown_where_iceberg_widens_files(
    old: str, new: str, is_known: bool
) -> None:
    changes = {"delta.typeChanges": [{"fromType": old, "toType": new}]}
    if is_known:
        assert shown(field("a", new, **changes)).ids
    else:
        with pytest.raises(UnsupportedTableFeature, match=f"from {old[:7]}"):
            shown(field("a", new, **changes))


def test_a_column_of_void_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedTableFeature, match="column v of type void"):
        shown(field("v", "void"))


def test_an_id_that_is_no_uuid_becomes_one() -> None:
    assert len(shown(field("a", "long")).definition["table-uuid"]) == 36


# -------------------- footers


def footer(is_partly: bool = False, **ids: int | None) -> dict[str, Footer]:
    return {"f": Footer(1, frozenset(((name,), one) for name, one in ids.items()), is_partly)}


@pytest.mark.parametrize(
    "found",
    [
        footer(a=None, b=None),
        footer(a=1, b=2),
        footer(a=None),
        footer(b=2),
        footer(a=1, b=2, dropped=3),
        footer(a=1, hidden=None),
    ],
)
def test_files_without_ids_or_with_those_shown_are_shown(found: dict[str, Footer]) -> None:
    check_ids(found, shown(field("a", "long"), field("b", "long")), "t")


@pytest.mark.parametrize(
    "found",
    [
        footer(a=2, b=1),
        footer(a=1, b=None),
        footer(a=1, dropped=2),
        footer(a=7, b=8),
        footer(is_partly=True, a=1, b=2),
    ],
)
def test_files_in_which_a_reader_would_take_another_column_are_refused(
    found: dict[str, Footer],
) -> None:
    with pytest.raises(UnsupportedTableFeature, match="table t can't be shown"):
        check_ids(found, shown(field("a", "long"), field("b", "long")), "t")


def test_a_file_that_spells_a_column_in_another_case_is_refused() -> None:
    of = shown(field("a", "long"), field("b", struct(field("c", "long"))))
    with pytest.raises(UnsupportedTableFeature, match="has column A, which is shown as a"):
        check_ids(footer(A=None), of, "t")
    fields: Any = frozenset({(("b",), None), (("b", "C"), None)})
    with pytest.raises(UnsupportedTableFeature, match=r"has column b\.C"):
        check_ids({"f": Footer(1, fields)}, of, "t")


def test_a_file_without_ids_is_refused_where_columns_are_found_by_ids() -> None:
    by_id = {**MAPPED, "delta.columnMapping.mode": "id"}
    with pytest.raises(UnsupportedTableFeature, match="has no field ids"):
        check_ids(footer(a=None), shown(field("a", "long", 1), properties=by_id), "t")
