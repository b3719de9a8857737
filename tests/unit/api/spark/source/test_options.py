"""The options of the data source: their meaning, and the errors for unknown ones."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime

import pytest

import lakevilla as lv
from lakevilla.api.spark.source.options import ReadOptions
from lakevilla.api.spark.source.tables import Access, access_to
from lakevilla.engines.spark.tasks import LakeAddress

GIVEN = {"lake": "s3://bucket/lake", "path": "sales/orders"}


def test_option_names_are_read_in_any_case() -> None:
    raised = {"startingversion": "3", "COLUMNS": "a, b", "Timestamp": "2024-01-01T01:00:00+01:00"}
    read = ReadOptions.of({**GIVEN, **raised, "where": "a > 1", "pushDown": "True"})
    assert (read.lake, read.table, read.starting_version) == ("s3://bucket/lake", "sales/orders", 3)
    assert read.columns == ["a", "b"]
    assert read.timestamp == datetime(2024, 1, 1, tzinfo=UTC)
    assert (read.where, read.pushdown, read.version) == ("a > 1", True, None)


def test_option_ref_names_a_ref_and_main_means_the_lake_itself() -> None:
    assert ReadOptions.of({**GIVEN, "REF": "closing"}).ref == "closing"
    assert ReadOptions.of({**GIVEN, "ref": "main", "version": "1"}).ref is None


def test_the_table_may_be_given_as_an_option() -> None:
    assert ReadOptions.of({"lake": "x", "table": "t"}).table == "t"
    assert ReadOptions.of({"lake": "x", "table": "t", "path": "t"}).table == "t"


def test_a_read_without_a_lake_is_told_the_line_to_write() -> None:
    told = r"\.option\('lake', 's3://a'\)\.load\('t'\)$"
    with pytest.raises(lv.InvalidOperation, match=told):
        ReadOptions.of({"path": "t"}, ["s3://a"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lake": ""}, r"needs the lake's root: .option\('lake', 's3://...'\)"),
        ({"path": ""}, r"needs a table's name: .load\('sales/orders'\)"),
        ({"table": "other"}, r"the table is 'other' by its option and 'sales/orders' by load\(\)"),
        ({"colums": "id"}, "has no option colums: did you mean columns[?] it has lake, table, ref"),
        ({"startVersion": "1"}, "no option startversion: did you mean startingVersion[?]"),
        ({"versionAsOf": "1"}, r"option version is one of the whole lake, and lake.table\(name\)"),
        ({"aws_secret_access_key": "x"}, "no option aws_secret_access_key: it has lake"),
        ({"columns": "id,,"}, "option columns must be different names"),
        ({"columns": "id,id"}, "option columns must be different names"),
        ({"version": "-1"}, "option version must be a whole number, 0 or more, not '-1'"),
        ({"version": "²"}, "option version must be a whole number"),
        ({"version": "1" * 19}, "option version must be a whole number"),
        ({"version": "1", "timestamp": "2024-01-01T00:00:00Z"}, "version or timestamp, not both"),
        ({"ref": "closing", "version": "1"}, "give option ref or version, not both: 'closing' is"),
        (
            {"ref": "closing", "timestamp": "2024-01-01T00:00:00Z"},
            "give option ref or timestamp, not both",
        ),
        ({"ref": ""}, "option ref must be the name of a ref"),
        ({"timestamp": "2024-01-01T00:00:00"}, "has no time zone"),
        ({"timestamp": "yesterday"}, "option timestamp must be like 2026-01-31T12"),
        ({"partitions": "0"}, "option partitions must be from 1"),
        ({"pushdown": "maybe"}, "option pushdown must be true or false"),
        ({"startingVersion": "latest"}, "option startingVersion must be a whole number"),
    ],
)
def test_a_wrong_read_option_is_reported(options: dict[str, str], message: str) -> None:
    with pytest.raises(lv.InvalidOperation, match=message):
        ReadOptions.of({**GIVEN, **options})


def test_an_error_does_not_repeat_a_credential_given_as_an_option() -> None:
    with pytest.raises(lv.InvalidOperation, match="credentials are given to") as raised:
        ReadOptions.of({**GIVEN, "aws_secret_access_key": "abc/def"})
    assert "abc" not in str(raised.value)


def test_a_lake_in_the_memory_of_one_process_is_refused() -> None:
    with pytest.raises(lv.InvalidOperation, match="lives in the memory of one process"):
        access_to(b"", "memory://x")


def test_a_root_with_an_incomplete_scheme_is_refused_and_not_taken_as_a_local_directory() -> None:
    """Spark itself writes ``file:/lake``; read as a relative path, it would name another lake."""
    with pytest.raises(lv.InvalidOperation, match="is half a URI: write file://"):
        access_to(b"", "file:/lake")
    with pytest.raises(lv.InvalidOperation, match="give the URI of the object store"):
        access_to(b"", "dbfs:/lake")


@pytest.mark.parametrize("now", ["current_timestamp()", "CURRENT_TIMESTAMP", "now()"])
def test_a_where_option_that_depends_on_the_present_time_is_refused(now: str) -> None:
    """A second read of the same stream batch would return other rows."""
    where = f"at < {now}"
    options = ReadOptions.of({**GIVEN, "where": where})
    with pytest.raises(lv.InvalidOperation, match="depends on the present time, and a batch"):
        options.predicate(where)


def test_an_error_for_an_invalid_where_option_does_not_blame_the_present_time() -> None:
    for where in ("at < to_timestmp('x')", "at <", "current_timestamp() < nothing_such(at)"):
        with pytest.raises(lv.InvalidOperation) as told:
            ReadOptions.of({**GIVEN, "where": where}).predicate(where)
        assert "present time" not in str(told.value)


def test_a_lake_on_azure_is_found_by_its_location_without_the_account() -> None:
    root, options = "abfss://c@mine.dfs.core.windows.net/lake", {"account_name": "mine"}
    known = {
        place: Access(LakeAddress(place, given, lv.Settings()))
        for place, given in {"s3://c/lake": None, root: options}.items()
    }
    lakes = pickle.dumps(known)

    for spelled in (root, "az://c/lake", "abfs://c@mine.blob.core.windows.net/lake"):
        assert access_to(lakes, spelled).place.storage_options == options
    for other in ("az://c/other", "abfss://c@theirs.dfs.core.windows.net/lake"):
        assert access_to(lakes, other).place.storage_options is None
