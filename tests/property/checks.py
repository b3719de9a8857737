"""Compare the rows that the library finds by a predicate with the rows as they were written.

The rule of errors: where the predicate raises for no row, nothing raises, and exactly the rows for
which it is true are found. Where it raises for some rows, either the statement raises
``InvalidOperation``, or it finds every row for which the predicate is true, and none for which it
is false or NULL. A row that raises may then be found or not, because its file or another part of
the predicate may decide without the part that raises.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Any

import duckdb
import pyarrow as pa

import lakevilla as lv
from lakevilla.engines.duckdb.expressions import to_duckdb
from lakevilla.errors import InvalidOperation
from lakevilla.sql.expressions.bind import bind
from lakevilla.sql.expressions.evaluate import evaluate
from lakevilla.sql.expressions.parse import parse_predicate
from tests.property.built import NAME, Built
from tests.property.plans import KEY, MARK, Append, Delete
from tests.property.predicates import Part, may_fold

try:
    from pyspark.errors import PySparkException
except ModuleNotFoundError:  # where versions of all else are tried (tests/versions.py)

    class PySparkException(Exception):  # type: ignore[no-redef]
        """An error that nothing raises: it stands for PySpark's where PySpark is not installed."""


RAISED = "raised"


class Mismatch(AssertionError):
    """A difference between library and rows; ``kind`` names the check."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind


@dataclass(frozen=True)
class Truth:
    """The value of the predicate for each row, by key: True, False, None or ``RAISED``.

    ``barrier``: as DuckDB computes it over the row alone, in memory.
    """

    evaluated: dict[int, Any]
    barrier: dict[int, Any]
    folds: bool

    @property
    def true(self) -> set[int]:
        return {key for key, value in self.evaluated.items() if value is True}

    @property
    def raising(self) -> set[int]:
        return {key for key, value in self.evaluated.items() if value == RAISED}

    @property
    def may_be_true(self) -> set[int]:
        return self.true | (self.raising if self.folds else set())


class Case:
    """A table, the rows that it must hold, and a database with these rows in memory."""

    def __init__(self, built: Built) -> None:
        self.built = built
        self.rows = built.rows()
        self.values: list[dict[str, Any]] = self.rows.to_pylist()
        self.schema = self.rows.schema
        #: The value that the next update writes.
        self.mark = 100
        self._memory = duckdb.connect(config={"threads": 1})
        self._memory.execute("SET timezone = 'America/New_York'")
        self._memory.register("given", self.rows)
        self._memory.execute("CREATE TABLE memory_rows AS FROM given")

    def close(self) -> None:
        self._memory.close()

    # -- the truth -----------------------------------------------------------------------

    def truth(self, part: Part) -> Truth | None:
        """Return the predicate's value for each row, or None if the language refuses
        the predicate.
        """
        sql, params = part.render()
        try:
            bound = bind(parse_predicate(sql, params), self.schema)
        except InvalidOperation:
            return None
        evaluated: dict[int, Any] = {}
        for row in self.values:
            try:
                evaluated[row["id"]] = evaluate(bound, row)
            except InvalidOperation:
                evaluated[row["id"]] = RAISED
        truth = Truth(evaluated, self._computed(to_duckdb(bound, self.schema)), may_fold(bound))
        for key, value in evaluated.items():
            other = truth.barrier[key]
            if (
                value is not other
                and not (value == other)
                and not (value == RAISED and truth.folds)
            ):
                raise Mismatch("evaluator", f"row {key}: {value}, but the engine: {other}")
        return truth

    def _computed(self, condition: str) -> dict[int, Any]:
        ask = f"SELECT id, {condition} AS found FROM memory_rows"
        try:
            return dict(self._memory.execute(ask).fetchall())
        except duckdb.Error:
            found = {}
            for key in self.rows["id"].to_pylist():
                self._memory.execute(
                    f"CREATE OR REPLACE TEMP TABLE one AS FROM memory_rows WHERE id = {key}"
                )
                try:
                    one = self._memory.execute(f"SELECT {condition} FROM one").fetchall()
                    found[key] = one[0][0]
                except duckdb.Error:
                    found[key] = RAISED
            return found

    # -- reading and writing ----------------------------------------------------------------

    def whole(self) -> None:
        """Check that a read without a predicate returns all rows."""
        with self.built.lake.transaction(read_only=True) as txn:
            found = _collected(txn.read(NAME))
        _same("whole", found, self.rows)

    def reading(self, part: Part, truth: Truth) -> None:
        """Check that ``read(where=w)`` finds the rows."""
        sql, params = part.render()
        with self.built.lake.transaction(read_only=True) as txn:
            ask = lambda: _collected(txn.read(NAME, where=sql, params=params))  # noqa: E731
            rows = self._tried(truth, "read", ask)
            if rows is not None:
                keys = self._agree("read", rows["id"].to_pylist(), truth)
                _same("read", rows, self._of(keys))

    def unpruned(self, part: Part, truth: Truth) -> None:
        """Check the same behind a ``case``, so that neither files nor pages are left out."""
        sql, params = part.render()
        behind = f"case when {sql} then true else false end"
        with self.built.lake.transaction(read_only=True) as txn:
            ask = lambda: _collected(txn.read(NAME, ["id"], behind, params=params))  # noqa: E731
            found = self._tried(truth, "unpruned", ask)
            if found is not None:
                if truth.raising and not truth.folds:
                    raise Mismatch("unpruned", f"rows {truth.raising} raise, but nothing raised")
                self._agree("unpruned", found["id"].to_pylist(), truth)

    def deleting(self, part: Part, truth: Truth) -> None:
        sql, params = part.render()
        txn = self.built.lake.transaction()
        try:
            done = self._tried(truth, "delete", lambda: txn.delete(NAME, sql, params=params))
            if done is None:
                return
            left = _collected(txn.read(NAME))
            keys = set(self.rows["id"].to_pylist()) - set(left["id"].to_pylist())
            self._agree("delete", list(keys), truth)
            _same("delete", left, self._of(set(self.rows["id"].to_pylist()) - keys))
            if done.rows_deleted != len(keys):
                raise Mismatch("delete", f"{done.rows_deleted} rows counted, {len(keys)} deleted")
        finally:
            txn.abort()

    def updating(self, part: Part, truth: Truth) -> None:
        sql, params = part.render()
        txn = self.built.lake.transaction()
        self.mark += 1
        try:
            new = {"mark": self.mark}
            done = self._tried(truth, "update", lambda: txn.update(NAME, new, sql, params=params))
            if done is None:
                return
            rows = _collected(txn.read(NAME))
            keys = {row["id"] for row in rows.to_pylist() if row["mark"] == self.mark}
            self._agree("update", list(keys), truth)
            _same("update", rows, _marked(self.rows, keys, self.mark))
        finally:
            txn.abort()

    def _tried(self, truth: Truth, kind: str, ask: Callable[[], Any]) -> Any:
        try:
            return ask()
        except (InvalidOperation, PySparkException) as error:
            # Spark raises its own error where it reads by itself, and names LakeVilla's where it
            # calls it.
            if not truth.raising and not _is_of_the_connector(error):
                raise Mismatch(kind, f"raised without a cause: {error}") from error
            return None

    def _agree(self, kind: str, found: list[int], truth: Truth) -> set[int]:
        keys = set(found)
        if len(keys) != len(found):
            raise Mismatch(kind, f"rows twice: {sorted(found)}")
        missed, wrong = truth.true - keys, keys - truth.may_be_true
        if missed or wrong:
            raise Mismatch(kind, f"missed {sorted(missed)}, wrongly found {sorted(wrong)}")
        return keys

    def _of(self, keys: set[int]) -> pa.Table:
        return self.rows.filter(
            pa.array([key in keys for key in self.rows["id"].to_pylist()], pa.bool_())
        )

    # -- next to other clients -----------------------------------------------------------

    def conflicting(self, part: Part, truth: Truth, rng: Random) -> None:
        """Check that an observed read conflicts with a commit if, and only if, its rows changed."""
        if truth.raising:
            return
        sql, params = part.render()
        built = self.built
        txn = built.lake.transaction()
        txn.read(NAME, where=sql, params=params)
        txn.append(f"{NAME}_other", [{"id": 1}])
        touched = self._meanwhile(part, truth, rng)
        if touched is None:
            txn.abort()
            return
        try:
            txn.commit()
            conflict = False
        except lv.ConflictError:
            conflict = True
        if conflict != touched:
            raise Mismatch("conflict", f"rows changed: {touched}, conflict: {conflict}")
        self.whole()

    def redoing(self, part: Part, truth: Truth, rng: Random) -> None:
        """Check that an update next to another client's commit applies to the rows after that
        commit.
        """
        if truth.raising:
            return
        sql, params = part.render()
        txn = self.built.lake.transaction()
        self.mark += 1
        txn.update(NAME, {"mark": self.mark}, sql, params=params)
        if self._meanwhile(part, truth, rng) is None:
            txn.abort()
            return
        txn.commit()
        after = self.truth(part)
        assert after is not None
        self.built.writer.forget(list(after.true | truth.true))  # rewritten
        self.rows = _marked(self.rows, after.true, self.mark)
        for row in self.built.model.rows:
            if row[KEY] in after.true:
                row[MARK] = self.mark
        self._reload()
        self.whole()

    def _meanwhile(self, part: Part, truth: Truth, rng: Random) -> bool | None:
        """Commit by another client; return whether a row changed for which the
        predicate is true.
        """
        built = self.built
        before = truth.true
        if rng.random() < 0.7 or not built.model.rows:
            step: Any = Append(tuple(built.more(rng)), "others", rng.randrange(1 << 16))
        else:
            step = Delete((rng.choice([row[KEY] for row in built.model.rows]),), "others")
        with _other_client(built):
            built.apply(step)
        self._reload()
        after = self.truth(part)
        assert after is not None
        return None if after.raising else after.true != before

    def _reload(self) -> None:
        self.rows = self.built.rows()
        self.values = self.rows.to_pylist()
        self._memory.register("given", self.rows)
        self._memory.execute("CREATE OR REPLACE TABLE memory_rows AS FROM given")


class _other_client:
    """Let another client of the lake perform the operations within the block."""

    def __init__(self, built: Built) -> None:
        self.built, self.own = built, built.lake

    def __enter__(self) -> None:
        self.built.lake = lv.connect(self.built.root)

    def __exit__(self, *error: object) -> None:
        with suppress(Exception):
            self.built.lake.close()
        self.built.lake = self.own


def _is_of_the_connector(error: Exception) -> bool:
    """Spark's own Delta reader casts the '' that stands for NULL in a partition of numbers."""
    return isinstance(error, PySparkException) and "CAST_INVALID_INPUT] The value ''" in str(error)


def _collected(frame: Any) -> pa.Table:
    return frame if isinstance(frame, pa.Table) else frame.toArrow()


def _marked(rows: pa.Table, keys: set[int], new_mark: int) -> pa.Table:
    at = rows.schema.get_field_index("mark")
    pairs = zip(rows["id"].to_pylist(), rows["mark"].to_pylist(), strict=True)
    new = pa.array([new_mark if key in keys else mark for key, mark in pairs], pa.int64())
    return rows.set_column(at, rows.schema.field(at), new)


def _same(kind: str, found: pa.Table, want: pa.Table) -> None:
    """Check that the rows are the same, to the bits of their numbers."""
    names = want.schema.names
    if found.schema.names != names:
        raise Mismatch(kind, f"columns {found.schema.names}, not {names}")
    have = {row["id"]: row for row in found.to_pylist()}
    if found.num_rows != len(have):
        raise Mismatch(kind, f"rows twice: {sorted(found['id'].to_pylist())}")
    wanted = {row["id"]: row for row in want.to_pylist()}
    if have.keys() != wanted.keys():
        raise Mismatch(kind, f"rows {sorted(have)}, not {sorted(wanted)}")
    for key, row in wanted.items():
        for name, value in row.items():
            other = have[key][name]
            if _spelled(value) != _spelled(other):
                raise Mismatch(kind, f"row {key}, column {name}: {other!r}, not {value!r}")


def _spelled(value: Any) -> str:
    if hasattr(value, "tzinfo") and getattr(value, "tzinfo", None) is not None:
        import datetime

        return repr(value.astimezone(datetime.UTC).replace(tzinfo=None))
    if isinstance(value, dict):
        return repr({name: _spelled(inner) for name, inner in value.items()})
    if isinstance(value, list | tuple):
        return repr([_spelled(inner) for inner in value])
    return repr(value)
