from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest

from lakevilla.errors import InvalidOperation
from lakevilla.formats.base import CLUSTERING_DOMAIN, Change
from lakevilla.formats.delta.metadata.protocol import with_features
from lakevilla.formats.delta.metadata.schema import ID, leaf_paths
from lakevilla.formats.layout import NewDefinition, TableAlteration
from tests.support.delta_by_hand import Tables

SCHEMA = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        ("p", pa.string()),
        ("row", pa.struct([pa.field("x", pa.int64(), nullable=False), ("y", pa.string())])),
    ]
)
NAME = {"delta.columnMapping.mode": "name"}


def altered(tables: Tables, state: Any, **wish: Any) -> Any:
    return state.apply(tables.format.alter(state, TableAlteration(**wish)))


def test_an_alteration_without_an_effect_makes_an_empty_change(tables: Tables) -> None:
    state = tables.create(SCHEMA)
    assert tables.format.alter(state, TableAlteration()).is_empty
    assert tables.format.alter(state, TableAlteration(unset_properties=["absent"])).is_empty
    assert tables.format.merge_schema(state, SCHEMA).is_empty


def test_columns_are_added_at_the_end_and_nullable(tables: Tables) -> None:
    state = tables.create(SCHEMA)
    above = altered(tables, state, add_columns=pa.schema([("n", pa.timestamp("us"))]))
    assert above.layout.schema.names == ["id", "p", "row", "n"]
    assert "timestampNtz" in above.protocol["readerFeatures"]
    for wrong in (pa.field("ID", pa.int8()), pa.field("m", pa.int8(), nullable=False)):
        with pytest.raises(InvalidOperation, match="table t"):
            tables.format.alter(state, TableAlteration(add_columns=pa.schema([wrong])))


@pytest.mark.parametrize("wish", [{"drop_columns": ["p"]}, {"rename_columns": {"p": "q"}}])
def test_dropping_and_renaming_columns_need_column_mapping(
    tables: Tables, wish: dict[str, Any]
) -> None:
    state = tables.create(SCHEMA)
    with pytest.raises(InvalidOperation, match=r"delta\.columnMapping\.mode = name"):
        tables.format.alter(state, TableAlteration(**wish))
    above = altered(tables, state, set_properties=NAME, **wish)
    assert "p" not in above.layout.schema.names


def test_turning_on_column_mapping_keeps_the_names_in_existing_files(tables: Tables) -> None:
    above = altered(tables, tables.create(SCHEMA), set_properties=NAME)
    assert above.layout.physical.names == SCHEMA.names
    assert above.layout.properties["delta.columnMapping.maxColumnId"] == "5"
    wider = altered(tables, above, add_columns=pa.schema([("n", pa.int64())]))
    assert wider.layout.physical.field(3).metadata == {b"PARQUET:field_id": b"6"}
    assert wider.layout.physical.field(3).name != "n"
    with pytest.raises(InvalidOperation, match="only none to name"):
        tables.format.alter(
            above, TableAlteration(set_properties={"delta.columnMapping.mode": "id"})
        )


def test_a_column_dropped_and_added_again_gets_another_field_id(tables: Tables) -> None:
    state = tables.create(SCHEMA, properties=NAME)
    column = pa.schema([("p", pa.string())])
    above = altered(tables, altered(tables, state, drop_columns=["P"]), add_columns=column)
    before = state.layout.physical.field(1)
    after = above.layout.physical.field(above.layout.schema.names.index("p"))
    assert before.name != after.name
    ids = [f["metadata"][ID] for f in above.definition.fields]
    assert len(set(ids)) == len(ids)


def test_the_same_alteration_generates_the_same_physical_names_twice(tables: Tables) -> None:
    state = tables.create(SCHEMA, properties=NAME)
    wish = {"add_columns": pa.schema([("n", pa.int64())])}
    assert tables.format.alter(state, TableAlteration(**wish)) == tables.format.alter(
        state, TableAlteration(**wish)
    )
    other = tables.format.alter(state, TableAlteration(add_columns=pa.schema([("m", pa.int64())])))
    assert other != tables.format.alter(state, TableAlteration(**wish))


def test_nested_fields_are_altered_by_their_path(tables: Tables) -> None:
    state = tables.create(SCHEMA, properties=NAME)
    above = altered(
        tables, state, rename_columns={"row": "r", "ROW.x": "z"}, drop_not_null=["row.x", "id"]
    )
    kind = above.layout.schema.field("r").type
    assert [f.name for f in kind] == ["z", "y"]
    assert kind.field("z").nullable
    assert above.layout.schema.field("id").nullable
    assert not state.layout.schema.field("id").nullable


def test_a_partition_column_can_be_renamed_and_not_dropped(tables: Tables) -> None:
    state = tables.create(SCHEMA, partition_by=["p"], properties=NAME)
    above = altered(tables, state, rename_columns={"p": "q"})
    assert above.layout.partition_by == ("q",)
    with pytest.raises(InvalidOperation, match="partitioned by"):
        tables.format.alter(state, TableAlteration(drop_columns=["p"]))
    with pytest.raises(InvalidOperation, match="without a column"):
        tables.format.alter(state, TableAlteration(drop_columns=["id", "row"]))
    with pytest.raises(InvalidOperation, match="two columns"):
        tables.format.alter(state, TableAlteration(rename_columns={"p": "ID"}))
    with pytest.raises(InvalidOperation, match="no column 'zz'"):
        tables.format.alter(state, TableAlteration(rename_columns={"zz": "a"}))


def test_constraints_are_added_and_dropped_and_protect_their_columns(tables: Tables) -> None:
    state = tables.create(SCHEMA, properties=NAME)
    above = altered(tables, state, add_constraints={"Positive": "id > 0"})
    assert [c.name for c in above.layout.constraints] == ["Positive"]
    assert "checkConstraints" in above.protocol["writerFeatures"]
    with pytest.raises(InvalidOperation, match="already has a constraint"):
        tables.format.alter(above, TableAlteration(add_constraints={"positive": "id > 1"}))
    with pytest.raises(InvalidOperation, match="drop the constraint first"):
        tables.format.alter(above, TableAlteration(drop_columns=["id"]))
    with pytest.raises(InvalidOperation):
        tables.format.alter(state, TableAlteration(add_constraints={"odd": "nothing > 1"}))
    rule = r"regexp_like(p, '\d')"
    with pytest.raises(InvalidOperation, match=r"write \[0-9\] for a digit"):
        tables.format.alter(state, TableAlteration(add_constraints={"odd": rule}))
    assert altered(tables, above, drop_constraints=["positive"]).layout.constraints == ()
    with pytest.raises(InvalidOperation, match="no constraint"):
        tables.format.alter(state, TableAlteration(drop_constraints=["positive"]))


def test_setting_a_property_adds_the_table_feature_that_it_needs(tables: Tables) -> None:
    state = tables.create(SCHEMA)
    feed = altered(tables, state, set_properties={"delta.enableChangeDataFeed": "true"})
    assert feed.layout.change_data_feed
    assert feed.protocol["minReaderVersion"] == 1
    assert set(feed.protocol["writerFeatures"]) == {"appendOnly", "invariants", "changeDataFeed"}
    off = altered(tables, feed, unset_properties=["delta.enableChangeDataFeed"])
    assert not off.layout.change_data_feed
    frozen = altered(tables, state, set_properties={"delta.appendOnly": "true"})
    assert frozen.append_only
    assert frozen.protocol == state.protocol


@pytest.mark.parametrize(
    "wish",
    [
        {"set_properties": {"delta.enableRowTracking": "true"}},
        {"set_properties": {"delta.constraints.a": "id > 0"}},
        {"set_properties": {"delta.columnMapping.maxColumnId": "1"}},
        {"set_properties": {"delta.setTransactionRetentionDuration": "interval 1 day"}},
        {"unset_properties": ["delta.columnMapping.mode"]},
        {"unset_properties": ["delta.constraints.a"]},
    ],
)
def test_properties_that_lakevilla_manages_itself_are_refused(
    tables: Tables, wish: dict[str, Any]
) -> None:
    with pytest.raises(InvalidOperation, match=r"delta\."):
        tables.format.alter(tables.create(SCHEMA), TableAlteration(**wish))


def test_merging_a_schema_adds_new_fields_at_every_depth(tables: Tables) -> None:
    state = tables.create(SCHEMA, properties=NAME)
    new = pa.schema(
        [
            ("ROW", pa.struct([("Y", pa.string()), pa.field("z", pa.int8(), nullable=False)])),
            pa.field("n", pa.float32(), nullable=False),
            ("id", pa.int32()),
        ]
    )
    above = state.apply(tables.format.merge_schema(state, new))
    found = above.layout.schema
    assert found.names == ["id", "p", "row", "n"]
    assert [f.name for f in found.field("row").type] == ["x", "y", "z"]
    assert found.field("n").nullable
    assert found.field("row").type.field("z").nullable
    assert found.field("id").type == pa.int64()
    assert above.layout.physical.field(2).name == state.layout.physical.field(2).name


@pytest.mark.parametrize(
    ("partition_by", "message"),
    [
        (["nope"], "not in the schema"),
        (["row"], "is a struct"),
        (["p", "P"], "named twice"),
    ],
)
def test_unknown_unsuitable_or_too_many_partition_columns_are_refused(
    tables: Tables, partition_by: list[str], message: str
) -> None:
    with pytest.raises(InvalidOperation, match=message):
        tables.create(SCHEMA, partition_by=partition_by)
    with pytest.raises(InvalidOperation, match="leave one"):
        tables.create(pa.schema([("p", pa.string())]), partition_by=["p"])


def clustered(tables: Tables, state: Any, *paths: tuple[str, ...]) -> Any:
    """Cluster the table by columns at logical paths; the domain stores their physical names."""
    names = dict(leaf_paths(state.definition.fields))
    columns = [list(names[path]) for path in paths]
    domain = {
        "domain": CLUSTERING_DOMAIN,
        "configuration": json.dumps({"clusteringColumns": columns}),
        "removed": False,
    }
    change = Change(protocol=with_features(state.protocol, ["clustering"]), domains=(domain,))
    return state.apply(change)


@pytest.mark.parametrize("names", ["p", "row", "row.x"])
def test_a_clustering_column_is_not_dropped(tables: Tables, names: str) -> None:
    state = clustered(tables, tables.create(SCHEMA, properties=NAME), ("p",), ("row", "x"))
    with pytest.raises(InvalidOperation, match=f"clustered by .*'{names}'"):
        tables.format.alter(state, TableAlteration(drop_columns=[names]))
    others = altered(tables, state, drop_columns=["row.y", "id"])
    assert others.layout.schema.names == ["p", "row"]


def test_a_renamed_clustering_column_still_clusters_its_table(tables: Tables) -> None:
    state = clustered(tables, tables.create(SCHEMA, properties=NAME), ("p",), ("row", "x"))
    above = altered(tables, state, rename_columns={"p": "q", "row.x": "z"})
    with pytest.raises(InvalidOperation, match="clustered by 'q'"):
        tables.format.alter(above, TableAlteration(drop_columns=["q"]))
    with pytest.raises(InvalidOperation, match=r"clustered by 'row\.z'"):
        tables.format.alter(above, TableAlteration(drop_columns=["row.z"]))


def test_a_replaced_schema_without_the_clustering_columns_is_refused(tables: Tables) -> None:
    schema = pa.schema([("columns", pa.int64()), ("k", pa.int64())])
    state = clustered(tables, tables.create(schema), ("k",))
    # "columns" also occurs in the domain's JSON, and is not a clustering column.
    one = pa.schema([("k", pa.int64())])
    replaced = state.apply(tables.format.replace_schema(state, one))
    assert replaced.layout.schema.names == ["k"]
    for lost in (pa.schema([("m", pa.int64())]), pa.schema([("k", pa.string())])):
        with pytest.raises(InvalidOperation, match="clustered by 'k'"):
            tables.format.replace_schema(state, lost)
        with pytest.raises(InvalidOperation, match="clustered by 'k'"):
            tables.format.replace_definition(state, NewDefinition(lost))
    with pytest.raises(InvalidOperation, match="can't be partitioned"):
        tables.format.replace_definition(state, NewDefinition(schema, partition_by=("columns",)))


def test_restoring_a_definition_without_the_clustering_column_is_refused(tables: Tables) -> None:
    before = tables.create(SCHEMA, properties=NAME)
    now = altered(tables, before, add_columns=pa.schema([("n", pa.int64())]))
    assert not tables.format.redefine(now, before.metadata, before.protocol).is_empty
    for path in (("n",), ("row", "x")):
        state = clustered(tables, now, path)
        wanted = before if path == ("n",) else altered(tables, before, drop_columns=["row.x"])
        with pytest.raises(InvalidOperation, match=f"clustered by '{'.'.join(path)}'"):
            tables.format.redefine(state, wanted.metadata, wanted.protocol)
