"""The demo's checks of what readers without LakeVilla see, by two readers that share no code.

deltalake is delta-rs; DuckDB's ``delta_scan`` is delta-kernel-rs in a DuckDB extension. Neither
knows LakeVilla.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import deltalake
import duckdb

from lakevilla.cli.demo.tables import BANKS
from lakevilla.errors import InvalidOperation


@dataclass(frozen=True, slots=True)
class Check:
    """One condition that must hold."""

    what: str
    reader: str
    expected: object
    seen: object

    @property
    def holds(self) -> bool:
        return self.expected == self.seen


@dataclass(frozen=True, slots=True)
class OtherReader:
    """A reader of the demo's tables by SQL, without LakeVilla."""

    name: str
    connection: duckdb.DuckDBPyConnection

    def one(self, query: str) -> tuple[Any, ...]:
        """Return the first row of a query over the demo's tables."""
        row = self.connection.sql(query).fetchone()
        assert row is not None
        return tuple(row)


TABLES = ("orders", "lineitem", "customer", *BANKS)


@contextmanager
def deltalake_reader(root: str, options: Mapping[str, str]) -> Iterator[OtherReader]:
    """Open the tables with deltalake; DuckDB only computes sums over the Arrow data."""
    with duckdb.connect() as connection:
        for table in TABLES:
            handle = deltalake.DeltaTable(f"{root}/{table}", storage_options=dict(options))
            connection.register(table, handle.to_pyarrow_dataset())
        yield OtherReader("deltalake", connection)


@contextmanager
def duckdb_reader(root: str, options: Mapping[str, str]) -> Iterator[OtherReader]:
    """Open the tables with DuckDB's own reader of Delta tables."""
    with duckdb.connect(config={"allow_unsigned_extensions": "true"}) as connection:
        if "://" in root:
            connection.load_extension(_extension("httpfs"))
            connection.execute(_secret(root, options))
        connection.load_extension(_extension("delta"))
        for table in TABLES:
            location = f"{root}/{table}" if "://" in root else f"file://{Path(root) / table}"
            quoted = location.replace("'", "''")
            connection.execute(f"CREATE VIEW {table} AS FROM delta_scan('{quoted}')")
        yield OtherReader("DuckDB", connection)


def check_readable(root: str, options: Mapping[str, str]) -> None:
    """Refuse, at the start, a place or an installation in which the checks could not run."""
    _extension("delta")
    if "://" in root:
        _extension("httpfs")
        _secret(root, options)


def check_orders(reader: OtherReader, expected: Mapping[str, object]) -> list[Check]:
    """Check that each order has all its lines, none twice, and that its customer has paid."""
    halves = reader.one(
        "SELECT (SELECT count(*) FROM orders ANTI JOIN lineitem ON o_orderkey = l_orderkey)"
        " + (SELECT count(*) FROM lineitem ANTI JOIN orders ON o_orderkey = l_orderkey)"
    )
    orders = reader.one("SELECT count(*), count(DISTINCT o_orderkey) FROM orders")
    lines = reader.one("SELECT count(*), count(DISTINCT (l_orderkey, l_linenumber)) FROM lineitem")
    balances = reader.one("SELECT sum(c_acctbal) FROM customer")
    name = reader.name
    return [
        Check("orders or lines without the other", name, 0, halves[0]),
        Check("orders, distinct orders", name, (expected["orders"],) * 2, orders),
        Check("lines, distinct lines", name, (expected["lines"],) * 2, lines),
        Check("sum of customer balances", name, expected["balances"], balances[0]),
    ]


def bank_total(reader: OtherReader) -> object:
    """Return the money in both banks."""
    north, south = BANKS
    (total,) = reader.one(f"SELECT sum(balance) FROM (FROM {north} UNION ALL FROM {south})")
    return total


def check_bank(reader: OtherReader, total: Decimal) -> list[Check]:
    """Check that the transfers have changed no total: no money was made or lost."""
    return [Check("sum of bank balances", reader.name, total, bank_total(reader))]


def _extension(name: str) -> str:
    """Return the file of a DuckDB extension that a wheel has installed."""
    package = importlib.util.find_spec(f"duckdb_extension_{name}")
    if package is None or package.submodule_search_locations is None:
        raise InvalidOperation(
            f"the demo needs DuckDB's {name} extension: install LakeVilla with its extra bench, "
            "`pip install 'lakevilla[bench]'`"
        )
    base = Path(package.submodule_search_locations[0]) / "extensions" / f"v{duckdb.__version__}"
    path = base / f"{name}.duckdb_extension"
    if not path.exists():
        raise InvalidOperation(
            f"duckdb {duckdb.__version__} and duckdb-extension-{name} are of two releases:"
            " install LakeVilla with its extra bench, `pip install 'lakevilla[bench]'`"
        )
    return str(path)


def _secret(root: str, options: Mapping[str, str]) -> str:
    """Convert deltalake's storage options for an S3 store to a secret of DuckDB."""
    scheme = urlsplit(root).scheme
    if scheme not in ("s3", "s3a"):
        raise InvalidOperation(
            f"the demo's check with DuckDB knows s3:// and directories, not {scheme}://"
        )
    given = {key.upper(): value for key, value in {**os.environ, **options}.items()}
    parts = ["TYPE s3", "URL_STYLE 'path'"]

    def add(name: str, *keys: str) -> None:
        value = next((given[key] for key in keys if given.get(key)), None)
        if value is not None:
            quoted = value.replace("'", "''")
            parts.append(f"{name} '{quoted}'")

    add("KEY_ID", "AWS_ACCESS_KEY_ID")
    add("SECRET", "AWS_SECRET_ACCESS_KEY")
    add("SESSION_TOKEN", "AWS_SESSION_TOKEN")
    add("REGION", "AWS_REGION", "AWS_DEFAULT_REGION")
    endpoint = given.get("AWS_ENDPOINT_URL") or given.get("AWS_ENDPOINT")
    if endpoint:
        split = urlsplit(endpoint)
        host = split.netloc.replace("'", "''")
        parts.append(f"ENDPOINT '{host}'")
        parts.append(f"USE_SSL {'true' if split.scheme == 'https' else 'false'}")
    return f"CREATE SECRET ({', '.join(parts)})"
