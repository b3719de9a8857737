"""The options of a writer: their meaning, and the errors for unknown ones."""

from __future__ import annotations

import pickle
import re

import pytest

from lakevilla.api.spark.source.work import bound
from lakevilla.api.spark.source.writing.options import WriteOptions
from lakevilla.errors import InvalidOperation

GIVEN = {"lake": "s3://b/lake", "path": "t"}


def test_write_options_are_read_in_any_case_and_missing_ones_have_defaults() -> None:
    asked = WriteOptions.of(
        {**GIVEN, "MERGEschema": "True", "PARTITIONBY": "a, b", "checkpointlocation": "/c"},
        overwrite=False,
    )
    assert (asked.lake, asked.table, asked.ref) == ("s3://b/lake", "t", None)
    assert (asked.schema_mode, asked.partition_by, asked.format) == ("merge", ("a", "b"), "delta")
    assert (asked.if_exists, asked.where, asked.by_partition) == ("append", None, False)


def test_write_options_with_structure_are_read_as_json() -> None:
    options = {"properties": '{"delta.appendOnly": true}', "metadata": '{"job": "nightly"}'}
    asked = WriteOptions.of({**GIVEN, **options}, overwrite=False)
    assert asked.properties == {"delta.appendOnly": True}
    assert asked.metadata == {"job": "nightly"}


@pytest.mark.parametrize(
    ("roots", "root"),
    [([], "s3://..."), (["s3://a", "s3://b"], "s3://..."), (["s3://a"], "s3://a")],
)
def test_a_write_without_a_lake_is_told_the_line_to_write(roots: list[str], root: str) -> None:
    told = re.escape(f".option('lake', '{root}').save('new')")
    with pytest.raises(InvalidOperation, match=f"{told}$"):
        WriteOptions.of({"path": "new"}, overwrite=False, roots=roots)


@pytest.mark.parametrize(
    ("options", "overwrite", "says"),
    [
        ({}, False, "hands no options"),
        ({"path": "t"}, False, "needs the lake's root"),
        ({"lake": "x"}, False, r"\.save\('sales/orders'\)"),
        ({**GIVEN, "table": "u"}, False, "'u' by its option and 't' by its path"),
        ({**GIVEN, "merge_schema": "true"}, False, "did you mean mergeSchema"),
        ({**GIVEN, "where": "a > 1"}, True, "did you mean replaceWhere"),
        ({**GIVEN, "queryId": "q"}, False, "queryId belongs to writeStream"),
        ({**GIVEN, "mergeSchema": "yes"}, False, "mergeSchema must be false or true, not 'yes'"),
        ({**GIVEN, "replaceWhere": "a > 1"}, False, r"mode\('overwrite'\)"),
        ({**GIVEN, "partitionOverwriteMode": "dynamic"}, False, r"mode\('overwrite'\)"),
        (
            {**GIVEN, "replaceWhere": "a > 1", "partitionOverwriteMode": "dynamic"},
            True,
            "replaceWhere or partitionOverwriteMode, not both",
        ),
        ({**GIVEN, "mergeSchema": "true", "overwriteSchema": "true"}, True, "not both"),
        ({**GIVEN, "ifExists": "error"}, True, r"mode\('append'\)"),
        ({**GIVEN, "ifExists": "fail"}, False, "append or error or ignore"),
        ({**GIVEN, "tableFormat": "hudi"}, False, "delta or iceberg"),
        ({**GIVEN, "partitionBy": "a,,b"}, False, "commas"),
        ({**GIVEN, "readVersion": "-1"}, True, "whole number"),
        ({**GIVEN, "readVersion": "1", "ref": "etl"}, True, "names branch 'etl'"),
        ({**GIVEN, "txnAppId": "etl"}, False, "go together"),
        ({**GIVEN, "txnVersion": "7"}, False, "go together"),
        (
            {**GIVEN, "txnAppId": "etl", "txnVersion": "7", "idempotencyKey": "x"},
            False,
            "or txnAppId and txnVersion, not both",
        ),
        ({**GIVEN, "properties": "{"}, False, "JSON object"),
        ({**GIVEN, "metadata": '{"a": 1}'}, False, "a string for each name"),
    ],
)
def test_a_wrong_write_option_is_reported_with_advice(
    options: dict[str, str], overwrite: bool, says: str
) -> None:
    with pytest.raises(InvalidOperation, match=says):
        WriteOptions.of(options, overwrite=overwrite)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({}, "needs .option\\('queryId'"),
        ({"queryId": "q", "ref": "etl"}, "leave option ref out"),
        ({"queryId": "q", "replaceWhere": "a > 1"}, "replaceWhere belongs to df.write"),
        ({"queryid": "q", "query_name": "x"}, "no option query_name"),
    ],
)
def test_a_streaming_write_needs_a_query_name_and_refuses_options_of_batch_writes(
    options: dict[str, str], says: str
) -> None:
    with pytest.raises(InvalidOperation, match=says):
        WriteOptions.of({**GIVEN, **options}, overwrite=False, streaming=True)


@pytest.mark.parametrize(
    "options",
    [{}, {"lake": "x", "option.lake": "x", "table": "t", "provider": "lakevilla", "owner": "me"}],
)
def test_reading_lakevilla_through_sparks_catalog_is_refused_with_advice_to_use_a_view(
    options: dict[str, str],
) -> None:
    with pytest.raises(InvalidOperation, match="CREATE TEMPORARY VIEW v USING lakevilla"):
        bound(pickle.dumps({}), options)


def test_an_error_repeats_no_value_of_an_unknown_option() -> None:
    with pytest.raises(InvalidOperation) as raised:
        WriteOptions.of({**GIVEN, "aws_secret_access_key": "abc/def"}, overwrite=False)
    assert "abc" not in str(raised.value)
