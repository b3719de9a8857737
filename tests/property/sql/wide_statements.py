"""Draw statements over tables with nested types, timestamps and odd texts; DuckDB
computes parts.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random

from tests.property.sql.statements import TYPES, Writer

WIDE_TYPES = {
    **TYPES,
    "r": "VARCHAR",
    "f4": "FLOAT",
    "z": "TIMESTAMPTZ",
    "w": "TIMESTAMP",
    "g": "STRUCT(q BIGINT, s VARCHAR, h STRUCT(d DATE))",
    "l": "BIGINT[]",
    "p": "MAP(VARCHAR, BIGINT)",
}
_NESTED = frozenset({"g", "l", "p"})
#: Texts that the paths of partitions write in another form.
_ODD = (
    *("a", "a/b", "x=y", "%2F", " ", "é", "e\u0301", ":", "a b", "..", "#?", "__HIVE", "null"),
    *("it''s", '"', "\\", "😀", "a,b", "Z", "{}"),
)
_LAYOUTS = (
    *("", "(d)", "(m)", "(r)", "(b)", "(d, r)", "(k)", "(z)", "(w)", "(f)"),
    *("iceberg", "iceberg (r)", "iceberg (bucket(3, k), truncate(2, r))", "iceberg (month(d))"),
    *("iceberg (day(z), bucket(2, r))", "iceberg (hour(w))", "iceberg (truncate(50, m), b)"),
    *("iceberg (year(d), bucket(4, d))", "iceberg (truncate(5, n))", "iceberg (bucket(3, m))"),
)
_PROPERTIES = (
    *("", "", "'delta.columnMapping.mode' = 'name'", "'delta.columnMapping.mode' = 'id'"),
    "'delta.columnMapping.mode' = 'name', 'delta.enableChangeDataFeed' = 'true'",
)


class WideWriter(Writer):
    """Draw tables of both formats in all layouts, and statements over them."""

    def __init__(self, random: Random) -> None:
        super().__init__(random, types=WIDE_TYPES)
        self._columns = 0

    def laid_out(self) -> tuple[str, str]:
        """Return statements that create a table: for DuckDB, and for a lake."""
        name, layout = f"t{self.made}", self.random.choice(_LAYOUTS)
        self.made += 1
        keys = layout.removeprefix("iceberg").strip()
        named = [one for one in self.types if f"({one})" in keys or f" {one})" in keys]
        named += [one for one in self.types if f"({one}," in keys]
        others = [one for one in self.random.sample(list(self.types)[1:], 6) if one not in named]
        self.tables[name] = list(dict.fromkeys(["k", *named, *others]))
        text = ", ".join(f"{one} {self.types[one]}" for one in self.tables[name])
        format = "iceberg" if layout.startswith("iceberg") else "delta"
        properties = self.random.choice(_PROPERTIES) if format == "delta" else ""
        of_lake = text.replace("TIMESTAMP", "TIMESTAMP_NTZ").replace("TIMESTAMP_NTZTZ", "TIMESTAMP")
        create = f"CREATE TABLE {name} ({of_lake}) USING {format}"
        create += f" PARTITIONED BY {keys}" if keys else ""
        create += f" TBLPROPERTIES ({properties})" if properties else ""
        return f"CREATE TABLE {name} ({text})", create

    def condition(self, table: str, alias: str, depth: int = 2) -> str:
        draw = self.random.random()
        if draw < 0.25:
            return self._computed(table, alias) or super().condition(table, alias, depth)
        if draw < 0.5 and (nested := self._of_nested(table, alias)):
            return nested
        column = self.random.choice(self.tables[table])
        if depth and draw < 0.8:
            joined = [self.condition(table, alias, depth - 1) for _ in range(2)]
            return f"({' AND '.join(joined)})" if draw < 0.7 else f"({' OR '.join(joined)})"
        if column in _NESTED:
            return f"{alias}.{column} IS NULL"
        kept = self.tables[table]
        self.tables = {**self.tables, table: [column]}
        try:
            return super().condition(table, alias, 0)
        finally:
            self.tables = {**self.tables, table: kept}

    def _computed(self, table: str, alias: str) -> str | None:
        """Return an expression that means something else in the language, so DuckDB computes it."""
        by_column = {
            "m": "CAST({} AS BIGINT) IN (1, 2, -1)",
            "f": "CAST({} AS INTEGER) >= 0",
            "f4": "{} + 1 > 0.6",
            "s": "reverse({}) > 'a'",
            "r": "regexp_replace({}, 'a', 'b') = 'b'",
        }
        return self._drawn(table, alias, {name: (text,) for name, text in by_column.items()})

    def _of_nested(self, table: str, alias: str) -> str | None:
        return self._drawn(
            table,
            alias,
            {
                "g": ("{}.q > 0", "{}.s IS NULL", "{}.h.d = DATE '2024-02-28'", "{} IS NULL"),
                "l": ("{}[1] > 0", "len({}) > 1", "list_contains({}, 2)", "{}[-1] IS NULL"),
                "p": ("{}['a'] > 0", "{} IS NOT NULL", "{}['b'] IS NULL"),
            },
        )

    def _drawn(self, table: str, alias: str, texts: dict[str, tuple[str, ...]]) -> str | None:
        known = [name for name in self.tables[table] if name in texts]
        if not known:
            return None
        name = self.random.choice(known)
        return self.random.choice(texts[name]).format(f"{alias}.{name}")

    def scalar(self, type_: str, table: str, alias: str) -> str:
        column = self._column_of(table, type_)
        if type_ in TYPES.values():
            return super().scalar(type_, table, alias)
        return "NULL" if column is None or self.random.random() < 0.3 else f"{alias}.{column}"

    def value(self, type_: str, nulls: float = 0.15) -> str:
        draw = self.random
        if type_ == "VARCHAR" and draw.random() >= nulls:
            return f"'{draw.choice(_ODD)}'"
        if type_ in TYPES.values():
            return super().value(type_, nulls)
        if draw.random() < nulls:
            return "NULL"
        made: dict[str, Callable[[], str]] = {
            "FLOAT": lambda: str(draw.randint(-4, 4) / 4),
            "TIMESTAMPTZ": lambda: f"TIMESTAMPTZ '2024-02-2{draw.randint(7, 9)} 23:59:59.5+00'",
            "TIMESTAMP": lambda: (
                f"TIMESTAMP '2024-0{draw.randint(1, 2)}-01 0{draw.randint(0, 3)}:00:00'"
            ),
            WIDE_TYPES["g"]: self._struct,
            WIDE_TYPES["l"]: lambda: draw.choice(("[1, 2]", "[]::BIGINT[]", "[NULL, 3]", "[2]")),
            WIDE_TYPES["p"]: lambda: draw.choice(("MAP {'a': 1}", "MAP {'b': NULL, 'a': 2}")),
        }
        return made[type_]()

    def _struct(self) -> str:
        draw = self.random
        inner: Sequence[str] = ("NULL", "{'d': DATE '2024-02-28'}", "{'d': NULL::DATE}")
        text = self.value("VARCHAR", 0.3)
        return (
            f"{{'q': {draw.choice(('1', '-1', 'NULL'))}, 's': {text}, 'h': {draw.choice(inner)}}}"
        )

    def altered(self) -> tuple[str, str]:
        """Return statements that add a column, for both."""
        table, name = self._table(), f"c{self._columns}"
        self._columns += 1
        self.types = {**self.types, name: "BIGINT"}
        self.tables[table].append(name)
        text = f"ALTER TABLE {table} ADD COLUMN {name} BIGINT"
        return text, text
