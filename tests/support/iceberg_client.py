"""pyiceberg as an Iceberg client of a lake: it makes snapshots, and ``give`` decides them.

A REST server would stand between the two, and pass requests and answers on.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa
from pyiceberg.exceptions import CommitFailedException, CommitStateUnknownException
from pyiceberg.io import load_file_io
from pyiceberg.table import CommitTableResponse, CreateTableTransaction, StagedTable, Table
from pyiceberg.table.metadata import TableMetadataUtil

import lakevilla as lv
from lakevilla.api.given import Answer, TableChange, TableWish, give, stage


class Held(Exception):
    """A request that was made, and is not sent."""

    def __init__(self, change: TableChange) -> None:
        super().__init__(change.table)
        self.change = change


class IcebergClient:
    """Loads tables of a lake, and asks it for commits.

    Attributes
    ----------
    answers : list of Answer
        What the lake has answered.
    """

    def __init__(self, lake: lv.Lake) -> None:
        self.lake = lake
        self.answers: list[Answer] = []
        self._holds = False

    def load(self, name: str) -> Table:
        """Return a table as it is now: what is pending on it is published first."""
        answer = give(self.lake, [TableChange(name)])
        assert answer.outcome == "done", answer
        (document,) = answer.tables.values()
        metadata = TableMetadataUtil.parse_raw(document.encode().decode())
        return Table(
            (name,),
            metadata,
            f"{metadata.location}/{document.key.partition('/')[2]}",
            load_file_io({}, metadata.location),
            self,  # type: ignore[arg-type]
        )

    def request(self, table: Table, change: Callable[[Table], object]) -> TableChange:
        """Return what a client would send for a change of a table, as it has loaded that."""
        self._holds = True
        try:
            change(table)
        except Held as held:
            return held.change
        finally:
            self._holds = False
        raise AssertionError("the change has sent nothing")

    def making(self, name: str, rows: pa.Table, **properties: str) -> TableChange:
        """Return the request that makes a table with rows; its files are stored."""
        wish = TableWish(name, self.load("t").schema().model_dump(), properties=properties)
        metadata = TableMetadataUtil.parse_obj(stage(self.lake, name, wish))
        io = load_file_io({}, metadata.location)
        staged = StagedTable((name,), metadata, metadata.location, io, self)  # type: ignore[arg-type]
        txn = CreateTableTransaction(staged)
        txn.append(rows)
        return self.request(staged, lambda _: txn.commit_transaction())

    def commit_table(
        self, table: Table, requirements: tuple[Any, ...], updates: tuple[Any, ...]
    ) -> CommitTableResponse:
        """See ``pyiceberg.catalog.Catalog``."""
        asked = [_json(one) for one in requirements]
        change = TableChange(
            table.name()[-1],
            asked,
            [_json(one) for one in updates],
            makes=any(one["type"] == "assert-create" for one in asked),
        )
        if self._holds:
            raise Held(change)
        answer = give(self.lake, [change])
        self.answers.append(answer)
        if answer.outcome == "unknown":
            raise CommitStateUnknownException(answer.message)
        if answer.outcome != "done":
            raise CommitFailedException(f"{answer.outcome}: {answer.message}")
        (document,) = answer.tables.values()
        return CommitTableResponse.model_validate(
            {"metadata": json.loads(document.encode()), "metadata-location": document.key}
        )

    def load_table(self, identifier: tuple[str, ...]) -> Table:
        """See ``pyiceberg.catalog.Catalog``."""
        return self.load(identifier[-1])

    def supports_server_side_planning(self) -> bool:
        """Return False: a lake plans no scans for its clients."""
        return False

    def _delete_old_metadata(self, *_: object) -> None:
        """Leave old metadata files to the lake."""


def _json(model: Any) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(model.model_dump_json(by_alias=True, exclude_none=True))
    return found
