"""The destination's factory: what dlt's pipelines are given."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from dlt.common.arithmetics import DEFAULT_NUMERIC_PRECISION, DEFAULT_NUMERIC_SCALE
from dlt.common.data_writers.escape import escape_duckdb_literal, escape_postgres_identifier
from dlt.common.destination import Destination, DestinationCapabilitiesContext
from dlt.common.schema.typing import MERGE_STRATEGIES

from lakevilla.dbapi.dlt.client import LakeVillaClient
from lakevilla.dbapi.dlt.columns import LakeVillaTypeMapper
from lakevilla.dbapi.dlt.configuration import LakeVillaClientConfiguration

__all__ = ["lakevilla"]

_STRATEGIES = ("delete-insert", "upsert", "scd2", "insert-only", "cdc")


class lakevilla(Destination):
    """A destination of dlt: a lake, in which each load package is one transaction.

    Parameters
    ----------
    root : str or os.PathLike, optional
        The lake's root, as for ``lakevilla.connect``. If not given, dlt's configuration has it:
        ``root`` in ``[destination.lakevilla]``.
    storage_options : Mapping, optional
        As for ``lakevilla.connect``; else ``[destination.lakevilla.storage_options]``.
    branch : str, optional
        A branch of the lake, which must exist, to load to and to read from.
    destination_name : str, optional
        The section of dlt's configuration, if it is not ``lakevilla``.
    environment : str, optional
        The environment of the destination.
    **kwargs
        Fields of dlt's configuration of destinations, and capabilities.

    Examples
    --------
    >>> import dlt
    >>> from lakevilla.dlt import lakevilla
    >>> pipeline = dlt.pipeline("shop", destination=lakevilla("warehouse"), dataset_name="shop")
    """

    spec = LakeVillaClientConfiguration

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        storage_options: Mapping[str, object] | None = None,
        branch: str | None = None,
        destination_name: str | None = None,
        environment: str | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(
            root=None if root is None else os.fspath(root),
            storage_options=None if storage_options is None else dict(storage_options),
            branch=branch,
            destination_name=destination_name,
            environment=environment,
            **kwargs,
        )

    def __repr__(self) -> str:
        # dlt's has all that it was given, the store's keys among it.
        shown = {**self.config_params, "destination_name": self.destination_name}
        if shown.get("storage_options"):
            shown["storage_options"] = dict.fromkeys(shown["storage_options"], "***")
        return f"lakevilla({', '.join(f'{key}={value!r}' for key, value in shown.items())})"

    @property
    def client_class(self) -> type[LakeVillaClient]:
        """The class of the clients that load and read."""
        return LakeVillaClient

    def _raw_capabilities(self) -> DestinationCapabilitiesContext:
        caps = DestinationCapabilitiesContext()
        caps.preferred_loader_file_format = "parquet"
        caps.supported_loader_file_formats = ["parquet", "model"]
        caps.supported_staging_file_formats = []
        caps.preferred_table_format = None
        caps.supported_table_formats = ["delta", "iceberg"]
        caps.type_mapper = LakeVillaTypeMapper
        caps.escape_identifier = escape_postgres_identifier
        caps.escape_literal = escape_duckdb_literal
        caps.has_case_sensitive_identifiers = False
        caps.decimal_precision = (DEFAULT_NUMERIC_PRECISION, DEFAULT_NUMERIC_SCALE)
        caps.wei_precision = (DEFAULT_NUMERIC_PRECISION, 0)
        caps.timestamp_precision = 6
        caps.max_timestamp_precision = 6
        caps.max_identifier_length = 200  # a file system's, with what is appended to it
        caps.max_column_identifier_length = 1024
        caps.max_query_length = 32 * 1024 * 1024
        caps.is_max_query_length_in_bytes = True
        caps.max_text_data_type_length = 1024 * 1024 * 1024
        caps.is_max_text_data_type_length_in_bytes = True
        caps.supports_transactions = True
        caps.supports_ddl_transactions = True
        caps.supports_multiple_statements = False
        caps.supports_truncate_command = False
        caps.supports_nested_types = True
        caps.enforces_nulls_on_alter = False
        caps.schema_supports_numeric_precision = False
        caps.supported_merge_strategies = [one for one in _STRATEGIES if one in MERGE_STRATEGIES]
        caps.supported_replace_strategies = [
            "truncate-and-insert",
            "insert-from-staging",
            "staging-optimized",
        ]
        caps.sqlglot_dialect = "duckdb"
        return caps


lakevilla.register()
