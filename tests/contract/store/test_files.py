"""pyarrow reads parts of data files on any backend."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from lakevilla.errors import CorruptObject
from lakevilla.store.base import ANY, NEW
from lakevilla.store.data_files import DataFiles
from lakevilla.store.effects import put
from lakevilla.store.runner import Runner


def parquet(rows: int) -> bytes:
    sink = io.BytesIO()
    table = pa.table({"id": range(rows), "wide": [f"{n:0100}" for n in range(rows)]})
    pq.write_table(table, sink, row_group_size=1000, compression="none", use_dictionary=False)
    return sink.getvalue()


def test_a_parquet_file_is_read_by_ranges(runner: Runner) -> None:
    body = parquet(10_000)
    runner.run(put("t/p=a b/x.parquet", body, ANY))
    files = DataFiles(runner)
    with runner.requests.counting() as counted:
        source = files.open_input("t/p=a b/x.parquet", size=len(body))
        table = pq.ParquetFile(source, pre_buffer=False).read_row_group(7, columns=["id"])
    assert table["id"].to_pylist() == list(range(7000, 8000))
    if files.local_path("t/p=a b/x.parquet") is None:
        # pyarrow reads the footer and the one column chunk, never the whole file.
        assert 0 < counted.total == counted.get <= 4


def test_a_data_file_of_unknown_size_can_be_read(runner: Runner) -> None:
    runner.run(put("x.parquet", parquet(10), ANY))
    assert pq.read_table(DataFiles(runner).open_input("x.parquet")).num_rows == 10


def test_seek_and_read_behave_as_on_a_local_file(runner: Runner) -> None:
    body = bytes(range(256))
    runner.run(put("x", body, ANY))
    source = DataFiles(runner).open_input("x")
    assert not source.closed
    assert source.size() == 256
    assert source.read(4) == body[:4]
    assert source.tell() == 4
    source.seek(-6, 2)
    assert source.read() == body[-6:]
    assert source.read_at(10, 100) == body[100:110]
    source.close()
    assert source.closed


def test_a_small_file_is_read_whole_by_one_request(runner: Runner) -> None:
    body = parquet(1000)
    runner.run(put("t/small.parquet", body, ANY))
    files = DataFiles(runner)
    with runner.requests.counting() as counted:
        for _ in range(2):
            assert pq.read_table(files.open_input("t/small.parquet", len(body))).num_rows == 1000
    assert counted.total == (2 if files.local_path("t/small.parquet") is None else 0)


def test_a_small_file_that_the_process_has_written_is_not_requested(runner: Runner) -> None:
    small, large = parquet(1000), parquet(20_000)
    runner.run(put("t/small.parquet", small, NEW))
    runner.run(put("t/large.parquet", large, NEW))
    files = DataFiles(runner)
    with runner.requests.counting() as counted:
        assert pq.read_table(files.open_input("t/small.parquet", len(small))).num_rows == 1000
    assert counted.total == 0
    with runner.requests.counting() as counted:
        assert pq.read_table(files.open_input("t/large.parquet", len(large))).num_rows == 20_000
    assert counted.total > 1 or files.local_path("t/large.parquet") is not None


def test_a_missing_or_truncated_data_file_is_named(runner: Runner) -> None:
    files = DataFiles(runner)
    with pytest.raises(CorruptObject, match="is missing") as error:
        files.open_input("t/missing.parquet").read()
    assert error.value.key == "t/missing.parquet"
    runner.run(put("t/short.parquet", b"abc", ANY))
    if files.local_path("t/short.parquet") is None:
        with pytest.raises(CorruptObject, match="has 3 bytes, where the table says 10"):
            files.open_input("t/short.parquet", size=10).read()
