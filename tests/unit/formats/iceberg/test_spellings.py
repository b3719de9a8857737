"""Files of a table on Azure, which each writer names by another spelling of its container."""

from __future__ import annotations

import pytest

from lakevilla.formats.iceberg.metadata.definition import TableAddress, is_same_place

SPELLINGS = [
    "abfss://c@mine.dfs.core.windows.net/w/t",
    "abfs://c@mine.dfs.core.windows.net/w/t",
    "abfss://c@mine.blob.core.windows.net/w/t",
    "wasbs://c@mine.blob.core.windows.net/w/t",
    "az://c/w/t",
    "abfss://c/w/t",
]
THEIRS = "abfss://c@theirs.dfs.core.windows.net/w/t"


@pytest.mark.parametrize("own", SPELLINGS[:4])
@pytest.mark.parametrize("other", SPELLINGS)
def test_a_file_in_the_tables_directory_has_a_relative_path_in_each_spelling(
    own: str, other: str
) -> None:
    address = TableAddress("t", own)
    assert address.path(f"{other}/data/f.parquet") == "data/f.parquet"
    assert address.spelled("data/f.parquet") == f"{own}/data/f.parquet"
    for away in (f"{THEIRS}/data/f.parquet", f"{other}2/f.parquet"):
        assert address.path(away) == away


def test_two_spellings_of_a_container_are_one_place() -> None:
    for one in SPELLINGS:
        for other in SPELLINGS:
            assert is_same_place(one, other)
    assert not is_same_place(SPELLINGS[0], THEIRS)
    assert not is_same_place("az://c/w/t", "az://c/w/t2")
