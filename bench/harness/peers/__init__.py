"""The systems LakeVilla is compared with, each as its users run it, in a file of its own.

A peer is made for a run by its name, with an empty root behind the run's own proxy. What is not
installed is told by what brings it, so that the others run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Protocol

import pyarrow as pa

from bench.harness.benchmark import NotInstalled
from bench.harness.parameters import check_known
from bench.harness.store.places import Places


class Peer(Protocol):
    """What every peer can do with the tables of its root; each statement is whole when it returns.

    ``append`` to several tables is one transaction where the peer has such a thing, else one
    commit after the other.
    """

    def create(self, tables: Sequence[str], rows: pa.Table) -> None: ...

    def append(self, tables: Sequence[str], rows: pa.Table) -> None: ...

    def read(self, table: str, where: str | None = None) -> pa.Table:
        """The newest rows."""

    def update(self, table: str, change: Mapping[str, str], where: str) -> None:
        """Set columns to SQL expressions."""

    def close(self) -> None: ...


#: The file of each, and what installs it.
_FILES = {
    "deltalake": ("deltalake", "pip install 'lakevilla[bench]'"),
    "pyiceberg": ("pyiceberg", "pip install 'lakevilla[bench]'"),
    "DuckLake": ("ducklake", "pip install 'lakevilla[bench]'"),
    "Spark+Delta": ("spark_delta", "pip install 'lakevilla[spark]'"),
    "Spark+Iceberg": ("spark_iceberg", "pip install 'lakevilla[spark]'"),
}
PEERS = tuple(_FILES)


def peer(name: str, places: Places) -> Peer:
    """A peer with an empty root; raises ``NotInstalled`` where it is not here."""
    check_known("systems", name, PEERS)
    file, command = _FILES[name]
    try:
        made: Peer = import_module(f"bench.harness.peers.{file}").of(places)
    except ModuleNotFoundError as error:
        raise NotInstalled(f"{name} needs {error.name}: {command}") from error
    return made
