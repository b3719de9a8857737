"""Make tables from plans, with the rows that the tables must hold."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
from deltalake import write_deltalake

import lakevilla as lv
from tests.property.delta_files import DeltaWriter
from tests.property.iceberg_files import IcebergWriter
from tests.property.plans import (
    KEY,
    Append,
    Delete,
    Model,
    Plan,
    Row,
    schema_of,
    table_of,
    value_for,
)

NAME = "t"


@dataclass
class Built:
    """A table in a lake of its own."""

    plan: Plan
    model: Model
    lake: lv.Lake[Any]
    writer: DeltaWriter | IcebergWriter
    root: str
    on_spark: bool = False
    keys: int = field(default=0)

    @property
    def schema(self) -> pa.Schema:
        return schema_of(self.model.cols)

    def rows(self) -> pa.Table:
        return self.model.table()

    def more(self, rng: Random) -> list[Row]:
        """Return new rows of existing values."""
        self.keys += 1
        row: Row = {KEY: 1_000_000 + self.keys}
        for col in self.model.cols[1:]:
            near = self.plan.pools if col.id in self.plan.pools or col.fields else {col.id: [0, 1]}
            row[col.id] = value_for(col, near, rng)
        return [row]

    def apply(self, step: Any) -> None:
        """Perform one step, by another client or by LakeVilla."""
        after = deepcopy(self.model)
        after.apply(step)
        self.writer.model = deepcopy(self.model)
        if isinstance(step, Append | Delete) and self._is_own(step):
            self.lake.run(self._write, step)
        else:
            self.writer.apply(step, after)
        self.model = after

    def _write(self, txn: Any, step: Append | Delete) -> None:
        if isinstance(step, Append):
            txn.append(NAME, table_of(self.model.cols, step.rows))
        else:
            txn.delete(NAME, "id in :keys", params={"keys": list(step.keys)})
            self.writer.forget(step.keys)

    def _is_own(self, step: Append | Delete) -> bool:
        """Return whether LakeVilla performs the step: it rewrites only files that it
        has written.
        """
        others = isinstance(step, Append) or self.writer.may_delete(step.keys)
        return step.by == "lakevilla" or not others


@contextmanager
def build(plan: Plan, root: Path, **options: Any) -> Iterator[Built]:
    """Make the table of a plan."""
    model = Model(list(plan.cols))
    writer: DeltaWriter | IcebergWriter
    if plan.format == "delta":
        writer = DeltaWriter(root / NAME, plan, deepcopy(model))
    else:
        writer = IcebergWriter(str(root), NAME, plan, deepcopy(model))
    writer.create()
    write_deltalake(str(root / f"{NAME}_other"), pa.table({"id": [0]}))
    with lv.connect(str(root), **options) as lake:
        built = Built(plan, model, lake, writer, str(root), "spark" in options)
        for step in plan.steps:
            built.apply(step)
        yield built
