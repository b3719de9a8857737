"""A gateway that really serves, and clients that know nothing of LakeVilla."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from queue import Queue
from typing import Any

import duckdb
import requests
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import Table

import lakevilla as lv
from lakevilla.serve.access import EVERYTHING
from lakevilla.serve.server import server_of
from tests.contract.foreign_readers import extension


@dataclass(frozen=True)
class Gateway:
    """A server at a port of this machine; each request of ``ask`` is one of its own."""

    uri: str
    token: str | None = None

    def ask(
        self,
        path: str,
        *,
        method: str = "GET",
        headers: Mapping[str, str] | None = None,
        **options: Any,
    ) -> requests.Response:
        """Return the answer to a request of ``/v1`` and ``path``."""
        sent = {} if self.token is None else {"Authorization": f"Bearer {self.token}"}
        url = f"{self.uri}/v1{path}"
        sent |= dict(headers or {})
        return requests.request(method, url, headers=sent, timeout=30, **options)

    def refused(self, path: str, **options: Any) -> tuple[int, str, str]:
        """Return the status, the type and the message of a request that is refused."""
        answer = self.ask(path, **options)
        error = answer.json()["error"]
        assert error["code"] == answer.status_code
        return answer.status_code, error["type"], error["message"]

    def pyiceberg(self, warehouse: str = "lake") -> RestCatalog:
        """Return the lake, or a state of it, as a catalog of pyiceberg."""
        options = {} if self.token is None else {"token": self.token}
        return RestCatalog("lake", uri=self.uri, warehouse=warehouse, **options)

    def duckdb(self, warehouse: str = "lake") -> duckdb.DuckDBPyConnection:
        """Return a connection of DuckDB to which the lake is attached as ``l``."""
        connection = duckdb.connect(config={"allow_unsigned_extensions": "true"})
        for name in ("httpfs", "avro", "iceberg"):
            connection.execute(f"LOAD '{extension(name)}'")
        access = "AUTHORIZATION_TYPE 'none'" if self.token is None else f"TOKEN '{self.token}'"
        connection.execute(
            f"ATTACH '{warehouse}' AS l (TYPE iceberg, ENDPOINT '{self.uri}', "
            f"{access}, ACCESS_DELEGATION_MODE 'none')"
        )
        return connection


def body_of_commit(table: Table, change: Callable[[], object]) -> Any:
    """Return the body by which a table of pyiceberg commits a change that adds a snapshot."""
    catalog: Any = table.catalog
    bodies: list[Any] = []
    send = catalog._session.send

    def kept(request: Any, **options: Any) -> Any:
        bodies.append(request.body)
        return send(request, **options)

    catalog._session.send = kept
    try:
        change()
    finally:
        catalog._session.send = send
    return next(one for one in reversed(bodies) if one and "add-snapshot" in str(one))


@contextmanager
def serving(lake: lv.Lake, *, token: str | None = None, **options: Any) -> Iterator[Gateway]:
    """Return a block in which a gateway serves a lake at a port that was free.

    ``token``: the only one, with all rights.
    """
    uris: Queue[str] = Queue()
    if token is not None:
        options["tokens"] = {token: EVERYTHING}
    server = server_of(lake, port=0, when_started=uris.put, **options)
    thread = threading.Thread(target=server.run)
    thread.start()
    try:
        yield Gateway(uris.get(timeout=30), token)
    finally:
        server.should_exit = True
        thread.join()
