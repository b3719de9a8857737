"""DuckLake, with its catalog in a local DuckDB file and its data in the store."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import duckdb
import pyarrow as pa

from bench.harness.benchmark import NotInstalled
from bench.harness.store.places import Places


class DuckLake:
    """DuckLake: one connection, since one process at a time may have its catalog."""

    def __init__(self, catalog: Path, root: str, options: Mapping[str, str]) -> None:
        self.connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
        for name in ("httpfs", "ducklake") if "://" in root else ("ducklake",):
            self.connection.load_extension(extension(name))
        if "://" in root:
            self.connection.execute(secret(options))
        quoted = root.replace("'", "''")
        self.connection.execute(
            f"ATTACH 'ducklake:{catalog}' AS lake"
            # Rows go to Parquet files, as everywhere else in this comparison.
            f" (DATA_PATH '{quoted}/', DATA_INLINING_ROW_LIMIT 0)"
        )
        self.lock = threading.Lock()

    def create(self, tables: Sequence[str], rows: pa.Table) -> None:
        self.connection.register("rows", rows)
        for table in tables:
            self.connection.execute(f'CREATE TABLE lake."{table}" AS FROM rows')

    def append(self, tables: Sequence[str], rows: pa.Table) -> None:
        with self.lock:
            self.connection.register("rows", rows)
            self.connection.execute("BEGIN")
            for table in tables:
                self.connection.execute(f'INSERT INTO lake."{table}" FROM rows')
            self.connection.execute("COMMIT")

    def read(self, table: str, where: str | None = None) -> pa.Table:
        condition = "" if where is None else f" WHERE {where}"
        with self.lock:
            found = self.connection.execute(f'SELECT * FROM lake."{table}"{condition}')
            return found.to_arrow_table()

    def update(self, table: str, change: Mapping[str, str], where: str) -> None:
        given = ", ".join(f'"{name}" = {expression}' for name, expression in change.items())
        with self.lock:
            self.connection.execute(f'UPDATE lake."{table}" SET {given} WHERE {where}')

    def close(self) -> None:
        self.connection.close()


def extension(name: str) -> str:
    """The file of a DuckDB extension that came as a wheel."""
    package = importlib.util.find_spec(f"duckdb_extension_{name}")
    if package is None or package.submodule_search_locations is None:
        raise NotInstalled(f"pip install duckdb-extension-{name}=={duckdb.__version__}")
    base = Path(package.submodule_search_locations[0]) / "extensions" / f"v{duckdb.__version__}"
    return str(base / f"{name}.duckdb_extension")


def secret(options: Mapping[str, str]) -> str:
    """DuckDB's secret for the same store."""
    endpoint = urlsplit(options["AWS_ENDPOINT_URL"])
    return (
        f"CREATE SECRET (TYPE s3, KEY_ID '{options['AWS_ACCESS_KEY_ID']}',"
        f" SECRET '{options['AWS_SECRET_ACCESS_KEY']}', REGION '{options['AWS_REGION']}',"
        f" ENDPOINT '{endpoint.netloc}', URL_STYLE 'path',"
        f" USE_SSL {'true' if endpoint.scheme == 'https' else 'false'})"
    )


def of(places: Places) -> DuckLake:
    return DuckLake(places.file("ducklake.db"), places.root("DuckLake"), places.options)
