"""LakeVilla: transactions over the Delta and Iceberg tables you have, with no server.

``connect`` to a lake, begin a ``transaction``, read and write the lake's tables: the transaction
takes effect as a whole, or not at all. Clients without LakeVilla can still read and write the same
tables.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lakevilla.errors import (
    AlreadyCommitted,
    AuditFailed,
    CommitOutcomeUnknown,
    ConflictError,
    CorruptObject,
    ForeignConflict,
    InvalidOperation,
    LakeVillaError,
    LakeVillaWarning,
    MergeConflict,
    RefExists,
    RefNotFound,
    StoreError,
    TableExists,
    TableNotFound,
    TransactionAborted,
    TransactionNotFound,
    UnsafeStore,
    UnsupportedFormat,
    UnsupportedTableFeature,
    VersionNotFound,
)
from lakevilla.gauges import LakeMetrics
from lakevilla.results import (
    Backup,
    CommitResult,
    DiscoveredTable,
    Finding,
    HistoryEntry,
    KeptVersion,
    LoggedOperation,
    MergeResult,
    OperationResult,
    OptimizeResult,
    Outcome,
    QueuePlace,
    Ref,
    Report,
    TableHistoryEntry,
    TableQueue,
    TransactionInfo,
    Version,
)
from lakevilla.settings import Settings

if TYPE_CHECKING:
    from lakevilla.api.applying.diff import Diff
    from lakevilla.api.catalog.pages import ListedTable, TablePage
    from lakevilla.api.connecting import connect
    from lakevilla.api.lake import Lake
    from lakevilla.api.restoring import restore
    from lakevilla.api.session import Session
    from lakevilla.api.showing import show
    from lakevilla.api.snapshot import Snapshot, TableVersion
    from lakevilla.api.spark.source import register_data_source
    from lakevilla.api.spark_table import SparkTable
    from lakevilla.api.table import Capabilities, Table
    from lakevilla.api.transaction import Transaction
    from lakevilla.lake.context import Event
    from lakevilla.transaction.state.values import Feature

__version__ = "0.1.0"

__all__ = [
    "AlreadyCommitted",
    "AuditFailed",
    "Backup",
    "Capabilities",
    "CommitOutcomeUnknown",
    "CommitResult",
    "ConflictError",
    "CorruptObject",
    "Diff",
    "DiscoveredTable",
    "Event",
    "Feature",
    "Finding",
    "ForeignConflict",
    "HistoryEntry",
    "InvalidOperation",
    "KeptVersion",
    "Lake",
    "LakeMetrics",
    "LakeVillaError",
    "LakeVillaWarning",
    "ListedTable",
    "LoggedOperation",
    "MergeConflict",
    "MergeResult",
    "OperationResult",
    "OptimizeResult",
    "Outcome",
    "QueuePlace",
    "Ref",
    "RefExists",
    "RefNotFound",
    "Report",
    "Session",
    "Settings",
    "Snapshot",
    "SparkTable",
    "StoreError",
    "Table",
    "TableExists",
    "TableHistoryEntry",
    "TableNotFound",
    "TablePage",
    "TableQueue",
    "TableVersion",
    "Transaction",
    "TransactionAborted",
    "TransactionInfo",
    "TransactionNotFound",
    "UnsafeStore",
    "UnsupportedFormat",
    "UnsupportedTableFeature",
    "Version",
    "VersionNotFound",
    "connect",
    "register_data_source",
    "restore",
    "show",
]

#: The modules of the public names. They load slowly (pyarrow, DuckDB, the store's client), so each
#: is imported when one of its names is first used: importing the library, and the command line's
#: help, take almost no time.
_HOMES = {
    "Capabilities": "lakevilla.api.table",
    "Diff": "lakevilla.api.applying.diff",
    "Event": "lakevilla.lake.context",
    "Feature": "lakevilla.transaction.state.values",
    "Lake": "lakevilla.api.lake",
    "ListedTable": "lakevilla.api.catalog.pages",
    "Session": "lakevilla.api.session",
    "Snapshot": "lakevilla.api.snapshot",
    "SparkTable": "lakevilla.api.spark_table",
    "Table": "lakevilla.api.table",
    "TablePage": "lakevilla.api.catalog.pages",
    "TableVersion": "lakevilla.api.snapshot",
    "Transaction": "lakevilla.api.transaction",
    "connect": "lakevilla.api.connecting",
    "register_data_source": "lakevilla.api.spark.source",
    "restore": "lakevilla.api.restoring",
    "show": "lakevilla.api.showing",
}


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(import_module(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    """Return the public names for completion, without the library's subpackages."""
    return [*__all__, "__version__"]
