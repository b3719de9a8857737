"""The verbs of a lake that read what others have stored, each as a user would call it."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import lakevilla as lv

Verb = Callable[[lv.Lake, str], object]

ROW = {"id": 9, "g": 0, "x": "new", "s": {"a": 1, "l": [1]}}


def verbs_of() -> Mapping[str, Verb]:
    """Return the verbs by name. Each gets the lake and the id of a transaction that is saved."""
    return _VERBS


def rows(lake: lv.Lake, saved: str = "") -> list[dict[str, object]]:
    """Return the rows of table ``t``, in order."""
    found = lake.read("t").to_pylist()
    return sorted(found, key=lambda row: str(row))


_VERBS: dict[str, Verb] = {
    "read": rows,
    "read where": lambda lake, _: lake.read("t", where="g = 1 AND id > 3"),
    "count": lambda lake, _: lake.table("t").count(),
    "read verified": lambda lake, _: lake.read("t", verify="on"),
    "sql": lambda lake, _: lake.sql("SELECT g, count(*), sum(s.a) FROM t GROUP BY g"),
    "read at": lambda lake, _: lake.snapshot(3).read("t"),
    "read a tag": lambda lake, _: lake.on("v1").read("t"),
    "read a branch": lambda lake, _: lake.on("b").read("t"),
    "tables": lambda lake, _: (lake.tables(), lake.table("t").columns),
    "history": lambda lake, _: (
        lake.history(),
        lake.table("t").history(),
        lake.table("t").versions(),
    ),
    "diff": lambda lake, _: lake.diff("v1", "b"),
    "refs": lambda lake, _: lake.refs(),
    "outcome": lambda lake, saved: (lake.outcome(saved), lake.outcome(idempotency_key=("k", 3))),
    "transactions": lambda lake, _: lake.transactions(),
    "resume": lambda lake, saved: lake.resume(saved).commit(),
    "abort": lambda lake, saved: lake.abort(saved),
    "doctor": lambda lake, _: lake.doctor(files=True),
    "verify": lambda lake, _: lake.verify(),
    "metrics": lambda lake, _: lake.metrics(),
    "append": lambda lake, _: lake.run(lambda txn: txn.append("t", [ROW])),
    "append once": lambda lake, _: lake.run(
        lambda txn: txn.append("t", [ROW]), idempotency_key=("k", 9)
    ),
    "update": lambda lake, _: lake.run(lambda txn: txn.update("t", {"x": "'u'"}, where="id = 5")),
    "upsert": lambda lake, _: lake.run(lambda txn: txn.upsert("t", [ROW], "id")),
    "queue": lambda lake, _: _queued(lake),
    "append to a branch": lambda lake, _: lake.on("b").run(lambda txn: txn.append("t", [ROW])),
    "merge": lambda lake, _: lake.merge("b"),
    "rebase": lambda lake, _: lake.rebase("b"),
    "keep": lambda lake, _: lake.keep("b"),
    "rollback": lambda lake, _: lake.rollback("v1"),
    "tag": lambda lake, _: lake.tag("v2"),
    "recover": lambda lake, _: lake.recover(),
    "gc": lambda lake, _: lake.gc(),
    "maintain": lambda lake, _: lake.maintain(),
    "optimize": lambda lake, _: lake.table("t").optimize(),
    "vacuum": lambda lake, _: lake.table("t").vacuum(),
    "rename": lambda lake, _: lake.rename_table("t", "t2"),
    "drop": lambda lake, _: lake.drop_table("u"),
    "discover": lambda lake, _: lake.discover(),
    "absorb": lambda lake, _: lake.absorb(),
    "create": lambda lake, _: lake.create_table("v", [ROW]),
    "follow": lambda lake, _: list(lake.changes(0, tables=["t"])),
}


def _queued(lake: lv.Lake) -> None:
    with lake.transaction(features=lv.Feature.R | lv.Feature.I | lv.Feature.CT) as txn:
        txn.read("t", where="id = 5")
        txn.update("t", {"x": "'q'"}, where="id = 5")
