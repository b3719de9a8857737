"""The connections of dbt's threads: a session each, on the lake of the run."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing.context import SpawnContext
from typing import Any

import click
from dbt.adapters.contracts.connection import (
    AdapterRequiredConfig,
    AdapterResponse,
    Connection,
    ConnectionState,
)
from dbt.adapters.exceptions import FailedToConnectError
from dbt.adapters.lakevilla.handle import Cursor, Handle
from dbt.adapters.lakevilla.run import Run
from dbt.adapters.sql import SQLConnectionManager
from dbt_common.exceptions import DbtDatabaseError, DbtRuntimeError
from dbt_common.invocation import get_invocation_id

from lakevilla.errors import LakeVillaError


class LakeVillaConnectionManager(SQLConnectionManager):
    """The connections of one adapter, which share one lake."""

    TYPE = "lakevilla"

    def __init__(self, profile: AdapterRequiredConfig, mp_context: SpawnContext) -> None:
        super().__init__(profile, mp_context)
        self.run = Run(profile.credentials, _command())  # type: ignore[arg-type]

    def open(self, connection: Connection) -> Connection:  # type: ignore[override]
        """Open a session; the lake is that of this manager, so this is no class method."""
        if connection.state == ConnectionState.OPEN:
            return connection
        try:
            connection.handle = Handle(self.run.lake(), self.profile.credentials.isolation)
        except LakeVillaError as error:
            connection.handle, connection.state = None, ConnectionState.FAIL
            raise FailedToConnectError(str(error)) from error
        connection.state = ConnectionState.OPEN
        return connection

    def cancel(self, connection: Connection) -> None:
        """Do nothing: a statement ends by itself, and what it did is committed by nobody."""

    def add_begin_query(self) -> tuple[Connection, Any]:
        """Begin a transaction that notes the node and the invocation in the lake's history."""
        connection = self.get_thread_connection()
        notes = {"dbt": connection.name or "", "dbt_invocation_id": get_invocation_id()}
        with self.exception_handler("BEGIN"):
            connection.handle.begin(notes)
        return connection, None

    @contextmanager
    def exception_handler(self, sql: str) -> Iterator[None]:
        """Give dbt's exceptions for those of the lake, and undo the transaction."""
        try:
            yield
        except DbtRuntimeError:
            raise
        except LakeVillaError as error:
            self.rollback_if_open()
            raise DbtDatabaseError(str(error)) from error
        except Exception as error:
            self.rollback_if_open()
            raise DbtRuntimeError(f"{type(error).__name__}: {error}") from error

    @classmethod
    def get_response(cls, cursor: Cursor | None) -> AdapterResponse:
        """Return what dbt prints about a statement; counts of writes are read by nobody."""
        count = -1 if cursor is None else cursor.rowcount
        if count < 0:
            return AdapterResponse(_message="OK")
        return AdapterResponse(_message=f"SELECT {count}", code="SELECT", rows_affected=count)

    @classmethod
    def data_type_code_to_name(cls, type_code: int | str) -> str:
        """Return the name of a column's type, which is its code already."""
        return str(type_code)


def _command() -> str:
    """Return the command that the user gave; within ``dbt retry`` the flags say another one."""
    context = click.get_current_context(silent=True)
    return "" if context is None or context.info_name is None else context.info_name
