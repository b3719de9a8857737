"""Load one package of dlt in one transaction (note 78)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
from dlt.common.destination import DestinationCapabilitiesContext, PreparedTableSchema
from dlt.common.schema import Schema, TColumnSchema
from dlt.destinations.sql_client import SqlClientBase

from lakevilla.api.transaction import Transaction
from lakevilla.dbapi.dlt.columns import fields_of
from lakevilla.dbapi.dlt.merging import Merging, schema_in
from lakevilla.dbapi.dlt.package import LoadPackage
from lakevilla.dbapi.dlt.sql_client import STAGED
from lakevilla.dbapi.dlt.staged import StagedRows, quoted, staged_rows
from lakevilla.errors import InvalidOperation, TableNotFound
from lakevilla.formats.base import FormatName

__all__ = ["PACKAGE_COLUMN", "Dataset", "drop", "load_package", "migrate"]

#: The column of the table of loads by which a load that is repeated knows itself.
PACKAGE_COLUMN = "_lakevilla_package"


class Client(Protocol):
    """A client of dlt, as a load uses it: dlt's rows of its own tables, and columns of others."""

    @property
    def capabilities(self) -> DestinationCapabilitiesContext: ...
    @property
    def sql_client(self) -> SqlClientBase: ...

    def load_row(self, load_id: str) -> Mapping[str, object]: ...
    def version_row(self) -> Mapping[str, object]: ...
    def named(self, column: str) -> str: ...
    def new_columns(self, table: str, present: pa.Schema | None) -> Sequence[TColumnSchema]: ...
    def prepare_load_table(self, table: str) -> PreparedTableSchema: ...


@dataclass(frozen=True, slots=True)
class Dataset:
    """A dataset of a lake, as a client of dlt knows it.

    Attributes
    ----------
    name : str
        The directory of its tables.
    schema : Schema
        dlt's, with the columns that the tables shall have.
    client : Client
        Its schema is the same.
    """

    name: str
    schema: Schema
    client: Client

    def location(self, table: str) -> str:
        """Return the path of a table below the lake's root."""
        return f"{self.name}/{table}"


def load_package(txn: Transaction[pa.Table], dataset: Dataset, package: LoadPackage) -> None:
    """Do all that a package asks for, and note its load, unless that is noted already.

    Raises
    ------
    InvalidOperation
        Another package with this load id has been loaded.
    """
    if _is_loaded(txn, dataset, package):
        return
    drop(txn, dataset, package.dropped, forgets_schema=bool(package.dropped))
    written = {table for chain in package.chains for table in chain}
    known = set(dataset.schema.tables)
    migrate(txn, dataset, written | (set(package.truncated) & known))
    for table in package.truncated:
        if columns_of(txn, dataset.location(table)) is not None:
            txn.delete(dataset.location(table), "true")
    with staged_rows() as staged:
        for chain in package.chains:
            _write_chain(txn, dataset, package, staged, chain)
    _note_load(txn, dataset, package)


# -------------------- loads


def _is_loaded(txn: Transaction[pa.Table], dataset: Dataset, package: LoadPackage) -> bool:
    """Return whether the package's row is in the table of loads; no row counts as read, too."""
    location = dataset.location(dataset.schema.loads_table_name)
    columns = columns_of(txn, location)
    if columns is None or PACKAGE_COLUMN not in columns.names:
        return False
    load_id = dataset.client.named("load_id")
    rows = txn.read(
        location,
        [PACKAGE_COLUMN],
        f"{quoted(load_id)} = :load_id",
        params={"load_id": package.load_id},
    )
    found = rows[PACKAGE_COLUMN].to_pylist()
    if not found:
        return False
    if package.digest in found:
        return True
    raise InvalidOperation(
        f"load id {package.load_id} is in table {location} already, of another load package: drop "
        "the pending package, pipeline.drop_pending_packages(), and extract its data again",
        table=location,
    )


def _note_load(txn: Transaction[pa.Table], dataset: Dataset, package: LoadPackage) -> None:
    location = dataset.location(dataset.schema.loads_table_name)
    row = {**dataset.client.load_row(package.load_id), PACKAGE_COLUMN: package.digest}
    txn.append(location, [row])


# -------------------- schema


def columns_of(txn: Transaction[pa.Table], location: str) -> pa.Schema | None:
    """Return the columns of a table in the transaction's state; None if there is no such table."""
    try:
        return schema_in(txn, location)
    except TableNotFound:
        return None


def migrate(txn: Transaction[pa.Table], dataset: Dataset, tables: Iterable[str]) -> None:
    """Create the tables that are not there, add columns to others, and note the schema's version.

    dlt's own tables are always among them.
    """
    for table in sorted({*tables, *dataset.schema.dlt_table_names()}):
        _migrate_table(txn, dataset, table)
    location = dataset.location(dataset.schema.version_table_name)
    row = dataset.client.version_row()
    name = dataset.client.named("version_hash")
    noted = txn.read(location, [name], f"{quoted(name)} = :hash", params={"hash": row[name]})
    if not noted.num_rows:
        txn.append(location, [row])


def _migrate_table(txn: Transaction[pa.Table], dataset: Dataset, table: str) -> None:
    location, client = dataset.location(table), dataset.client
    present = columns_of(txn, location)
    new: Sequence[TColumnSchema] = client.new_columns(table, present)
    prepared = client.prepare_load_table(table)
    format: FormatName = prepared.get("table_format") or "delta"
    fields = fields_of(new, client.capabilities, format)
    if table == dataset.schema.loads_table_name and PACKAGE_COLUMN not in (
        present.names if present is not None else ()
    ):
        fields = fields.append(pa.field(PACKAGE_COLUMN, pa.string()))
    if not len(fields):
        return  # nothing is new, or no column has a type yet
    if present is None:
        parts = [column["name"] for column in new if column.get("partition")]
        txn.create_table(location, fields, format=format, partition_by=parts, or_replace=True)
    else:
        txn.alter(location, add_columns=pa.schema([one.with_nullable(True) for one in fields]))


def drop(
    txn: Transaction[pa.Table], dataset: Dataset, tables: Iterable[str], *, forgets_schema: bool
) -> None:
    """Drop the tables that are there, and forget the versions of the schema."""
    for table in tables:
        if columns_of(txn, dataset.location(table)) is not None:
            txn.drop_table(dataset.location(table))
    location = dataset.location(dataset.schema.version_table_name)
    if forgets_schema and columns_of(txn, location) is not None:
        name = dataset.client.named("schema_name")
        txn.delete(location, f"{quoted(name)} = :name", params={"name": dataset.schema.name})


# -------------------- rows


def _write_chain(
    txn: Transaction[pa.Table],
    dataset: Dataset,
    package: LoadPackage,
    staged: StagedRows,
    chain: Sequence[str],
) -> None:
    """Write the rows of a root table, and of those nested in it, as its disposition says."""
    tables: list[PreparedTableSchema] = [dataset.client.prepare_load_table(one) for one in chain]
    names = {table: f"{STAGED}_{table}" for table in chain}
    for table in chain:
        _stage(txn, dataset, package, staged, table, names[table])
    match tables[0]["write_disposition"]:
        case "append":
            for table in chain:
                location = dataset.location(table)
                txn.append(location, _rows(txn, staged, location, names[table]))
        case "replace":
            for table in chain:
                location = dataset.location(table)
                txn.overwrite(location, _rows(txn, staged, location, names[table]))
        case "merge":
            merging = Merging(txn, staged, names, dataset.name)
            merging.merge(tables, dataset.client.sql_client)
        case other:
            raise InvalidOperation(
                f"table {chain[0]} has the write disposition {other!r}, which this destination "
                "does not know: append, replace and merge are",
                table=chain[0],
            )


def _stage(
    txn: Transaction[pa.Table],
    dataset: Dataset,
    package: LoadPackage,
    staged: StagedRows,
    table: str,
    name: str,
) -> None:
    columns = schema_in(txn, dataset.location(table))
    results = []
    for number, query in enumerate(package.models.get(table, ())):
        results.append(f"{name}_model_{number}")
        staged.add_rows(results[-1], txn.sql(query))
    staged.add_table(name, columns, package.files.get(table, ()), results)


def _rows(
    txn: Transaction[pa.Table], staged: StagedRows, location: str, name: str
) -> pa.RecordBatchReader:
    query = f"SELECT * FROM {quoted(name)}"
    columns = list(staged.columns(query))
    return staged.reader(staged.fitted(columns, query, schema_in(txn, location)))
