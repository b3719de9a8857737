"""A gateway in front of a real server: it ignores some conditions, or loses answers."""

from __future__ import annotations

import http.client
import threading
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Literal
from urllib.parse import urlsplit

__all__ = ["Flaw", "Gateway"]

Flaw = Literal["ignored", "refused", "match ignored", "match refused", "without ranges", "none"]


class Gateway:
    """Pass requests on to a server, except as its flaw says.

    Parameters
    ----------
    endpoint : str
        The server's address.
    flaw : str
        Conditions of a PUT that the gateway ignores, or refuses with 501: all, or ``If-Match``
        alone. Or the gateway ignores ranges and answers the whole object with 200.

    Attributes
    ----------
    conditional : int
        The number of PUTs under such a condition.
    loses : callable
        Returns, for a method and a path, whether the answer of the performed request is lost.
    fails : callable
        Returns, for a method and a path, the status of the answer, and whether the request is
        passed on before that; None: the server's own answer is returned.
    lost : int
        The number of answers that were lost.
    """

    def __init__(self, endpoint: str, flaw: Flaw = "none") -> None:
        upstream = urlsplit(endpoint).netloc
        self.conditional = 0
        self.lost = 0
        self.loses: Callable[[str, str], bool] = lambda method, path: False
        self.fails: Callable[[str, str], tuple[int, bool] | None] = lambda method, path: None
        gateway = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def pass_on(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                headers = dict(self.headers.items())
                unknown = ("if-match",) if "match" in flaw else ("if-match", "if-none-match")
                conditions = [key for key in headers if key.lower() in unknown]
                if self.command == "PUT" and conditions:
                    gateway.conditional += 1
                    if flaw.endswith("refused"):
                        self._answer(501, {}, b"<Error><Code>NotImplemented</Code></Error>")
                        return
                    if flaw.endswith("ignored"):
                        headers = {k: v for k, v in headers.items() if k not in conditions}
                failing = gateway.fails(self.command, urlsplit(self.path).path)
                if failing is not None and not failing[1]:
                    self._answer(failing[0], {}, b"{}")
                    return
                connection = http.client.HTTPConnection(upstream, timeout=30)
                try:
                    connection.request(self.command, self.path, body, headers)
                    answer = connection.getresponse()
                    content = answer.read()
                finally:
                    connection.close()
                if gateway.loses(self.command, urlsplit(self.path).path):
                    gateway.lost += 1
                    self.close_connection = True
                    return
                if failing is not None:
                    self._answer(failing[0], {}, b"{}")
                    return
                status = answer.status
                if flaw == "without ranges" and status in (206, 416):
                    # The client goes by the status. Without the range header, the signature of a
                    # signed request would be wrong.
                    body = content if status == 206 else b""
                    self._answer(200, dict(answer.getheaders()), body)
                    return
                self._answer(status, dict(answer.getheaders()), content)

            def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
                self.send_response_only(status)
                length = headers.get("Content-Length") or headers.get("content-length")
                for key, value in headers.items():
                    if key.lower() not in ("content-length", "transfer-encoding", "connection"):
                        self.send_header(key, value)
                is_head = self.command == "HEAD" and length is not None
                self.send_header("Content-Length", str(length) if is_head else str(len(body)))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(body)

            do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = pass_on

            def log_message(self, format: str, *args: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": 0.01}
        )
        self._thread.start()
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()
