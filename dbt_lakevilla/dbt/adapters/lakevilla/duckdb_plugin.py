"""A plugin for dbt-duckdb, which reads sources from a lake, and stores models into it."""

from __future__ import annotations

from typing import Any

import pyarrow.parquet as pq
from dbt.adapters.duckdb.plugins import BasePlugin
from dbt.adapters.duckdb.utils import SourceConfig, TargetConfig

import lakevilla as lv

_OPTIONS = ("root", "storage_options", "settings")


class Plugin(BasePlugin):
    """The plugin ``dbt.adapters.lakevilla.duckdb_plugin``; its configuration has ``root``.

    All sources of a run are of one state of the lake, until the run itself stores a model.
    """

    def initialize(self, plugin_config: dict[str, Any]) -> None:
        unknown = sorted(set(plugin_config) - set(_OPTIONS))
        if "root" not in plugin_config or unknown:
            raise ValueError(
                f"plugin {self.name} of LakeVilla takes {', '.join(_OPTIONS)} in its config, and "
                f"needs root; it was given {', '.join(sorted(plugin_config)) or 'nothing'}"
            )
        settings = plugin_config.get("settings")
        self._lake = lv.connect(
            plugin_config["root"],
            storage_options=plugin_config.get("storage_options"),
            settings=None if settings is None else lv.Settings(**settings),
        )
        self._state: lv.Snapshot[Any] | None = None

    def load(self, source_config: SourceConfig) -> Any:
        """Return the rows of a source: of its ``query``, of its ``table``, or of its own name."""
        if self._state is None:
            self._state = self._lake.snapshot()
        if (query := source_config.get("query")) is not None:
            return self._state.sql(query)
        place = [source_config.schema, source_config.identifier]
        return self._state.read(source_config.get("table", "/".join(filter(None, place))))

    def store(self, target_config: TargetConfig) -> None:
        """Store an external model as a table, in the place of the rows that it has had."""
        relation, location = target_config.relation, target_config.location
        table = target_config.config.get("lakevilla_table")
        table = table or f"{relation.schema}/{relation.identifier}"
        if location is None or location.format != "parquet":
            raise ValueError(
                f"model {table} is stored from Parquet: leave format out of its config"
            )
        self._lake.create_table(table, pq.read_table(location.path), or_replace=True)
        self._state = None
