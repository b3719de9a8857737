"""The files of a transaction."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from lakevilla.formats.base import Change
from lakevilla.formats.delta.deletion_vectors import vectors_of, with_deleted
from lakevilla.formats.files import removal
from lakevilla.transaction.state.files import _holds_its_files
from tests.support.delta_by_hand import Tables, data_file


@pytest.mark.parametrize("entry", ["its own", "another client's"])
def test_marked_rows_do_not_show_whose_entry_is_in_the_log(tmp_path: Path, entry: str) -> None:
    tables = Tables(tmp_path)
    file, updated = data_file("f.parquet", 9), data_file("new.parquet")
    marked = with_deleted(file, vectors_of([np.array([3])], lambda _: "lv.parquet")[0][0])
    before = tables.commit(
        tables.create(pa.schema([("id", pa.int64())])), Change(adds=(file, data_file("g.parquet")))
    )
    mine = Change(adds=(marked, updated), removes=(removal(file),))
    theirs = Change(adds=(marked,), removes=(removal(file),))
    after = tables.commit(before, mine if entry == "its own" else theirs)
    txn: Any = SimpleNamespace(work=SimpleNamespace(done=[SimpleNamespace(change=mine)]))
    tail: Any = SimpleNamespace(snapshot=after)
    assert tables.run(_holds_its_files(txn, tail)) == (entry == "its own")
