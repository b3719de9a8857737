"""LakeVilla: transactions over the Delta tables you have, with no server.

``connect`` a lake, begin a ``transaction``, read and write its tables; all of it
takes effect together, or not at all. Clients that have never heard of LakeVilla
go on reading and writing the same tables.
"""

from lakevilla.api.lake import Lake
from lakevilla.api.snapshot import Snapshot, TableVersion
from lakevilla.api.spark.source import register_data_source
from lakevilla.api.table import Capabilities, Table
from lakevilla.api.transaction import Transaction
from lakevilla.connecting import connect
from lakevilla.errors import (
    AlreadyCommitted,
    CommitOutcomeUnknown,
    ConflictError,
    CorruptObject,
    ForeignConflict,
    InvalidOperation,
    LakeVillaError,
    LakeVillaWarning,
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
from lakevilla.lake.context import Event
from lakevilla.results import (
    CommitResult,
    Finding,
    HistoryEntry,
    LoggedOperation,
    OperationResult,
    OptimizeResult,
    Outcome,
    QueuePlace,
    Report,
    TableHistoryEntry,
    TableQueue,
    TransactionInfo,
)
from lakevilla.settings import Settings
from lakevilla.transaction.state.features import Feature

__version__ = "0.1.0"

__all__ = [
    "AlreadyCommitted",
    "Capabilities",
    "CommitOutcomeUnknown",
    "CommitResult",
    "ConflictError",
    "CorruptObject",
    "Event",
    "Feature",
    "Finding",
    "ForeignConflict",
    "HistoryEntry",
    "InvalidOperation",
    "Lake",
    "LakeVillaError",
    "LakeVillaWarning",
    "LoggedOperation",
    "OperationResult",
    "OptimizeResult",
    "Outcome",
    "QueuePlace",
    "Report",
    "Settings",
    "Snapshot",
    "StoreError",
    "Table",
    "TableExists",
    "TableHistoryEntry",
    "TableNotFound",
    "TableQueue",
    "TableVersion",
    "Transaction",
    "TransactionAborted",
    "TransactionInfo",
    "TransactionNotFound",
    "UnsafeStore",
    "UnsupportedFormat",
    "UnsupportedTableFeature",
    "VersionNotFound",
    "connect",
    "register_data_source",
]
