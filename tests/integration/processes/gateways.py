"""Gateways that are killed, REST clients that ask again elsewhere, and who writes beside them."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import requests
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.table import Table

import lakevilla as lv
from lakevilla.formats.iceberg.catalog.object_store_catalog import ObjectStoreCatalog

TABLES = ("n/a", "n/b")
SCHEMA = pa.schema([("id", pa.int64()), ("who", pa.string())])
#: How long a client waits for an answer before it takes it for lost.
PATIENCE_SECONDS = 4.0
#: How often a client sends one request before it gives up.
SENDINGS = 6
DONE, REFUSED = (200, 204), (409,)


class ServedProcess:
    """``lakevilla serve`` as a process that is killed and started again, at one port."""

    def __init__(self, root: str, options: Mapping[str, str]) -> None:
        self._root, self._options = root, options
        self.port = 0
        self.start()

    @property
    def uri(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def start(self) -> None:
        command = [str(Path(sys.executable).with_name("lakevilla")), "serve", self._root]
        command += ["--port", str(self.port)]
        self._process = subprocess.Popen(
            command, stdout=subprocess.PIPE, text=True, env={**os.environ, **self._options}
        )
        assert self._process.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:(\d+)", self._process.stdout.readline())
        assert found is not None, "the gateway did not start"
        self.port = int(found[1])

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()

    def stand_still(self, seconds: float) -> None:
        """Stop it in the middle of what it does, and have it go on later."""
        self._process.send_signal(signal.SIGSTOP)
        time.sleep(seconds)
        self._process.send_signal(signal.SIGCONT)


@dataclass
class Ledger:
    """What the clients were told of each row: its statuses, and whether it must be there."""

    statuses: dict[int, list[int]] = field(default_factory=dict)
    acknowledged: set[int] = field(default_factory=set)
    of_others: set[int] = field(default_factory=set)
    errors: list[str] = field(default_factory=list)
    _numbers: count[int] = field(default_factory=lambda: count(1))

    def number(self) -> int:
        return next(self._numbers)


class Crowd:
    """Everyone who writes to one lake at once, until a moment.

    Parameters
    ----------
    root : str
        A lake with the tables of ``TABLES``.
    options : mapping of str to str
        Environment and storage options by which clients reach it.
    seed : int
    """

    def __init__(self, root: str, options: Mapping[str, str], seed: int) -> None:
        self._root, self._options, self._seed = root, options, seed
        self.ledger = Ledger()
        self.gateways = [ServedProcess(root, options) for _ in range(2)]
        self.kills = 0
        self._ends = threading.Event()

    def run(self, seconds: float, *, pause: float = 2.0, foreign: bool = True) -> None:
        """Have three REST clients, one of LakeVilla's and maybe a foreign one write."""
        jobs: list[Callable[[], None]] = [
            *(lambda number=number: self._rest_client(number) for number in range(3)),
            self._lake_client,
            *([self._foreign_client] if foreign else []),
        ]
        with ThreadPoolExecutor(len(jobs)) as threads:
            running = [threads.submit(job) for job in jobs]
            self._kill_until(time.monotonic() + seconds, pause)
            self._ends.set()
            for one in running:
                one.result()

    def close(self) -> None:
        for gateway in self.gateways:
            gateway.kill()

    def catalog(self, gateway: int) -> RestCatalog:
        properties = {
            _OF_PYICEBERG[name]: value
            for name, value in self._options.items()
            if name in _OF_PYICEBERG
        }
        uri = self.gateways[gateway].uri
        return RestCatalog("lake", uri=uri, warehouse="lake", **properties)

    def _kill_until(self, end: float, pause: float) -> None:
        drawn = random.Random(self._seed)
        while time.monotonic() < end:
            self._ends.wait(pause * drawn.uniform(0.5, 1.5))
            gateway = drawn.choice(self.gateways)
            if drawn.random() < 0.3:
                gateway.stand_still(1.5 * PATIENCE_SECONDS * drawn.random())
            else:
                gateway.kill()
                gateway.start()
            self.kills += 1

    def _rest_client(self, number: int) -> None:
        drawn = random.Random(f"{self._seed} {number}")
        while not self._ends.is_set():
            row = self.ledger.number()
            try:
                catalog = self.catalog(drawn.randrange(2))
                tables = [catalog.load_table(tuple(name.split("/"))) for name in TABLES]
                body = appended(tables, row)
            except Exception:
                continue  # nothing was asked for: the gateway is away, or answers 503
            key = f"{self._seed}-{row}" if drawn.random() < 0.5 else None
            self.ledger.statuses[row] = list(self._send(body, key, drawn))
            if any(status in DONE for status in self.ledger.statuses[row]):
                self.ledger.acknowledged.add(row)

    def _send(self, body: bytes, key: str | None, drawn: random.Random) -> list[int]:
        """Send a request until it has an answer; then at times once more, as if that were lost.

        Returns
        -------
        list of int
            The statuses; 0 for a request without an answer.
        """
        found: list[int] = []
        headers = {"Content-Type": "application/json"}
        if key is not None:
            headers["Idempotency-Key"] = key
        asks_again = drawn.random() < 0.4
        for _ in range(SENDINGS):
            uri = drawn.choice(self.gateways).uri
            try:
                answer = requests.post(
                    f"{uri}/v1/transactions/commit",
                    data=body,
                    headers=headers,
                    timeout=PATIENCE_SECONDS,
                )
                found.append(answer.status_code)
                if answer.status_code not in (*DONE, *REFUSED, 429, 500, 503, 504):
                    self.ledger.errors.append(f"{answer.status_code} {answer.text[:300]}")
            except requests.RequestException:
                found.append(0)
            if found[-1] in (*DONE, *REFUSED):
                if not asks_again:
                    break
                asks_again = False
            else:
                self._ends.wait(0.2 * drawn.random())
        return found

    def _lake_client(self) -> None:
        with lv.connect(self._root, storage_options=dict(self._options) or None) as lake:
            while not self._ends.wait(2.0):
                row = self.ledger.number()

                def append(txn: lv.Transaction, row: int = row) -> None:
                    for name in TABLES:
                        txn.append(name, [{"id": row, "who": "lake"}])

                lake.run(append)
                self.ledger.acknowledged.add(row)

    def _foreign_client(self) -> None:
        """Append to one table, without the lake's knowledge."""
        catalog = ObjectStoreCatalog("foreign", warehouse=self._root)
        while not self._ends.wait(4.0):
            row = self.ledger.number()
            rows = pa.Table.from_pylist([{"id": row, "who": "foreign"}], schema=SCHEMA)
            try:
                catalog.load_table(tuple(TABLES[0].split("/"))).append(rows)
            except Exception:
                continue  # another commit was first, as it may be
            self.ledger.of_others.add(row)


#: The names of pyiceberg for options of a store.
_OF_PYICEBERG = {
    "AWS_ENDPOINT_URL": "s3.endpoint",
    "AWS_ACCESS_KEY_ID": "s3.access-key-id",
    "AWS_SECRET_ACCESS_KEY": "s3.secret-access-key",
    "AWS_REGION": "s3.region",
}


def appended(tables: Sequence[Table], row: int) -> bytes:
    """Return the body of a request that appends a row to all tables at once."""
    changes = []
    for table in tables:
        transaction = table.transaction()
        transaction.append(pa.Table.from_pylist([{"id": row, "who": "rest"}], schema=SCHEMA))
        *namespace, name = table.name()
        changes.append(
            {
                "identifier": {"namespace": namespace, "name": name},
                "requirements": [_json(one) for one in transaction._requirements],
                "updates": [_json(one) for one in transaction._updates],
            }
        )
    return json.dumps({"table-changes": changes}).encode()


def _json(model: Any) -> Any:
    return json.loads(model.model_dump_json(by_alias=True, exclude_none=True))
