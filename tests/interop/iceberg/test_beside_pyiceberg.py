"""Write a lake's tables by pyiceberg (``ObjectStoreCatalog``) while LakeVilla transacts on them."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException, ValidationException
from pyiceberg.transforms import BucketTransform
from pyiceberg.types import LongType, StringType

import lakevilla as lv
from lakevilla.store.runner import Runner
from tests.interop.iceberg.beside import Bag, Beside
from tests.support.stores import interrupted, is_entry

SCHEMA = pa.schema([("k", pa.int64()), ("v", pa.string())])


def some(**rows: str | None) -> pa.Table:
    """Return rows, for example with ``k1="a"``."""
    return pa.table(
        {"k": [int(name[1:]) for name in rows], "v": list(rows.values())}, schema=SCHEMA
    )


def pairs(**rows: str | None) -> Bag:
    return Counter((int(name[1:]), value) for name, value in rows.items())


def test_pyiceberg_and_lakevilla_write_a_table_by_turns(beside: Beside) -> None:
    beside.catalog.create_table((beside.namespace, "t"), SCHEMA)
    beside.loaded().append(some(k1="a", k2="b"))
    with beside.connect() as lake:
        with lake.transaction() as txn:
            txn.append("t", [{"k": 3, "v": "c"}])
            txn.update("t", {"v": "v || '+'"}, where="k = 1")
        beside.loaded().append(some(k4="d"))
        beside.loaded().delete("k = 2")
        with lake.transaction() as txn:
            txn.delete("t", where="k = 4")
            txn.upsert("t", [{"k": 3, "v": "C"}, {"k": 5, "v": "e"}], "k")
        assert beside.agreed() == pairs(k1="a+", k3="C", k5="e")
        beside.loaded().upsert(some(k5="E", k6="f"), join_cols=["k"])
        with lake.transaction() as txn:
            txn.update("t", {"v": "v || '!'"}, where="k >= 5")
        beside.loaded().overwrite(some(k3="3"), overwrite_filter="k = 3")
        assert beside.agreed() == pairs(k1="a+", k3="3", k5="E!", k6="f!")
        beside.loaded().overwrite(some(k7="g"))
        with lake.transaction() as txn:
            txn.append("t", [{"k": 8, "v": "h"}])
        assert beside.agreed() == pairs(k7="g", k8="h")
        assert lake.doctor().ok
    assert beside.versions() == list(range(1, len(beside.versions()) + 1))


def test_pyiceberg_and_lakevilla_change_schema_and_spec_by_turns(beside: Beside) -> None:
    with beside.connect() as lake:
        lake.create_table("t", some(k1="a", k2="b"), format="iceberg")
        with beside.loaded().update_schema() as update:
            update.add_column("w", LongType())
            update.rename_column("v", "text")
        with lake.transaction() as txn:
            txn.update("t", {"w": "k"}, where="text = 'a'")
        with beside.loaded().update_spec() as spec:
            spec.add_field("k", BucketTransform(3), "k_bucket")

        def append_and_alter(txn: lv.Transaction) -> None:
            txn.append("t", [{"k": 3, "text": "c", "w": 3}])
            txn.alter("t", add_columns=pa.schema([("x", pa.string())]), drop_columns=["w"])

        lake.run(append_and_alter)  # run again if it began before LakeVilla had read the change
        beside.loaded().append(pa.table({"k": [4], "text": ["d"], "x": ["x"]}))
        with beside.loaded().update_schema() as update:
            update.add_column("w", StringType())
        with lake.transaction() as txn:
            txn.update("t", {"w": "'new'"}, where="x = 'x'")
    assert beside.agreed() == Counter(
        [(1, "a", None, None), (2, "b", None, None), (3, "c", None, None), (4, "d", "x", "new")]
    )


@pytest.mark.parametrize("other", ["append", "delete"])
def test_a_stale_table_of_pyiceberg_never_undoes_a_transaction(beside: Beside, other: str) -> None:
    with beside.connect() as lake:
        lake.create_table("t", some(k1="a", k2="b"), format="iceberg")
        stale = beside.loaded()
        with lake.transaction() as txn:
            txn.update("t", {"v": "'new'"}, where="k = 1")
        try:
            stale.append(some(k9="i")) if other == "append" else stale.delete("k = 2")
            done = True
        except (CommitFailedException, ValidationException):
            done = False
    expected = pairs(k1="new", k2="b")
    if done:
        expected = pairs(k1="new", k2="b", k9="i") if other == "append" else pairs(k1="new")
    assert beside.agreed() == expected


@dataclass
class Client:
    """Perform a catalog's requests, as a lake's client does."""

    runner: Runner


@dataclass
class Catalog:
    """A catalog whose requests a test can interrupt like a lake's."""

    _client: Client


def test_a_version_that_the_other_client_takes_before_the_write_is_retried_on_top_of_it(
    beside: Beside,
) -> None:
    """The store refuses the later write, and its client commits again on top of the earlier one."""
    with beside.connect() as lake:
        lake.create_table("t", some(k1="a"), format="iceberg")

        def ours() -> None:
            with lake.transaction(lv.Feature.R) as txn:
                txn.append("t", [{"k": 2, "v": "b"}])

        catalog: Any = Catalog(Client(beside.catalog._runner))
        with interrupted(catalog, is_entry(f"{beside.namespace}/t"), ours):
            beside.loaded().append(some(k3="c"))
        with interrupted(lake, is_entry("t"), lambda: beside.loaded().append(some(k4="d"))):
            with lake.transaction(lv.Feature.R) as txn:
                txn.append("t", [{"k": 5, "v": "e"}])
    assert beside.agreed() == pairs(k1="a", k2="b", k3="c", k4="d", k5="e")
    assert beside.versions() == [1, 2, 3, 4, 5]


COMMITS = 10


def test_two_concurrent_writers_lose_no_row(beside: Beside) -> None:
    with beside.connect() as lake:
        lake.create_table("t", some(k0="a"), format="iceberg")
    began = len(beside.versions())
    failures: list[BaseException] = []

    def ours() -> None:
        with beside.connect() as lake:
            for number in range(COMMITS):
                lake.run(lambda txn, k=number: txn.append("t", [{"k": 100 + k, "v": "lakevilla"}]))

    def theirs() -> None:
        for number in range(COMMITS):
            while True:
                try:
                    beside.loaded().append(some(**{f"k{200 + number}": "pyiceberg"}))
                    break
                except CommitFailedException:
                    continue

    def noted(work: Callable[[], None]) -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=noted, args=(work,)) for work in (ours, theirs)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    expected = {0: "a"}
    expected |= {100 + n: "lakevilla" for n in range(COMMITS)}
    expected |= {200 + n: "pyiceberg" for n in range(COMMITS)}
    assert beside.agreed() == Counter(expected.items())
    assert len(beside.versions()) == began + 2 * COMMITS
    assert beside.versions() == list(range(1, len(beside.versions()) + 1))
    snapshots = [one["sequence-number"] for one in beside.metadata()["snapshots"]]
    assert snapshots == sorted(set(snapshots))
    with beside.connect() as lake:
        assert lake.doctor().ok


def test_a_lake_reads_commits_of_pyiceberg(beside: Beside) -> None:
    with beside.connect() as lake:
        lake.create_table("t", some(k1="a"), format="iceberg")
        before = lake.table("t").version
        beside.loaded().append(some(k2="b"))
        assert lake.table("t").version == before + 1
        txn = lake.transaction()
        assert txn.read("t").num_rows == 2
        txn.append("t", [{"k": 3, "v": "c"}])
        beside.loaded().append(some(k4="d"))
        with pytest.raises(lv.ConflictError):
            txn.commit()
    assert beside.agreed() == pairs(k1="a", k2="b", k4="d")
