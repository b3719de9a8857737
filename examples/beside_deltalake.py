"""A table that deltalake made and goes on writing takes part in transactions."""

from __future__ import annotations

import sys
import tempfile

import deltalake
import pyarrow as pa

import lakevilla as lv


def main(root: str) -> None:
    """Write with both, read with both."""
    events = f"{root}/events"
    deltalake.write_deltalake(events, pa.table({"id": [1], "kind": ["made by deltalake"]}))

    with lv.connect(root) as lake:
        lake.create_table("totals", [{"events": 1}])

        deltalake.write_deltalake(
            events, pa.table({"id": [2], "kind": ["deltalake again"]}), mode="append"
        )
        with lake.transaction() as txn:
            txn.append("events", [{"id": 3, "kind": "LakeVilla"}])
            txn.update("totals", {"events": "events + 2"}, where="true")

        with lake.snapshot() as state:
            print(state.sql("SELECT id, kind FROM events ORDER BY id").to_pylist())
            # Versions that fit together, for any other reader:
            versions = {name: table.version for name, table in state.versions.items()}
            print(sorted(versions))

    rows = deltalake.DeltaTable(events).to_pyarrow_table().num_rows
    print(f"deltalake sees {rows} events")


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(sys.argv[1])
    else:
        with tempfile.TemporaryDirectory() as directory:
            main(directory)
