"""TPC-H and TPC-DS: rows, queries and answers, made on this machine by DuckDB's generators."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import duckdb
import pyarrow as pa

from bench.harness.benchmark import NotInstalled
from bench.harness.needs import Needs
from bench.harness.parameters import WrongParameter
from bench.harness.peers.ducklake import extension


@dataclass(frozen=True, slots=True)
class Kind:
    """A benchmark of the TPC: how DuckDB makes it, and what that takes.

    ``data_bytes`` (as Parquet files), ``disk_bytes`` (of the generator's database) and
    ``memory_bytes`` (while it generates) are for each unit of the scale factor, rounded up.
    """

    name: str
    generator: str
    queries: int
    data_bytes: float
    disk_bytes: float
    memory_bytes: float

    def check(self, query: int) -> None:
        """Refuse the number of a query that there is not."""
        if not 1 <= query <= self.queries:
            raise WrongParameter(f"{self.name} has queries 1 to {self.queries}, and no {query}")

    def needs(self, scale: float, copies: float = 1) -> Needs:
        """What the data takes if the store holds so many copies of them."""
        return Needs(
            round(self.data_bytes * scale * copies),
            round(self.disk_bytes * scale),
            round(2**29 + self.memory_bytes * scale),
            f"{self.name} at scale factor {scale:g}",
        )


KINDS = {
    kind.name: kind
    for kind in (
        Kind("tpch", "dbgen", 22, data_bytes=4e8, disk_bytes=4e8, memory_bytes=1.2e9),
        Kind("tpcds", "dsdgen", 99, data_bytes=4e8, disk_bytes=5e8, memory_bytes=1.2e9),
    )
}


class Tpc:
    """The data of one scale factor in a database of DuckDB's, and the queries over it.

    It is what the generator made: what a lake answers is held against ``answer``.
    """

    def __init__(self, name: str, scale: float, file: Path) -> None:
        """Make the data in a new file.

        Raises
        ------
        NotInstalled
            The generator is not here.
        """
        self.kind = KINDS[name]
        generator = _generator(name)
        self.connection = duckdb.connect(str(file), config={"allow_unsigned_extensions": "true"})
        self.connection.load_extension(generator)
        self.connection.execute(f"CALL {self.kind.generator}(sf = {scale!r})")
        self.tables: tuple[str, ...] = tuple(
            row[0] for row in self.connection.execute("SHOW TABLES").fetchall()
        )

    def rows(self, table: str) -> pa.RecordBatchReader:
        """All rows of a table, streamed."""
        return self.connection.cursor().execute(f'FROM "{table}"').to_arrow_reader(100_000)

    def query(self, number: int) -> str:
        """One of the benchmark's queries, with the substitutions of its validation run."""
        self.kind.check(number)
        found = self.connection.execute(
            f"SELECT query FROM {self.kind.name}_queries() WHERE query_nr = ?", [number]
        ).fetchone()
        assert found is not None
        return str(found[0]).strip().rstrip(";")

    def used(self, sql: str) -> tuple[str, ...]:
        """The tables that a query names."""
        return tuple(sorted(set(self.tables) & self.connection.get_table_names(sql)))

    def answer(self, sql: str) -> pa.Table:
        """What DuckDB answers from its own tables."""
        return self.connection.cursor().execute(sql).to_arrow_table()

    def close(self) -> None:
        self.connection.close()


def _generator(name: str) -> str:
    try:
        return extension(name)
    except RuntimeError as error:
        raise NotInstalled(f"{name} needs DuckDB's generator: {error}") from error
