"""A mirror of a lake, updated from its change feed alone, and a check that both are equal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

import lakevilla as lv

#: A row without its nulls: it stays equal to itself when a column is added later.
Row = frozenset[tuple[str, Any]]
BESIDE = ("_change_type", "_commit_version", "_commit_timestamp")


def plain(row: dict[str, Any]) -> Row:
    return frozenset((name, repr(value)) for name, value in row.items() if value is not None)


def rows_of(table: pa.Table) -> Counter[Row]:
    return Counter(plain(row) for row in table.to_pylist())


def state_at(lake: lv.Lake, version: int | None = None) -> dict[str, Counter[Row]]:
    """Return the rows of all tables of the lake at a version, by location."""
    with lake.snapshot(version) as state:
        return {one.uri: rows_of(state.read(name)) for name, one in state.versions.items()}


@dataclass
class Mirror:
    """Applies versions of the feed to a copy, as the documentation tells consumers to."""

    version: int = 0
    tables: dict[str, Counter[Row]] = field(default_factory=dict)
    versions: list[int] = field(default_factory=list)

    def apply(self, version: lv.Version) -> None:
        assert self.version <= version.since < version.version, "told twice, or out of order"
        for name in version.left:
            del self.tables[version.uris[name]]
        for name in version.entered:
            assert version.uris[name] not in self.tables
            self.tables[version.uris[name]] = Counter()
        for name, changed in version.tables.items():
            rows = self.tables[version.uris[name]]
            assert set(changed["_commit_version"].to_pylist()) <= {version.version}
            kept = set(changed.schema.names)
            rows = Counter(
                {
                    frozenset(pair for pair in row if pair[0] in kept): count
                    for row, count in rows.items()
                }
            )
            for row, kind in zip(
                changed.drop_columns(list(BESIDE)).to_pylist(),
                changed["_change_type"].to_pylist(),
                strict=True,
            ):
                rows[plain(row)] += 1 if kind in ("insert", "update_postimage") else -1
            assert all(count >= 0 for count in rows.values()), "it took away what was not there"
            self.tables[version.uris[name]] = +rows
        self.version = version.version
        self.versions.append(version.version)

    def apply_all(self, versions: Iterable[lv.Version]) -> Mirror:
        for version in versions:
            self.apply(version)
        return self


def check(lake: lv.Lake, mirror: Mirror) -> None:
    """Assert that the mirror equals the lake at the last version that the feed reported."""
    assert mirror.tables == state_at(lake, mirror.version), mirror.version
