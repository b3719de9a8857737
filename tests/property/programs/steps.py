"""The steps of a program, as data."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from lakevilla.sql.expressions.types import arrow_type
from tests.property.programs.conditions import Set, Where

Format: TypeAlias = Literal["delta", "iceberg"]
#: LakeVilla, LakeVilla with Spark's engine, and the clients without it.
Actor: TypeAlias = Literal["lakevilla", "lakevilla-spark", "deltalake", "pyiceberg", "spark"]

NESTED: dict[str, pa.DataType] = {
    "list": pa.list_(pa.int64()),
    "struct": pa.struct([("a", pa.int64()), ("b", pa.string())]),
    "map": pa.map_(pa.string(), pa.int64()),
    "deep": pa.list_(pa.struct([("x", pa.float64()), ("y", pa.list_(pa.string()))])),
}


@dataclass(frozen=True)
class Col:
    name: str
    type: str

    @property
    def arrow(self) -> pa.Field:
        return pa.field(self.name, NESTED.get(self.type) or arrow_type(self.type))


def schema_of(cols: tuple[Col, ...]) -> pa.Schema:
    return pa.schema([col.arrow for col in cols])


@dataclass(frozen=True)
class Rows:
    """Rows as values in the order of the columns."""

    cols: tuple[Col, ...]
    values: tuple[tuple[Any, ...], ...]

    def arrow(self) -> pa.Table:
        columns = list(zip(*self.values, strict=True)) or [()] * len(self.cols)
        arrays = [
            pa.array(list(column), type=col.arrow.type)
            for col, column in zip(self.cols, columns, strict=True)
        ]
        return pa.Table.from_arrays(arrays, schema=schema_of(self.cols))


# -- verbs, within a transaction -----------------------------------------------------------


@dataclass(frozen=True)
class Create:
    table: str
    cols: tuple[Col, ...]
    format: Format
    partition: tuple[str, ...] = ()
    properties: tuple[tuple[str, str], ...] = ()
    or_replace: bool = False


@dataclass(frozen=True)
class Append:
    table: str
    rows: Rows
    #: Whether columns that the table lacks are added.
    merges: bool = False


@dataclass(frozen=True)
class Update:
    table: str
    sets: tuple[Set, ...]
    where: Where


@dataclass(frozen=True)
class Delete:
    table: str
    where: Where


@dataclass(frozen=True)
class Upsert:
    table: str
    rows: Rows
    key: str


@dataclass(frozen=True)
class Merge:
    """A merge by a key; ``deletes`` is a condition on rows of the table."""

    table: str
    rows: Rows
    key: str
    deletes: Where | None
    updates: tuple[str, ...]
    inserts: bool
    deletes_others: Where | None


@dataclass(frozen=True)
class Overwrite:
    table: str
    rows: Rows
    #: None: all rows; ``"dynamic"``: the partitions that the rows have.
    where: Where | Literal["dynamic"] | None = None


@dataclass(frozen=True)
class AddColumn:
    table: str
    col: Col


@dataclass(frozen=True)
class DropColumn:
    table: str
    column: str


@dataclass(frozen=True)
class RenameColumn:
    table: str
    column: str
    new: str


@dataclass(frozen=True)
class Retype:
    table: str
    column: str
    type: str


@dataclass(frozen=True)
class Drop:
    table: str


Verb: TypeAlias = (
    Create | Append | Update | Delete | Upsert | Merge | Overwrite
    | AddColumn | DropColumn | RenameColumn | Retype | Drop
)  # fmt: skip

# -- steps of a program --------------------------------------------------------------------


@dataclass(frozen=True)
class Txn:
    """A transaction of verbs.

    ``beside`` is committed by another client after the verbs were performed and before they are
    committed. ``branch``: where it happens, or None.
    """

    verbs: tuple[Verb, ...]
    commits: bool = True
    beside: Foreign | Txn | None = None
    branch: str | None = None
    options: tuple[tuple[str, Any], ...] = ()


@dataclass(frozen=True)
class Foreign:
    """A verb of a client without LakeVilla."""

    by: Actor
    verb: Verb


@dataclass(frozen=True)
class Optimize:
    table: str
    by: Actor = "lakevilla"
    z_order: tuple[str, ...] = ()


@dataclass(frozen=True)
class Upkeep:
    verb: Literal["gc", "recover", "reconnect", "maintain", "vacuum", "checkpoint"]
    table: str = ""


@dataclass(frozen=True)
class Rollback:
    """Set the lake back by a number of states that this program has made."""

    back: int


@dataclass(frozen=True)
class Restore:
    table: str
    back: int


@dataclass(frozen=True)
class Revert:
    """Take back one of the last commits."""

    back: int


@dataclass(frozen=True)
class Branch:
    name: str


@dataclass(frozen=True)
class MergeBranch:
    name: str
    deletes: bool


@dataclass(frozen=True)
class RebaseBranch:
    name: str


@dataclass(frozen=True)
class Past:
    """A read of a state that this program has made."""

    back: int


@dataclass(frozen=True)
class Changes:
    """A read of the changes since a state that this program has made."""

    back: int
    net: bool


@dataclass(frozen=True)
class Tag:
    """Keep the present state, which is read again after each later step of this kind."""

    name: str


@dataclass(frozen=True)
class Clone:
    """Show a table at another place, change that, and read both."""

    table: str
    verb: Verb
    copies: bool


@dataclass(frozen=True)
class Ask:
    """A read with a condition."""

    table: str
    where: Where


Step: TypeAlias = (
    Txn | Foreign | Optimize | Upkeep | Rollback | Restore | Revert
    | Branch | MergeBranch | RebaseBranch | Past | Changes | Tag | Clone | Ask
)  # fmt: skip


@dataclass(frozen=True)
class Program:
    seed: int
    steps: tuple[Step, ...]
    #: Whether rows are marked as deleted in small files, too.
    marks: bool = False
    #: Settings of LakeVilla, by name.
    settings: tuple[tuple[str, Any], ...] = field(default=())

    def smaller(self) -> Iterator[Program]:
        """Yield programs with fewer steps, then with smaller ones."""
        count = len(self.steps)
        size = count // 2
        while size:
            for at in range(0, count, size):
                yield replace(self, steps=self.steps[:at] + self.steps[at + size :])
            size //= 2
        for at, step in enumerate(self.steps):
            for one in _smaller(step):
                yield replace(self, steps=(*self.steps[:at], one, *self.steps[at + 1 :]))
        if self.marks:
            yield replace(self, marks=False)
        if self.settings:
            yield replace(self, settings=())


def _smaller(step: Step) -> Iterator[Step]:
    match step:
        case Txn(verbs):
            if step.beside is not None:
                yield replace(step, beside=None)
            if step.options:
                yield replace(step, options=())
            if len(verbs) > 1:
                for at in range(len(verbs)):
                    yield replace(step, verbs=verbs[:at] + verbs[at + 1 :])
            for at, verb in enumerate(verbs):
                for one in _smaller_verbs(verb):
                    yield replace(step, verbs=(*verbs[:at], one, *verbs[at + 1 :]))
        case Foreign(_, verb):
            for one in _smaller_verbs(verb):
                yield replace(step, verb=one)
        case _:
            return


def _smaller_verbs(verb: Verb) -> Iterator[Verb]:
    rows = getattr(verb, "rows", None)
    if isinstance(rows, Rows) and len(rows.values) > 1:
        for at in range(len(rows.values)):
            fewer = rows.values[:at] + rows.values[at + 1 :]
            yield replace(verb, rows=replace(rows, values=fewer))  # type: ignore[call-arg]
    if isinstance(verb, Create):
        for at in range(1, len(verb.cols)):
            yield replace(verb, cols=verb.cols[:at] + verb.cols[at + 1 :])
        if verb.partition:
            yield replace(verb, partition=())
        for at in range(len(verb.properties)):
            yield replace(verb, properties=verb.properties[:at] + verb.properties[at + 1 :])
    if isinstance(verb, Append | Upsert) and rows is not None:
        for at in range(1, len(rows.cols)):
            values = tuple(row[:at] + row[at + 1 :] for row in rows.values)
            fewer_cols = rows.cols[:at] + rows.cols[at + 1 :]
            yield replace(verb, rows=Rows(fewer_cols, values))
    if isinstance(verb, Update) and len(verb.sets) > 1:
        for at in range(len(verb.sets)):
            yield replace(verb, sets=verb.sets[:at] + verb.sets[at + 1 :])
