"""The systems LakeVilla is compared with, each as its users run it."""

from __future__ import annotations

import importlib.util
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from urllib.parse import urlsplit

import deltalake
import duckdb
import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table as IcebergTable


class Deltalake:
    """deltalake with warm handles; a transaction over tables is one commit each, not atomic."""

    def __init__(self, root: str, options: Mapping[str, str]) -> None:
        self.root = root
        self.options = dict(options)
        self.handles: dict[str, deltalake.DeltaTable] = {}

    def create(self, tables: Sequence[str], rows: pa.Table) -> None:
        for table in tables:
            uri = f"{self.root}/{table}"
            deltalake.write_deltalake(uri, rows, storage_options=self.options)
            self.handles[table] = deltalake.DeltaTable(uri, storage_options=self.options)

    def append(self, tables: Sequence[str], rows: pa.Table) -> None:
        for table in tables:
            deltalake.write_deltalake(self.handles[table], rows, mode="append")

    def open_cold(self, table: str) -> int:
        return deltalake.DeltaTable(f"{self.root}/{table}", storage_options=self.options).version()


class PyIceberg:
    """pyiceberg with its SQL catalog in a local SQLite file, and warm handles."""

    def __init__(self, catalog: Path, root: str, options: Mapping[str, str]) -> None:
        self.catalog = SqlCatalog(
            "bench",
            uri=f"sqlite:///{catalog}",
            warehouse=root,
            **{name: options[key] for name, key in _PYICEBERG.items() if key in options},
        )
        self.catalog.create_namespace_if_not_exists("lake")
        self.handles: dict[str, IcebergTable] = {}

    def create(self, tables: Sequence[str], rows: pa.Table) -> None:
        for table in tables:
            self.catalog.create_table(f"lake.{table}", rows.schema).append(rows)

    def append(self, tables: Sequence[str], rows: pa.Table) -> None:
        for table in tables:
            self.handle(table).append(rows)

    def handle(self, table: str) -> IcebergTable:
        if table not in self.handles:
            self.handles[table] = self.catalog.load_table(f"lake.{table}")
        return self.handles[table]


_PYICEBERG = {
    "s3.endpoint": "AWS_ENDPOINT_URL",
    "s3.access-key-id": "AWS_ACCESS_KEY_ID",
    "s3.secret-access-key": "AWS_SECRET_ACCESS_KEY",
    "s3.region": "AWS_REGION",
}


class DuckLake:
    """DuckLake with its catalog in a local DuckDB file and its data in the store."""

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

    def close(self) -> None:
        self.connection.close()


def extension(name: str) -> str:
    """The file of a DuckDB extension that came as a wheel."""
    package = importlib.util.find_spec(f"duckdb_extension_{name}")
    if package is None or package.submodule_search_locations is None:
        raise RuntimeError(f"pip install duckdb-extension-{name}=={duckdb.__version__}")
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
