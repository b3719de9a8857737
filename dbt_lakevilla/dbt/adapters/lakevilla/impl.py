"""The adapter: what dbt's macros ask of a lake."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
from dbt.adapters.base import AdapterConfig, BaseRelation, available
from dbt.adapters.base.impl import ConstraintSupport
from dbt.adapters.contracts.connection import AdapterResponse
from dbt.adapters.lakevilla.column import LakeVillaColumn
from dbt.adapters.lakevilla.connections import LakeVillaConnectionManager
from dbt.adapters.lakevilla.handle import Handle
from dbt.adapters.lakevilla.python_models import run_python_model
from dbt.adapters.lakevilla.relation import LakeVillaRelation
from dbt.adapters.sql import SQLAdapter
from dbt_common.contracts.constraints import ConstraintType

from lakevilla.dbapi.types import columns_of
from lakevilla.errors import TableNotFound

if TYPE_CHECKING:
    import agate

#: What a query has if it has a column of type null: the value, not the tests of it.
_NULL = re.compile(r"(?<!\bis\s)(?<!\bnot\s)\bnull\b", re.IGNORECASE)


@dataclass
class LakeVillaConfig(AdapterConfig):
    """Configurations of models that other adapters do not have.

    Attributes
    ----------
    file_format : str, optional
        ``delta`` or ``iceberg``: the format of a table that is new.
    partition_by : str or list of str, optional
        Columns or transforms.
    table_properties : dict, optional
        As of ``TBLPROPERTIES``.
    """

    file_format: str | None = None
    partition_by: str | list[str] | None = None
    table_properties: dict[str, str] | None = None


class LakeVillaAdapter(SQLAdapter):
    """dbt's adapter for lakes."""

    ConnectionManager = LakeVillaConnectionManager
    connections: LakeVillaConnectionManager
    Column = LakeVillaColumn
    Relation = LakeVillaRelation
    AdapterSpecificConfigs = LakeVillaConfig

    CONSTRAINT_SUPPORT = {  # noqa: RUF012 (as the base class has it)
        ConstraintType.check: ConstraintSupport.ENFORCED,
        ConstraintType.not_null: ConstraintSupport.ENFORCED,
        ConstraintType.unique: ConstraintSupport.NOT_SUPPORTED,
        ConstraintType.primary_key: ConstraintSupport.NOT_SUPPORTED,
        ConstraintType.foreign_key: ConstraintSupport.NOT_SUPPORTED,
    }

    # -- the run -------------------------------------------------------------------

    def cleanup_connections(self) -> None:
        """Close the threads' sessions, and end the run: merge its branch, if it has one."""
        super().cleanup_connections()
        self.connections.run.end()

    # -- what a lake has ---------------------------------------------------------------

    @classmethod
    def date_function(cls) -> str:
        return "now()"

    @classmethod
    def is_cancelable(cls) -> bool:
        return False

    def debug_query(self) -> None:
        self.execute("select 1 as id")

    def valid_incremental_strategies(self) -> list[str]:
        return ["append", "delete+insert", "insert_overwrite", "merge", "microbatch"]

    def expand_column_types(self, goal: BaseRelation, current: BaseRelation) -> None:
        """Do nothing: text has any length."""

    def get_columns_in_relation(self, relation: BaseRelation) -> list[LakeVillaColumn]:
        """Return the columns of a table, a view or a temporary table; none if it is not there.

        An open transaction goes on then: what it has done before is not undone in silence.
        """
        text = f"select * from {relation.render()} limit 0"
        with self.connections.exception_handler(text):
            try:
                rows = self._handle.run(text)
            except TableNotFound:
                return []
        return [LakeVillaColumn(one.name, str(one.type_code)) for one in columns_of(rows.schema)]

    @available.parse(lambda *a, **k: [])
    def get_column_schema_from_query(self, sql: str) -> list[LakeVillaColumn]:
        """Return the columns of a query's rows."""
        _, cursor = self.connections.add_select_query(sql)
        return [
            LakeVillaColumn(column.name, str(column.type_code)) for column in cursor.description
        ]

    def _make_match_kwargs(self, database: str, schema: str, identifier: str) -> dict[str, str]:
        """Return a relation's parts as they are: a lake keeps the case of a name without quotes."""
        parts = {"database": database, "schema": schema, "identifier": identifier}
        return {name: part for name, part in parts.items() if part is not None}

    @available.parse(lambda *a, **k: None)
    def with_comments(self, catalog: agate.Table) -> agate.Table:
        """Return the rows of a catalog with the comments of its tables and columns."""
        import agate

        tables = {(row["table_schema"], row["table_name"]) for row in catalog.rows}
        found = {place: self._comments(*place) for place in sorted(tables)}

        def of(kind: str) -> Any:
            return lambda row: found[row["table_schema"], row["table_name"]].get(
                None if kind == "table" else row["column_name"]
            )

        return catalog.compute(
            [
                ("table_comment", agate.Formula(agate.Text(), of("table"))),
                ("column_comment", agate.Formula(agate.Text(), of("column"))),
            ],
            replace=True,
        )

    def _comments(self, schema: str, name: str) -> dict[str | None, str | None]:
        """Return the comments of columns by name, and that of the table under None."""
        relation = self.Relation.create(schema=schema, identifier=name).render()
        detail = self._handle.run(f"describe detail {relation}")
        columns = self._handle.run(f"describe {relation}")
        of_table = {row["name"]: row["value"] for row in detail.to_pylist()}.get("comment")
        return {None: of_table} | {row["name"]: row["comment"] for row in columns.to_pylist()}

    def drop_relation(self, relation: BaseRelation) -> None:
        if relation.schema is None:
            self._handle.drop(str(relation.identifier))
        else:
            super().drop_relation(relation)

    @property
    def _handle(self) -> Handle:
        handle: Handle = self.connections.get_thread_connection().handle
        return handle

    def _within_transaction(self) -> Handle:
        """Return this thread's handle, in a transaction."""
        if not self.connections.get_thread_connection().transaction_open:
            self.connections.begin()
        return self._handle

    # -- types -----------------------------------------------------------------------

    @available
    @classmethod
    def stored_type(cls, name: str) -> str:
        """Return the type of a column that holds what a query calls by this name.

        ``timestamp`` has no zone in a query; in the definition of a lake's table it is a moment.
        """
        return "timestamp without time zone" if name.strip().lower() == "timestamp" else name

    @available
    @classmethod
    def render_raw_columns_constraints(cls, raw_columns: dict[str, dict[str, Any]]) -> list[Any]:
        """Return the definitions of the columns of a contract."""
        columns = {
            name: {**column, "data_type": cls.stored_type(column["data_type"])}
            for name, column in raw_columns.items()
        }
        return super().render_raw_columns_constraints(columns)

    @available.parse(lambda sql: sql)
    def with_text_for_null(self, sql: str) -> str:
        """Return a query whose columns of type null are text, in the transaction of its thread."""
        if _NULL.search(sql) is None:
            return sql
        handle = self._within_transaction()
        with self.connections.exception_handler(sql):
            return handle.with_text_for_null(sql)

    # -- seeds -----------------------------------------------------------------------

    @classmethod
    def convert_number_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        import agate

        return "double" if agate_table.aggregate(agate.MaxPrecision(col_idx)) else "bigint"

    @classmethod
    def convert_integer_type(cls, agate_table: agate.Table, col_idx: int) -> str:
        return "bigint"

    @available
    def load_seed(
        self,
        relation: BaseRelation,
        rows: agate.Table,
        columns: Sequence[str],
        types: Sequence[str],
    ) -> str:
        """Insert the rows of a seed by one statement, and return it."""
        data = pa.table([pa.array(list(column)) for column in rows.columns], list(columns))
        values = ", ".join(
            f"cast({self.quote(name)} as {kind})" for name, kind in zip(columns, types, strict=True)
        )
        names = ", ".join(self.quote(name) for name in columns)
        text = f"insert into {relation.render()} ({names}) select {values} from dbt_seed"
        handle = self._within_transaction()
        with self.connections.exception_handler(text):
            handle.run(text, {"dbt_seed": data})
        return text

    # -- python models -------------------------------------------------------------------

    @available.parse_none
    def submit_python_job(
        self, parsed_model: dict[str, Any], compiled_code: str
    ) -> AdapterResponse:
        """Run a python model in the transaction of its thread."""
        handle = self._within_transaction()
        with self.connections.exception_handler(compiled_code):
            run_python_model(handle, parsed_model["alias"], compiled_code)
        return AdapterResponse(_message="OK")
