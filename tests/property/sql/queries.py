"""Draw queries of many shapes, whose rows do not depend on the order in which they are found."""

from __future__ import annotations

from tests.property.sql.statements import Writer


class QueryWriter(Writer):
    """Write queries with joins, aggregates, windows, common tables, and set operations, too."""

    def query(self) -> str:
        return self._one(
            (super().query, 2),
            (self._joined, 2),
            (self._grouped, 2),
            (self._windowed, 2),
            (self._common, 2),
            (self._set_operation, 2),
            (self._computed, 1),
            (self._first_ones, 1),
        )

    def _pair(self) -> tuple[str, str]:
        return self._table(), self._table()

    def _joined(self) -> str:
        left, right = self._pair()
        kind = self.random.choice(("JOIN", "LEFT JOIN", "RIGHT JOIN", "FULL JOIN"))
        shown = f"x.k, y.{self.random.choice(self.tables[right])} AS v"
        on = f"x.k {self._equal()} y.k AND {self.condition(right, 'y', 1)}"
        return (
            f"SELECT {shown} FROM {left} AS x {kind} {right} AS y ON {on} "
            f"WHERE {self.condition(left, 'x', 1)}"
        )

    def _grouped(self) -> str:
        table = self._table()
        column = self.random.choice(self.tables[table])
        by = self.random.choice(
            (column, f"ROLLUP (k, {column})", f"GROUPING SETS (({column}), ())")
        )
        aggregate = self.random.choice(("max(k)", "count(DISTINCT k)", "sum(k)", "count(k)"))
        having = self.random.choice(("", " HAVING count(*) > 1", " HAVING min(k) IS NOT NULL"))
        shown = f"{column}, " if "GROUPING" not in by else ""
        return (
            f"SELECT {shown}{aggregate} AS a, count(*) AS c FROM {table} AS x "
            f"WHERE {self.condition(table, 'x')} GROUP BY {by}{having}"
        )

    def _windowed(self) -> str:
        table = self._table()
        column = self.random.choice(self.tables[table])
        over = self.random.choice((f"PARTITION BY {column}", f"ORDER BY {column}", ""))
        function = self.random.choice(("count(*)", "max(k)", "sum(k)"))
        if over.startswith("ORDER"):
            function = self.random.choice((function, "rank()", "dense_rank()"))
        kept = self.random.choice(("", f" QUALIFY count(*) OVER (PARTITION BY {column}) > 1"))
        return (
            f"SELECT k, {function} OVER ({over}) AS w FROM {table} AS x "
            f"WHERE {self.condition(table, 'x', 1)}{kept}"
        )

    def _common(self) -> str:
        table, other = self._pair()
        if self.random.random() < 0.3:
            return (
                "WITH RECURSIVE r(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM r WHERE i < 3) "
                f"SELECT r.i, count(x.k) AS c FROM r LEFT JOIN {table} AS x ON x.k = r.i "
                f"AND {self.condition(table, 'x', 1)} GROUP BY r.i"
            )
        hint = self.random.choice(("", "MATERIALIZED "))
        return (
            f"WITH c AS {hint}(SELECT k FROM {table} AS z WHERE {self.condition(table, 'z')}), "
            f"d AS (SELECT k, count(*) AS n FROM {other} GROUP BY k) "
            f"SELECT c.k, d.n FROM c LEFT JOIN d ON c.k {self._equal()} d.k"
        )

    def _set_operation(self) -> str:
        left, right = self._pair()
        how = self.random.choice(("UNION", "UNION ALL", "EXCEPT", "EXCEPT ALL", "INTERSECT"))
        return (
            f"SELECT k FROM {left} AS x WHERE {self.condition(left, 'x')} {how} "
            f"SELECT k FROM {right} AS y WHERE {self.condition(right, 'y')}"
        )

    def _computed(self) -> str:
        table, other = self._pair()
        most = f"(SELECT max(y.k) FROM {other} AS y WHERE y.k {self._compare()} x.k)"
        return (
            f"SELECT x.k, {most} AS m, "
            f"CASE WHEN {self.condition(table, 'x', 1)} THEN 1 ELSE 0 END AS q FROM {table} AS x"
        )

    def _first_ones(self) -> str:
        table = self._table()
        count = self.random.randint(0, 3)
        distinct = self.random.choice(("", "DISTINCT "))
        return (
            f"SELECT {distinct}k FROM {table} AS x WHERE {self.condition(table, 'x')} "
            f"ORDER BY k {self.random.choice(('ASC', 'DESC'))} NULLS LAST LIMIT {count}"
        )
