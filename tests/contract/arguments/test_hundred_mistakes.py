"""Mistakes of new users, and the errors that they raise: ``mistakes.txt``.

Each error has a public class and one readable line, and no other error as its cause; the
lake stays unchanged, byte by byte.
``python -m tests.contract.arguments.test_hundred_mistakes`` prints the page as it is now.
"""

from __future__ import annotations

import re
import tempfile
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import lakevilla as lv
from tests.support.tables import contents

PAGE = Path(__file__).with_name("mistakes.txt")

ORDERS = pa.table(
    {
        "id": pa.array([1, 2, 3], pa.int64()),
        "sku": ["tea", "jam", "tea"],
        "qty": pa.array([1, 2, 3], pa.int64()),
        "price": pa.array([Decimal("1.50"), Decimal("2.50"), None], pa.decimal128(9, 2)),
        "weight": [0.5, 1.5, None],
        "day": [date(2024, 1, 1)] * 3,
        "at": pa.array([datetime(2024, 1, 1, 12)] * 3, pa.timestamp("us", tz="UTC")),
        "local": pa.array([datetime(2024, 1, 1, 12)] * 3, pa.timestamp("us")),
        "paid": [True, False, None],
    }
)


@dataclass(frozen=True)
class Mistake:
    """The input, and the class and the message of the error."""

    written: str
    message: str


def mistakes() -> list[Mistake]:
    """The page: a line with ``>>>`` is the user's input, and the next line is the error."""
    found = re.findall(r"^>>> (.*)\n((?!>>>).*)$", PAGE.read_text(), re.MULTILINE)
    return [Mistake(written, message) for written, message in found]


def broken() -> Iterator[dict[str, Any]]:
    """Yield more rows than are converted to Arrow at once, and then fail."""
    for n in range(25_000):
        yield {"sku": f"s{n}", "rest": n}
    raise RuntimeError("the source is gone")


def mixed() -> Iterator[dict[str, Any]]:
    for n in range(25_000):
        yield {"sku": f"s{n}", "rest": n if n < 20_000 else "many"}


async def waits(txn: lv.Transaction) -> None:
    """An async function, which ``run`` can't await."""


def yields(txn: lv.Transaction) -> Iterator[None]:
    """A generator function, whose body a call does not execute."""
    txn.append("stock", [{"sku": "x", "rest": 1}])
    yield


def at_once(txn: lv.Transaction) -> None:
    """Call a verb while another thread runs a verb of the same transaction."""
    inside, asked = threading.Event(), threading.Event()

    def rows() -> Iterator[dict[str, Any]]:
        inside.set()
        asked.wait(10)
        yield {"sku": "x", "rest": 1}

    other = threading.Thread(target=lambda: txn.append("stock", rows()))
    other.start()
    try:
        inside.wait(10)
        txn.read("stock")
    finally:
        asked.set()
        other.join()


def merge(txn: lv.Transaction, source: Any = None, on: Any = "target.sku = source.sku") -> Any:
    rows = [{"sku": "tea", "rest": 1}] if source is None else source
    return txn.merge("stock", rows, on)


#: Names that the page's inputs can use, besides those of ``Desk``.
AT_HAND: dict[str, object] = {
    "lv": lv,
    "yields": yields,
    "np": np,
    "pa": pa,
    "pd": pd,
    "pl": pl,
    "UTC": UTC,
    "Decimal": Decimal,
    "Path": Path,
    "date": date,
    "datetime": datetime,
    "timedelta": timedelta,
    "at_once": at_once,
    "broken": broken,
    "merge": merge,
    "mixed": mixed,
    "waits": waits,
}


class Desk:
    """Two lakes, and data that a user would have."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self.lake = lv.connect(f"{directory}/lake")
        self.lake.create_table("orders", ORDERS)
        self.lake.run(lambda txn: txn.alter("orders", add_constraints={"positive": "qty > 0"}))
        self.lake.create_table("stock", pa.table({"sku": ["tea", "jam"], "rest": [5, 6]}))
        days = pa.table({"id": [1, 2], "day": ["a", "b"]})
        self.lake.create_table("days", days, partition_by="day")
        self.lake.create_table("goods", pa.table({"id": [1], "v": ["a"]}), format="iceberg")
        self.lake.create_table("sales/eu", [{"id": 1}])
        pq.write_table(ORDERS, f"{directory}/lake/loose.parquet")
        other = lv.connect(f"{directory}/other")
        other.create_table("theirs", [{"id": 1}])
        with self.lake.transaction() as ended:
            ended.read("stock")
        merged = self.lake.transaction()
        builder = merge(merged).when_matched_update_all()
        builder.execute()
        merged.abort()
        self.names = {
            "lake": self.lake,
            "root": f"{directory}/lake",
            "other": f"{directory}/other",
            "ended": ended,
            "aborted": merged,
            "ORDERS": ORDERS,
            "NEW": {"id": 9, "sku": "x", "qty": 1},
            **AT_HAND,
        }

    def message_of(self, written: str) -> tuple[BaseException | None, str]:
        """Return the error, and its line for the page."""
        with self.lake.transaction() as txn:
            try:
                eval(written, {**self.names, "txn": txn})
            except Exception as error:
                text = str(error).replace(self.directory, "DIRECTORY")
                text = re.sub(r"\b[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", "ID", text)
                text = re.sub(r"0x[0-9a-fA-F]+", "0x0", text)
                text = re.sub(r"\b\d{4}-\d\d-\d\dT[\d:.]+Z", "TIME", text)
                return error, f"{type(error).__name__}: {text}"
            finally:
                txn.abort()
        return None, "nothing was raised"


@pytest.fixture(scope="module")
def desk() -> Iterator[Desk]:
    # A short path, as messages cut long ones.
    with tempfile.TemporaryDirectory() as directory:
        yield Desk(directory)


@pytest.mark.cases(None)
@pytest.mark.parametrize("mistake", mistakes(), ids=lambda mistake: mistake.written)
def test_each_mistake_raises_the_error_of_the_page_and_changes_nothing(
    desk: Desk, mistake: Mistake
) -> None:
    before = contents(desk.directory)
    error, message = desk.message_of(mistake.written)
    assert message == mistake.message
    assert contents(desk.directory) == before
    if isinstance(error, lv.LakeVillaError):
        assert type(error) is getattr(lv, type(error).__name__)
        assert error.__cause__ is None
        assert error.__suppress_context__ or error.__context__ is None
        assert len(error.message) < 400
        first = error.message.split()[0]
        assert first == first.lower() or first.isupper() or first in desk.names
        assert not re.search(r"lakevilla\.(?!connect|Settings|Feature|Table)", error.message)
    else:
        # Python's own error for an unknown argument, and the caller's own error.
        assert isinstance(error, TypeError | AttributeError | RuntimeError)


def test_the_page_of_mistakes_has_more_than_250_different_ones() -> None:
    written = [mistake.written for mistake in mistakes()]
    assert len(set(written)) == len(written) > 250
    assert len(written) == PAGE.read_text().count("\n>>> ")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as directory:
        there = Desk(directory)
        for line in PAGE.read_text().splitlines():
            if line.startswith(">>> "):
                print(line, there.message_of(line.removeprefix(">>> "))[1], sep="\n")
            elif not line or line.startswith("#"):
                print(line)
