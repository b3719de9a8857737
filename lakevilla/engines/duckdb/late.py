"""DuckDB, loaded with the first of its names that is asked for.

To open a table, to look at its log and to append to it needs none: a process that does no
more saves 30 MB and the time. As ``duckdb`` it stands for that module in all of this folder.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from duckdb import *  # noqa: F403 (their types; nothing is called by these names)
else:

    def __getattr__(name: str) -> Any:
        return getattr(import_module("duckdb"), name)
