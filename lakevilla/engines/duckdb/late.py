"""DuckDB, loaded when the first of its names is used.

Opening a table, reading its log and appending to it need no DuckDB: a process that does no more
saves 30 MB and the time. Under the name ``duckdb``, this module replaces DuckDB's in all of this
folder.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duckdb import *  # noqa: F403 (their types; nothing is called by these names)
else:

    def __getattr__(name: str) -> Any:
        return getattr(import_module("duckdb"), name)
