"""The client of the destination: what dlt's loader calls for each load package."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from dlt.common import json
from dlt.common.destination import DestinationCapabilitiesContext, PreparedTableSchema
from dlt.common.destination.client import JobClientBase, LoadJob, RunnableLoadJob
from dlt.common.destination.exceptions import DestinationTerminalException
from dlt.common.schema import Schema, TColumnSchema, TSchemaTables
from dlt.common.schema.typing import TColumnType, TTableSchemaColumns
from dlt.destinations.job_client_impl import SqlJobClientBase

from lakevilla.api.run import ATTEMPTS
from lakevilla.clock import SystemClock
from lakevilla.dbapi.dlt.configuration import LakeVillaClientConfiguration
from lakevilla.dbapi.dlt.loading import Dataset, drop, load_package, migrate
from lakevilla.dbapi.dlt.package import current_package, is_in_package
from lakevilla.dbapi.dlt.sql_client import LakeVillaSqlClient
from lakevilla.errors import InvalidOperation, TableExists

__all__ = ["LakeVillaClient"]


#: Names that mean, in SQL, something else than a directory below the lake's root.
RESERVED = frozenset({"", "main", "information_schema", "temp", "_dlt_staged"})


class CheckJob(RunnableLoadJob):
    """A job that checks its file and writes nothing: the package is written whole at its end."""

    def run(self) -> None:
        """Refuse a file that is no Parquet, before the package's other jobs are waited for."""
        if self._parsed_file_name.file_format != "parquet":
            return
        try:
            pq.read_metadata(self._file_path)
        except (pa.ArrowException, OSError) as error:
            raise DestinationTerminalException(
                f"file {self._file_path} of the load package is no Parquet file ({error}): drop "
                "the pending package, pipeline.drop_pending_packages(), and extract its data again"
            ) from error


class LakeVillaClient(SqlJobClientBase):
    """A client of one dataset of a lake.

    While dlt loads a package, its requests to create, change, empty and drop tables, and its jobs,
    write nothing. ``complete_load`` writes them all, in one transaction.
    """

    def __init__(
        self,
        schema: Schema,
        config: LakeVillaClientConfiguration,
        capabilities: DestinationCapabilitiesContext,
    ) -> None:
        name = config.normalize_dataset_name(schema)
        if name.lower() in RESERVED:
            raise InvalidOperation(
                f"dataset_name {name!r} is a schema of SQL that is no directory of a lake: choose "
                "another"
            )
        client = LakeVillaSqlClient(name, config, capabilities)
        super().__init__(schema, config, client)
        self.config: LakeVillaClientConfiguration = config
        self.type_mapper = capabilities.get_type_mapper()

    # -- what dlt asks for before the jobs -----------------------------------------

    def initialize_storage(self, truncate_tables: Iterable[str] | None = None) -> None:
        """Create the dataset, or empty tables of it; in a load package do nothing yet."""
        if not is_in_package():
            super().initialize_storage(truncate_tables)

    def update_stored_schema(
        self,
        only_tables: Iterable[str] | None = None,
        expected_update: TSchemaTables | None = None,
        force: bool = False,
    ) -> TSchemaTables:
        """Return the columns that the tables lack, and add them; in a load package, not yet."""
        JobClientBase.update_stored_schema(self, only_tables, expected_update, force)
        tables = set(only_tables or self.schema.tables)
        missing = self._missing(tables)
        if not is_in_package():
            self._run(lambda txn: migrate(txn, self._dataset(), tables))
        return missing

    def drop_storage(self) -> None:
        """Drop the dataset from the lake with all its tables; their files stay."""
        self.sql_client.drop_dataset()

    def drop_tables(self, *tables: str, delete_schema: bool = True) -> None:
        """Drop tables, and forget the versions of the schema; in a load package, not yet."""
        if not is_in_package():
            self._run(lambda txn: drop(txn, self._dataset(), tables, forgets_schema=delete_schema))

    def _missing(self, tables: Iterable[str]) -> TSchemaTables:
        found: TSchemaTables = {}
        for table, present in self.get_storage_tables(tables):
            new = self._create_table_update(table, present)
            if new:
                part: Any = dict(self.prepare_load_table(table))
                part["columns"] = {column["name"]: column for column in new}
                found[table] = part
        return found

    # -- the load -------------------------------------------------------------------

    def create_load_job(
        self, table: PreparedTableSchema, file_path: str, load_id: str, restore: bool = False
    ) -> LoadJob:
        """Return the job of one file, which only checks it."""
        return CheckJob(file_path)

    def complete_load(self, load_id: str) -> None:
        """Write all that the package asks for in one transaction, once."""
        package = current_package(load_id, self.schema)
        self._run(lambda txn: load_package(txn, self._dataset(), package), load_id)

    def _run(self, write: Any, load_id: str | None = None) -> None:
        metadata = {"dlt.schema": self.schema.name}
        if load_id is not None:
            metadata["dlt.load_id"] = load_id
        for attempt in range(ATTEMPTS):
            try:
                self.config.lake().run(write, metadata=metadata)
                return
            except TableExists:
                # another load has created one of the tables meanwhile: take it as it is
                if attempt + 1 == ATTEMPTS:
                    raise

    def _dataset(self) -> Dataset:
        name = self.sql_client.fully_qualified_dataset_name(quote=False)
        return Dataset(name, self.schema, self)

    # -- rows of dlt's own tables -----------------------------------------------------

    def named(self, column: str) -> str:
        """Return the name of a column of dlt's own tables in the schema's naming."""
        return str(self.schema.naming.normalize_path(column))

    def load_row(self, load_id: str) -> Mapping[str, object]:
        """Return the row of the table of loads that says that a load is complete."""
        return self._row(
            load_id=load_id,
            schema_name=self.schema.name,
            status=0,
            inserted_at=_now(),
            schema_version_hash=self.schema.version_hash,
        )

    def version_row(self) -> Mapping[str, object]:
        """Return the row of the table of versions that has the schema."""
        return self._row(
            version=self.schema.version,
            engine_version=self.schema.ENGINE_VERSION,
            inserted_at=_now(),
            schema_name=self.schema.name,
            version_hash=self.schema.stored_version_hash,
            schema=json.dumps(self.schema.to_dict()),
        )

    def _row(self, **values: object) -> dict[str, object]:
        return {self.named(name): value for name, value in values.items()}

    # -- columns ---------------------------------------------------------------------

    def new_columns(self, table: str, present: pa.Schema | None) -> Sequence[TColumnSchema]:
        """Return the columns of a table in dlt's schema that are not present in the lake."""
        names = [] if present is None else present.names
        stored: TTableSchemaColumns = {name: {"name": name} for name in names}
        return list(self._create_table_update(table, stored))

    def _from_db_type(self, db_type: str, precision: int | None, scale: int | None) -> TColumnType:
        return self.type_mapper.from_destination_type(db_type, precision, scale)


def _now() -> datetime:
    return datetime.fromtimestamp(SystemClock().now(), UTC)
