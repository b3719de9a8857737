"""Sound lakes with an object of each kind, made by the library itself, and kept in memory."""

from __future__ import annotations

import io
import json
import random
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from typing import Any
from unittest import mock

import pyarrow as pa
import pyarrow.parquet as pq

import lakevilla as lv
from lakevilla.api.client.client import LakeClient
from lakevilla.api.lake import Lake
from lakevilla.engines.duckdb.writing import rewrite
from lakevilla.ids import Ids
from lakevilla.store.base import ANY
from lakevilla.store.effects import Effect, Sleep
from lakevilla.transaction.state.values import Feature
from lakevilla_testing.histories.plan import small_limits
from lakevilla_testing.world.store import ROOT, SimulatedStore

Objects = Mapping[str, bytes]

#: Short times, so that what a damaged object asks for in vain is given up at once.
SETTINGS = lv.Settings(
    retry_limit=1, retry_base_seconds=0.0, lease_seconds=0.2, wait_timeout_seconds=0.2
)
_SAVED: dict[str, str] = {}
#: A time in 2027, by which all clients of a lake go.
_BEGINS = 1.8e9


class Clock:
    """A clock that goes on by a millisecond whenever it is read."""

    def __init__(self, begins: float) -> None:
        self._now = begins

    def now(self) -> float:
        self._now += 0.001
        return self._now

    def elapsed(self) -> float:
        return self.now()

    def wait(self, seconds: float) -> None:
        self._now += max(0.0, seconds)


@contextmanager
def opened(store: SimulatedStore, seed: int = 1, later: float = 100.0) -> Iterator[lv.Lake]:
    """Open a lake by a new client, and close it."""
    clock = Clock(_BEGINS + later)
    ids = Ids(clock, random.Random(seed))
    client = LakeClient(ROOT, store, settings=SETTINGS, clock=clock, ids=ids)
    perform = client.runner._perform

    def without_waiting(effect: Effect) -> object:
        if not isinstance(effect, Sleep):
            return perform(effect)
        clock.wait(effect.seconds)
        return None

    client.runner._perform = without_waiting  # type: ignore[method-assign]
    lake = Lake(client)
    try:
        yield lake
    finally:
        lake.close()


def store_of(objects: Objects) -> SimulatedStore:
    """Return a store with these objects."""
    store = SimulatedStore(lambda: _BEGINS)
    for key, body in objects.items():
        store.put(key, body, ANY)
    return store


@cache
def lake_of(kind: str) -> Objects:
    """Return the objects of a sound lake: of table ``t``, and of all that belongs to a lake."""
    store = SimulatedStore(lambda: _BEGINS)
    with ExitStack() as limits:
        limits.enter_context(small_limits(True))
        limits.enter_context(mock.patch.object(rewrite, "MARKS", rewrite.Marks(0, 1.0, 2000, 1.0)))
        saved, objects = _FILLED[kind](store)
    _SAVED[kind] = saved
    return objects


def saved_in(kind: str) -> str:
    """Return the id of the transaction that is saved in a lake."""
    lake_of(kind)
    return _SAVED[kind]


KINDS = ("delta", "delta v2", "iceberg", "iceberg v3")


def _delta(store: SimulatedStore) -> tuple[str, Objects]:
    properties = {
        "delta.enableDeletionVectors": "true",
        "delta.checkpointInterval": "4",
        "delta.enableChangeDataFeed": "true",
    }
    return _filled(store, "delta", properties)


def _delta_v2(store: SimulatedStore) -> tuple[str, Objects]:
    """Return the lake with V2 checkpoints, which other clients write."""
    properties = {"delta.enableDeletionVectors": "true", "delta.checkpointInterval": "4"}
    saved, objects = _filled(store, "delta", properties)
    return saved, _as_v2(objects)


def _iceberg(store: SimulatedStore) -> tuple[str, Objects]:
    return _filled(store, "iceberg", {})


def _iceberg_v3(store: SimulatedStore) -> tuple[str, Objects]:
    modes = {f"write.{one}.mode": "merge-on-read" for one in ("delete", "update", "merge")}
    return _filled(store, "iceberg", {"format-version": "3", **modes})


_FILLED = {"delta": _delta, "delta v2": _delta_v2, "iceberg": _iceberg, "iceberg v3": _iceberg_v3}


def _filled(store: SimulatedStore, form: Any, properties: Mapping[str, Any]) -> tuple[str, Objects]:
    rows = [{"id": n, "g": n % 3, "x": f"a{n}", "s": {"a": n, "l": [n]}} for n in range(20)]
    with opened(store, 0, 0.0) as lake:
        lake.create_table("t", rows, format=form, partition_by=["g"], properties=properties)
        lake.create_table("u", [{"id": 1}], format=form)
        for number in range(5):
            one = [{**rows[number], "id": 100 + number}]
            lake.run(lambda txn, one=one: txn.append("t", one), idempotency_key=("k", number))
        lake.tag("v1")
        lake.run(lambda txn: txn.delete("t", where="id = 3"))
        lake.branch("b")
        lake.on("b").run(lambda txn: txn.append("t", [{**rows[0], "id": 500}]))
        lake.run(lambda txn: txn.update("t", {"x": "'z'"}, where="id = 4"))
        lake.keep("b")
        saving = lake.transaction(features=Feature.R | Feature.I | Feature.CT)
        saving.read("t", where="id = 1")
        saving.update("t", {"x": "'y'"}, where="id = 1")
        saving.save()
        objects = {key: found.body for key, found in store.objects.items()}
    return saving.id, objects


def _as_v2(objects: Objects) -> Objects:
    """Return the checkpoint of a lake's table ``t`` in the form V2, with its files in a sidecar."""
    (classic,) = [key for key in objects if key.endswith(".checkpoint.parquet")]
    rows = pq.read_table(io.BytesIO(objects[classic]))
    version = int(classic.rpartition("/")[2][:20])
    entry = objects[f"t/_delta_log/{0:020}.json"].splitlines()
    defined = [line for line in entry if line.startswith((b'{"metaData"', b'{"protocol"'))]
    own = [row for row in rows.select(["txn", "domainMetadata"]).to_pylist() if any(row.values())]
    body = pa.BufferOutputStream()
    pq.write_table(rows.select(["add", "remove"]), body)
    sidecar: bytes = body.getvalue().to_pybytes()
    named = {"path": "one.parquet", "sizeInBytes": len(sidecar), "modificationTime": 1}
    parts = [{"checkpointMetadata": {"version": version}}, {"sidecar": named}, *own]
    lines = [*defined, *(json.dumps(_present(part)).encode() for part in parts)]
    log = "t/_delta_log"
    checkpoint = f"{version:020}.checkpoint.01a3185c-51b0-4b5b-81de-28e2e5000000.json"
    return {
        **{key: body for key, body in objects.items() if key != classic},
        f"{log}/{checkpoint}": b"\n".join(lines),
        f"{log}/_sidecars/one.parquet": sidecar,
        f"{log}/_last_checkpoint": json.dumps({"version": version, "size": len(lines)}).encode(),
    }


def _present(part: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in part.items() if value is not None}
