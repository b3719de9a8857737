"""A table and its history as data: drawn from a seed, made smaller step by step.

Columns keep their number through renames and changes of type. Rows are stored by these numbers, so
the rows that a table must hold are known without reading it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any, Literal, TypeAlias

import pyarrow as pa

from lakevilla.sql.expressions.types import arrow_type
from tests.property.values import (
    BITS,
    DELTA_WIDER,
    EXACT,
    ICEBERG_WIDER,
    decimal_parts,
    pool,
    widened,
)

Format: TypeAlias = Literal["delta", "iceberg"]
Row = dict[int, Any]

#: The columns that every table has: a key that identifies rows, and a column to write to.
KEY, MARK = 1, 2

_SCALARS = ("integer", "long", "float", "double", "decimal(6,2)", "decimal(18,4)", "string",
            "binary", "boolean", "date", "timestamp", "timestamp_ntz")  # fmt: skip
_TYPES = {"delta": (*_SCALARS, "byte", "short", "decimal(38,10)"), "iceberg": _SCALARS}
#: Types whose order has traps: timestamps that adding months reorders, NaN and zeros.
_POINTED = ("timestamp", "timestamp_ntz", "double", "float", "double")
#: The widest truncation.
_WIDEST = 10
_NAMES = ("a", "b", "c", "Price", "x y", "date", "filename", "file_row_number", "ü", 'q"q', "x.y",
          "value", "key", "element", "e", "select", "file_index", "list")  # fmt: skip


@dataclass(frozen=True)
class Col:
    """A column, or a part of one: a ``struct`` has fields, an ``array`` one part, a ``map`` two."""

    id: int
    name: str
    type: str
    fields: tuple[Col, ...] = ()
    #: The name in Delta's files.
    physical: str = ""

    def arrow(self, *, physical: bool = False, ids: bool = False) -> pa.Field:
        name = self.physical if physical else self.name
        metadata = {"PARQUET:field_id": str(self.id)} if ids else None
        return pa.field(name, self._kind(physical, ids), metadata=metadata)

    def _kind(self, physical: bool, ids: bool) -> pa.DataType:
        parts = [part.arrow(physical=physical, ids=ids) for part in self.fields]
        if self.type == "struct":
            return pa.struct(parts)
        if self.type == "array":
            return pa.list_(parts[0].with_name("element"))
        if self.type == "map":
            return pa.map_(parts[0].with_name("key").with_nullable(False), parts[1])
        return arrow_type(self.type)

    def value(self, raw: Any, *, physical: bool = False) -> Any:
        """Return a row's value under the present names of its fields."""
        if raw is None or not self.fields:
            return raw
        if self.type == "struct":
            return {
                (f.physical if physical else f.name): f.value(raw.get(f.id), physical=physical)
                for f in self.fields
            }
        return raw

    def walk(self) -> Iterable[Col]:
        yield self
        for part in self.fields:
            yield from part.walk()


def schema_of(cols: Iterable[Col], *, physical: bool = False, ids: bool = False) -> pa.Schema:
    return pa.schema([col.arrow(physical=physical, ids=ids) for col in cols])


def table_of(cols: Iterable[Col], rows: Iterable[Row], **how: bool) -> pa.Table:
    """Return the rows as Arrow."""
    cols = list(cols)
    named = how.get("physical", False)
    data = [
        {
            (c.physical if named else c.name): c.value(row.get(c.id), physical=named)
            for c in cols
        }
        for row in rows
    ]  # fmt: skip
    return pa.Table.from_pylist(data, schema=schema_of(cols, **how))


# -- steps ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Append:
    """Append new rows; the number ``how`` chooses how their file is written."""

    rows: tuple[Row, ...]
    by: Literal["others", "lakevilla"] = "others"
    how: int = 0


@dataclass(frozen=True)
class Widen:
    id: int
    type: str


@dataclass(frozen=True)
class Rename:
    id: int
    name: str


@dataclass(frozen=True)
class Add:
    col: Col


@dataclass(frozen=True)
class Drop:
    id: int


@dataclass(frozen=True)
class Delete:
    """Delete rows by key: another client does so by a deletion vector."""

    keys: tuple[int, ...]
    by: Literal["others", "lakevilla"] = "others"


@dataclass(frozen=True)
class Respec:
    """Partition later Iceberg files by these columns."""

    partition: tuple[tuple[int, str], ...]


Step: TypeAlias = Append | Widen | Rename | Add | Drop | Delete | Respec


@dataclass(frozen=True)
class Plan:
    """A plan; ``partition``: columns with their transforms, all ``identity`` in Delta."""

    format: Format
    cols: tuple[Col, ...]
    partition: tuple[tuple[int, str], ...]
    mapped: bool
    steps: tuple[Step, ...]
    #: The format version; "" leaves it to the writer. LakeVilla can't write Iceberg's version 1.
    version: str = ""
    #: By scalar column, the values of which rows are made.
    pools: dict[int, list[Any]] = field(default_factory=dict, compare=False)

    @property
    def written(self) -> bool:
        """Return whether LakeVilla writes to the table."""
        return self.version != "1"

    def smaller(self) -> Iterable[Plan]:
        """Yield plans with one step less, or with fewer rows in a step."""
        for at in range(len(self.steps)):
            yield replace(self, steps=self.steps[:at] + self.steps[at + 1 :])
        for at, step in enumerate(self.steps):
            if isinstance(step, Append) and len(step.rows) > 1:
                for row in range(len(step.rows)):
                    fewer = replace(step, rows=step.rows[:row] + step.rows[row + 1 :])
                    yield replace(self, steps=(*self.steps[:at], fewer, *self.steps[at + 1 :]))
        if self.partition:
            yield replace(self, partition=())
        for col in self.cols[2:]:
            if all(col.id != id_ for id_, _ in self.partition):
                yield replace(self, cols=tuple(c for c in self.cols if c.id != col.id))


@dataclass
class Model:
    """The rows that a table must hold after the steps so far."""

    cols: list[Col]
    rows: list[Row] = field(default_factory=list)

    def apply(self, step: Step) -> None:
        match step:
            case Append(rows=rows):
                self.rows += [dict(row) for row in rows]
            case Widen(id=id_, type=to):
                self.cols = [_changed(col, id_, type=to) for col in self.cols]
                for row in self.rows:
                    _widen(self.cols, row, id_, to)
            case Rename(id=id_, name=name):
                self.cols = [_changed(col, id_, name=name) for col in self.cols]
            case Add(col=col):
                self.cols = [*self.cols, col]
            case Drop(id=id_):
                self.cols = [col for col in self.cols if col.id != id_]
            case Delete(keys=keys):
                self.rows = [row for row in self.rows if row[KEY] not in keys]
            case Respec():
                pass

    def table(self) -> pa.Table:
        return table_of(self.cols, self.rows)

    def col(self, id_: int) -> Col:
        return next(c for col in self.cols for c in col.walk() if c.id == id_)


def _once(step: Step, before: list[Step], first: tuple[tuple[int, str], ...]) -> Step:
    """Remove columns that an earlier spec has partitioned by: they are void for ever (version 1).

    pyiceberg writes no file under a spec that names such a column again.
    """
    if not isinstance(step, Respec):
        return step
    parted = {id_ for id_, _ in first}
    parted |= {id_ for s in before if isinstance(s, Respec) for id_, _ in s.partition}
    return Respec(tuple((id_, how) for id_, how in step.partition if id_ not in parted))


def _changed(col: Col, id_: int, **what: str) -> Col:
    if col.id == id_:
        return replace(col, **what)
    return replace(col, fields=tuple(_changed(part, id_, **what) for part in col.fields))


def _widen(cols: Iterable[Col], row: Row, id_: int, to: str) -> None:
    for col in cols:
        if col.id == id_ and id_ in row:
            row[id_] = widened(row[id_], to)
        elif col.type == "struct" and isinstance(row.get(col.id), dict):
            row[col.id] = dict(row[col.id])
            _widen(col.fields, row[col.id], id_, to)


# -- drawing ----------------------------------------------------------------------------


def draw(seed: int, format_: Format | None = None) -> Plan:
    """Return the plan of a seed; even seeds are Delta tables."""
    rng = Random(f"table {seed}")
    return _Drawer(rng, format_ or ("iceberg" if seed % 2 else "delta")).plan()


class _Drawer:
    def __init__(self, rng: Random, format_: Format) -> None:
        self.rng, self.format = rng, format_
        self.ids = MARK
        self.names = list(_NAMES)
        rng.shuffle(self.names)
        self.pools: dict[int, list[Any]] = {}
        self.mapped = format_ == "iceberg" or rng.random() < 0.5
        self.keys = 0
        #: Columns of later partition specs.
        self.parted: set[int] = set()
        #: Columns that some spec truncates.
        self.truncated: set[int] = set()

    def plan(self) -> Plan:
        rng, kinds = self.rng, _TYPES[self.format]
        cols = [
            Col(KEY, "id", "long", physical="id"),
            Col(MARK, "mark", "long", physical="mark"),
            self.column(wider=rng.random() < 0.7),
            *(self.column() for _ in range(rng.randint(0, 2))),
            self.fresh(self.names.pop(), rng.choice(_POINTED if rng.random() < 0.7 else kinds)),
        ]
        if rng.random() < 0.5:
            cols.append(self.nested())
        partition = self.partition(cols)
        if self.format == "delta" and rng.random() < 0.6:
            # Iceberg's metrics count NaN, Delta's statistics only omit it.
            cols.append(self.fresh(self.names.pop(), rng.choice(["double", "float"])))
        for id_, how in partition:
            if how == "identity":
                values = pool(self.type_of(cols, id_), rng, partition=True)
                start = rng.randrange(max(1, len(values) - 3))
                self.pools[id_] = values[start : start + 4]
        model = Model(list(cols))
        steps: list[Step] = []
        for _ in range(rng.randint(3, 9)):
            step = self.step(model, partition)
            if step is not None:
                model.apply(step)
                steps.append(step)
        version = "" if self.format == "delta" else rng.choice("12222")
        if version == "1":
            steps = [
                replace(s, by="others") if isinstance(s, Append | Delete) else s for s in steps
            ]
            steps = [_once(step, steps[:at], partition) for at, step in enumerate(steps)]
        return Plan(
            self.format, tuple(cols), partition, self.mapped, tuple(steps), version, self.pools
        )

    @staticmethod
    def type_of(cols: list[Col], id_: int) -> str:
        return next(col.type for col in cols if col.id == id_)

    def fresh(self, name: str, type_: str, fields: tuple[Col, ...] = ()) -> Col:
        self.ids += 1
        physical = f"col-{self.ids}" if self.mapped and self.format == "delta" else name
        if not fields:
            self.pools[self.ids] = pool(type_, self.rng)
        return Col(self.ids, name, type_, fields, physical)

    def column(self, *, wider: bool = False) -> Col:
        """Return a column; ``wider``: of a type that can be widened."""
        known = tuple(DELTA_WIDER if self.format == "delta" else ICEBERG_WIDER)
        return self.fresh(
            self.names.pop(), self.rng.choice(known if wider else _TYPES[self.format])
        )

    def nested(self) -> Col:
        rng = self.rng
        name, kinds = self.names.pop(), _TYPES[self.format]
        kind = rng.choice(["struct", "struct", "struct", "array", "map"])
        if kind == "struct":
            inner = [self.fresh(n, rng.choice(kinds)) for n in ("n", "Text", "v w")]
            if rng.random() < 0.4:
                inner.append(self.fresh("deep", "struct", (self.fresh("d", rng.choice(kinds)),)))
            return self.fresh(name, "struct", tuple(inner))
        if kind == "array":
            return self.fresh(name, "array", (self.fresh("element", rng.choice(kinds)),))
        parts = (self.fresh("key", "string"), self.fresh("value", rng.choice(kinds)))
        return self.fresh(name, "map", parts)

    def partition(self, cols: list[Col]) -> tuple[tuple[int, str], ...]:
        rng = self.rng
        if rng.random() < 0.35:
            return ()
        able = [col for col in cols[2:] if not col.fields]
        if rng.random() < 0.5:  # a partition column has no statistics that could be used
            able = [col for col in able if col.type not in _POINTED] or able
        if self.format == "delta":
            able = [col for col in able if col.type != "binary"]
            chosen = rng.sample(able, min(len(able), rng.choice([1, 1, 2])))
            return tuple((col.id, "identity") for col in chosen)
        chosen = rng.sample(able, min(len(able), rng.choice([1, 1, 2])))
        able_by = {col.id: transforms(col.type, self.pools[col.id]) for col in chosen}
        made = tuple((id_, rng.choice(how)) for id_, how in able_by.items())
        self.truncated |= {id_ for id_, how in made if how.startswith("truncate")}
        return made

    def step(self, model: Model, partition: tuple[tuple[int, str], ...]) -> Step | None:
        rng = self.rng
        if not model.rows or rng.random() < 0.5:
            by: Any = "lakevilla" if rng.random() < 0.2 else "others"
            return Append(tuple(self.rows(model)), by, rng.randrange(1 << 16))
        kind = rng.choice(["widen", "widen", "widen", "rename", "add", "drop", "delete", "respec"])
        if kind == "widen":
            return self.widen(model)
        if kind == "delete":
            keys = [row[KEY] for row in model.rows]
            by = "others" if rng.random() < 0.7 else "lakevilla"
            return Delete(tuple(rng.sample(keys, rng.randint(1, min(3, len(keys))))), by)
        if kind == "add":
            fresh = self.nested() if rng.random() < 0.2 else self.column()
            return Add(fresh)
        if kind == "respec":
            if self.format == "delta" or rng.random() < 0.5:
                return None
            named = self.partition(model.cols)
            self.parted |= {id_ for id_, _ in named}
            return Respec(tuple((id_, how) for id_, how in named if how != "void"))
        if not self.mapped:
            return None
        free = [col for col in model.cols[2:] if col.id not in dict(partition)]
        if kind == "drop":
            free = [col for col in free if col.id not in self.parted]
            if len(free) < 2:
                return None
            col = rng.choice(free)
            self.names.append(col.name)  # the next column gets this name
            return Drop(col.id)
        # Any column at any depth, except parts of lists and maps, which have no names.
        named = [c for col in model.cols[2:] for c in _named(col)]
        return Rename(rng.choice(named).id, self.names.pop()) if named and self.names else None

    def widen(self, model: Model) -> Step | None:
        wider = DELTA_WIDER if self.format == "delta" else ICEBERG_WIDER
        able = [c for col in model.cols[2:] for c in _named(col) if c.type in wider]
        if not able:
            return None
        col = self.rng.choice(able)
        to = self.rng.choice(wider[col.type])
        values = [widened(value, to) for value in self.pools[col.id]]
        new = [v for v in pool(to, self.rng)[:3] if v not in values]
        if col.id in self.truncated:
            new = [v for v in new if may_be_truncated(v, to)]
        self.pools[col.id] = values + new
        return Widen(col.id, to)

    def rows(self, model: Model) -> Iterable[Row]:
        near = {id_: self.window(values) for id_, values in self.pools.items()}
        for _ in range(self.rng.choice([1, 2, 2, 3, 5])):
            self.keys += 1
            row: Row = {KEY: self.keys, MARK: self.rng.choice([None, 0, 1])}
            for col in model.cols[2:]:
                row[col.id] = value_for(col, near, self.rng)
            yield row

    def window(self, values: list[Any]) -> list[Any]:
        """Return values close to each other: the bounds of files are then close to each
        other, too.
        """
        size = self.rng.choice([1, 2, 2, 3, len(values)])
        nan = [v for v in values if v != v]
        if nan and len(values) > 1 and self.rng.random() < 0.7:  # next to a number that is a bound
            return [self.rng.choice(values[:-1]), *nan]
        if self.rng.random() < 0.3:
            return self.rng.sample(values, min(size, len(values)))
        start = self.rng.randint(0, max(0, len(values) - size))
        return values[start : start + size]


def _by_others(step: Step) -> Step:
    return replace(step, by="others") if isinstance(step, Append | Delete) else step


def _named(col: Col) -> Iterable[Col]:
    yield col
    if col.type == "struct":
        for part in col.fields:
            yield from _named(part)


def value_for(col: Col, pools: dict[int, list[Any]], rng: Random) -> Any:
    """Return a value of the column, sometimes NULL."""
    if rng.random() < 0.12:
        return None
    if col.type == "struct":
        return {part.id: value_for(part, pools, rng) for part in col.fields}
    if col.type == "array":
        return [value_for(col.fields[0], pools, rng) for _ in range(rng.randint(0, 3))]
    if col.type == "map":
        able = pools[col.fields[0].id]
        keys = rng.sample(able, min(len(able), rng.randint(0, 2)))
        return [(key, value_for(col.fields[1], pools, rng)) for key in keys]
    return rng.choice(pools[col.id])


def may_be_truncated(value: Any, type_: str) -> bool:
    """Return whether a number still fits its type when it is cut down to a multiple of a width.

    Other clients can't write numbers close to the type's lowest value for which this is false:
    pyiceberg wraps an integer around and loses the row, and raises where it sums up the partitions
    of a decimal (apache/iceberg#17027). LakeVilla refuses such numbers, which has tests of its own
    (``tests/unit/engines/test_partitions.py``).
    """
    if type_.startswith("decimal"):
        precision, scale = decimal_parts(type_)
        value, lowest = int(value.scaleb(scale, EXACT)), 1 - 10**precision
    elif type_ in BITS:
        lowest = -(2 ** (BITS[type_] - 1))
    else:
        return True
    return bool(value - value % _WIDEST >= lowest)


def transforms(type_: str, values: Sequence[Any]) -> list[str]:
    """Return Iceberg's transforms for a column; no truncation whose values would not
    fit the type.
    """
    found = ["identity", "identity", "void"]
    if type_ in ("date", "timestamp", "timestamp_ntz"):
        found += ["year", "month", "day"] + ([] if type_ == "date" else ["hour"])
    numeric = type_ in ("integer", "long") or type_.startswith("decimal")
    narrow = numeric and all(abs(value) < 9000 for value in values)
    if type_ in ("string", "binary") or narrow:
        found += ["truncate[2]", f"truncate[{_WIDEST}]"]
    if type_ not in ("boolean", "float", "double"):
        found += ["bucket[3]"]
    else:
        found = [how for how in found if how != "identity" or type_ == "boolean"] or ["void"]
    return found
