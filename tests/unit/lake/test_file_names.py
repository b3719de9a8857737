"""The name of a data file shows its owner, and the kind of commit point of that transaction."""

from __future__ import annotations

import pickle

import pytest

from lakevilla.ids import txn_in
from lakevilla.lake.context import file_namer, file_path, owner_of
from tests.support import by_hand

TXN = "0199a0b1-0000-7000-8000-000000000001"


@pytest.mark.parametrize("partition", ["", "day=2026-01-01", "a=1/b=x%20y"])
@pytest.mark.parametrize(("through_head", "kind"), [(True, "h"), (False, "l")])
def test_the_path_of_a_data_file_shows_its_owner(
    partition: str, through_head: bool, kind: str
) -> None:
    path = file_path(partition, TXN, through_head, "0123456789abcdef")
    assert path.startswith(f"{partition}/" if partition else "lv-")
    assert owner_of(path) == (kind, TXN)


@pytest.mark.parametrize(
    "path",
    [
        f"tmp_lv-h-{TXN}-ab.parquet",
        f"metadata/lv-h-{TXN}-ab-m0.avro",
        f"metadata/snap-12-lv-h-{TXN}-ab.avro",
    ],
)
def test_temporary_and_metadata_files_of_a_transaction_have_an_owner_too(path: str) -> None:
    assert owner_of(path) == ("h", TXN)


UUID = "6b8fcd23-0c2c-4d3a-9b62-2e1d5a9f0c11"


@pytest.mark.parametrize("directory", ["_lakevilla/v", f"_lakevilla/b/{1:020}-{7:016x}"])
def test_a_file_of_vectors_is_in_a_directory_that_shows_its_owner(directory: str) -> None:
    path = f"{directory}/lv-h-{TXN}-ab/deletion_vector_{UUID}.bin"
    assert owner_of(path) == ("h", TXN)
    assert txn_in(f"t/{path}") == TXN


@pytest.mark.parametrize(
    "path",
    [
        f"deletion_vector_{UUID}.bin",
        f"ab/deletion_vector_{TXN}.bin",
        f"lv-h-{TXN}-ab/other.bin",
        "part-00000-c000.snappy.parquet",
        f"lv-h-{TXN}.parquet",
        f"lv-x-{TXN}-ab.parquet",
        f"lv-h-{TXN}-ab.parquet.tmp",
        f"lv-h-{TXN}-AB.parquet",
        f"copy-of-lv-h-{TXN}-ab.parquet",
        f"_delta_log/lv-h-{TXN}-ab.json",
    ],
)
def test_files_of_other_clients_have_no_owner(path: str) -> None:
    assert owner_of(path) is None


def test_file_names_are_unique_over_processes_and_retries() -> None:
    namer = file_namer(by_hand.make_context(), TXN, True)
    elsewhere, retried = pickle.loads(pickle.dumps(namer)), pickle.loads(pickle.dumps(namer))
    names = [one("") for one in (namer, elsewhere, retried) for _ in range(50)]
    assert len(set(names)) == 150
    assert {owner_of(name) for name in names} == {("h", TXN)}
