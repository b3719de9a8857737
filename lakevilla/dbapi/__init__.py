"""PEP 249 (DB-API) for lakes: ``connect``, connections, cursors.

This package uses ``lakevilla.api`` and adds nothing to a session but PEP 249's names, states and
errors. ``lakevilla.dbapi.sqlalchemy`` is the dialect on top of it.
"""

from lakevilla.dbapi.connection import Connection, connect
from lakevilla.dbapi.cursor import Cursor
from lakevilla.dbapi.errors import (
    DatabaseError,
    DataError,
    Error,
    IntegrityError,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    ProgrammingError,
    TransactionConflict,
    Warning,
)
from lakevilla.dbapi.types import (
    BINARY,
    DATETIME,
    NUMBER,
    ROWID,
    STRING,
    Binary,
    ColumnDescription,
    Date,
    DateFromTicks,
    Time,
    TimeFromTicks,
    Timestamp,
    TimestampFromTicks,
    TypeGroup,
)

__all__ = [
    "BINARY",
    "Binary",
    "ColumnDescription",
    "Connection",
    "Cursor",
    "DATETIME",
    "DataError",
    "DatabaseError",
    "Date",
    "DateFromTicks",
    "Error",
    "IntegrityError",
    "InterfaceError",
    "InternalError",
    "NUMBER",
    "NotSupportedError",
    "OperationalError",
    "ProgrammingError",
    "ROWID",
    "STRING",
    "Time",
    "TimeFromTicks",
    "Timestamp",
    "TimestampFromTicks",
    "TransactionConflict",
    "TypeGroup",
    "Warning",
    "apilevel",
    "connect",
    "paramstyle",
    "threadsafety",
]

apilevel = "2.0"
#: Threads may share a connection. They share its transaction, and wait for each other.
threadsafety = 2
#: Values are written ``:name``, as everywhere in LakeVilla.
paramstyle = "named"
