"""The change of a table's size that a change of its files makes."""

import pyarrow as pa
import pytest

from lakevilla.formats.base import Change
from lakevilla.formats.files import (
    DataFile,
    DeleteFile,
    DeletionVector,
    RemovedFile,
    files_from_structs,
    removal,
)
from lakevilla.formats.sizes import (
    NOTHING,
    UNKNOWN,
    Size,
    counted,
    growth_by_others,
    growth_of,
)

STATS = '{"numRecords":10,"minValues":{"id":1},"maxValues":{"id":9}}'
PLAIN = DataFile("a", 100, 0, stats=STATS)
FEWER = DataFile("a", 100, 0, stats=STATS, deletion_vector=DeletionVector("u", "x", 8, 3))
BARE = DataFile("b", 50, 0)
DELETED = DataFile("c", 50, 0, stats=STATS, deletes=(DeleteFile("d", "position", 5),))


def test_adding_and_removing_a_file_gives_no_growth():
    for file in (PLAIN, FEWER):
        there, back = growth_of(Change(adds=(file,))), growth_of(Change(removes=(removal(file),)))
        assert there + back == NOTHING


def test_a_deletion_vector_reduces_the_row_count_and_no_file_count():
    change = Change(adds=(FEWER,), removes=(removal(PLAIN),))
    assert growth_of(change) == Size(0, -3, 0)


@pytest.mark.parametrize("file", [BARE, DELETED])
def test_a_file_without_a_row_count_makes_only_the_row_growth_unknown(file):
    assert growth_of(Change(adds=(file, PLAIN))) == Size(2, None, 150)
    assert growth_of(Change(removes=(removal(file),))) == Size(-1, None, -50)
    assert counted(files_from_structs([file, PLAIN])) == Size(2, None, 150)


def test_a_removal_without_a_size_makes_row_and_byte_growth_unknown():
    assert growth_by_others(Change(removes=(RemovedFile("a"),))) == Size(-1, None, None)


def test_an_entry_that_adds_a_file_again_with_new_statistics_makes_the_growth_unknown():
    again = DataFile("a", 100, 0, stats=STATS, data_change=False)
    assert growth_by_others(Change(adds=(again,))) == UNKNOWN
    moved = Change(adds=(again,), removes=(removal(BARE, data_change=False),))
    assert growth_by_others(moved) == Size(0, None, 50)


def test_sizes_of_all_files_of_a_table_are_summed_by_columns():
    files = files_from_structs([PLAIN, FEWER])
    assert counted(pa.concat_tables([files, files])) == Size(4, 34, 400)
    assert counted(files.slice(0, 0)) == NOTHING


def test_an_unknown_size_stays_unknown_in_every_sum():
    assert Size(1, None, 3) + Size(1, 2, 3) == Size(2, None, 6)
    assert UNKNOWN + NOTHING == UNKNOWN
    assert Size(-1, 2, 0).possible == Size(None, 2, 0)
