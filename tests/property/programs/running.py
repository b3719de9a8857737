"""Run a program: perform each step, and compare what every reader sees with the oracle."""

from __future__ import annotations

import pprint
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from random import Random
from typing import TYPE_CHECKING, Any

import pyarrow as pa

import lakevilla as lv
from lakevilla.engines.duckdb.writing import rewrite
from lakevilla.engines.duckdb.writing.rewrite import Marks
from tests.property.programs.actors import Given, Place, frame, optimized, perform
from tests.property.programs.conditions import Texts, columns_of
from tests.property.programs.oracle import (
    Inapplicable,
    State,
    Table,
    Untold,
    World,
    applied,
    bag,
    carried_over,
    holding,
    shapes,
    unsigned,
)
from tests.property.programs.readers import readers
from tests.property.programs.steps import (
    Ask,
    Branch,
    Changes,
    Clone,
    Foreign,
    MergeBranch,
    Optimize,
    Past,
    Program,
    RebaseBranch,
    Restore,
    Revert,
    Rollback,
    Step,
    Tag,
    Txn,
    Upkeep,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

FEATURES = {
    "R": lv.Feature.R,
    "R|I|CT": lv.Feature.R | lv.Feature.I | lv.Feature.CT,
    "NONE": lv.Feature(0),
}
#: What a verb may refuse, before it has changed anything.
REFUSED = (lv.InvalidOperation, lv.UnsupportedTableFeature)
Tally = Counter[str]


class Mismatch(AssertionError):
    """Two readers differ; ``kind`` names what was compared."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


class Failure(AssertionError):
    """A failed program, and the step that it failed at."""

    def __init__(self, program: Program, at: int, cause: BaseException) -> None:
        self.program, self.at, self.cause = program, at, cause
        super().__init__(f"seed {program.seed}, step {at}: {type(cause).__name__}: {cause}")

    @property
    def kind(self) -> str:
        return self.cause.kind if isinstance(self.cause, Mismatch) else type(self.cause).__name__


class Run:
    """One program over a lake in a directory of its own."""

    def __init__(
        self, program: Program, root: Path, tally: Tally, spark: SparkSession | None = None
    ) -> None:
        self.program, self.root, self.tally, self.spark = program, root, tally, spark
        self.place = Place(root, spark)
        self.world = World({}, {})
        #: The versions of the lake whose tables the program knows.
        self.past: list[tuple[int, State]] = []
        self.settings = lv.Settings(durable_files=False, **dict(program.settings))
        self.lake = self.connect()
        self.random = Random(f"run {program.seed}")
        self.log: list[str] = []
        self.at = 0
        self.tags: dict[str, State] = {}
        #: Whether a commit by a log entry may have no place in HEAD's order yet.
        self.beside_head = False

    def connect(self) -> lv.Lake:
        if self.spark is not None and self.program.seed % 2:
            return lv.connect(str(self.root), spark=self.spark, settings=self.settings)  # type: ignore[return-value]
        return lv.connect(str(self.root), settings=self.settings)

    @property
    def given(self) -> Given:
        if self.spark is not None and self.program.seed % 2:
            return partial(frame, self.spark)
        return lambda rows: rows

    def close(self) -> None:
        self.lake.close()

    @property
    def leaves_pending(self) -> bool:
        """Return whether transactions of this program publish in the background."""
        return any(isinstance(one, Txn) and ("wait", "decided") in one.options
                   for one in self.program.steps)  # fmt: skip

    # -- steps -----------------------------------------------------------------------------

    def all_steps(self) -> None:
        for step in self.program.steps:
            self.step(step)
            self.at += 1
        self.lake.close()
        self.lake = self.connect()
        self.compare(World({}, {}))
        report = self.lake.doctor()
        if not report.ok:
            raise Mismatch("doctor", str(report))

    def step(self, step: Step) -> None:
        before = self.world
        name = type(step).__name__
        if self.beside_head and self.random.random() < 0.5:
            self.lake.absorb()
            self.beside_head = False
        try:
            act: Callable[[Any], None] = getattr(self, f"_{name.lower()}")
            act(step)
        except Inapplicable:
            self.tally["skipped"] += 1
            return
        self.tally["steps"] += 1
        self.compare(before)

    def _txn(self, step: Txn) -> None:
        state = after = self.world.at(step.branch)
        if isinstance(step.beside, Foreign):
            after = applied(state, step.beside.verb)
        elif step.beside is not None:
            for verb in step.beside.verbs:
                after = applied(after, verb)
        both = after
        for verb in step.verbs:  # it has a meaning before and after what is beside it
            state, both = applied(state, verb), applied(both, verb)
        lake = self.lake if step.branch is None else self.lake.on(step.branch)
        txn = lake.transaction(**self._options(step))
        done = self._performed(txn, step, self.given)
        if txn.state == "failed" or not step.commits:
            txn.abort()
            return
        if step.beside is not None:
            self._beside(step.beside)
        after = self.world.at(step.branch)
        for verb in done:
            after = applied(after, verb)
        if self._committed(txn, step):
            self.world = self.world.changed(step.branch, after)

    def _performed(self, txn: lv.Transaction, step: Txn, given: Given) -> list[Any]:
        """Perform verbs, and return those that were not refused."""
        done = []
        state = self.world.at(step.branch)
        deferred = dict(step.options).get("defer")  # then a read raises what a verb would refuse
        for verb in step.verbs:
            try:
                own = applied(state, verb)
            except Inapplicable:
                continue  # a verb before it was refused
            try:
                perform(txn, verb, given)
            except REFUSED as error:
                self._refuses(type(verb).__name__, error)
                if txn.state != "open":
                    return []
            else:
                state = own
                done.append(verb)
            if step.beside is None and not deferred and self.random.random() < 0.3:
                for name, table in state.items():
                    self._same(f"own read of {name}", collected(txn.read(name)), table)
        return done

    def _beside(self, beside: Foreign | Txn) -> None:
        if isinstance(beside, Foreign):
            self._foreign(beside)
            return
        with lv.connect(str(self.root), settings=self.settings) as other:
            txn = other.transaction()
            done = self._performed(txn, replace(beside, beside=beside), lambda rows: rows)
            after = self.world.main
            for verb in done:
                after = applied(after, verb)
            if self._committed(txn, beside):
                self.world = replace(self.world, main=after)

    def _committed(self, txn: lv.Transaction, step: Txn) -> bool:
        try:
            txn.commit()
        except lv.ConflictError as error:
            if step.beside is None:
                raise
            self.tally["conflicts"] += 1
            self._refuses("conflict", error)
            return False
        except lv.ForeignConflict:
            self.tally["reconciled"] += 1
            return True
        except REFUSED as error:
            self._refuses("commit", error)
            return False
        if dict(step.options).get("features") in ("R", "NONE"):
            self.beside_head = True
        self.tally["beside others"] += step.beside is not None
        self.tally["transactions"] += 1
        return True

    def _options(self, step: Txn) -> dict[str, Any]:
        options = dict(step.options)
        if "features" in options:
            options["features"] = FEATURES[options["features"]]
        if options.get("features") == FEATURES["NONE"] and step.beside is not None:
            del options["features"]  # without Feature.I a transaction sees others' commits
        return options

    def _foreign(self, step: Foreign) -> None:
        state = applied(self.world.main, step.verb)
        table = self.world.main[step.verb.table]
        if self.leaves_pending:
            self.lake.recover()
        try:
            if step.by == "spark":
                self.place.by_spark(step.verb, table.format)
            else:
                getattr(self.place, f"by_{step.by}")(step.verb)
        except Exception as error:
            self._refuses(f"{step.by} {type(step.verb).__name__}", error)
            return
        self.tally[f"by {step.by}"] += 1
        self.beside_head = True
        self.world = replace(self.world, main=state)

    def _optimize(self, step: Optimize) -> None:
        table = self._table(step.table)
        for name in step.z_order:
            table.col(name)
        if step.by == "deltalake":
            try:
                optimized(self.place, step)
            except Exception as error:
                self._refuses("deltalake optimize", error)
            return
        self.lake.table(step.table).optimize(z_order_by=step.z_order)

    def _upkeep(self, step: Upkeep) -> None:
        if step.verb == "reconnect":
            self.lake.close()
            self.lake = self.connect()
        elif step.verb == "vacuum":
            self._table(step.table)
            self.lake.table(step.table).vacuum(dry_run=False)
        else:
            report = getattr(self.lake, step.verb)()
            if not report.ok:
                raise Mismatch(step.verb, str(report))

    def _rollback(self, step: Rollback) -> None:
        version, state = self._state(step.back)
        try:
            self.lake.rollback(version)
        except (*REFUSED, lv.VersionNotFound) as error:
            self._refuses("rollback", error)
            return
        self.world = replace(self.world, main=state)

    def _restore(self, step: Restore) -> None:
        version, state = self._state(step.back)
        self._table(step.table)
        if step.table not in state:
            raise Inapplicable("the table was not there")
        name = f"at-{version}-{self.tally['steps']}"
        try:
            self.lake.tag(name, version)
            self.lake.table(step.table).restore(name)
        except (*REFUSED, lv.VersionNotFound) as error:
            self._refuses("restore", error)
            return
        self.world = replace(self.world, main={**self.world.main, step.table: state[step.table]})

    def _revert(self, step: Revert) -> None:
        version, made = self._state(step.back)
        found = [state for number, state in self.past if number == version - 1]
        if not found:
            raise Inapplicable("the state before is not known")
        state = _carried(made, found[0], self.world.main)
        try:
            self.lake.revert(version)
        except (*REFUSED, lv.VersionNotFound, lv.MergeConflict) as error:
            self._refuses("revert", error)
            return
        self.tally["reverted"] += 1
        self.world = replace(self.world, main=state)

    def _branch(self, step: Branch) -> None:
        if step.name in self.world.branches:
            raise Inapplicable("there is such a branch")
        self.lake.branch(step.name, absorb=["*"] if self.world.main else None)
        made = (self.world.main, self.world.main)
        self.world = replace(self.world, branches={**self.world.branches, step.name: made})

    def _mergebranch(self, step: MergeBranch) -> None:
        now = self.world.at(step.name)
        base, _ = self.world.branches[step.name]
        try:
            state: State | None = _carried(base, now, self.world.main)
        except Inapplicable:
            state = None
        try:
            self.lake.merge(step.name, delete=step.deletes)
        except (*REFUSED, lv.MergeConflict) as error:
            self._refuses("merge of a branch", error)
            return
        if state is None:
            raise Untold("definitions of both sides were merged")
        self.tally["branches merged"] += 1
        branches = {k: v for k, v in self.world.branches.items() if k != step.name}
        if not step.deletes:
            branches[step.name] = (now, now)
        self.world = World(state, branches)

    def _rebasebranch(self, step: RebaseBranch) -> None:
        now = self.world.at(step.name)
        base, _ = self.world.branches[step.name]
        state = _carried(base, now, self.world.main)
        try:
            self.lake.rebase(step.name)
        except (*REFUSED, lv.MergeConflict) as error:
            self._refuses("rebase", error)
            return
        self.tally["branches rebased"] += 1
        made = (self.world.main, state)
        self.world = replace(self.world, branches={**self.world.branches, step.name: made})

    def _past(self, step: Past) -> None:
        version, state = self._state(step.back)
        with self.lake.snapshot(version) as snapshot:
            for name, table in state.items():
                self._same(f"past read of {name}", collected(snapshot.read(name)), table)

    def _changes(self, step: Changes) -> None:
        """Apply the changes since a state to its rows: they become the present ones."""
        since, state = self._state(step.back)
        self.lake.absorb()
        self.beside_head = False
        kept = [at for version, at in self.past if version >= since]
        names = [
            name
            for name, table in state.items()
            if all(name in at and at[name].cols == table.cols for at in kept)
            and self.world.main.get(name, table).cols == table.cols
            and name in self.world.main
        ]
        if not names or any(at.keys() != state.keys() for at in kept):
            raise Inapplicable("tables have come, gone, or changed their columns")
        rows = {name: unsigned(bag(state[name].rows)) for name in names}
        for version in self.lake.changes(since, tables=names, net=step.net):
            for name, found in version.tables.items():
                change = collected(found)
                kinds = change.column("_change_type").to_pylist()
                own = change.select([col.name for col in state[name].cols])
                for kind, come in (("insert", True), ("update_postimage", True),
                                   ("delete", False), ("update_preimage", False)):  # fmt: skip
                    some = own.filter(pa.array([one == kind for one in kinds], pa.bool_()))
                    (rows[name].update if come else rows[name].subtract)(unsigned(bag(some)))
        self.tally["changes"] += 1
        for name in names:
            wanted = unsigned(bag(self.world.main[name].rows))
            if {row: n for row, n in rows[name].items() if n} != dict(wanted):
                less, more = wanted - rows[name], rows[name] - wanted
                raise Mismatch(f"changes of {name} since {since}", f"{_few(more)}, {_few(less)}")

    def _tag(self, step: Tag) -> None:
        if step.name not in self.tags:
            self.lake.tag(step.name, absorb=["*"] if self.world.main else None)
            self.tags[step.name] = self.world.main
            return
        with self.lake.on(step.name).snapshot() as snapshot:
            for name, table in self.tags[step.name].items():
                self._same(f"read of {name} at {step.name}", collected(snapshot.read(name)), table)
        self.tally["tags read"] += 1

    def _clone(self, step: Clone) -> None:
        table, place = self._table(step.table), step.verb.table
        changed = applied({place: table}, step.verb)[place]
        self.lake.absorb([step.table])
        self.lake.clone(step.table, place, copy=step.copies)
        self._same(f"read of {place}", collected(self.lake.read(place)), table)
        try:
            self.lake.run(perform, step.verb, self.given)
        except REFUSED as error:
            self._refuses(f"clone {type(step.verb).__name__}", error)
        else:
            self._same(f"read of {place}, changed", collected(self.lake.read(place)), changed)
            if (
                step.copies or table.format == "iceberg"
            ):  # others want Delta's files in its directory
                self.by_others(place, changed)
            self.tally["clones changed"] += 1
        self.lake.drop_table(place, delete_data=True)
        if not step.copies:
            with suppress(lv.RefNotFound):
                self.lake.delete_ref(place)

    def _ask(self, step: Ask) -> None:
        table = self._table(step.table)
        for name in _columns(step):
            table.col(name)
        texts = Texts("language")
        where = texts.where(step.where)
        wanted = table.with_rows(table.rows.filter(holding(table.rows, step.where)))
        try:
            found = collected(self.lake.read(step.table, where=where, params=texts.params))
        except lv.InvalidOperation as error:
            self._refuses("read", error)
            return
        self.tally["asked"] += 1
        self._same(f"read of {step.table} where {where}", found, wanted)

    # -- the past --------------------------------------------------------------------------

    def _state(self, back: int) -> tuple[int, State]:
        if back > len(self.past):
            raise Inapplicable("no such state")
        return self.past[-back]

    def _table(self, name: str) -> Table:
        if name not in self.world.main:
            raise Inapplicable(f"there is no table {name}")
        return self.world.main[name]

    def _refuses(self, what: str, error: BaseException) -> None:
        self.tally[f"refused: {what}"] += 1
        self.log.append(f"{what}: {type(error).__name__}: {' '.join(str(error).split())[:300]}")

    # -- comparison ------------------------------------------------------------------------

    def compare(self, before: World) -> None:
        """Compare the lake, its branches, and the tables that have changed for other readers."""
        with self.lake.snapshot() as snapshot:
            names = set(self.lake)
            if names != set(self.world.main):
                raise Mismatch("tables", f"{names} and not {set(self.world.main)}")
            for name, table in self.world.main.items():
                self._same(f"read of {name}", collected(snapshot.read(name)), table)
            self._note(snapshot.version)
        for branch, (_, state) in self.world.branches.items():
            if state is not before.branches.get(branch, (None, None))[1]:
                with self.lake.on(branch).snapshot() as snapshot:
                    for name, table in state.items():
                        found = collected(snapshot.read(name))
                        self._same(f"read of {name} on {branch}", found, table)
        for name, table in self.world.main.items():
            if table is not before.main.get(name):
                self.by_others(name, table)

    def _note(self, version: int | None) -> None:
        """Note a version whose tables are known: logs may have entries that HEAD lacks."""
        if version is None or self.beside_head:
            return
        if not self.past or self.past[-1][0] < version:
            self.past.append((version, self.world.main))

    def by_others(self, name: str, table: Table) -> None:
        if self.leaves_pending:
            self.lake.recover()
        for reader, read in readers(table):
            try:
                found = read(str(self.root / name))
            except Exception as error:
                raise Mismatch(reader, f"can't read {name}: {error}") from error
            self._same(f"{reader} of {name}", found, table)

    def _same(self, kind: str, found: pa.Table, table: Table) -> None:
        wanted_shapes, found_shapes = shapes(table.rows.schema), shapes(found.schema)
        if found_shapes != wanted_shapes:
            raise Mismatch(kind, f"the columns are {found_shapes}, and not {wanted_shapes}")
        ours, wanted = bag(found), bag(table.rows)
        self.tally["rows compared"] += found.num_rows
        if ours != wanted:
            more, less = ours - wanted, wanted - ours
            raise Mismatch(kind, f"it has {_few(more)}, and not {_few(less)}")


def _few(rows: Counter[Any]) -> str:
    return pprint.pformat(dict(rows.most_common(3)), compact=True)[:600]


def _columns(step: Ask) -> Iterator[str]:
    return columns_of(step.where)


def collected(found: Any) -> pa.Table:
    return found if isinstance(found, pa.Table) else found.toArrow()


def _carried(base: State, changed: State, onto: State) -> State:
    """Return the tables after changes from one state to another; of rows alone."""
    result = dict(onto)
    for name in {*base, *changed}:
        if base.get(name) is changed.get(name):
            continue
        if not (name in base and name in changed and name in onto):
            raise Inapplicable("a table has come or gone")
        if base[name] is onto[name]:
            result[name] = changed[name]
            continue
        result[name] = carried_over(base[name], changed[name], onto[name])
    return result


# -- programs -----------------------------------------------------------------------------


def run(program: Program, tally: Tally, spark: SparkSession | None = None) -> list[str]:
    """Run a program, and return what was refused; raise ``Failure`` where readers differ."""
    with marks(program.marks), _directory(spark) as root:
        one = Run(program, root, tally, spark)
        try:
            one.all_steps()
        except Untold:
            tally["untold"] += 1
            return one.log
        except Exception as error:
            raise Failure(program, one.at, error) from error
        finally:
            one.close()
        tally["programs"] += 1
        return one.log


@contextmanager
def _directory(spark: SparkSession | None) -> Iterator[Path]:
    where = None if not Path("/dev/shm").is_dir() else "/dev/shm"
    if spark is not None:
        warehouse = str(spark.conf.get("spark.sql.catalog.ice.warehouse"))
        where = warehouse.removeprefix("file://")
        Path(where).mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="programs_", dir=where) as root:
        yield Path(root)


@contextmanager
def marks(small: bool) -> Iterator[None]:
    """Let statements mark rows in small files, too."""
    before = rewrite.MARKS
    if small:
        rewrite.MARKS = Marks(0, 1.0, 2000, 0.9)  # type: ignore[misc]
    try:
        yield
    finally:
        rewrite.MARKS = before  # type: ignore[misc]


def shrunk(failure: Failure, spark: SparkSession | None = None, tries: int = 400) -> Failure:
    """Return the same failure by a shorter program."""
    best = failure
    progress = True
    while progress and tries:
        progress = False
        cut = replace(best.program, steps=best.program.steps[: best.at + 1])
        for program in (cut, *best.program.smaller()):
            if program == best.program:
                continue
            tries -= 1
            if not tries:
                break
            try:
                run(program, Counter(), spark)
            except Failure as found:
                if found.kind == best.kind and type(found.cause) is type(best.cause):
                    best, progress = found, True
                    break
    return best


def reported(failure: Failure) -> str:
    """Return a program, and the difference."""
    program = failure.program
    lines = [f"marks: {program.marks}, settings: {dict(program.settings)}"]
    lines += [f"  {pprint.pformat(step, width=150)}" for step in program.steps]
    return "\n".join([*lines, str(failure)])
