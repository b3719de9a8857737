"""What a table's rows look like, and how its files are laid out."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pyarrow as pa

from lakevilla.sql.expressions.tree import Expr


@dataclass(frozen=True, slots=True)
class Constraint:
    """A named CHECK constraint or invariant; rows for which it is not true are refused."""

    name: str
    expression: Expr
    sql: str


@dataclass(frozen=True, slots=True)
class PartitionField:
    """One part of what a file's rows have in common: a value made of a column of theirs.

    ``key`` names its value in ``DataFile.partition_values``, ``name`` in directories. ``path``
    is the column, or leads to a field within it. ``transform`` is Iceberg's (``identity``,
    ``day``, ``bucket[16]``).
    """

    key: str
    name: str
    path: tuple[str, ...]
    transform: str

    @property
    def column(self) -> str:
        """The column in which the value lies."""
        return self.path[0]

    @property
    def spelled(self) -> str:
        """As ``create_table`` takes it: ``c``, ``day(c.d)``, ``bucket(16, c)``."""
        source = ".".join(self.path)
        if self.transform == "identity":
            return source
        kind, _, rest = self.transform.partition("[")
        return f"{kind}({rest[:-1]}, {source})" if rest else f"{kind}({source})"


@dataclass(frozen=True, slots=True)
class SortField:
    """One part of the order of rows within a file: by what a transform makes of a column."""

    column: str
    transform: str
    descending: bool
    nulls_first: bool


@dataclass(frozen=True, slots=True)
class Layout:
    """How rows of a table are laid out in files: all that an engine needs to read and write them.

    Attributes
    ----------
    location : str
        Key prefix of the table; a file's key is ``location + "/" + path`` unless its path is a URI.
    table : str
        Name for messages.
    schema : pyarrow.Schema
        Logical columns in order, partition columns included, with nullability.
    physical : pyarrow.Schema
        The same fields in the same order under their physical names (equal to
        ``schema`` without column mapping), with ``PARQUET:field_id`` metadata
        where the table maps by id.
    by_field_id : bool
        Files are read by Parquet field id rather than by physical name.
    partition_by : tuple of str
        Logical names.
    statistics_columns : tuple of str
        Dotted physical names of the leaf columns for which statistics are kept.
    constraints : tuple of Constraint
        CHECK constraints and invariants. NOT NULL is in the schema.
    properties : Mapping
        The table's properties.
    change_data_feed : bool
        Rewrites must also write change files.
    compression : str
        Parquet compression codec.
    target_file_size_bytes : int, optional
        Where the table says at how many bytes data files are cut.
    known_as : pyarrow.Schema, optional
        The same fields under the names by which statistics know them, where these are
        not the physical ones.
    partition_fields : tuple of PartitionField
        Iceberg's partitioning of new files, whose columns are in the files too:
        ``partition_by`` is empty then.
    constants : tuple of (str, str)
        Columns, and keys of ``DataFile.partition_values`` that have their value for all rows
        of a file which lacks the column, as its footer tells.
    constants_within : tuple of (int, str)
        The same of fields within columns, by field id: files that lack one are not read.
    defaults : tuple of (str, str)
        Columns, and the value (in the text of partition values) that rows have there whose
        files lack the column and have no constant for it.
    uri : str
        The table's directory as an Iceberg table's files spell it.
    data_directory : str
        Where new data files go, below the table's directory.
    sort_by : tuple of SortField
        The order of rows within each new file.
    sort_order_id : int, optional
        What the table calls that order.
    identifier : tuple of paths
        The columns, or fields within them, that tell one row from another, as Iceberg's
        identifier fields say.
    """

    location: str
    table: str
    schema: pa.Schema
    physical: pa.Schema
    by_field_id: bool
    partition_by: tuple[str, ...]
    statistics_columns: tuple[str, ...]
    constraints: tuple[Constraint, ...]
    properties: Mapping[str, str]
    change_data_feed: bool = False
    compression: str = "snappy"
    target_file_size_bytes: int | None = None
    known_as: pa.Schema | None = None
    partition_fields: tuple[PartitionField, ...] = ()
    constants: tuple[tuple[str, str], ...] = ()
    constants_within: tuple[tuple[int, str], ...] = ()
    defaults: tuple[tuple[str, str], ...] = ()
    uri: str = ""
    data_directory: str = ""
    sort_by: tuple[SortField, ...] = ()
    sort_order_id: int | None = None
    identifier: tuple[tuple[str, ...], ...] = ()

    @property
    def statistics_schema(self) -> pa.Schema:
        """The fields under the names by which statistics know them."""
        return self.physical if self.known_as is None else self.known_as
