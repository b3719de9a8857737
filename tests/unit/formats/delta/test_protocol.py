from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

from lakevilla.errors import InvalidOperation, UnsupportedTableFeature
from lakevilla.formats.base import Change
from tests.support.delta_by_hand import Tables, data_file, field, metadata, protocol

SCHEMA = pa.schema([("id", pa.int64())])


def table(tables: Tables, *actions: dict[str, Any]) -> Any:
    tables.write_entry(0, *actions)
    return tables.open()


def test_the_variant_feature_is_accepted_if_no_column_is_a_variant(tables: Tables) -> None:
    features = ["deletionVectors", "variantType"]  # in the order in which deltalake lists them
    opened = table(tables, protocol(features, features), metadata())
    assert opened.layout.schema == SCHEMA
    tables.write_entry(1, metadata([field("v", "variant")]))
    with pytest.raises(UnsupportedTableFeature, match="column of type variant"):
        _ = tables.open().layout


@pytest.mark.parametrize("name", ["variantShredding", "collations-preview"])
def test_an_unsupported_reader_feature_is_refused_by_name(tables: Tables, name: str) -> None:
    with pytest.raises(UnsupportedTableFeature, match=name):
        table(tables, protocol([name], [name]), metadata())


@pytest.mark.parametrize("name", ["catalogManaged", "catalogOwned-preview"])
def test_catalog_managed_tables_are_refused(tables: Tables, name: str) -> None:
    with pytest.raises(UnsupportedTableFeature, match="managed by a catalog"):
        table(tables, protocol([name], [name]), metadata())


@pytest.mark.parametrize("name", ["icebergCompatV2", "materializePartitionColumns", "fromMars"])
def test_an_unsupported_writer_feature_is_refused_by_name_for_writing(
    tables: Tables, name: str
) -> None:
    state = table(tables, protocol(None, [name]), metadata())
    assert tables.paths(state) == []
    with pytest.raises(UnsupportedTableFeature, match=f"cannot write .*{name}"):
        state.check_writable()


@pytest.mark.parametrize("versions", [(4, 7), (3, 8)])
def test_a_newer_protocol_version_is_refused(tables: Tables, versions: tuple[int, int]) -> None:
    action = protocol([], [])
    action["protocol"] |= {"minReaderVersion": versions[0], "minWriterVersion": versions[1]}
    with pytest.raises(UnsupportedTableFeature, match="upgrade LakeVilla"):
        table(tables, action, metadata()).check_writable()


def test_tables_that_expire_application_versions_are_refused_for_writing(tables: Tables) -> None:
    retention = {"delta__setTransactionRetentionDuration": "interval 1 day"}
    state = table(tables, protocol(), metadata(**retention))
    with pytest.raises(UnsupportedTableFeature, match="setTransactionRetentionDuration"):
        state.check_writable()


@pytest.mark.parametrize(
    ("key", "feature"),
    [
        ("delta.generationExpression", "generatedColumns"),
        ("delta.identity.start", "identityColumns"),
        ("CURRENT_DEFAULT", "allowColumnDefaults"),
    ],
)
def test_tables_with_generated_identity_or_default_columns_are_refused_for_writing(
    tables: Tables, key: str, feature: str
) -> None:
    nested = {"type": "struct", "fields": [field("b", **{key: "1"})]}
    state = table(tables, protocol(None, [feature]), metadata([field("id"), field("a", nested)]))
    with pytest.raises(UnsupportedTableFeature, match=f"'a.b' uses .*{feature}"):
        state.check_writable()
    table(tables, protocol(None, [feature]), metadata()).check_writable()


@pytest.mark.parametrize("sql", ["regexp_like_of_spark(id)", r"cast(id as string) <> '\d'"])
def test_a_constraint_that_cannot_be_checked_is_refused_for_writing_only(
    tables: Tables, sql: str
) -> None:
    actions = protocol(None, ["checkConstraints"]), metadata(delta__constraints__odd=sql)
    state = table(tables, *actions)
    assert state.layout.constraints == ()
    with pytest.raises(UnsupportedTableFeature, match="cannot check constraint 'odd'"):
        state.check_writable()


def test_the_layout_of_a_table_has_its_constraints_and_invariants(tables: Tables) -> None:
    invariant = '{"expression":{"expression":"id < 100"}}'
    fields = [field("id", **{"delta.invariants": invariant})]
    writer = protocol(None, ["checkConstraints", "invariants"])
    state = table(tables, writer, metadata(fields, delta__constraints__positive="id > 0"))
    state.check_writable()
    found = {constraint.name: constraint.sql for constraint in state.layout.constraints}
    assert found == {"positive": "id > 0", "invariant of id": "id < 100"}


def test_a_property_without_its_feature_has_no_effect(tables: Tables) -> None:
    on = {"delta__appendOnly": "true", "delta__enableChangeDataFeed": "true"}
    state = table(tables, protocol(None, ["domainMetadata"]), metadata(**on))
    assert not state.append_only
    assert not state.layout.change_data_feed


def test_guarding_and_unguarding_a_plain_table_restores_its_protocol(
    tables: Tables,
) -> None:
    state = tables.create(SCHEMA)
    before = state.protocol
    assert before == {"minReaderVersion": 1, "minWriterVersion": 2}
    state = tables.commit(state, tables.format.guard_change(state))
    assert state.guarded
    assert state.protocol["minReaderVersion"] == 1
    assert tables.format.guard_change(state).is_empty
    state.check_writable()
    state = tables.commit(state, tables.format.unguard_change(state))
    assert not state.guarded
    assert state.protocol == before
    assert tables.format.unguard_change(state).is_empty


def test_guarding_keeps_the_features_that_the_table_required_before(tables: Tables) -> None:
    legacy = {"protocol": {"minReaderVersion": 2, "minWriterVersion": 5}}
    state = table(tables, legacy, metadata(delta__columnMapping__mode="none"))
    guarded = state.apply(tables.format.guard_change(state))
    expected = {"appendOnly", "invariants", "checkConstraints", "changeDataFeed"}
    expected |= {"generatedColumns", "columnMapping", "lakevilla"}
    assert set(guarded.protocol["writerFeatures"]) == expected
    assert guarded.protocol["minReaderVersion"] == 2
    assert guarded.apply(tables.format.unguard_change(guarded)).protocol == legacy["protocol"]


def test_a_table_is_created_with_the_lowest_protocol_that_it_needs(tables: Tables) -> None:
    def made(schema: pa.Schema, **properties: str) -> dict[str, Any]:
        properties = {key.replace("__", "."): value for key, value in properties.items()}
        blank = tables.format.blank("x", "x")
        change = tables.format.create(
            blank, schema, table_id="i", partition_by=[], properties=properties, created_ms=1
        )
        assert change.protocol is not None
        return change.protocol

    plain = {"minReaderVersion": 1, "minWriterVersion": 2}
    assert made(SCHEMA) == plain
    assert made(SCHEMA, delta__appendOnly="true") == plain
    ntz = made(pa.schema([("t", pa.list_(pa.timestamp("us")))]))
    assert ntz["readerFeatures"] == ["timestampNtz"]
    assert (ntz["minReaderVersion"], ntz["minWriterVersion"]) == (3, 7)
    feed = made(SCHEMA, delta__enableChangeDataFeed="true")
    assert feed["minReaderVersion"] == 1
    assert feed["writerFeatures"] == ["appendOnly", "changeDataFeed", "invariants"]
    assert "lakevilla" in made(SCHEMA, delta__feature__lakevilla="supported")["writerFeatures"]


@pytest.mark.parametrize(
    "properties",
    [
        {"delta.setTransactionRetentionDuration": "interval 1 day"},
        {"delta.feature.fromMars": "supported"},
        {"delta.minWriterVersion": "7"},
    ],
)
def test_unsupported_properties_are_refused_at_creation(
    tables: Tables, properties: dict[str, str]
) -> None:
    with pytest.raises(InvalidOperation):
        tables.create(SCHEMA, properties=properties)


def test_a_table_with_an_unsupported_writer_feature_can_still_be_read(tables: Tables) -> None:
    state = tables.commit(tables.create(SCHEMA), Change(adds=(data_file("a"),)))
    above = state.apply(Change(protocol=protocol(None, ["icebergCompatV1"])["protocol"]))
    assert tables.paths(above) == ["a"]
    with pytest.raises(UnsupportedTableFeature):
        tables.format.guard_change(above)
