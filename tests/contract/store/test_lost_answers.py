"""Faults on the connection between the library and a real server."""

from __future__ import annotations

import http.client
import http.server
import os
import signal
import threading
from collections.abc import Callable, Iterator
from urllib.parse import urlsplit

import pytest

from lakevilla.clock import SystemClock
from lakevilla.errors import InvalidOperation, StoreError
from lakevilla.ids import Ids
from lakevilla.settings import Settings
from lakevilla.store.backends.object_store import open_store
from lakevilla.store.base import ABSENT, Failure, Found, Match, Missing, Refused, Stored
from lakevilla.store.effects import Effect, delete, get, list_objects, put, stat
from lakevilla.store.runner import Requests, Runner
from tests.fixtures.servers import Server

Answer = tuple[int, bytes]
#: Takes the method and a call that forwards the request; returns None to cut the connection.
Fault = Callable[[str, Callable[[], Answer]], Answer | None]

#: The headers of answers that the library reads.
_FORWARDED = ("etag", "last-modified", "content-range", "content-type", "x-goog-generation")


class Proxy:
    """A proxy in front of the server: each request gets the next fault, if one is left."""

    def __init__(self, server: Server) -> None:
        self.faults: list[Fault] = []
        self.requests: list[str] = []
        proxy = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_PUT(self) -> None:
                length = int(self.headers.get("content-length") or 0)
                body = self.rfile.read(length)
                upstream = http.client.HTTPConnection(urlsplit(server.endpoint).netloc)
                headers: list[tuple[str, str]] = []

                def forward() -> Answer:
                    upstream.request(self.command, self.path, body, dict(self.headers))
                    response = upstream.getresponse()
                    headers.extend(response.getheaders())
                    return response.status, response.read()

                proxy.requests.append(self.command)
                fault = proxy.faults.pop(0) if proxy.faults else None
                answer = forward() if fault is None else fault(self.command, forward)
                upstream.close()
                if answer is None:
                    self.close_connection = True
                    return
                self.send_response(answer[0])
                for name, value in headers:
                    if name.lower() in _FORWARDED:
                        self.send_header(name, value)
                if self.command == "HEAD":
                    lengths = dict(headers).get("Content-Length") or dict(headers).get(
                        "content-length", "0"
                    )
                    self.send_header("content-length", lengths)
                else:
                    self.send_header("content-length", str(len(answer[1])))
                self.end_headers()
                if self.command != "HEAD":
                    self.wfile.write(answer[1])

            do_GET = do_HEAD = do_POST = do_DELETE = do_PUT

            def log_message(self, *_: object) -> None:
                pass

        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_port}"
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.01,))
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    proxy = Proxy(server)
    yield proxy
    proxy.close()


@pytest.fixture
def runner(proxy: Proxy, server: Server, server_root: str) -> Runner:
    options = server.at(proxy.endpoint).storage_options
    settings = Settings(retry_limit=4, retry_base_seconds=0.01, request_timeout_seconds=2)
    return Runner(open_store(server_root, options, settings=settings), Ids(SystemClock()), settings)


def applied_but_cut(method: str, forward: Callable[[], Answer]) -> None:
    forward()


def cut(method: str, forward: Callable[[], Answer]) -> None:
    pass


def applied_but_answered(status: int) -> Fault:
    def fault(method: str, forward: Callable[[], Answer]) -> Answer:
        forward()
        return status, b""

    return fault


def answered(status: int, code: str = "") -> Fault:
    body = f"<Error><Code>{code}</Code><Message>token=hunter2</Message></Error>".encode()
    return lambda method, forward: (status, body)


def applied_twice(method: str, forward: Callable[[], Answer]) -> Answer:
    """Apply a request twice, as a gateway that lost the first answer and repeats the request."""
    forward()
    return forward()


LOST = [applied_but_cut, applied_but_answered(503), applied_but_answered(500), applied_twice]


@pytest.mark.parametrize("fault", LOST)
def test_a_create_whose_answer_is_lost_is_stored_once(
    proxy: Proxy, runner: Runner, fault: Fault
) -> None:
    proxy.faults = [fault]
    with runner.requests.counting() as counted:
        outcome = runner.run(put("k", b"nonce 1", ABSENT))
    assert isinstance(outcome, Stored)
    assert counted == Requests(put=1, get=1)
    assert runner.run(put("k", b"nonce 2", Match(outcome.token))) != Refused()


@pytest.mark.parametrize("fault", LOST)
def test_a_replacement_whose_answer_is_lost_is_stored_once(
    proxy: Proxy, runner: Runner, fault: Fault
) -> None:
    first = runner.run(put("k", b"nonce 1", ABSENT))
    assert isinstance(first, Stored)
    proxy.faults = [fault]
    second = runner.run(put("k", b"nonce 2", Match(first.token)))
    assert isinstance(second, Stored)
    found = runner.run(get("k"))
    assert isinstance(found, Found)
    assert (found.body, found.token) == (b"nonce 2", second.token)


@pytest.mark.parametrize("fault", [cut, answered(503, "SlowDown"), answered(500), answered(429)])
def test_a_write_that_did_not_reach_the_server_is_repeated(
    proxy: Proxy, runner: Runner, fault: Fault
) -> None:
    proxy.faults = [fault]
    assert isinstance(runner.run(put("k", b"nonce 1", ABSENT)), Stored)
    assert proxy.requests.count("PUT") == 2


def test_a_write_answered_with_a_409_conflict_is_read_back_and_repeated(
    proxy: Proxy, runner: Runner
) -> None:
    first = runner.run(put("k", b"nonce 1", ABSENT))
    assert isinstance(first, Stored)
    proxy.faults = [answered(409, "ConditionalRequestConflict")]
    assert isinstance(runner.run(put("k", b"nonce 2", Match(first.token))), Stored)
    assert proxy.requests == ["PUT", "PUT", "GET", "PUT"]


def test_a_409_answer_is_a_refusal_only_if_the_store_uses_it_for_an_existing_object(
    proxy: Proxy, runner: Runner
) -> None:
    proxy.faults = [answered(409, "OperationAborted"), answered(409, "BlobAlreadyExists")]
    conflict = runner.store.put("k", b"nonce 1", ABSENT)
    assert isinstance(conflict, Failure)
    assert (conflict.conflict, conflict.ambiguous) == (True, False)
    assert runner.store.put("k", b"nonce 1", ABSENT) == Refused()


def test_a_refused_create_returns_the_object_that_exists(runner: Runner) -> None:
    won = runner.run(put("k", b"theirs", ABSENT))
    assert isinstance(won, Stored)
    lost = runner.run(put("k", b"ours", ABSENT))
    assert lost == Refused(Found(b"theirs", won.token, 6))


READS: list[tuple[str, Effect | object]] = [
    ("get", lambda: get("k")),
    ("head", lambda: stat("k")),
    ("list", lambda: list_objects("")),
    ("delete", lambda: delete("k")),
]


@pytest.mark.parametrize(("verb", "program"), READS)
@pytest.mark.parametrize("fault", [cut, answered(503), answered(500)])
def test_reads_and_deletes_are_repeated_after_faults(
    proxy: Proxy, runner: Runner, verb: str, program: Callable[[], object], fault: Fault
) -> None:
    runner.run(put("k", b"nonce 1", ABSENT))
    proxy.faults = [fault, fault]
    with runner.requests.counting() as counted:
        runner.run(program())
    assert getattr(counted, verb) == counted.total == 3


@pytest.mark.parametrize(("verb", "program"), READS)
def test_the_error_for_a_request_that_keeps_failing_names_it_without_secrets(
    proxy: Proxy, runner: Runner, server: Server, verb: str, program: Callable[[], object]
) -> None:
    proxy.faults = [answered(500, "InternalError")] * 10
    with pytest.raises(StoreError, match=f"^{verb} '.*' failed 4 times") as error:
        runner.run(program())
    assert "500" in error.value.message
    assert "hunter2" not in error.value.message
    assert server.secret not in error.value.message


@pytest.mark.parametrize(
    ("status", "code", "hint"),
    [
        (403, "AccessDenied", "credentials"),
        (403, "RequestTimeTooSkewed", "clock"),
        (401, "", "credentials"),
        (400, "ExpiredToken", "credentials"),
        (501, "NotImplemented", "conditional writes"),
    ],
)
def test_a_permanent_failure_is_raised_at_once_with_a_hint(
    proxy: Proxy, runner: Runner, status: int, code: str, hint: str
) -> None:
    proxy.faults = [answered(status, code)]
    with pytest.raises(StoreError, match=hint):
        runner.run(put("k", b"nonce", ABSENT))
    assert proxy.requests == ["PUT"]


def test_every_verb_reports_a_missing_bucket_at_once(server: Server, runner: Runner) -> None:
    store = open_store(server.nowhere, server.storage_options)
    lost = Runner(store, Ids(SystemClock()), Settings())
    for program in (put("k", b"1", ABSENT), get("k"), list_objects("")):
        with pytest.raises(StoreError, match="no such bucket"):
            lost.run(program)
    assert lost.requests.snapshot().total == 3


def test_a_write_that_a_silent_server_did_store_is_recognised_after_the_timeout(
    proxy: Proxy, server: Server, server_root: str
) -> None:
    settings = Settings(retry_limit=5, retry_base_seconds=0.01, request_timeout_seconds=1.0)
    options = server.at(proxy.endpoint).storage_options
    store = open_store(server_root, options, settings=settings)
    gone = threading.Event()

    def applied_then_silent(method: str, forward: Callable[[], Answer]) -> None:
        forward()
        gone.wait(10)

    proxy.faults = [applied_then_silent]
    outcome = Runner(store, Ids(SystemClock()), settings).run(put("k", b"nonce", ABSENT))
    gone.set()
    assert isinstance(outcome, Stored)


def test_a_write_to_an_unreachable_server_is_an_error_and_no_unknown_outcome(
    server: Server, server_root: str
) -> None:
    options = server.at("http://127.0.0.1:9").storage_options
    settings = Settings(retry_limit=3, retry_base_seconds=0.001)
    runner = Runner(open_store(server_root, options), Ids(SystemClock()), settings)
    option = server.endpoint_option.upper()
    with pytest.raises(StoreError, match=rf"could not connect: .* {option} .*; tried 3 times"):
        runner.run(put("k", b"nonce", ABSENT))


def test_the_error_for_plain_http_says_how_to_allow_it(server: Server) -> None:
    options = server.storage_options | {server.allow_http_option: "false"}
    with pytest.raises(InvalidOperation, match=server.allow_http_option.upper()):
        open_store(server.new_root(), options)


def test_a_child_forked_after_use_gets_an_error_instead_of_hanging(runner: Runner) -> None:
    assert runner.run(get("k")) == Missing()
    child = os.fork()
    if child == 0:
        signal.alarm(10)
        try:
            runner.run(get("k"))
        except StoreError as error:
            os._exit(0 if "spawn" in error.message else 3)
        except BaseException:
            os._exit(4)
        os._exit(5)
    assert os.waitpid(child, 0)[1] == 0
