"""Tables of a key and a text, whose rows statements mark as deleted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyarrow as pa

import lakevilla as lv
from tests.support.stores import Later

MODES = {f"write.{one}.mode": "merge-on-read" for one in ("delete", "update", "merge")}
V3 = {"format-version": "3", **MODES}
Change = Callable[[lv.Transaction], object]


def rows(*given: tuple[int, str]) -> pa.Table:
    return pa.table({"k": pa.array([k for k, _ in given], pa.int64()), "v": [v for _, v in given]})


def kept(lake: lv.Lake, name: str = "t", **state: Any) -> dict[int, str]:
    """Return the texts by key, after a check that no key is there twice."""
    found = lake.snapshot(**state).read(name).sort_by("k")
    texts = dict(zip(found["k"].to_pylist(), found["v"].to_pylist(), strict=True))
    assert len(texts) == found.num_rows
    return texts


def years_later(lake: lv.Lake) -> None:
    """Let gc and vacuum delete all that nothing needs."""
    later = Later()
    later.of(lake)
    later.ahead_seconds = 30 * 24 * 3600
    lake.recover()
    lake.gc()
    lake.table("t").vacuum(0, False, enforce_retention_duration=False)


#: Statements that change the rows 3 and 50.
CHANGES: dict[str, Change] = {
    "update": lambda txn: txn.update("t", {"v": "'new'"}, where="k in (3, 50)"),
    "delete": lambda txn: txn.delete("t", where="k in (3, 50)"),
    "upsert": lambda txn: txn.upsert("t", rows((3, "new"), (50, "new"), (200, "new")), "k"),
    "merge": lambda txn: (
        txn.merge("t", rows((3, "new"), (50, "")), on="target.k = source.k")
        .when_matched_delete("source.v = ''")
        .when_matched_update_all()
        .execute()
    ),
    "update in SQL": lambda txn: txn.sql("UPDATE t SET v = 'new' WHERE k = 3 OR k = 50"),
    "overwrite a part": lambda txn: txn.overwrite("t", rows((3, "new")), where="k IN (3, 50)"),
}
