"""A loopback HTTP proxy that makes an S3 server as slow as a distant one, and counts requests.

Every system of a comparison goes through the same proxy, so all pay the same
latency for the same verbs, whatever client they use. It is a process of its own: some clients
hold Python's lock while they wait for an answer, which a thread of theirs could never give.

``python -m bench.harness.store.latency_proxy ENDPOINT PROFILE`` prints its own endpoint. Then it
answers each line on stdin with what it has counted, until there are no more.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

#: Milliseconds by verb: constant part; a tenth of it is added as jitter.
PROFILES = {
    "zero": {},
    "s3": {"GET": 27, "HEAD": 27, "PUT": 60, "LIST": 40, "DELETE": 30, "POST": 60},
    "express": {"GET": 5, "HEAD": 5, "PUT": 8, "LIST": 8, "DELETE": 5, "POST": 8},
}

_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "te", "upgrade"}


_COUNTED = ("requests", "metadata", "moved")


class LatencyProxy:
    """A proxy that runs; what it has seen since ``reset`` it is asked for."""

    def __init__(self, process: subprocess.Popen[str], upstream: str) -> None:
        self._process = process
        self._lock = threading.Lock()
        self.upstream = upstream
        self.endpoint = self._answer()

    @property
    def storage_options(self) -> dict[str, str]:
        """What a client needs to reach the server by way of this proxy."""
        return {
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_ALLOW_HTTP": "true",
            "AWS_ACCESS_KEY_ID": "bench",
            "AWS_SECRET_ACCESS_KEY": "bench-secret",
            "AWS_REGION": "us-east-1",
        }

    @property
    def requests(self) -> Counter[str]:
        """Requests by verb."""
        return Counter(self._ask("count")["requests"])

    @property
    def metadata(self) -> Counter[str]:
        """Of these, the requests that are not for rows of a table."""
        return Counter(self._ask("count")["metadata"])

    @property
    def moved(self) -> Counter[str]:
        """Bytes of bodies that were ``read`` and ``written``."""
        return Counter(self._ask("count")["moved"])

    def reset(self) -> None:
        """Count from zero."""
        self._ask("reset")

    def _ask(self, what: str) -> dict[str, dict[str, int]]:
        assert self._process.stdin is not None
        with self._lock:
            self._process.stdin.write(what + "\n")
            self._process.stdin.flush()
            found: dict[str, dict[str, int]] = json.loads(self._answer())
            return found

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the latency proxy ended with status {self._process.wait()}")
        return line.strip()


class _Server:
    """What the process of the proxy counts."""

    def __init__(self, upstream: str, profile: str, seed: int = 1) -> None:
        self.upstream = urlsplit(upstream)
        self.delays = PROFILES[profile]
        self.requests: Counter[str] = Counter()
        self.metadata: Counter[str] = Counter()
        self.moved: Counter[str] = Counter()
        self.lock = threading.Lock()
        self.random = random.Random(seed)
        self.reset()
        server = self

        class Handler(_Handler):
            owner = server

        self.http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.http.daemon_threads = True

    def serve(self) -> None:
        """Until stdin ends."""
        threading.Thread(target=self.http.serve_forever, daemon=True).start()
        print(f"http://127.0.0.1:{self.http.server_port}", flush=True)
        for line in sys.stdin:
            with self.lock:
                counted = (self.requests, self.metadata, self.moved)
                answer = json.dumps(dict(zip(_COUNTED, counted, strict=True)))
            if line.strip() == "reset":
                self.reset()
            print(answer, flush=True)

    def reset(self) -> None:
        with self.lock:
            self.requests = Counter()
            self.metadata = Counter()
            self.moved = Counter(read=0, written=0)

    def delay(self, verb: str, path: str) -> None:
        """Count a request and wait as long as it would take."""
        with self.lock:
            self.requests[verb] += 1
            self.metadata[verb] += not is_of_rows(path)
            milliseconds = self.delays.get(verb, 0) * (1 + 0.1 * self.random.random())
        time.sleep(milliseconds / 1000)

    def move(self, way: str, count: int) -> None:
        """Count bytes of a body."""
        with self.lock:
            self.moved[way] += count


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Small answers must not wait for an acknowledgement of their head.
    disable_nagle_algorithm = True
    wbufsize = -1
    owner: _Server

    def setup(self) -> None:
        super().setup()
        self.connection_upstream = http.client.HTTPConnection(
            self.owner.upstream.hostname or "127.0.0.1", self.owner.upstream.port, timeout=60
        )

    def finish(self) -> None:
        super().finish()
        self.connection_upstream.close()

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except (ConnectionError, TimeoutError):
            self.close_connection = True

    def handle_expect_100(self) -> bool:
        """Tell a client that waits for it to go on: at once, not when the answer is flushed."""
        goes_on = super().handle_expect_100()
        self.wfile.flush()
        return goes_on

    def forward(self) -> None:
        split = urlsplit(self.path)
        query = parse_qs(split.query, keep_blank_values=True)
        self.owner.delay(_verb(self.command, query), split.path)
        body = self.read_body()
        self.owner.move("written", len(body))
        headers = {k: v for k, v in self.headers.items() if k.lower() not in _HOP_BY_HOP}
        headers["Content-Length"] = str(len(body))
        upstream = self.connection_upstream
        try:
            upstream.request(self.command, self.path, body=body, headers=headers)
            answer = upstream.getresponse()
        except (http.client.HTTPException, ConnectionError):
            # The server closed an idle connection.
            upstream.close()
            upstream.request(self.command, self.path, body=body, headers=headers)
            answer = upstream.getresponse()
        content = answer.read()
        self.owner.move("read", len(content))
        self.send_response_only(answer.status, answer.reason)
        for key, value in answer.getheaders():
            if key.lower() not in _HOP_BY_HOP | {"content-length"}:
                self.send_header(key, value)
        length = answer.getheader("Content-Length") if self.command == "HEAD" else None
        self.send_header("Content-Length", length or str(len(content)))
        self.end_headers()
        self.wfile.write(content)
        self.wfile.flush()

    def read_body(self) -> bytes:
        if self.headers.get("Transfer-Encoding", "").lower() == "chunked":
            parts = []
            while size := int(self.rfile.readline().split(b";")[0], 16):
                parts.append(self.rfile.read(size))
                self.rfile.readline()
            self.rfile.readline()
            return b"".join(parts)
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = forward

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


def is_of_rows(path: str) -> bool:
    """Whether an object has rows of a table: checkpoints are Parquet files too."""
    return path.endswith(".parquet") and not any(part in path for part in _LOGS)


_LOGS = ("/_delta_log/", "/_lakevilla/", "/metadata/")


def _verb(command: str, query: Mapping[str, object]) -> str:
    """What a request is: lists are GETs, and deletions of many objects are POSTs."""
    if command == "GET" and "list-type" in query:
        return "LIST"
    return "DELETE" if command == "POST" and "delete" in query else command


@contextmanager
def latency_proxy(endpoint: str, profile: str) -> Iterator[LatencyProxy]:
    """Run a proxy in front of ``endpoint`` while the block lasts."""
    process = subprocess.Popen(
        [sys.executable, "-m", __spec__.name, endpoint, profile],
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        # Ctrl-C is for the benchmark, which closes its lakes first and then ends the proxy.
        start_new_session=True,
    )
    try:
        yield LatencyProxy(process, endpoint)
    finally:
        process.terminate()
        process.communicate()


if __name__ == "__main__":
    _Server(sys.argv[1], sys.argv[2]).serve()
