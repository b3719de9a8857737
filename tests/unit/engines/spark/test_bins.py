"""Bins, the shares of tasks: each byte of each file is in one bin; a large file is in several."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from fractions import Fraction

import pyarrow as pa
import pytest

from lakevilla.engines.base import TableInput
from lakevilla.engines.spark import tasks as bins
from lakevilla.engines.spark.tasks import Bins, bytes_of, in_bins
from lakevilla.formats.files import DataFile, files_from_structs
from lakevilla.formats.layout import Layout

SCHEMA = pa.schema([("k", pa.int64())])
LAYOUT = Layout("t", "t", SCHEMA, SCHEMA, False, (), (), (), {})
MIB = 1024 * 1024


def table(*megabytes: int) -> TableInput:
    files = [DataFile(f"f{n}.parquet", size * MIB, 0, {}) for n, size in enumerate(megabytes)]
    return TableInput(LAYOUT, files_from_structs(files))


def shares(found: Bins) -> dict[str, Fraction]:
    """Return the fraction of each file that is in all bins together."""
    sums: dict[str, Fraction] = defaultdict(Fraction)
    for number in range(len(found.files)):
        for one in found.within(number):
            parts = one.parts or [None] * one.files.num_rows
            for path, part in zip(one.files["path"].to_pylist(), parts, strict=True):
                sums[path] += Fraction(1, 1 if part is None else part.count)
    return sums


@pytest.mark.parametrize("sizes", [(), (1,), (2048,), (3, 700, 1, 129, 128)])
@pytest.mark.parametrize("tasks", [1, 7])
def test_bins_together_contain_all_of_each_file(sizes: tuple[int, ...], tasks: int) -> None:
    found = in_bins(table(*sizes), tasks)
    assert shares(found) == {f"f{n}.parquet": 1 for n in range(len(sizes))}
    total = sum(bytes_of(found.within(n)) for n in range(len(found.files)))
    assert abs(total - sum(sizes) * MIB) < 100


def test_a_large_file_is_divided_among_several_tasks() -> None:
    found = in_bins(table(2048, 1), 4)
    assert len(found.files) == 17  # of 128 MiB
    most = max(bytes_of(found.within(number)) for number in range(17))
    assert most <= bins.most_bytes(2049 * MIB, 4) + MIB


def test_a_part_of_a_file_is_never_in_one_input_with_another_file() -> None:
    """Position deletes go by path: of a file that occurred twice, one part would lose its
    deletes.
    """
    found = in_bins(table(2048, 1, 1, 1), 1)
    for number in range(len(found.files)):
        for one in found.within(number):
            assert one.parts == () or one.files.num_rows == 1


def test_a_verified_file_is_not_divided_into_bins() -> None:
    assert len(in_bins(replace(table(2048), verify=True), 4).files) == 1


def test_a_file_as_large_as_one_tasks_share_is_not_divided() -> None:
    """A row group is most of such a file; and each part that is rewritten becomes a file."""
    assert len(in_bins(table(127), 32).files) == 1
    (part,) = in_bins(table(129), 32).within(0)
    assert bytes_of([part]) > 64 * MIB
