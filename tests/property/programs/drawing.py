"""Draw programs from a seed: each step fits the tables that the steps before it leave."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any
from urllib.parse import quote

from tests.property.programs.conditions import Every, Joined, Not, Set, Test, Where
from tests.property.programs.oracle import (
    Inapplicable,
    State,
    Table,
    World,
    applied,
    fitted,
    holding,
)
from tests.property.programs.steps import (
    NESTED,
    Actor,
    AddColumn,
    Append,
    Ask,
    Branch,
    Changes,
    Clone,
    Col,
    Create,
    Delete,
    Drop,
    DropColumn,
    Foreign,
    Format,
    Merge,
    MergeBranch,
    Optimize,
    Overwrite,
    Past,
    Program,
    RebaseBranch,
    RenameColumn,
    Restore,
    Retype,
    Revert,
    Rollback,
    Rows,
    Step,
    Tag,
    Txn,
    Update,
    Upkeep,
    Upsert,
    Verb,
)
from tests.property.values import DELTA_WIDER, ICEBERG_WIDER, pool

_SCALARS = ("integer", "long", "float", "double", "decimal(6,2)", "decimal(18,4)", "string",
            "binary", "boolean", "date", "timestamp", "timestamp_ntz")  # fmt: skip
_NAMES = ("a", "b", "c", "Price", "x y", "date", "ü", "value", "key", "element", "select", "n",
          "filename", "e", "index", "m", "q", "z")  # fmt: skip
#: The clients beside LakeVilla, and those where there is Spark, too.
EMBEDDED: tuple[Actor, ...] = ("deltalake", "pyiceberg")
SPARK: tuple[Actor, ...] = ("deltalake", "pyiceberg", "spark", "spark")
_HOWS = ("=", "=", "<>", "<", ">=", ">", "<=", "<=>", "in", "not in", "between", "is null",
         "is not null", "like")  # fmt: skip
#: Types on which all clients compare alike.
_PLAIN = ("integer", "long", "string", "date", "boolean")


@dataclass
class Drawing:
    """Draws the steps of one program; ``world`` is what the steps so far leave."""

    random: Random
    actors: tuple[Actor, ...]
    #: Whether rows are marked as deleted in small files, too.
    marks: bool
    world: World = field(default_factory=lambda: World({}, {}))
    pools: dict[str, list[Any]] = field(default_factory=dict)
    #: The names that tables have had.
    used: set[str] = field(default_factory=set)
    ids: int = 0
    #: How many states the program has made.
    made: int = 0

    def steps(self, count: int) -> tuple[Step, ...]:
        steps: list[Step] = [self._first(name) for name in ("t", "u")]
        while len(steps) < count:
            try:
                steps.append(self.step())
            except Inapplicable:
                continue
        return tuple(steps)

    def _first(self, name: str) -> Step:
        create = self.create(name)
        state = applied(self.world.main, create)
        rows = Append(name, self.rows(state[name], self.random.randint(3, 9)))
        return self._done(Txn((create, rows)))

    def step(self) -> Step:
        return self._one(
            (self.transaction, 12),
            (self.aborted, 1),
            (self.foreign, 5),
            (self.contended, 3),
            (self.optimize, 2),
            (self.upkeep, 2),
            (self.back, 2),
            (self.branching, 3),
            (self.past, 2),
            (self.ask, 3),
        )

    # -- steps -----------------------------------------------------------------------------

    def transaction(self) -> Step:
        branches = sorted(self.world.branches)
        branch = self.random.choice(branches) if branches and self._chance(0.4) else None
        state = self.world.at(branch)
        verbs: list[Verb] = []
        for _ in range(self.random.choice((1, 1, 1, 2, 3))):
            verb = self.verb(state)
            state = applied(state, verb)
            verbs.append(verb)
        options = self.options(simple=len(verbs) == 1) if branch is None else ()
        return self._done(Txn(tuple(verbs), branch=branch, options=options))

    def options(self, *, simple: bool) -> tuple[tuple[str, Any], ...]:
        options: dict[str, Any] = {}
        if self._chance(0.2):
            options["isolation"] = self.random.choice(("snapshot", "write-serializable"))
        if self._chance(0.15):
            options["validation"] = "rules"
        if self._chance(0.2):
            options["defer"] = True
        if self._chance(0.2):
            options["features"] = self.random.choice(("R", "NONE") if simple else ("R|I|CT",))
        if self._chance(0.1):
            options["durability"] = "every_op"
        if self._chance(0.1):
            options["wait"] = "decided"
        return tuple(options.items())

    def aborted(self) -> Step:
        verbs = (self.verb(self.world.main),)
        applied(self.world.main, verbs[0])
        return Txn(verbs, commits=False)

    def foreign(self) -> Step:
        return self._done(self._foreign(self.world.main))

    def _foreign(self, state: State) -> Foreign:
        name = self._table(state)
        table = state[name]
        able = [actor for actor in self.actors if writes(actor, table)]
        if not able:
            raise Inapplicable("no other client writes this table")
        actor = self.random.choice(able)
        verb = self.foreign_verb(actor, name, table)
        applied(state, verb)
        return Foreign(actor, verb)

    def foreign_verb(self, actor: Actor, name: str, table: Table) -> Verb:
        kinds: list[Callable[[], Verb]] = [lambda: self.append(name, table)] * 2
        kinds += [lambda: Delete(name, self.plain_where(table))] * 2
        if actor != "spark":
            kinds += [lambda: Overwrite(name, self.rows(table, 3))]
        if actor != "pyiceberg":
            kinds += [lambda: self.update(name, table, plain=True)] * 2
        kinds += [lambda: self.upsert(name, table)]
        kinds += [lambda: self.add_column(name, table)]
        if actor == "pyiceberg" or (actor == "spark" and table.format == "iceberg"):
            kinds += [lambda: self.drop_column(name, table), lambda: self.rename(name, table)]
        return self.random.choice(kinds)()

    def contended(self) -> Step:
        """Draw a transaction beside which another client commits."""
        state = self.world.main
        if self._chance(0.5):
            beside: Foreign | Txn = self._foreign(state)
        else:
            beside = Txn((self.change(state),))
        name = beside.verb.table if isinstance(beside, Foreign) else beside.verbs[0].table
        verbs = []
        for _ in range(self.random.choice((1, 1, 2))):
            own = {name: state[name]} if self._chance(0.7) else state
            verbs.append(self.change(own))
        return self._done(Txn(tuple(verbs), beside=beside, options=self.options(simple=False)))

    def optimize(self) -> Step:
        name = self._table(self.world.main)
        table = self.world.main[name]
        able: list[Actor] = ["lakevilla", "lakevilla"]
        if "deltalake" in self.actors and writes("deltalake", table):
            able.append("deltalake")
        sortable = [
            c.name for c in table.cols if c.type in _PLAIN and c.name not in table.partition
        ]
        z_order = tuple(self.random.sample(sortable, min(len(sortable), 2)))
        return Optimize(name, self.random.choice(able), z_order if self._chance(0.4) else ())

    def upkeep(self) -> Step:
        verb = self.random.choice(("gc", "recover", "reconnect", "maintain", "vacuum"))
        return Upkeep(verb, self._table(self.world.main) if verb == "vacuum" else "")

    def back(self) -> Step:
        if not self.made:
            raise Inapplicable("nothing to go back to")
        back = self.random.randint(1, min(self.made, 4))
        return self._one(
            (lambda: Rollback(back), 1),
            (lambda: Restore(self._table(self.world.main), back), 1),
            (lambda: Revert(back), 3),
        )

    def branching(self) -> Step:
        branches = sorted(self.world.branches)
        if not branches or (self._chance(0.2) and len(branches) < 2):
            name = next(n for n in ("night", "day", "lab") if n not in branches)
            made = {**self.world.branches, name: (self.world.main, self.world.main)}
            self.world = World(self.world.main, made)
            return Branch(name)
        name = self.random.choice(branches)
        if self._chance(0.2):
            return RebaseBranch(name)
        deletes = self._chance(0.5)
        if deletes:
            kept = {n: s for n, s in self.world.branches.items() if n != name}
            self.world = World(self.world.main, kept)
        return MergeBranch(name, deletes)

    def past(self) -> Step:
        if not self.made:
            raise Inapplicable("there is no past")
        back = self.random.randint(1, self.made)
        name = self._table(self.world.main)
        changed = replace(self.change({name: self.world.main[name]}), table=f"copies/{name}")
        return self._one(
            (lambda: Past(back), 2),
            (lambda: Changes(back, self._chance(0.5)), 3),
            (lambda: Tag(self.random.choice(("monday", "tuesday"))), 2),
            (lambda: Clone(name, changed, self._chance(0.3)), 1),
        )

    def ask(self) -> Step:
        name = self._table(self.world.main)
        return Ask(name, self.where(self.world.main[name]))

    def _done(self, step: Txn | Foreign) -> Step:
        branch = step.branch if isinstance(step, Txn) else None
        state = self.world.at(branch)
        if isinstance(step, Foreign):
            state = applied(state, step.verb)
        else:
            if isinstance(step.beside, Foreign):
                state = applied(state, step.beside.verb)
            elif step.beside is not None:
                for verb in step.beside.verbs:
                    state = applied(state, verb)
            for verb in step.verbs:
                state = applied(state, verb)
        self.world = self.world.changed(branch, state)
        self.made += branch is None
        return step

    # -- verbs -----------------------------------------------------------------------------

    def verb(self, state: State) -> Verb:
        if not state or (len(state) < 3 and self._chance(0.08)):
            free = [name for name in ("t", "u", "v", "w", "x", "y") if name not in self.used]
            if not free:
                raise Inapplicable("all names are used, also by tables that were dropped")
            return self.create(free[0])
        name = self._table(state)
        table = state[name]
        return self._one(
            (lambda: self.change({name: table}), 12),
            (lambda: self.add_column(name, table), 1),
            (lambda: self.drop_column(name, table), 1),
            (lambda: self.rename(name, table), 1),
            (lambda: self.retype(name, table), 1),
            (lambda: self.create(name, table), 0.5),
            (lambda: Delete(name, Every()), 0.4),
            (lambda: Drop(name), 0.3 if len(state) > 1 else 0),
        )

    def change(self, state: State) -> Verb:
        """Draw a change of rows."""
        name = self._table(state)
        table = state[name]
        return self._one(
            (lambda: self.append(name, table), 3),
            (lambda: self.append(name, table, merges=True), 0.6),
            (lambda: self.update(name, table), 4),
            (lambda: Delete(name, self.where(table)), 3),
            (lambda: self.upsert(name, table), 3),
            (lambda: self.merge(name, table), 3),
            (lambda: self.overwrite(name, table), 2),
        )

    def create(self, name: str, old: Table | None = None) -> Create:
        random = self.random
        self.used.add(name)
        format: Format = old.format if old else random.choice(("delta", "iceberg"))
        count = random.randint(2, 5)
        names = random.sample(_NAMES, count)
        types = [random.choice((*_SCALARS, *_SCALARS, *NESTED)) for _ in names]
        cols = (Col("id", "long"), *map(Col, names, types))
        able = [c.name for c in cols[1:] if c.type in ("integer", "long", "string", "date",
                                                      "boolean", "decimal(6,2)")]  # fmt: skip
        partition: tuple[str, ...] = ()
        if able and self._chance(0.35):
            partition = (random.choice(able),)
            if format == "iceberg" and self._chance(0.6):
                partition = (self._transform(cols, partition[0]),)
        properties = old.properties if old else self.properties(format, cols)
        return Create(name, cols, format, partition, properties, or_replace=old is not None)

    def _transform(self, cols: tuple[Col, ...], name: str) -> str:
        type_ = next(col.type for col in cols if col.name == name)
        quoted = name if name.isidentifier() else f'"{name}"'
        if type_ == "date":
            return f"{self.random.choice(('year', 'month', 'day'))}({quoted})"
        if type_ == "boolean":
            return name
        return self.random.choice((f"bucket(3, {quoted})", f"truncate(2, {quoted})"))

    def properties(self, format: str, cols: tuple[Col, ...]) -> tuple[tuple[str, str], ...]:
        found: dict[str, str] = {}
        if format == "iceberg":
            if self._chance(0.4):
                found["format-version"] = "3"
            if self._chance(0.8 if self.marks else 0.3):
                found |= {f"write.{v}.mode": "merge-on-read" for v in ("delete", "update", "merge")}
            return tuple(found.items())
        odd = any(set(col.name) & set(" ,;{}()\n\t=") for col in cols)
        if odd or self._chance(0.35):
            found["delta.columnMapping.mode"] = self.random.choice(("name", "id"))
        for name in ("enableDeletionVectors", "enableTypeWidening", "enableRowTracking",
                     "enableChangeDataFeed"):  # fmt: skip
            if self._chance(0.7 if self.marks and "Vectors" in name else 0.2):
                found[f"delta.{name}"] = "true"
        if self._chance(0.3):
            found["delta.checkpointInterval"] = self.random.choice(("2", "3"))
        return tuple(found.items())

    def append(self, name: str, table: Table, *, merges: bool = False) -> Append:
        rows = self.rows(table, self.random.choice((1, 2, 2, 5, 12)), some=self._chance(0.2))
        if merges:
            new = self._new_column(table)
            cols = (*rows.cols, new)
            values = tuple((*row, self.value(new)) for row in rows.values)
            return Append(name, Rows(cols, values), merges=True)
        return Append(name, rows)

    def update(self, name: str, table: Table, *, plain: bool = False) -> Update:
        cols = [c for c in table.cols if c.name != "id" and c.type not in NESTED]
        if plain:
            cols = [c for c in cols if c.type in _PLAIN]
        if not cols:
            raise Inapplicable("nothing to set")
        chosen = self.random.sample(cols, min(len(cols), self.random.choice((1, 1, 2))))
        where = self.plain_where(table) if plain else self.where(table)
        return Update(name, tuple(self._set(table, col) for col in chosen), where)

    def _set(self, table: Table, col: Col) -> Set:
        texts = {
            "integer": ("{c} + 1", "-{c}"),
            "long": ("{c} + 1", "{c} * 2", "-{c}"),
            "float": ("-{c}",),
            "double": ("-{c}", "{c} * 2"),
            "string": ("{c} || 'x'", "substring({c}, 1, 2)", "coalesce({c}, 'none')"),
            "boolean": ("not {c}",),
            "decimal(6,2)": ("-{c}",),
            "decimal(18,4)": ("-{c}",),
        }
        others = [c.name for c in table.cols if c.type == col.type]
        how = self.random.random()
        if how < 0.4 or (how < 0.8 and col.type not in texts):
            return Set(col.name, col.type, "{v}", value=self.value(col))
        if how < 0.8:
            return Set(col.name, col.type, self.random.choice(texts[col.type]), other=col.name)
        return Set(col.name, col.type, "{c}", other=self.random.choice(others))

    def upsert(self, name: str, table: Table) -> Upsert:
        return Upsert(name, self.keyed(table), self._key(table))

    def _key(self, table: Table) -> str:
        if all(col.name != "id" for col in table.cols):
            raise Inapplicable("the table has no key")
        return "id"

    def keyed(self, table: Table, *, some: bool = False) -> Rows:
        """Draw rows of distinct keys, some of which the table has."""
        self._key(table)
        known = [key for key in table.rows.column("id").to_pylist() if key is not None]
        keys = set(self.random.sample(known, min(len(known), self.random.randint(0, 3))))
        rows = self.rows(table, self.random.randint(1, 3), some=some)
        at = [col.name for col in rows.cols].index("id")
        made = list(rows.values)
        for key in sorted(keys):
            (row,) = self.rows(table, 1).values
            values = dict(zip((c.name for c in table.cols), row, strict=True))
            made.append(tuple(key if c.name == "id" else values[c.name] for c in rows.cols))
        distinct = {row[at]: row for row in made if row[at] is not None}
        return Rows(rows.cols, tuple(distinct.values()))

    def merge(self, name: str, table: Table) -> Merge:
        rows = self.keyed(table)
        able = [c.name for c in rows.cols if c.name != "id"]
        updates = tuple(self.random.sample(able, self.random.randint(0, len(able))))
        deletes = self.where(table) if self._chance(0.4) else None
        others = self.where(table) if self._chance(0.2) else None
        inserts = self._chance(0.7) or not (updates or deletes or others)
        return Merge(name, rows, self._key(table), deletes, updates, inserts, others)

    def overwrite(self, name: str, table: Table) -> Overwrite:
        rows = self.rows(table, self.random.randint(1, 5))
        how = self.random.random()
        plain = all(name in {c.name for c in table.cols} for name in table.partition)
        if how < 0.3 and table.partition and plain:
            return Overwrite(name, rows, "dynamic")
        if how < 0.5:
            return Overwrite(name, rows)
        where = self.where(table)
        fits = holding(fitted(table, rows), where).to_pylist()
        kept = tuple(row for row, yes in zip(rows.values, fits, strict=True) if yes)
        return Overwrite(name, Rows(rows.cols, kept), where)

    def _new_column(self, table: Table) -> Col:
        known = {col.name.lower() for col in table.cols}
        free = [name for name in _NAMES if name.lower() not in known and " " not in name]
        if not free or len(table.cols) > 9:
            raise Inapplicable("enough columns")
        return Col(self.random.choice(free), self.random.choice((*_SCALARS, *NESTED)))

    def add_column(self, name: str, table: Table) -> AddColumn:
        return AddColumn(name, self._new_column(table))

    def drop_column(self, name: str, table: Table) -> DropColumn:
        self._has_ids(table)
        partition = " ".join(table.partition)
        able = [c.name for c in table.cols if c.name != "id" and c.name not in partition]
        if not able:
            raise Inapplicable("no column to drop")
        return DropColumn(name, self.random.choice(able))

    def rename(self, name: str, table: Table) -> RenameColumn:
        self._has_ids(table)
        able = [c.name for c in table.cols if c.name != "id"]
        free = self._new_column(table).name
        if not able:
            raise Inapplicable("no column to rename")
        column = self.random.choice(able)
        if any(column in part and column != part for part in table.partition):
            raise Inapplicable("a transform names it")
        return RenameColumn(name, column, free)

    def _has_ids(self, table: Table) -> None:
        if table.format == "delta" and "delta.columnMapping.mode" not in dict(table.properties):
            raise Inapplicable("the table has no column mapping")

    def retype(self, name: str, table: Table) -> Retype:
        wider = ICEBERG_WIDER
        if table.format == "delta":
            if "delta.enableTypeWidening" not in dict(table.properties):
                raise Inapplicable("the table's columns keep their types")
            wider = DELTA_WIDER
        partition = " ".join(table.partition)
        able = [c for c in table.cols if c.type in wider and c.name not in partition]
        if not able:
            raise Inapplicable("no column to widen")
        col = self.random.choice(able)
        types = [t for t in wider[col.type] if t in (*_SCALARS, "decimal(20,2)")]
        if not types:
            raise Inapplicable("no wider type")
        return Retype(name, col.name, self.random.choice(types))

    # -- conditions and values -------------------------------------------------------------

    def where(self, table: Table) -> Where:
        draw = self.random.random()
        if draw < 0.05:
            return Every()
        if draw < 0.65:
            return self.test(table, list(table.cols))
        if draw < 0.75:
            return Not(self.where(table))
        return Joined(self.random.choice(("and", "or")), self.where(table), self.where(table))

    def plain_where(self, table: Table) -> Where:
        """Draw a condition that all clients understand alike."""
        cols = [c for c in table.cols if c.type in _PLAIN]
        test = self.test(table, cols, ("=", "<", ">=", "in", "is null"))
        if self._chance(0.3):
            other = self.test(table, cols, ("=", "<", ">=", "in", "is null"))
            return Joined(self.random.choice(("and", "or")), test, other)
        return test

    def test(self, table: Table, cols: list[Col], hows: tuple[str, ...] = ()) -> Test:
        random = self.random
        if not cols:
            raise Inapplicable("no column to compare")
        col = random.choice([c for c in cols if c.name == "id"] * 2 + cols)
        if col.type in NESTED:
            return Test(col.name, col.type, random.choice(("is null", "is not null")))
        how = random.choice(hows or _HOWS)
        if how == "like" and col.type != "string":
            how = "="
        if col.type == "boolean" and how in ("<", ">="):
            how = "="
        if how in ("is null", "is not null"):
            return Test(col.name, col.type, how)
        count = {"in": 3, "not in": 2, "between": 2}.get(how, 1)
        values = tuple(self.constant(table, col) for _ in range(count))
        if how == "like":
            text = values[0].replace("%", "").replace("_", "").replace("\\", "")
            values = (text[: random.randint(0, 3)] + "%",)
        return Test(col.name, col.type, how, values)

    def constant(self, table: Table, col: Col) -> Any:
        """Draw a value that the table may have."""
        if col.name == "id":
            return self.random.randint(0, max(1, self.ids))
        value = None
        while value is None:
            value = self.value(col)
        return value

    def rows(self, table: Table, count: int, *, some: bool = False) -> Rows:
        cols = table.cols
        if some and len(cols) > 2:
            kept = self.random.sample(cols[1:], self.random.randint(1, len(cols) - 1))
            cols = tuple(c for c in cols if c.name == "id" or c in kept)
        return Rows(cols, tuple(tuple(self._cell(col) for col in cols) for _ in range(count)))

    def _cell(self, col: Col) -> Any:
        if col.name != "id":
            return self.value(col)
        self.ids += 1
        return self.ids

    def value(self, col: Col) -> Any:
        random = self.random
        if self._chance(0.15):
            return None
        if col.type in NESTED:
            return self._nested(col.type)
        if col.type not in self.pools:
            # A value may be a directory's name, whose length is limited.
            drawn = pool(col.type, random, partition=False)
            self.pools[col.type] = [value for value in drawn if len(quote(str(value))) < 180]
        return random.choice(self.pools[col.type])

    def _nested(self, type_: str) -> Any:
        choices: dict[str, tuple[Any, ...]] = {
            "list": ((), (1, 2), (None,), (3, None)),
            "struct": ({"a": 1, "b": "x"}, {"a": None, "b": ""}, {"a": 2, "b": None}),
            "map": ((), (("k", 1),), (("k", None), ("", 2))),
            "deep": ((), ({"x": -0.0, "y": ["a", None]},), (None, {"x": None, "y": []})),
        }
        value = self.random.choice(choices[type_])
        return list(value) if isinstance(value, tuple) else value

    # -- choices ---------------------------------------------------------------------------

    def _table(self, state: State) -> str:
        if not state:
            raise Inapplicable("there is no table")
        return self.random.choice(sorted(state))

    def _chance(self, share: float) -> bool:
        return self.random.random() < share

    def _one(self, *choices: tuple[Callable[[], Any], float]) -> Any:
        makes, weights = zip(*choices, strict=True)
        (made,) = self.random.choices(makes, weights)
        return made()


def writes(actor: Actor, table: Table) -> bool:
    """Return whether another client writes a table with such features."""
    properties = dict(table.properties)
    if actor == "deltalake":
        plain = not any(name.startswith("delta.") and "Interval" not in name for name in properties)
        return table.format == "delta" and plain
    if actor == "pyiceberg":
        # It writes a NULL list of structs as an empty list (iceberg-python 3833).
        loses = any(col.type == "deep" for col in table.cols)
        return table.format == "iceberg" and "format-version" not in properties and not loses
    return actor == "spark"


def draw(seed: int, actors: tuple[Actor, ...] = EMBEDDED, steps: int = 14) -> Program:
    random = Random(f"program {seed}")
    marks = random.random() < 0.4
    settings: dict[str, Any] = {}
    if random.random() < 0.2:
        settings["in_memory_file_limit_bytes"] = 0
    if random.random() < 0.2:
        settings["row_check_limit_bytes"] = 0
    if random.random() < 0.1:
        settings["cache_bytes"] = 0
    drawn = Drawing(random, actors, marks).steps(steps)
    return Program(seed, drawn, marks, tuple(settings.items()))
