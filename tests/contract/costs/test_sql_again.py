"""A SELECT does not fetch parts of data files again that it or another one has read."""

from __future__ import annotations

import pyarrow as pa

from lakevilla.store.runner import Requests
from tests.support.inside import inside
from tests.support.places import Place
from tests.support.tables import accounts
from tests.support.traces import cost


def test_a_repeated_select_of_a_snapshot_sends_no_request(place: Place) -> None:
    with place.connect() as lake:
        for table in ("a", "b"):
            lake.create_table(table, accounts(3))
        snapshot = lake.snapshot()
        snapshot.sql("SELECT sum(a.balance), sum(b.id) FROM a JOIN b USING (id)")
        for sql in ("SELECT max(id) FROM b", "SELECT sum(balance) FROM a WHERE id > 0"):
            assert cost(lake, lambda sql=sql: snapshot.sql(sql)) == Requests()


def test_files_read_with_another_condition_stay_cached(place: Place) -> None:
    with place.connect() as lake:
        lake.create_table("t", pa.schema([("id", pa.int64()), ("s", pa.string())]))
        with lake.transaction() as txn:
            for number in range(3):
                txn.append("t", pa.table({"id": [number], "s": ["x"]}))
        snapshot = lake.snapshot()
        texts = [f"SELECT s FROM t WHERE id = {number}" for number in range(3)]
        for text in texts:
            snapshot.sql(text)
        for text in texts:
            assert cost(lake, lambda text=text: snapshot.sql(text)) == Requests()


def test_a_select_after_an_append_fetches_only_the_new_file(place: Place) -> None:
    """The table has eight files: only footer and one column of the ninth are fetched."""
    with place.connect() as lake:
        lake.create_table("a", accounts(3))
        for _ in range(8):
            with lake.transaction() as txn:
                txn.append("a", accounts(3))
            lake.sql("SELECT sum(balance) FROM a")
        with place.connect() as other, other.transaction() as txn:
            txn.append("a", accounts(3))
        assert lake.table("a").version  # reads the log, and no file

        def ask() -> None:
            found = pa.table(lake.sql("SELECT count(balance) AS n FROM a"))
            assert found.to_pydict() == {"n": [30]}

        first, again = cost(lake, ask), cost(lake, ask)
        far = inside(lake).store.local_path("a") is None
        assert first.get - again.get in ((1, 2) if far else (0,))
