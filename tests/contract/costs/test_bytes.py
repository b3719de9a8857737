"""Bytes that each kind of transaction reads and writes, counted at the store; no times.

LakeVilla's JSON is the same in each run except for the digits of a version, a size or a
time of day, so its bounds are 2%. Data files are Parquet, whose footers and compression depend
on the installed pyarrow, so their bounds are 25%.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

import lakevilla as lv
from lakevilla.store.base import (
    Condition,
    Failure,
    Found,
    GetOutcome,
    Refused,
    Stored,
    Token,
    WrappedStore,
)
from tests.support.inside import inside
from tests.support.places import Place
from tests.support.tables import accounts

FEATURES = {
    "NONE": lv.Feature.NONE,
    "R": lv.Feature.R,
    "R|I": lv.Feature.R | lv.Feature.I,
    "R|CT|I": lv.Feature.R | lv.Feature.CT | lv.Feature.I,
}
#: Bytes written by one warm transaction: HEAD (except the root that it names), log entries,
#: records of the protocol, data files.
WRITTEN = {
    ("NONE", "append", 1): (0, 772, 0, 541),
    ("NONE", "update", 1): (0, 1032, 0, 562),
    ("R", "append", 1): (0, 772, 0, 541),
    ("R", "update", 1): (0, 1032, 0, 562),
    ("R|I", "append", 1): (1332, 879, 1075, 541),
    ("R|I", "append", 2): (2171, 1758, 1997, 1082),
    ("R|I", "append", 8): (7228, 7040, 7529, 4328),
    ("R|I", "update", 1): (1366, 1139, 1232, 562),
    ("R|I", "update", 8): (7508, 9120, 8785, 4496),
    ("R|CT|I", "append", 1): (1332, 879, 1075, 541),
    ("R|CT|I", "append", 8): (7230, 7040, 7529, 4328),
    ("R|CT|I", "update", 1): (1366, 1139, 1588, 562),
    ("R|CT|I", "update", 8): (7503, 9120, 10128, 4496),
}
KINDS = ("head", "log", "record", "data")


class Scale(WrappedStore):
    """A store that counts the bytes read and written, by the kind of object."""

    read: Counter[str]
    written: Counter[str]

    def get(
        self, key: str, known: Token | None = None, byte_range: tuple[int, int] | None = None
    ) -> GetOutcome | Failure:
        outcome = super().get(key, known, byte_range)
        self.read[_kind(key)] += len(outcome.body) if isinstance(outcome, Found) else 0
        return outcome

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        self.written[_kind(key)] += len(body)
        return super().put(key, body, condition)

    def put_file(self, key: str, path: str) -> Stored | Failure:
        self.written[_kind(key)] += Path(path).stat().st_size
        return super().put_file(key, path)


def _kind(key: str) -> str:
    if key.endswith("_lakevilla/HEAD.json"):
        return "head"
    if "/_delta_log/" in key:
        return "log"
    return "data" if key.endswith(".parquet") else "record"


def weighed(lake: lv.Lake, work: Callable[[], object]) -> Scale:
    """Return the bytes that ``work`` reads and writes, its background work included."""
    scale = Scale(inside(lake).store)
    scale.read, scale.written = Counter(), Counter()
    inside(lake).store = scale
    work()
    lake.close()
    inside(lake).store = scale.inner
    return scale


def transaction(lake: lv.Lake, features: str, verb: str, count: int) -> Callable[[], None]:
    def once() -> None:
        with lake.transaction(FEATURES[features]) as txn:
            for number in range(count):
                if verb == "append":
                    txn.append(f"t{number}", accounts(1))
                else:
                    txn.update(f"t{number}", {"balance": "balance + 1"}, where="id = 1")

    return once


@pytest.mark.parametrize(("features", "verb", "count"), WRITTEN)
def test_a_warm_transaction_reads_no_byte_and_writes_the_expected_bytes(
    local_place: Place, features: str, verb: str, count: int
) -> None:
    with local_place.connect() as lake:
        for number in range(count):
            lake.create_table(f"t{number}", accounts(2))
        with lake.transaction() as txn:
            for number in range(count):
                txn.overwrite(f"t{number}", accounts(3))
        lake.close()
        scale = weighed(lake, transaction(lake, features, verb, count))
    assert sum(scale.read.values()) == 0, "its conditional GETs are answered without a body"
    due = dict(zip(KINDS, WRITTEN[features, verb, count], strict=True))
    due["head"] += len(local_place.root) if due["head"] else 0
    for kind, size in due.items():
        share = 0.25 if kind == "data" else 0.02
        assert scale.written[kind] == pytest.approx(size, rel=share), (kind, scale.written)


def test_a_cold_read_reads_head_and_each_log_entry_once(local_place: Place) -> None:
    with local_place.connect() as lake:
        lake.create_table("t0", accounts(2))
        for _ in range(5):
            transaction(lake, "R|I", "append", 1)()
    root = Path(local_place.root)
    entries = sum(path.stat().st_size for path in root.glob("t0/_delta_log/*.json"))
    with local_place.connect() as lake:

        def read() -> None:
            with lake.transaction(read_only=True) as txn:
                assert len(txn.read("t0")) == 7

        cold = weighed(lake, read)
        assert cold.read["head"] == (root / "_lakevilla/HEAD.json").stat().st_size
        assert cold.read["log"] == entries
        assert cold.read["record"] == 0
        assert not +cold.written
        assert not +weighed(lake, read).read, "and nothing of it again"
