"""Exchanges of Iceberg clients with a gateway: recorded once, and replayed without the client.

A request is sent again as its client has sent it. What the client took from an earlier answer is
replaced by what that answer has now, and the manifest list of a new snapshot, which the client had
stored, is stored anew with one file.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Lock
from typing import Any

import msgspec
import requests
from pyiceberg.io import load_file_io
from pyiceberg.manifest import (
    DataFile,
    DataFileContent,
    FileFormat,
    ManifestEntry,
    ManifestEntryStatus,
    ManifestFile,
    write_manifest,
    write_manifest_list,
)
from pyiceberg.table.metadata import TableMetadata, TableMetadataUtil
from pyiceberg.typedef import Record

from tests.support.loopback import answering

#: Headers of the connection, and not of the request.
_OF_CONNECTION = frozenset(
    {"host", "connection", "content-length", "accept-encoding", "transfer-encoding", "upgrade"}
    | {"http2-settings", "authorization"}
)
#: Headers of an answer that a client may send back.
_SAID = ("ETag",)
#: The root of the lake in recorded texts.
_ROOT = "/recorded/lake"
#: The shortest value that is looked for in later requests: shorter ones are there by chance.
_LEAST_LENGTH = 8
_TIMEOUT_SECONDS = 60

Pointer = tuple[str | int, ...]


class Exchange(msgspec.Struct, omit_defaults=True):
    """A request of a client, and what matters of the answer.

    Attributes
    ----------
    path : str
        With its parameters.
    body : str
        The text that was sent.
    status : int
    gives : list of (pointer, value)
        Values of the answer that the client sends in later requests.
    """

    method: str
    path: str
    headers: dict[str, str]
    status: int
    body: str = ""
    gives: list[tuple[list[str | int], str | int]] = []


@contextmanager
def recording(uri: str, root: str, target: Path) -> Iterator[str]:
    """Return a block in which the exchanges with the gateway of a lake are recorded.

    The block has the URI that the client shall call. Of the reports of scans one is kept.
    """
    known: list[tuple[Exchange, Any]] = []
    lock = Lock()

    class Recorder(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            body = self.rfile.read(length)
            sent = {k: v for k, v in self.headers.items() if k.lower() not in _OF_CONNECTION}
            answer = requests.request(
                self.command, uri + self.path, data=body, headers=sent, timeout=_TIMEOUT_SECONDS
            )
            said = answer.json() if answer.content else {}
            said |= {name: answer.headers[name] for name in _SAID if name in answer.headers}
            exchange = Exchange(self.command, self.path, sent, answer.status_code, body.decode())
            with lock:
                known.append((exchange, said))
            self.send_response(answer.status_code)
            for name in ("Content-Type", *_SAID):
                if name in answer.headers:
                    self.send_header(name, answer.headers[name])
            self.send_header("Content-Length", str(len(answer.content)))
            self.end_headers()
            self.wfile.write(answer.content)

        do_POST = do_HEAD = do_DELETE = do_GET

        def log_message(self, format: str, *args: object) -> None:
            """Say nothing."""

    with answering(Recorder) as address:
        yield address
    reports = [one for one in known if one[0].path.endswith("/metrics")]
    kept = [one for one in known if one not in reports[1:]]
    _note_what_is_used(kept)
    lines = [msgspec.json.encode(exchange).decode() for exchange, _ in kept]
    target.write_text("\n".join(lines).replace(root, _ROOT) + "\n")


def recorded(source: Path) -> list[Exchange]:
    """Return the exchanges of a file."""
    return [
        msgspec.json.decode(line, type=Exchange) for line in source.read_text().splitlines() if line
    ]


class Player:
    """Sends recorded requests to a gateway.

    Parameters
    ----------
    ask : callable
        Sends a request: method, path, headers and body.
    """

    def __init__(self, ask: Callable[[Exchange], requests.Response]) -> None:
        self._ask = ask
        self._now: dict[str, str] = {}
        self._tables: dict[str, TableMetadata] = {}

    def play(self, exchange: Exchange) -> requests.Response:
        """Send a request; note what its answer has in place of the recorded values."""
        body = self._replaced(exchange.body)
        if '"add-snapshot"' in body:
            body = json.dumps(self._with_lists(json.loads(body)))
        path, headers = self._replaced(exchange.path), exchange.headers
        headers = {name: self._replaced(value) for name, value in headers.items()}
        now = msgspec.structs.replace(exchange, path=path, headers=headers, body=body)
        answer = self._ask(now)
        if answer.status_code == exchange.status:
            said = answer.json() if answer.content else {}
            said |= {name: answer.headers[name] for name in _SAID if name in answer.headers}
            for pointer, value in exchange.gives:
                self._now[str(value)] = str(_at(said, pointer))
            if "metadata" in said:
                metadata = TableMetadataUtil.parse_obj(said["metadata"])
                self._tables[metadata.location] = metadata
        return answer

    def _replaced(self, text: str) -> str:
        for before in sorted(self._now, key=len, reverse=True):
            bounds = (r"(?<!\d)", r"(?!\d)") if before.isdigit() else ("", "")
            pattern = bounds[0] + re.escape(before) + bounds[1]
            text = re.sub(pattern, lambda _, before=before: self._now[before], text)
        return text

    def _with_lists(self, body: dict[str, Any]) -> dict[str, Any]:
        """Store the manifest lists that the client had stored."""
        changes = body.get("table-changes", [body])
        for update in (update for change in changes for update in change["updates"]):
            if update["action"] == "add-snapshot":
                self._store_list(update["snapshot"])
        return body

    def _store_list(self, snapshot: Mapping[str, Any]) -> None:
        path = str(snapshot["manifest-list"])
        location = max((one for one in self._tables if path.startswith(f"{one}/")), key=len)
        metadata, number = self._tables[location], int(snapshot["snapshot-id"])
        io = load_file_io({}, location)
        parent = metadata.snapshot_by_id(snapshot.get("parent-snapshot-id") or -1)
        is_append = snapshot["summary"]["operation"] == "append"
        kept = parent.manifests(io) if parent is not None and is_append else []
        added = _manifest(metadata, f"{location}/metadata/{number}-added.avro", number)
        with write_manifest_list(
            metadata.format_version,
            io.new_output(path),
            number,
            snapshot.get("parent-snapshot-id"),
            int(snapshot["sequence-number"]),
            "null",
        ) as writer:
            writer.add_manifests([added, *kept])


def _manifest(metadata: TableMetadata, path: str, number: int) -> ManifestFile:
    """Store a manifest that adds one file of a row; return how a list names it."""
    io, spec = load_file_io({}, path), metadata.spec()
    file = DataFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"{metadata.location}/data/{number}.parquet",
        file_format=FileFormat.PARQUET,
        partition=Record(*[None for _ in spec.fields]),
        record_count=1,
        file_size_in_bytes=500,
    )
    entry = ManifestEntry.from_args(
        status=ManifestEntryStatus.ADDED, snapshot_id=number, data_file=file
    )
    with write_manifest(
        metadata.format_version, spec, metadata.schema(), io.new_output(path), number, "null"
    ) as writer:
        writer.add_entry(entry)
    return writer.to_manifest_file()


def _note_what_is_used(known: Sequence[tuple[Exchange, Any]]) -> None:
    """Note which values of each answer a later request has."""
    for number, (exchange, said) in enumerate(known):
        following = (one for one, _ in known[number + 1 :])
        later = "\n".join(f"{one.path} {[*one.headers.values()]} {one.body}" for one in following)
        exchange.gives = [
            (list(pointer), value) for pointer, value in _leaves(said) if _is_used(value, later)
        ]


def _is_used(value: str | int, text: str) -> bool:
    if isinstance(value, bool) or len(str(value)) < _LEAST_LENGTH:
        return False
    if isinstance(value, int):
        return re.search(rf"(?<!\d){value}(?!\d)", text) is not None
    return value in text


def _leaves(value: Any, pointer: Pointer = ()) -> Iterator[tuple[Pointer, str | int]]:
    if isinstance(value, Mapping):
        for name, part in value.items():
            yield from _leaves(part, (*pointer, name))
    elif isinstance(value, list):
        for place, part in enumerate(value):
            yield from _leaves(part, (*pointer, place))
    elif isinstance(value, (str, int)):
        yield pointer, value


def _at(value: Any, pointer: Sequence[str | int]) -> Any:
    for step in pointer:
        value = value[step]
    return value
