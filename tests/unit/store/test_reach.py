"""The keys that a lake may read, decided by name alone."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import lakevilla as lv
from lakevilla.store.backends.reach import Reach, outside_paths


@pytest.mark.parametrize(
    "key",
    [
        "orders/a.parquet",
        "s3://b/lake/orders/a.parquet",
        "s3a://b/lake/orders/a.parquet",
        "s3n://b/lake//orders/./a.parquet",
        "S3://b/lake/orders/a.parquet",
        "catalog://prod/sales/orders",
    ],
)
def test_keys_below_the_root_are_in_reach_however_they_are_spelled(key: str) -> None:
    assert Reach("s3://b/lake").holds(key)


@pytest.mark.parametrize(
    "key",
    [
        "s3://b/lakes/a.parquet",
        "s3://b/a.parquet",
        "s3://b",
        "s3://b/lake/../other/a.parquet",
        "s3://b/lake/%2e%2e/other/a.parquet",
        "s3://other/lake/a.parquet",
        "gs://b/lake/a.parquet",
        "file:///etc/passwd",
        "/etc/passwd",
        "http://b/lake/a.parquet",
        "s3://key@b/lake/a.parquet",
    ],
)
def test_keys_outside_the_root_are_out_of_reach(key: str) -> None:
    assert not Reach("s3://b/lake").holds(key)


def test_locations_that_the_caller_allows_are_in_reach_by_whole_directories() -> None:
    reach = Reach("s3://b/lake", ["s3://other/data/", "s3://b/one.parquet"])

    assert reach.holds("s3a://other/data/a.parquet")
    assert reach.holds("s3://b/one.parquet")
    assert not reach.holds("s3://other/data-of-others/a.parquet")
    assert not reach.holds("s3://b/one.parquet.old")


def test_the_directory_of_a_table_is_in_reach_once_the_table_was_named() -> None:
    reach = Reach("s3://b/lake")
    assert not reach.holds("s3://other/t/a.parquet")

    reach.admit("s3://other/t")

    assert reach.holds("s3://other/t/_delta_log/0.json")
    assert not reach.holds("s3://other/u/a.parquet")


def test_local_files_are_out_of_reach_for_a_lake_on_an_object_store() -> None:
    with pytest.raises(lv.InvalidOperation, match="on this machine"):
        Reach("s3://b/lake", ["/data"])
    reach = Reach("s3://b/lake")
    reach.admit("/data/t")  # as HEAD may name it

    assert not reach.holds("/data/t/a.parquet")
    assert not reach.opens("file:///data/t/a.parquet", reading=False)
    assert "no such file" in reach.refusal("/data/t/a.parquet").message


def test_requests_to_other_stores_are_allowed_only_for_stores_that_were_named() -> None:
    reach = Reach("s3://b/lake", ["s3://other/data"])

    assert reach.opens("s3://other/_lakevilla/HEAD.json")
    assert not reach.opens("s3://third/a.parquet")


def test_the_two_spellings_of_a_container_are_equal_only_in_the_lakes_own_account() -> None:
    uri = "abfss://c@mine.dfs.core.windows.net/lake/a.parquet"
    theirs = "abfss://c@theirs.dfs.core.windows.net/lake/a.parquet"

    assert Reach("az://c/lake", account="mine").holds(uri)
    assert not Reach("az://c/lake", account="mine").holds(theirs)
    assert not Reach("az://c/lake").holds(uri)
    assert Reach("abfss://c@mine.dfs.core.windows.net/lake").holds(uri)


def test_a_local_root_and_a_link_to_it_are_the_same_root(tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    os.symlink(tmp_path / "lake", tmp_path / "link")
    os.symlink("/etc", tmp_path / "lake" / "etc")

    reach = Reach(str(tmp_path / "link"))

    assert reach.holds(str(tmp_path / "lake" / "t" / "a.parquet"))
    assert reach.holds(f"file://{tmp_path}/link/t/a.parquet")
    assert not reach.holds(f"{tmp_path}/other/a.parquet")


def test_the_locations_in_reach_can_be_passed_to_another_process() -> None:
    reach = Reach("s3://b/lake", ["s3://other/data"])
    reach.admit("s3://third/t")

    again = Reach("s3://b/lake", reach.elsewhere)

    assert again.holds("s3://third/t/a.parquet")
    assert again.holds("s3://other/data/a.parquet")
    assert not again.holds("s3://third/u/a.parquet")


@pytest.mark.parametrize("given", ["s3://b/data", 5, ["data"], ["s3:/b"], [5], ["ftp://b/x"]])
def test_an_invalid_location_in_files_outside_is_refused(given: object) -> None:
    with pytest.raises(lv.InvalidOperation):
        outside_paths(given)


def test_the_refusal_of_a_file_names_the_table_the_file_and_the_option() -> None:
    message = Reach("s3://b/lake").refusal("s3a://x/d/a.parquet", "orders").message

    assert "table orders names the file 's3a://x/d/a.parquet'" in message
    assert "files_outside=['s3://x/d']" in message
