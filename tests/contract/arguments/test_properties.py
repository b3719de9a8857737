"""Properties are stored in the one spelling that every client understands (hazard 42)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest
from deltalake import DeltaTable
from deltalake.exceptions import DeltaError

import lakevilla as lv
from tests.support.tables import contents

FORMATS: list[Any] = ["delta", "iceberg"]
Format = Literal["delta", "iceberg"]


@pytest.fixture
def lake(tmp_path: Path) -> Iterator[lv.Lake]:
    with lv.connect(str(tmp_path)) as lake:
        lake.create_table("here", [{"id": 1}])
        yield lake


def test_hazard_42_append_only_as_a_bool_keeps_other_clients_from_deleting_rows(
    lake: lv.Lake, tmp_path: Path
) -> None:
    lake.create_table("made", [{"id": 1}], properties={"delta.appendOnly": True})
    lake.run(lambda txn: txn.alter("here", set_properties={"delta.appendOnly": np.bool_(True)}))
    for name in ("made", "here"):
        others = DeltaTable(str(tmp_path / name))
        assert others.metadata().configuration["delta.appendOnly"] == "true"
        with pytest.raises(DeltaError, match=r"(?i)append"):
            others.delete()
        assert lake.table(name).properties["delta.appendOnly"] == "true"


GIVEN: dict[str, tuple[Any, str]] = {
    "text": ("True", "True"),
    "empty": ("", ""),
    "yes": (True, "true"),
    "no": (False, "false"),
    "whole": (7, "7"),
    "numpy whole": (np.int64(7), "7"),
    "float": (0.5, "0.5"),
    "numpy float": (np.float64(0.5), "0.5"),
    "decimal": (Decimal("1E+2"), "100"),
    "numpy text": (np.str_("x"), "x"),
}


@pytest.mark.parametrize("format", FORMATS)
def test_property_values_are_stored_as_text(lake: lv.Lake, format: Format) -> None:
    given = {name: value for name, (value, _) in GIVEN.items()}
    stored = {name: text for name, (_, text) in GIVEN.items()}
    lake.create_table("made", [{"id": 1}], format=format, properties=given)
    lake.create_table("altered", [{"id": 1}], format=format)
    lake.run(lambda txn: txn.alter("altered", set_properties=given))
    for name in ("made", "altered"):
        found = lake.table(name).properties
        assert {key: found[key] for key in stored} == stored


@pytest.mark.parametrize("format", FORMATS)
@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"owner": None}, "property 'owner' is None"),
        ({"owner": ["a"]}, "property 'owner' is .* of type list"),
        ({"owner": {"a": 1}}, "property 'owner' is .* of type dict"),
        ({"owner": b"me"}, "property 'owner' is .* of type bytes"),
        ({"owner": float("nan")}, "property 'owner' is nan of type float"),
        ({"owner": Decimal("Infinity")}, "property 'owner' is .* of type Decimal"),
        ({"age": timedelta(days=7)}, "property 'age' is .* of type timedelta"),
        ({"age": np.array([1, 2])}, "property 'age' is .* of type ndarray"),
        ({"age": 10**5000}, "property 'age' is .* of type int"),
        ({"half": "\ud800"}, "property 'half' is .* of type str"),
        ({5: "x"}, "has the name 5: name properties by text"),
        ({"": "x"}, "has the name ''"),
        ("delta.appendOnly", "maps names to values"),
        ([("a", "b")], "maps names to values"),
    ],
)
def test_the_error_for_a_property_without_a_text_form_names_it(
    lake: lv.Lake, tmp_path: Path, format: Format, given: Any, told: str
) -> None:
    before = contents(tmp_path)
    with pytest.raises(lv.InvalidOperation, match=told):
        lake.create_table("made", [{"id": 1}], format=format, properties=given)
    with pytest.raises(lv.InvalidOperation, match=told):
        lake.run(lambda txn: txn.alter("here", set_properties=given))
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"unset_properties": "owner"}, r"unset_properties=\['owner'\]"),
        ({"unset_properties": ["owner", None]}, "unset_properties must be a list of names"),
        ({"drop_columns": "id"}, r"drop_columns=\['id'\]"),
        ({"drop_constraints": "id"}, r"drop_constraints=\['id'\]"),
        ({"drop_not_null": 5}, "drop_not_null must be a list of names"),
        ({"drop_columns": {"id": "keep?"}}, "drop_columns must be a list of names, not"),
        ({"drop_not_null": {"id": True}}, "drop_not_null must be a list of names, not"),
        ({"drop_constraints": {"id": ""}}, "drop_constraints must be a list of names, not"),
        ({"unset_properties": {"owner": None}}, "unset_properties must be a list of names, not"),
        ({"rename_columns": {"id": None}}, "rename_columns maps names to texts"),
        ({"rename_columns": ["id", "x"]}, "rename_columns maps names to texts"),
        ({"add_constraints": {"c": True}}, "add_constraints maps names to texts"),
        ({"set_properties": {"a": 1}, "unset_properties": ["a"]}, "set and unset in one alter"),
        ({}, "nothing to change"),
    ],
)
def test_alter_refuses_arguments_that_are_no_lists_or_mappings(
    lake: lv.Lake, tmp_path: Path, given: dict[str, Any], told: str
) -> None:
    before = contents(tmp_path)
    with pytest.raises(lv.InvalidOperation, match=told) as raised:
        lake.run(lambda txn: txn.alter("here", **given))
    assert raised.value.table == "here"
    assert contents(tmp_path) == before


@pytest.mark.parametrize(
    "asked",
    [
        lambda txn: txn.read("here", columns={"id": "x"}),
        lambda txn: txn.scan("here", columns={"id": "x"}),
        lambda txn: txn.upsert("here", [{"id": 1}], keys={"id": "x"}),
        lambda txn: txn.create_table("made", {"id": [1]}, partition_by={"id": "x"}),
        lambda txn: (
            txn.merge("here", [{"id": 1}], on="source.id = target.id")
            .when_matched_update_all(except_cols={"id": "x"})
            .execute()
        ),
    ],
    ids=["read", "scan", "upsert", "create_table", "merge"],
)
def test_a_mapping_is_refused_as_a_list_of_names(lake: lv.Lake, tmp_path: Path, asked: Any) -> None:
    before = contents(tmp_path)
    with pytest.raises(lv.InvalidOperation, match=r"list of names, not \{'id': 'x'\}"):
        lake.run(asked)
    assert contents(tmp_path) == before


def test_optimize_by_a_mapping_is_refused(lake: lv.Lake, tmp_path: Path) -> None:
    before = contents(tmp_path)
    with pytest.raises(lv.InvalidOperation, match="z_order_by must be a column's name or a list"):
        lake.table("here").optimize(z_order_by={"id": "x"})  # type: ignore[arg-type]
    assert contents(tmp_path) == before
