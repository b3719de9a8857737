"""Draw random statements over random tables, which mean the same to a lake and to DuckDB.

Statements on which a lake differs on purpose are left out: division by zero, overflow, text as
numbers, and updates for which two rows of a source disagree. So are those that DuckDB 1.5 gets
wrong itself: its filter pushdown loses all rows of ``a IS DISTINCT FROM 1 OR (b AND a = 2)``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from random import Random

#: The columns of each table by their types. ``k`` joins.
TYPES = {
    "k": "BIGINT",
    "n": "BIGINT",
    "s": "VARCHAR",
    "f": "DOUBLE",
    "b": "BOOLEAN",
    "d": "DATE",
    "m": "DECIMAL(10,2)",
}
_WORDS = ("", "a", "b", "ab", "A", "é", "a_b", "it''s", "zz%")


@dataclass
class Writer:
    """Write statements over tables that it has created itself."""

    random: Random
    tables: dict[str, list[str]] = field(default_factory=dict)
    made: int = 0
    #: The columns that a table may have, by their types.
    types: Mapping[str, str] = field(default_factory=lambda: TYPES)

    # -- statements ----------------------------------------------------------------

    def create(self, options: str = "") -> tuple[str, str]:
        """Return statements that create a table: for DuckDB, and for a lake with ``options``."""
        name = f"t{self.made}"
        self.made += 1
        others = self.random.sample(list(self.types)[1:], self.random.randint(2, 5))
        self.tables[name] = ["k", *others]
        columns = ", ".join(f"{column} {self.types[column]}" for column in self.tables[name])
        text = f"CREATE TABLE {name} ({columns})"
        return text, text + options

    def create_or_replace(self) -> str:
        """Return a statement that replaces a table by the rows of a table, perhaps of
        the same one.
        """
        table, source = self._table(), self._table()
        others = self._some(self.tables[source])
        rows = f"FROM {source} WHERE {self.condition(source, source)}"
        self.tables[table] = ["k", *(column for column in others if column != "k")]
        text = f"SELECT {', '.join(self.tables[table])} {rows}"
        return f"CREATE OR REPLACE TABLE {table} AS {text}"

    def statement(self) -> str:
        """Return a statement that changes rows."""
        return self._one(
            (self.insert, 3),
            (self.insert_query, 2),
            (self.update, 3),
            (self.update_from, 2),
            (self.update_by_query, 2),
            (self.delete, 2),
            (self.delete_by_query, 3),
            (self.delete_using, 2),
            (self.merge, 3),
            (self.with_common, 3),
        )

    def insert(self) -> str:
        table = self._table()
        columns = self._some(self.tables[table])
        rows = [
            "(" + ", ".join(self.value(self.types[column]) for column in columns) + ")"
            for _ in range(self.random.randint(1, 6))
        ]
        return f"INSERT INTO {table} ({', '.join(columns)}) VALUES {', '.join(rows)}"

    def insert_query(self) -> str:
        table, source = self._table(), self._table()
        columns = self._some(self.tables[table])
        values = ", ".join(self.scalar(self.types[column], source, "x") for column in columns)
        return (
            f"INSERT INTO {table} ({', '.join(columns)}) SELECT {values} FROM {source} AS x "
            f"WHERE {self.condition(source, 'x')}"
        )

    def update(self) -> str:
        table = self._table()
        return f"UPDATE {table} SET {self._set(table, table)} WHERE {self.condition(table, table)}"

    def update_from(self) -> str:
        """Return an UPDATE ... FROM whose source has each key once, so no two of its rows match one
        row.
        """
        table, source = self._table(), self._table()
        column = self.random.choice(self.tables[source])
        target = self._column_of(table, self.types[column])
        if target is None:
            return self.update()
        own = f" AND {self.condition(table, 'y')}" if self.random.random() < 0.5 else ""
        return (
            f"UPDATE {table} AS y SET {target} = x.v FROM (SELECT k, max({column}) AS v FROM "
            f"{source} GROUP BY k) AS x WHERE x.k {self._equal()} y.k{own}"
        )

    def update_by_query(self) -> str:
        table, source = self._table(), self._table()
        column = self.random.choice(self.tables[source])
        target = self._column_of(table, self.types[column])
        if target is None:
            return self.delete_by_query()
        inner = f"(SELECT max(x.{column}) FROM {source} AS x WHERE x.k {self._compare()} {table}.k)"
        return f"UPDATE {table} SET {target} = {inner} WHERE {self.asking(table, table)}"

    def delete(self) -> str:
        table = self._table()
        return f"DELETE FROM {table} WHERE {self.condition(table, table)}"

    def delete_by_query(self) -> str:
        table = self._table()
        return f"DELETE FROM {table} WHERE {self.asking(table, table)}"

    def delete_using(self) -> str:
        table, source = self._table(), self._table()
        return (
            f"DELETE FROM {table} AS y USING {source} AS x WHERE y.k {self._compare()} x.k AND "
            f"{self.condition(source, 'x')}"
        )

    def merge(self) -> str:
        table, source = self._table(), self._table()
        column = self.random.choice(self.tables[source])
        target = self._column_of(table, self.types[column]) or "k"
        value = "x.v" if self.types[column] == self.types[target] else "x.k"
        clauses = [
            f"WHEN MATCHED AND {self.condition(table, 'y')} THEN DELETE",
            f"WHEN MATCHED THEN UPDATE SET {target} = {value}",
            f"WHEN NOT MATCHED THEN INSERT (k, {target}) VALUES (x.k, {value})"
            if target != "k"
            else "WHEN NOT MATCHED THEN INSERT (k) VALUES (x.k)",
        ]
        chosen = [clause for clause in clauses if self.random.random() < 0.7] or clauses[1:2]
        return (
            f"MERGE INTO {table} AS y USING (SELECT k, max({column}) AS v FROM {source} "
            f"GROUP BY k) AS x ON x.k = y.k {' '.join(chosen)}"
        )

    def with_common(self) -> str:
        """Return a WITH clause that the statement's queries use."""
        table, source = self._table(), self._table()
        asked = f"k {self.random.choice(('IN', 'NOT IN'))} (SELECT k FROM c)"
        change = self._one(
            (lambda: f"DELETE FROM {table} WHERE {asked}", 2),
            (lambda: f"DELETE FROM {table} AS y USING c WHERE y.k {self._compare()} c.k", 1),
            (lambda: f"UPDATE {table} SET k = (SELECT max(k) FROM c) WHERE {asked}", 2),
            (lambda: f"INSERT INTO {table} BY NAME SELECT k + 1 AS k FROM c", 2),
            (
                lambda: (
                    f"INSERT INTO {table} (k) WITH d AS (SELECT k FROM c WHERE k > 0) "
                    "SELECT max(k) FROM d"
                ),
                1,
            ),
        )
        rows = f"SELECT * FROM {source} AS z WHERE {self.condition(source, 'z')}"
        return f"WITH c AS ({rows}) {change}"

    def query(self) -> str:
        """Return a SELECT whose rows have one order, or whose order does not matter."""
        table, other = self._table(), self._table()
        return self._one(
            (lambda: f"SELECT * FROM {table} WHERE {self.asking(table, table)}", 2),
            (
                lambda: (
                    f"SELECT count(*) AS c, min(k) AS a, max(k) AS z FROM {table} "
                    f"WHERE {self.condition(table, table)}"
                ),
                1,
            ),
            (
                lambda: (
                    f"SELECT x.k, count(*) AS c FROM {table} AS x LEFT JOIN {other} AS y "
                    f"ON x.k = y.k AND {self.condition(other, 'y')} GROUP BY x.k"
                ),
                1,
            ),
        )

    # -- conditions ----------------------------------------------------------------

    def asking(self, table: str, alias: str) -> str:
        """Return a condition with subqueries."""
        plain = self.condition(table, alias)
        asked = self._asked(table, alias)
        return self._one(
            (lambda: asked, 3),
            (lambda: f"{plain} AND {asked}", 2),
            (lambda: f"{plain} OR {asked}", 1),
            (lambda: f"NOT ({asked})", 1),
            (lambda: f"CASE WHEN {plain} THEN {asked} ELSE {self.condition(table, alias)} END", 1),
        )

    def _asked(self, table: str, alias: str) -> str:
        other = self._table()
        column = self.random.choice(self.tables[other])
        own = self._column_of(table, self.types[column]) or "k"
        if self.types[own] != self.types[column]:
            column = "k"
        inner = f"SELECT z.{column} FROM {other} AS z WHERE {self.condition(other, 'z')}"
        related = f"{inner} AND z.k {self._compare()} {alias}.k"
        order = self.random.choice(("<", ">", "<=", ">="))
        choices: list[tuple[Callable[[], str], int]] = [
            (lambda: f"{alias}.{own} IN ({inner})", 3),
            (lambda: f"{alias}.{own} NOT IN ({inner})", 2),
            (lambda: f"{alias}.{own} IN ({related})", 1),
            (lambda: f"EXISTS ({related})", 2),
            (lambda: f"NOT EXISTS ({related})", 2),
            (lambda: f"EXISTS ({inner})", 1),
        ]
        if self.types[column] != "BOOLEAN":
            choices.append(
                (lambda: f"{alias}.{own} {order} (SELECT max(q.{column}) FROM ({inner}) AS q)", 2)
            )
        return self._one(*choices)

    def condition(self, table: str, alias: str, depth: int = 2) -> str:
        if depth and self.random.random() < 0.5:
            left, right = (self.condition(table, alias, depth - 1) for _ in "lr")
            return self._one(
                (lambda: f"({left} AND {right})", 2),
                (lambda: f"({left} OR {right})", 2),
                (lambda: f"NOT ({left})", 1),
            )
        column = self.random.choice(self.tables[table])
        type_, name = self.types[column], f"{alias}.{column}"
        value = self.value(type_, nulls=0.05)
        choices: list[tuple[Callable[[], str], int]] = [
            (lambda: f"{name} = {value}", 2),
            (lambda: f"{name} <> {value}", 1),
            (lambda: f"{name} IS NULL", 1),
            (lambda: f"{name} IN ({value}, {self.value(type_)}, {self.value(type_)})", 1),
            (lambda: f"{name} NOT IN ({value}, {self.value(type_, nulls=0.1)})", 1),
        ]
        if type_ != "BOOLEAN":
            low, high = self.value(type_, nulls=0), self.value(type_, nulls=0)
            choices += [
                (lambda: f"{name} >= {value}", 2),
                (lambda: f"{name} BETWEEN {low} AND {high}", 1),
            ]
        if type_ == "VARCHAR":
            choices.append((lambda: f"{name} LIKE {self.value(type_, nulls=0)[:-1]}%'", 1))
        return self._one(*choices)

    # -- values --------------------------------------------------------------------

    def scalar(self, type_: str, table: str, alias: str) -> str:
        """Return a value computed from a row's columns."""
        column = self._column_of(table, type_)
        if column is None or self.random.random() < 0.2:
            return self.value(type_)
        name = f"{alias}.{column}"
        by_type: dict[str, list[str]] = {
            "BIGINT": [f"{name} + 1", f"{name} * 2 - 3", f"abs({name})", f"{name} % 3"],
            "VARCHAR": [f"{name} || 'x'", f"upper({name})", f"substring({name}, 1, 1)"],
            "DOUBLE": [f"{name} + 0.5", f"-{name}"],
            "BOOLEAN": [f"NOT {name}", f"{name} AND true"],
            "DATE": [name],
            "DECIMAL(10,2)": [f"{name} + 1", f"-{name}"],
        }
        made = self.random.choice([name, f"coalesce({name}, {self.value(type_, nulls=0)})"])
        return self.random.choice([made, *by_type[type_]])

    def value(self, type_: str, nulls: float = 0.15) -> str:
        draw = self.random
        if draw.random() < nulls:
            return "NULL"
        if type_ == "BIGINT":
            return str(draw.randint(-3, 6))
        if type_ == "VARCHAR":
            return f"'{draw.choice(_WORDS)}'"
        if type_ == "DOUBLE":
            return str(draw.randint(-4, 4) / 2)
        if type_ == "BOOLEAN":
            return draw.choice(("true", "false"))
        if type_ == "DATE":
            return f"DATE '2024-02-{draw.randint(27, 29)}'"
        return f"{draw.randint(-300, 300) / 100:.2f}"

    # -- choices -------------------------------------------------------------------

    def _set(self, table: str, alias: str) -> str:
        columns = self._some(self.tables[table])[:2]
        return ", ".join(f"{one} = {self.scalar(self.types[one], table, alias)}" for one in columns)

    def _column_of(self, table: str, type_: str) -> str | None:
        fitting = [column for column in self.tables[table] if self.types[column] == type_]
        return self.random.choice(fitting) if fitting else None

    def _some(self, columns: list[str]) -> list[str]:
        return self.random.sample(columns, self.random.randint(1, len(columns)))

    def _table(self) -> str:
        return self.random.choice(list(self.tables))

    def _equal(self) -> str:
        return self.random.choice(("=", "=", "IS NOT DISTINCT FROM"))

    def _compare(self) -> str:
        return self.random.choice(("=", "=", "=", "<", ">=", "IS NOT DISTINCT FROM", "<>"))

    def _one(self, *choices: tuple[Callable[[], str], int]) -> str:
        (made,) = self.random.choices(
            [make for make, _ in choices], [weight for _, weight in choices]
        )
        return made()
