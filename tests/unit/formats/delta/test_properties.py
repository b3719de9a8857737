"""Table properties: a name that begins with ``delta.`` means the same as for other clients.

Hazard 42: unknown names and invalid values were stored, and other clients acted on the rest.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import DeltaError

import lakevilla as lv
from lakevilla.errors import InvalidOperation, UnsupportedTableFeature
from lakevilla.formats.delta.metadata.properties import features_of, interval_milliseconds
from lakevilla.formats.layout import TableAlteration
from tests.support.delta_by_hand import Tables, add, metadata, protocol

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture(params=["create", "alter"])
def apply(request: pytest.FixtureRequest, tables: Tables) -> Any:
    """Return a function that makes a table with properties, or sets them on an existing table."""

    def made(properties: dict[str, str]) -> Any:
        if request.param == "create":
            return tables.create(SCHEMA, properties=properties)
        state = tables.create(SCHEMA)
        before = tables.log().joinpath(f"{0:020}.json").read_bytes()
        try:
            return state.apply(
                tables.format.alter(state, TableAlteration(set_properties=properties))
            )
        finally:
            assert tables.log().joinpath(f"{0:020}.json").read_bytes() == before

    return made


@pytest.mark.parametrize(
    ("name", "reported"),
    [
        ("delta.appendOnyl", r"delta\.appendOnly"),
        ("delta.apendonly", r"delta\.appendOnly"),
        ("delta.enableChangeDataCapture", r"delta\.enableChangeDataFeed"),
        ("delta.logRetention", r"delta\.logRetentionDuration"),
        ("delta.checkpointIntervall", r"delta\.checkpointInterval"),
        ("delta.columnMapping", r"delta\.columnMapping\.mode"),
        ("delta.xyzzy", "is not known to delta: leave it out"),
        ("delta.", "is not known to delta"),
        ("delta.minWriterVersion", r"delta\.feature\.<name>"),
        ("DELTA.MINREADERVERSION", r"delta\.feature\.<name>"),
        ("delta.columnMapping.maxColumnId", "keeps it by itself"),
        ("delta.rowTracking.materializedRowIdColumnName", "keeps it by itself"),
        ("delta.inCommitTimestampEnablementVersion", "keeps it by itself"),
        ("delta.setTransactionRetentionDuration", "would forget"),
        ("delta.feature.deletionVector", "did you mean deletionVectors"),
        ("delta.feature.magic", "'magic'"),
    ],
)
def test_a_property_that_can_not_be_set_is_refused_and_similar_names_are_suggested(
    apply: Any, name: str, reported: str
) -> None:
    with pytest.raises(InvalidOperation, match=reported) as raised:
        apply({name: "true"})
    assert raised.value.table == "t"


@pytest.mark.parametrize(
    ("name", "reported"),
    [
        ("delta.enableIcebergCompatV1", "icebergCompatV1"),
        ("delta.enableIcebergCompatV2", "icebergCompatV2"),
        ("delta.enableicebergcompatv3", "icebergCompatV3"),
        ("delta.enableVariantShredding", "variantShredding"),
        ("delta.universalFormat.enabledFormats", "Iceberg or Hudi"),
        ("delta.compatibility.symlinkFormatManifest.enabled", "manifests"),
        ("delta.coordinatedCommits.commitCoordinator-preview", "a coordinator"),
        ("delta.redirectReaderWriter", "a redirect"),
        ("delta.feature.icebergCompatV2", "icebergCompatV2"),
        ("delta.feature.catalogManaged", "catalogManaged"),
    ],
)
def test_properties_of_features_that_lakevilla_lacks_are_refused_by_name(
    apply: Any, name: str, reported: str
) -> None:
    with pytest.raises(UnsupportedTableFeature, match=reported) as raised:
        apply({name: "true"})
    assert raised.value.table == "t"


def test_features_that_lakevilla_lacks_can_be_switched_off(apply: Any) -> None:
    state = apply({"delta.enableIcebergCompatV2": "False"})
    assert state.layout.properties["delta.enableIcebergCompatV2"] == "false"
    assert "icebergCompatV2" not in state.definition.features


@pytest.mark.parametrize(
    ("name", "value", "allowed"),
    [
        ("delta.appendOnly", "yes", "true or false"),
        ("delta.appendOnly", "", "true or false"),
        ("delta.enableDeletionVectors", "1", "true or false"),
        ("delta.checkpointInterval", "0", "above 0"),
        ("delta.checkpointInterval", "ten", "above 0"),
        ("delta.dataSkippingNumIndexedCols", "-2", "-1 for all"),
        ("delta.logRetentionDuration", "1 month", "weeks or less"),
        ("delta.logRetentionDuration", "30", "weeks or less"),
        ("delta.deletedFileRetentionDuration", "interval", "weeks or less"),
        ("delta.targetFileSize", "big", "number of bytes"),
        ("delta.checkpointPolicy", "v3", "classic or v2"),
        ("delta.columnMapping.mode", "names", "none, name or id"),
        ("delta.isolationLevel", "None", "Serializable"),
        ("delta.parquet.compression.codec", "lzo", "snappy"),
        ("delta.feature.deletionVectors", "no", "supported"),
    ],
)
def test_an_invalid_value_of_a_property_is_refused(
    apply: Any, name: str, value: str, allowed: str
) -> None:
    with pytest.raises(InvalidOperation, match=allowed) as raised:
        apply({name: value})
    assert name in str(raised.value)


@pytest.mark.parametrize(
    ("given", "stored"),
    [
        (("delta.appendOnly", "True"), ("delta.appendOnly", "true")),
        (("DELTA.appendonly", "FALSE"), ("delta.appendOnly", "false")),
        (("delta.logRetentionDuration", "2 Weeks"), (None, "interval 2 weeks")),
        (("delta.checkpointInterval", " 7 "), (None, "7")),
        (("delta.targetFileSize", "128mb"), (None, "128mb")),
        (("delta.isolationLevel", "serializable"), (None, "Serializable")),
        (("delta.parquet.compression.codec", "ZSTD"), (None, "zstd")),
        (("delta.columnMapping.mode", "NAME"), (None, "name")),
        (("appendOnly", "yes"), (None, "yes")),
        (("Owner.name", "me"), (None, "me")),
        (("my.delta.thing", "x"), (None, "x")),
    ],
)
def test_property_names_and_values_are_stored_in_deltas_spelling(
    apply: Any, given: tuple[str, str], stored: tuple[str | None, str]
) -> None:
    state = apply(dict([given]))
    assert state.layout.properties[stored[0] or given[0]] == stored[1]


def test_a_property_given_in_two_spellings_is_refused_unless_the_values_agree(apply: Any) -> None:
    with pytest.raises(InvalidOperation, match="given twice"):
        apply({"delta.appendOnly": "true", "delta.appendonly": "false"})
    assert apply({"delta.appendOnly": "true", "delta.APPENDONLY": "True"}).append_only


def test_a_property_is_unset_whatever_the_case_of_its_name(tables: Tables) -> None:
    state = tables.create(SCHEMA, properties={"delta.appendOnly": "true", "Mine": "x"})
    unset = tables.format.alter(
        state, TableAlteration(unset_properties=["delta.appendonly", "Mine"])
    )
    assert unset.metadata["configuration"] == {}


@pytest.mark.parametrize("rule", ["nope > 0", "id >", "id + 1"])
def test_an_invalid_constraint_is_refused_at_creation(tables: Tables, rule: str) -> None:
    with pytest.raises(InvalidOperation):
        tables.create(SCHEMA, properties={"delta.constraints.c": rule})


FEATURES = {
    "delta.appendOnly": ("true", "appendOnly"),
    "delta.enableChangeDataFeed": ("true", "changeDataFeed"),
    "delta.enableDeletionVectors": ("true", "deletionVectors"),
    "delta.enableInCommitTimestamps": ("true", "inCommitTimestamp"),
    "delta.enableTypeWidening": ("true", "typeWidening"),
    "delta.checkpointPolicy": ("v2", "v2Checkpoint"),
    "delta.columnMapping.mode": ("name", "columnMapping"),
    "delta.feature.domainMetadata": ("supported", "domainMetadata"),
}


@pytest.mark.parametrize("name", FEATURES)
@pytest.mark.parametrize("before", ["legacy", "oldest", "features"])
def test_setting_a_property_adds_its_feature_to_any_protocol(
    tables: Tables, name: str, before: str
) -> None:
    value, feature = FEATURES[name]
    first = protocol(writer=["domainMetadata"]) if before == "features" else protocol()
    if before == "oldest":
        first["protocol"]["minWriterVersion"] = 1
    tables.write_entry(0, first, metadata(), add("f.parquet"))
    state = tables.open()
    state = tables.commit(
        state, tables.format.alter(state, TableAlteration(set_properties={name: value}))
    )
    assert feature in state.definition.features
    assert DeltaTable(str(tables.root / "t")).version() == 1
    opened = tables.open()
    opened.check_writable()
    assert features_of(opened.definition.fields, opened.layout.properties) <= (
        opened.definition.features | {"invariants"}
    )


@pytest.mark.parametrize("before", ["legacy", "features"])
def test_an_append_only_table_refuses_deletes_by_lakevilla_and_deltalake(
    tmp_path: Path, before: str
) -> None:
    uri = str(tmp_path / "t")
    write_deltalake(uri, pa.table({"id": [1]}))
    if before == "features":
        DeltaTable(uri).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    with lv.connect(str(tmp_path)) as lake:
        lake.run(lambda txn: txn.alter("t", set_properties={"delta.appendonly": "TRUE"}))
        with pytest.raises(lv.InvalidOperation, match="append"), lake.transaction() as txn:
            txn.delete("t", "true")
    with pytest.raises(DeltaError, match=r"(?i)append"):
        DeltaTable(uri).delete()
    write_deltalake(uri, pa.table({"id": [2]}), mode="append")


def test_unknown_properties_set_by_other_clients_are_kept(tables: Tables) -> None:
    """A table with such a property can be altered like any other."""
    own = {"delta__notYetKnown": "5", "delta__appendOnly": "maybe"}
    tables.write_entry(0, protocol(), metadata(**own))
    state = tables.open()
    change = tables.format.alter(
        state, TableAlteration(set_properties={"delta.checkpointInterval": "5"})
    )
    kept = {key.replace("__", "."): value for key, value in own.items()}
    assert change.metadata["configuration"] == {**kept, "delta.checkpointInterval": "5"}
    unset = tables.format.alter(state, TableAlteration(unset_properties=["delta.notYetKnown"]))
    assert "delta.notYetKnown" not in unset.metadata["configuration"]


def test_an_accepted_interval_is_stored_in_the_form_that_readers_parse(tables: Tables) -> None:
    state = tables.create(SCHEMA, properties={"delta.logRetentionDuration": "1 week 12 hours"})
    text = state.layout.properties["delta.logRetentionDuration"]
    assert text == "interval 1 week 12 hours"
    assert interval_milliseconds(text, 0) == (7 * 24 + 12) * 3_600_000
