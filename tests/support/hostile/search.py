"""One run of the search: verbs on a hostile lake, and what they did beyond it."""

from __future__ import annotations

import contextlib
import random
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import lakevilla as lv
from tests.support.hostile.lakes import HostileLake, hostile_lake
from tests.support.hostile.watch import watched

QUICK = lv.Settings(retry_limit=1, retry_base_seconds=0.001, reuse_after_seconds=0)
ROW = [{"n": "new", "k": 3}]

#: By name, what is done to a table of the lake; none may lead beyond the lake.
VERBS: dict[str, Callable[[lv.Lake, str], Any]] = {
    "read": lambda lake, t: lake.read(t),
    "read of some rows": lambda lake, t: lake.read(t, where="n > 'p'"),
    "sql": lambda lake, t: lake.sql(f"SELECT count(*) AS c, max(n) AS n FROM {t}"),
    "past": lambda lake, t: lake.table(t).read(version=0),
    "history": lambda lake, t: lake.table(t).history(),
    "changes": lambda lake, t: lake.run(lambda txn: txn.changes(t, 0)),
    "append": lambda lake, t: lake.run(lambda txn: txn.append(t, ROW)),
    "delete": lambda lake, t: lake.run(lambda txn: txn.delete(t, where="k = 1")),
    "update": lambda lake, t: lake.run(lambda txn: txn.update(t, {"n": "'x'"}, where="k < 3")),
    "upsert": lambda lake, t: lake.run(lambda txn: txn.upsert(t, ROW, keys=["k"])),
    "optimize": lambda lake, t: lake.table(t).optimize(),
    "vacuum": lambda lake, t: lake.table(t).vacuum(0, False, enforce_retention_duration=False),
    "restore": lambda lake, t: lake.table(t).restore(0),
    "clone": lambda lake, t: lake.clone(t, "copy"),
    "export": lambda lake, t: lake.export(t, f"{lake.root}/exported", copy=True),
    "rename": lambda lake, t: lake.rename_table(t, "renamed"),
    "drop": lambda lake, t: lake.drop_table(t, delete_data=True),
    "register": lambda lake, t: lake.register(t),
    "discover": lambda lake, t: lake.discover(),
    "tables": lambda lake, t: lake.tables(),
    "branch": lambda lake, t: lake.on("work").read(t),
    "merge": lambda lake, t: lake.merge("work"),
    "delete of a branch": lambda lake, t: lake.delete_ref("work"),
    "rollback": lambda lake, t: lake.rollback("v1"),
    "keep": lambda lake, t: lake.keep("v1"),
    "gc": lambda lake, t: lake.gc(),
    "maintain": lambda lake, t: lake.maintain(),
    "recover": lambda lake, t: lake.recover(),
    "rebuild": lambda lake, t: lake.recover(rebuild_head=True, force=True),
    "absorb": lambda lake, t: lake.absorb(),
    "verify": lambda lake, t: lake.verify(),
    "doctor": lambda lake, t: lake.doctor(adopt=True, files=True),
    "metrics": lambda lake, t: lake.metrics(),
}


@dataclass
class Outcome:
    """What a run did: how many verbs, events of files, refusals, and what it should not."""

    what: str
    events: int = 0
    refused: int = 0
    verbs: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def attack(seed: int, directory: Path, verbs: int = 5) -> Outcome:
    """Make a hostile lake and do drawn verbs on it, each as a process of its own would."""
    lake = hostile_lake(seed, directory)
    draw = random.Random(f"verbs {seed}")
    outcome = Outcome(lake.what)
    before = _contents(lake.outside)
    for verb in ["read", *draw.sample(sorted(VERBS), verbs)]:
        outcome.verbs.append(verb)
        with watched(str(lake.outside)) as watch, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            shown = _answer(lake, verb, outcome)
        outcome.events += watch.events
        outcome.problems += [f"{verb} ran code: {one}" for one in watch.ran]
        _judge(lake, verb, shown, watch.opened, before, outcome)
    return outcome


def _answer(lake: HostileLake, verb: str, outcome: Outcome) -> str:
    try:
        with lv.connect(lake.root, settings=QUICK) as opened:
            answer = VERBS[verb](opened, lake.table)
            return repr(answer.to_pylist() if isinstance(answer, pa.Table) else answer)
    except lv.LakeVillaError as error:
        outcome.refused += 1
        return str(error)
    except Exception as error:
        outcome.problems.append(f"{verb} raised {type(error).__name__}: {error}")
        return ""


def _judge(
    lake: HostileLake,
    verb: str,
    shown: str,
    opened: list[str],
    before: dict[str, bytes],
    outcome: Outcome,
) -> None:
    after = _contents(lake.outside)
    if {name: after.get(name) for name in before} != before:
        outcome.problems.append(f"{verb} changed files beyond the lake")
    if lake.decides_places:
        return
    if after.keys() != before.keys():
        outcome.problems.append(f"{verb} made files beyond the lake")
    outcome.problems += [f"{verb} opened beyond the lake: {one}" for one in opened]
    if lake.secret in shown:
        outcome.problems.append(f"{verb} shows rows beyond the lake: {shown[:200]}")
    if any(lake.secret in text for text in _stored_texts(lake.root)):
        outcome.problems.append(f"{verb} copied rows into the lake")


def _contents(directory: Path) -> dict[str, bytes]:
    return {str(one): one.read_bytes() for one in sorted(directory.rglob("*")) if one.is_file()}


def _stored_texts(root: Path) -> list[str]:
    found = []
    for path in root.rglob("*.parquet"):
        with contextlib.suppress(pa.ArrowException, OSError):
            if not path.is_symlink():
                found.append(repr(pq.ParquetFile(path).read().to_pydict()))
    return found
