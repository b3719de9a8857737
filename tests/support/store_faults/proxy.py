"""A proxy in front of a real server that breaks the requests that a plan names."""

from __future__ import annotations

import http.client
import http.server
import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Literal, Protocol
from urllib.parse import parse_qs, unquote, urlsplit

Kind = Literal["get", "put", "head", "list", "delete"]
KINDS: tuple[Kind, ...] = ("get", "put", "head", "list", "delete")

#: Headers that hold of one connection alone.
_OF_CONNECTION = {"connection", "keep-alive", "transfer-encoding", "content-length"}


@dataclass(frozen=True)
class Asked:
    """A request of the client."""

    method: str
    path: str
    headers: dict[str, str]
    body: bytes

    @property
    def kind(self) -> Kind:
        if self.method == "GET":
            return "list" if "list-type" in parse_qs(urlsplit(self.path).query) else "get"
        if self.method == "POST" and "delete" in urlsplit(self.path).query:
            return "delete"
        kinds: dict[str, Kind] = {"HEAD": "head", "DELETE": "delete"}
        return kinds.get(self.method, "put")

    @property
    def key(self) -> str:
        """The object's key, with the bucket."""
        return unquote(urlsplit(self.path).path)


@dataclass(frozen=True)
class Answer:
    """An answer of the server, and how it gets to the client.

    Attributes
    ----------
    sent : int or None
        The number of bytes of the body after which the connection breaks.
    framing : {"length", "chunks", "close"}
        What tells the client the body's end: its length, an empty chunk, or nothing.
    is_reset : bool
        The connection breaks by a reset, and not by a proper end.
    """

    status: int
    headers: tuple[tuple[str, str], ...] = ()
    body: bytes = b""
    sent: int | None = None
    framing: Literal["length", "chunks", "close"] = "length"
    is_reset: bool = False

    def header(self, name: str) -> str | None:
        return next((value for key, value in self.headers if key.lower() == name), None)

    def but(self, name: str, value: str) -> tuple[tuple[str, str], ...]:
        """Return the headers with another value of one."""
        kept = tuple(pair for pair in self.headers if pair[0].lower() != name)
        return (*kept, (name, value))


Forward = Callable[[Asked], Answer]


class Fault(Protocol):
    """A way to break a request."""

    @property
    def name(self) -> str: ...
    @property
    def hits(self) -> frozenset[Kind]:
        """The kinds of requests that it breaks."""

    def __call__(self, asked: Asked, forward: Forward) -> Answer | None:
        """Answer a request; None cuts the connection."""


@dataclass
class Plan:
    """A fault, and the requests of its kinds that it breaks: ``length`` of them after ``first``.

    Attributes
    ----------
    fired : int
        The number of requests that it has changed.
    """

    fault: Fault
    first: int
    length: int
    seen: int = 0
    fired: int = 0
    lock: threading.Lock = field(default_factory=threading.Lock)

    def takes(self, asked: Asked) -> bool:
        """Count a request, and return whether it is one that breaks."""
        if asked.kind not in self.fault.hits:
            return False
        with self.lock:
            self.seen += 1
            return self.first < self.seen <= self.first + self.length

    def answer(self, asked: Asked, forward: Forward) -> Answer | None:
        whole: list[Answer] = []

        def noted(request: Asked) -> Answer:
            whole.append(forward(request))
            return whole[-1]

        answer = self.fault(asked, noted)
        with self.lock:
            self.fired += answer not in whole
        return answer


class FaultyProxy:
    """A proxy that runs; while it has a ``plan``, that decides each request.

    Attributes
    ----------
    watchers : list
        Called with each request that the server has answered, and its answer.
    """

    def __init__(self, upstream: str) -> None:
        self.plan: Plan | None = None
        self.watchers: list[Callable[[Asked, Answer], None]] = []
        self.netloc = urlsplit(upstream).netloc
        proxy = self

        class Handler(_Handler):
            owner = proxy

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()

    @contextmanager
    def breaking(self, plan: Plan) -> Iterator[Plan]:
        """Break requests by the plan while the block lasts."""
        self.plan = plan
        try:
            yield plan
        finally:
            self.plan = None


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    owner: FaultyProxy

    def setup(self) -> None:
        super().setup()
        self.upstream = http.client.HTTPConnection(self.owner.netloc, timeout=60)

    def finish(self) -> None:
        self.upstream.close()
        with suppress(OSError):
            super().finish()

    def handle_one_request(self) -> None:
        try:
            super().handle_one_request()
        except (ConnectionError, TimeoutError, ValueError):
            self.close_connection = True

    def answered(self) -> None:
        length = int(self.headers.get("content-length") or 0)
        plan = self.owner.plan
        asked = Asked(self.command, self.path, dict(self.headers), b"")
        breaks = plan is not None and plan.takes(asked)
        if breaks and plan is not None and plan.fault.name == "reset in the request":
            self.rfile.read(length // 2)
            plan.fired += 1
            self.end(is_reset=True)
            return
        asked = replace(asked, body=self.rfile.read(length))
        if breaks and plan is not None:
            answer = plan.answer(asked, self.forward)
        else:
            answer = self.forward(asked)
        if answer is None:
            self.end(is_reset=False)
        else:
            self.send(answer)

    do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = answered

    def forward(self, asked: Asked) -> Answer:
        headers = {k: v for k, v in asked.headers.items() if k.lower() not in _OF_CONNECTION}
        headers["Content-Length"] = str(len(asked.body))
        for attempt in range(2):
            try:
                self.upstream.request(asked.method, asked.path, asked.body, headers)
                response = self.upstream.getresponse()
                break
            except (http.client.HTTPException, ConnectionError):
                # The server has closed an idle connection: nothing was done.
                self.upstream.close()
                if attempt:
                    raise
        body = response.read()
        answer = Answer(response.status, tuple(response.getheaders()), body)
        for watch in self.owner.watchers:
            watch(asked, answer)
        return answer

    def send(self, answer: Answer) -> None:
        self.send_response_only(answer.status)
        for name, value in answer.headers:
            if name.lower() not in _OF_CONNECTION:
                self.send_header(name, value)
        if answer.framing == "length":
            of_head = answer.header("content-length") if self.command == "HEAD" else None
            self.send_header("Content-Length", of_head or str(len(answer.body)))
        elif answer.framing == "chunks":
            self.send_header("Transfer-Encoding", "chunked")
        else:
            self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            body = answer.body[: answer.sent]
            if answer.framing == "chunks":
                last = b"" if answer.sent is not None else b"0\r\n\r\n"
                body = b"%x\r\n%s\r\n" % (len(body), body) + last
            self.wfile.write(body)
        self.wfile.flush()
        if answer.sent is not None or answer.framing == "close":
            self.end(answer.is_reset)

    def end(self, is_reset: bool) -> None:
        self.close_connection = True
        if is_reset:
            linger = struct.pack("ii", 1, 0)
            self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        else:
            self.connection.shutdown(socket.SHUT_RDWR)

    def log_message(self, *_: object) -> None:
        """Say nothing."""
