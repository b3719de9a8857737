"""A table in the types of other libraries, as a whole or as an Arrow stream."""

from __future__ import annotations

import duckdb
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import lakevilla as lv
from tests.support.places import Place
from tests.support.tables import accounts


def test_a_table_can_be_read_into_pandas_and_polars_frames(place: Place) -> None:
    with place.connect() as lake:
        lake.create_table("bank", accounts(5))
        table = lake.table("bank")
        frame = table.to_pandas(["id"], where="id > :n", params={"n": 2})
        assert frame.equals(pd.DataFrame({"id": [3, 4]}))
        assert table.to_polars(["id"], where="id > :n", params={"n": 2})["id"].to_list() == [3, 4]


def test_libraries_that_accept_arrow_streams_accept_a_table(place: Place) -> None:
    with place.connect() as lake:
        lake.create_table("bank", accounts(5))
        table = lake.table("bank")
        assert pa.table(table).num_rows == pl.DataFrame(table).height == 5
        bank = table
        assert duckdb.sql("SELECT count(*), count(DISTINCT id) FROM bank").fetchall() == [(5, 5)]
        assert bank.name == "bank"


def test_an_arrow_stream_of_a_table_shows_one_state(place: Place) -> None:
    with place.connect() as lake:
        lake.create_table("bank", accounts(5))
        stream = pa.RecordBatchReader.from_stream(lake.table("bank"))
        with lake.transaction() as txn:
            txn.delete("bank", "true")
        assert stream.read_all().num_rows == 5
        assert pa.table(lake.table("bank")).num_rows == 0


def test_a_missing_library_is_named_with_its_install_command(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with place.connect() as lake:
        lake.create_table("bank", accounts(1))
        monkeypatch.setattr("lakevilla.api.table.find_spec", lambda name: None)
        with pytest.raises(lv.InvalidOperation, match="pip install pandas"):
            lake.table("bank").to_pandas()
        monkeypatch.setitem(__import__("sys").modules, "polars", None)
        with pytest.raises(lv.InvalidOperation, match="pip install polars"):
            lake.table("bank").to_polars()
