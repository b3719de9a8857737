"""A loopback HTTP proxy that makes an S3 server as slow as a distant one, and counts requests.

Every system of a comparison goes through the same proxy, so all pay the same
latency for the same verbs, whatever client they use.
"""

from __future__ import annotations

import http.client
import random
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

#: Milliseconds by verb: constant part; a tenth of it is added as jitter.
PROFILES = {
    "zero": {},
    "s3": {"GET": 27, "HEAD": 27, "PUT": 60, "LIST": 40, "DELETE": 30, "POST": 60},
    "express": {"GET": 5, "HEAD": 5, "PUT": 8, "LIST": 8, "DELETE": 5, "POST": 8},
}

_HOP_BY_HOP = {"connection", "keep-alive", "transfer-encoding", "te", "upgrade"}


class LatencyProxy:
    """What the proxy has seen: ``requests`` counts by verb since ``reset``."""

    def __init__(self, endpoint: str, profile: str, seed: int = 1) -> None:
        self.upstream = urlsplit(endpoint)
        self.delays = PROFILES[profile]
        self.requests: Counter[str] = Counter()
        self.lock = threading.Lock()
        self.random = random.Random(seed)
        proxy = self

        class Handler(_Handler):
            owner = proxy

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self.server.server_port}"

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

    def reset(self) -> None:
        """Count from zero."""
        with self.lock:
            self.requests.clear()

    def delay(self, verb: str) -> None:
        """Count a request and wait as long as it would take."""
        with self.lock:
            self.requests[verb] += 1
            milliseconds = self.delays.get(verb, 0) * (1 + 0.1 * self.random.random())
        time.sleep(milliseconds / 1000)


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # Small answers must not wait for an acknowledgement of their head.
    disable_nagle_algorithm = True
    wbufsize = -1
    owner: LatencyProxy

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
        listing = self.command == "GET" and "list-type" in parse_qs(split.query)
        self.owner.delay("LIST" if listing else self.command)
        body = self.read_body()
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


@contextmanager
def latency_proxy(endpoint: str, profile: str) -> Iterator[LatencyProxy]:
    """Run a proxy in front of ``endpoint`` while the block lasts."""
    proxy = LatencyProxy(endpoint, profile)
    thread = threading.Thread(target=proxy.server.serve_forever, daemon=True)
    thread.start()
    try:
        yield proxy
    finally:
        proxy.server.shutdown()
        proxy.server.server_close()
