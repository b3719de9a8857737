"""Share a table on a server, which implements ranges and conditions itself."""

from __future__ import annotations

import random

import pyarrow as pa
from deltalake import DeltaTable, write_deltalake

from lakevilla.clock import SystemClock
from lakevilla.formats.base import Change, CommitInfo
from lakevilla.formats.delta import DeltaFormat
from lakevilla.formats.files import removal
from lakevilla.ids import Ids
from lakevilla.settings import Settings
from lakevilla.store.backends.object_store import open_store
from lakevilla.store.base import Stored
from lakevilla.store.effects import put
from lakevilla.store.runner import Runner
from tests.fixtures.servers import Server
from tests.support.delta_by_hand import data_file


def test_a_table_on_a_server_is_shared_with_deltalake(server: Server, server_root: str) -> None:
    uri, options = f"{server_root}/sales/t", server.storage_options
    for number in range(4):
        rows = pa.table({"p": [f"a {number}", "ü"], "id": [number, -number]})
        write_deltalake(uri, rows, mode="append", partition_by=["p"], storage_options=options)
    settings = Settings()
    store = open_store(server_root, options, settings=settings)
    runner = Runner(store, Ids(SystemClock(), random.Random(1)), settings)
    delta = DeltaFormat()
    with runner.requests.counting() as made:
        state = runner.run(delta.open("sales/t", "sales/t"))
    assert (made.list, made.get) == (1, 4)
    assert len(runner.run(state.files()).column("path")) == 8

    # LakeVilla adds an entry and a checkpoint, the older log is deleted, both clients still read
    # it.
    change = Change(adds=(data_file("ghost", partition_values={"p": "x"}),))
    for wanted in (change, Change(removes=(removal(change.adds[0]),))):
        ready = runner.run(delta.prepare(state, wanted, CommitInfo("WRITE"), 1_700_000_000_000))
        assert isinstance(runner.run(put(ready.key, ready.body, ready.condition)), Stored)
        state = delta.advance(state, ready.entry)
    runner.run(delta.checkpoint(state))
    with runner.requests.counting() as made:
        opened = runner.run(DeltaFormat().open_at("sales/t", "sales/t", 5))
    assert (made.list, made.get) == (0, 2), "the hint, and the whole of a small checkpoint"
    ours = set(runner.run(opened.files()).column("path").to_pylist())
    theirs = DeltaTable(uri, storage_options=options)
    assert {f"{uri}/{path}" for path in ours} == set(theirs.file_uris())
    assert theirs.to_pyarrow_table().num_rows == 8
