"""Secrets in the credentials of a client, and all that it shows while a store refuses it."""

from __future__ import annotations

import base64
import logging
import random
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import Any

import boto3

import lakevilla as lv
from tests.support.loopback import answering

#: The mark of a planted secret; the second is how it looks in base 64, as account keys are.
MARK = "hunter2hunter2hunter2"
MARKS = (MARK, base64.b64encode(MARK.encode()).decode())
QUICK = lv.Settings(retry_limit=1, retry_base_seconds=0.001)
ROW = [{"a": 1}]

#: What the caller does with a lake; on a store that refuses everything, each may raise.
VERBS: dict[str, Callable[[lv.Lake], Any]] = {
    "read": lambda lake: lake.read("t"),
    "sql": lambda lake: lake.sql("SELECT * FROM t"),
    "explain": lambda lake: lake.session().sql("EXPLAIN SELECT * FROM t"),
    "append": lambda lake: lake.run(lambda txn: txn.append("t", ROW)),
    "log entry": lambda lake: lake.run(lambda txn: txn.append("t", ROW), features=lv.Feature.R),
    "create": lambda lake: lake.create_table("t", ROW),
    "register": lambda lake: lake.register("t"),
    "tables": lambda lake: lake.tables(),
    "history": lambda lake: lake.history(),
    "branch": lambda lake: lake.branch("b"),
    "gc": lambda lake: lake.gc(),
    "maintain": lambda lake: lake.maintain(),
    "recover": lambda lake: lake.recover(),
    "verify": lambda lake: lake.verify(),
    "doctor": lambda lake: lake.doctor(),
    "metrics": lambda lake: lake.metrics(),
    "repr": lambda lake: (repr(lake), str(lake), vars(lake), lake.transaction(), lake.settings),
}
_STATUSES = (301, 307, 400, 401, 403, 404, 405, 409, 411, 412, 416, 429, 500, 501, 503)
_CODES = (
    "AccessDenied",
    "AuthenticationFailed",
    "ExpiredToken",
    "InternalError",
    "InvalidAccessKeyId",
    "NoSuchBucket",
    "NoSuchKey",
    "SignatureDoesNotMatch",
    "SlowDown",
)


@dataclass
class Shown:
    """What was shown, with where."""

    texts: list[tuple[str, str]] = field(default_factory=list)

    def add(self, where: str, text: str) -> None:
        self.texts.append((where, text))

    def add_error(self, error: BaseException) -> None:
        """Add an error, those behind it, and the variables of the library's frames."""
        for one in _chain(error):
            kind = type(one).__name__
            notes = getattr(one, "__notes__", ())
            self.add(f"error {kind}", f"{one} {one!r} {vars(one)!r} {notes!r}")
            frames = traceback.TracebackException.from_exception(one, capture_locals=True).stack
            for frame in frames:
                if "/lakevilla/" in frame.filename:
                    self.add(f"variables of {frame.name}", repr(frame.locals))

    def leaks(self) -> list[str]:
        return [f"{where}: {text[:300]}" for where, text in self.texts if _holds_secret(text)]


def _holds_secret(text: str) -> bool:
    return any(mark in text for mark in MARKS)


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    seen: list[BaseException | None] = []
    waiting: list[BaseException | None] = [error]
    while waiting:
        one = waiting.pop()
        if one is not None and one not in seen:
            seen.append(one)
            yield one
            waiting += [one.__cause__, one.__context__]


@contextmanager
def listening(shown: Shown) -> Iterator[None]:
    """Add what any logger says, at each level, and each warning, while the block runs."""

    class Handler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            shown.add(f"log of {record.name}", f"{record.getMessage()} {record.args!r}")

    root, handler = logging.getLogger(), Handler(level=1)
    level = root.level
    root.addHandler(handler)
    root.setLevel(1)
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            yield
        for warning in caught:
            shown.add("warning", str(warning.message))
    finally:
        root.removeHandler(handler)
        root.setLevel(level)


@contextmanager
def repeating(draw: random.Random) -> Iterator[str]:
    """Run a server that refuses each request, and repeats it, secrets and all."""

    class Server(BaseHTTPRequestHandler):
        def answer(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length") or 0))
            status, code = draw.choice(_STATUSES), draw.choice(_CODES)
            said = f"{self.path} {dict(self.headers)} {MARK}"
            body = f"<Error><Code>{code}</Code><Message>{said}</Message></Error>"
            if draw.random() < 0.3:
                body = f'{{"error": {{"code": "{code}", "message": "{MARK} {code}"}}}}'
            self.send_response(status, draw.choice([None, f"no {MARK}"]))
            self.send_header("Content-Length", str(len(body.encode())))
            if status in (301, 307):
                self.send_header("Location", f"http://127.0.0.1:9/x?sig={MARK}")
            if draw.random() < 0.3:
                self.send_header("x-ms-error-code", code)
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body.encode())

        do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = answer

        def log_message(self, format: str, *args: Any) -> None:
            pass

    with answering(Server) as address:
        yield address


def connected(draw: random.Random, endpoint: str, on_event: Callable[[Any], None]) -> lv.Lake:
    """Connect to a lake at the endpoint by one kind of credentials, each with a secret."""
    kinds = [_keys, _session, _account_key, _sas, _bearer]
    root, options, given = draw.choice(kinds)(endpoint)
    return lv.connect(root, storage_options=options, settings=QUICK, on_event=on_event, **given)


Given = tuple[str, dict[str, str], dict[str, Any]]


def _s3(endpoint: str) -> dict[str, str]:
    return {"AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1"}


def _keys(endpoint: str) -> Given:
    keys = {f"AWS_{name}": MARK for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN")}
    return "s3://bucket/lake", _s3(endpoint) | keys, {}


def _session(endpoint: str) -> Given:
    session = boto3.Session(MARK, MARK, MARK, "us-east-1")
    return "s3://bucket/lake", _s3(endpoint), {"boto3_session": session}


def _azure(endpoint: str) -> dict[str, str]:
    return {
        "AZURE_STORAGE_ENDPOINT": f"{endpoint}/account",
        "AZURE_ALLOW_HTTP": "true",
        "AZURE_STORAGE_ACCOUNT_NAME": "account",
    }


def _account_key(endpoint: str) -> Given:
    return "az://box/lake", _azure(endpoint) | {"AZURE_STORAGE_ACCOUNT_KEY": MARKS[1]}, {}


def _sas(endpoint: str) -> Given:
    token = f"sv=2024-01-01&sig={MARK}"
    return "az://box/lake", _azure(endpoint) | {"AZURE_STORAGE_SAS_TOKEN": token}, {}


def _bearer(endpoint: str) -> Given:
    options = {"GOOGLE_BASE_URL": endpoint, "GOOGLE_ALLOW_HTTP": "true"}
    return "gs://bucket/lake", options | {"GOOGLE_BEARER_TOKEN": MARK}, {}


def shown_to_a_refused_client(seed: int, verbs: int = 4) -> Shown:
    """Have a client with secrets work on a store that refuses it; return all that is shown."""
    draw = random.Random(seed)
    shown = Shown()
    with listening(shown), repeating(draw) as endpoint:
        try:
            lake = connected(draw, endpoint, lambda event: shown.add("event", repr(event)))
        except lv.LakeVillaError as error:
            shown.add_error(error)
            return shown
        for verb in draw.sample(sorted(VERBS), verbs):
            try:
                shown.add(f"answer of {verb}", repr(VERBS[verb](lake)))
            except lv.LakeVillaError as error:
                shown.add_error(error)
        lake.close()
    return shown
