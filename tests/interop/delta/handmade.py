"""Make tables by hand as other projects' clients leave them: actions as JSON, files by pyarrow."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.support.delta_by_hand import add, metadata, protocol

Action = Mapping[str, Any]


class Handmade:
    """A table below ``root``, which a test writes entry by entry."""

    def __init__(self, root: Path, name: str = "t") -> None:
        self.path = root / name
        self.log = self.path / "_delta_log"
        self.log.mkdir(parents=True)
        self.version = -1

    def data(self, name: str, rows: pa.Table, **options: Any) -> str:
        """Write a data file."""
        path = self.path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        pq.write_table(rows, path, **options)
        return name

    def add(self, name: str, rows: pa.Table | None = None, **fields: Any) -> dict[str, Any]:
        """Return an ``add`` of a file without statistics; the file is written if rows are given."""
        if rows is not None:
            self.data(name, rows)
        action = add(name, size=(self.path / name).stat().st_size, stats=None)["add"]
        action |= fields
        return {"add": {key: value for key, value in action.items() if value is not None}}

    def entry(self, *actions: Action) -> None:
        self.version += 1
        text = "".join(json.dumps(action) + "\n" for action in actions)
        (self.log / f"{self.version:020}.json").write_text(text)

    def begin(
        self,
        fields: Sequence[Mapping[str, Any]],
        *actions: Action,
        reader: Sequence[str] | None = None,
        writer: Sequence[str] | None = None,
        partition_by: Sequence[str] = (),
        **configuration: str,
    ) -> None:
        """Write entry 0: protocol, metadata and ``actions``."""
        described = metadata(fields, partition_by, **configuration)
        self.entry(protocol(reader, writer), described, *actions)
