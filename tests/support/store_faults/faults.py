"""The faults of a store and of the way to it, by name."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from tests.support.store_faults.proxy import KINDS, Answer, Asked, Fault, Forward, Kind

_ALL = frozenset(KINDS)
_WRITES: frozenset[Kind] = frozenset({"put", "delete"})
_BODIES: frozenset[Kind] = frozenset({"get", "list"})
_GETS: frozenset[Kind] = frozenset({"get"})
_PUTS: frozenset[Kind] = frozenset({"put"})


@dataclass(frozen=True)
class _Fault:
    name: str
    hits: frozenset[Kind]
    answer: Callable[[Asked, Forward], Answer | None]

    def __call__(self, asked: Asked, forward: Forward) -> Answer | None:
        return self.answer(asked, forward)


# -------------------- lost and broken


def _lost(asked: Asked, forward: Forward) -> None:
    return None


def _done_and_lost(asked: Asked, forward: Forward) -> None:
    forward(asked)


def _silent(asked: Asked, forward: Forward) -> None:
    """Do what is asked, and say nothing for longer than the client waits."""
    forward(asked)
    time.sleep(SILENCE_SECONDS)


#: Longer than the time limit of a request in histories.
SILENCE_SECONDS = 1.3


# -------------------- cut


def _cut(**how: object) -> Callable[[Asked, Forward], Answer | None]:
    """Return a fault that sends half of a body."""

    def cut(asked: Asked, forward: Forward) -> Answer | None:
        answer = forward(asked)
        if answer.status not in (200, 206) or len(answer.body) < 2:
            return answer
        return replace(answer, sent=len(answer.body) // 2, **how)  # type: ignore[arg-type]

    return cut


def _short(asked: Asked, forward: Forward) -> Answer:
    """Send half of a body, and claim that it is the whole."""
    answer = forward(asked)
    if answer.status not in (200, 206) or len(answer.body) < 2:
        return answer
    return _claimed(answer, len(answer.body) // 2)


def _short_by_lines(asked: Asked, forward: Forward) -> Answer:
    """Send a body without its last line, and claim that it is the whole."""
    answer = forward(asked)
    end = answer.body.rstrip(b"\n").rfind(b"\n") + 1
    if answer.status != 200 or end == 0:
        return answer
    return _claimed(answer, end)


def _claimed(answer: Answer, length: int) -> Answer:
    body = answer.body[:length]
    headers = answer.headers
    span = answer.header("content-range")
    if span is not None:
        start = int(re.findall(r"\d+", span)[0])
        total = span.rpartition("/")[2]
        headers = answer.but("content-range", f"bytes {start}-{start + length - 1}/{total}")
    return replace(answer, body=body, headers=headers)


# -------------------- other answers


def _whole(status: int) -> Callable[[Asked, Forward], Answer | None]:
    """Return a fault that answers a request for a range, or the whole, with the whole."""

    def whole(asked: Asked, forward: Forward) -> Answer | None:
        headers = {k: v for k, v in asked.headers.items() if k.lower() != "range"}
        is_whole = len(headers) == len(asked.headers)
        answer = forward(replace(asked, headers=headers))
        if answer.status != 200 or (is_whole and status == 200):
            return answer
        size = len(answer.body)
        span = f"bytes 0-{size - 1}/{size}"
        headers_of = answer.but("content-range", span) if status == 206 else answer.headers
        return replace(answer, status=status, headers=headers_of)

    return whole


def _refused(status: int, code: str, *, wait: int = 0) -> Callable[[Asked, Forward], Answer]:
    body = f"<Error><Code>{code}</Code><Message>token=hunter2</Message></Error>".encode()
    headers = (("content-type", "application/xml"),)
    if wait:
        headers += (("retry-after", str(wait)),)
    return lambda asked, forward: Answer(status, headers, body)


def _done_but(status: int) -> Callable[[Asked, Forward], Answer]:
    def done(asked: Asked, forward: Forward) -> Answer:
        forward(asked)
        return Answer(status)

    return done


def _conflict_for_refusal(asked: Asked, forward: Forward) -> Answer:
    """Answer 409 where S3 answers that a condition does not hold."""
    answer = forward(asked)
    return replace(answer, status=409) if answer.status == 412 else answer


def _page(asked: Asked, forward: Forward) -> Answer:
    """Answer with a page of HTML, as the login of a network does."""
    headers = (("content-type", "text/html"), ("etag", '"page"'))
    date = ("last-modified", "Mon, 30 Nov 2026 12:00:00 GMT")
    return Answer(200, (*headers, date), b"<html><body>Log in</body></html>")


def _forgotten(asked: Asked, forward: Forward) -> Answer:
    """Answer a deletion, and don't do it."""
    if asked.method == "DELETE":
        return Answer(204)
    keys = re.findall(rb"<Key>(.*?)</Key>", asked.body)
    deleted = b"".join(b"<Deleted><Key>%s</Key></Deleted>" % key for key in keys)
    return Answer(
        200,
        (("content-type", "application/xml"),),
        b"<DeleteResult>%s</DeleteResult>" % deleted,
    )


class StaleLists:
    """Lists that lack the objects whose keys were first written since ``begins``.

    The proxy shows it each request, also those that it does not break.
    """

    name = "stale list"
    hits: frozenset[Kind] = frozenset({"list"})

    def __init__(self) -> None:
        self._listed: set[str] = set()
        self._new: set[str] = set()
        self._lock = threading.Lock()

    def watch(self, asked: Asked, answer: Answer) -> None:
        """Note a key that is written."""
        if asked.kind == "put" and answer.status == 200:
            with self._lock:
                self._new.add(asked.key.split("/", 2)[2])

    def __call__(self, asked: Asked, forward: Forward) -> Answer:
        answer = forward(asked)

        def kept(found: re.Match[bytes]) -> bytes:
            key = re.search(rb"<Key>(.*?)</Key>", found[0])
            hidden = key is not None and key[1].decode() in self._new
            return b"" if hidden else found[0]

        body = re.sub(rb"<Contents>.*?</Contents>", kept, answer.body, flags=re.DOTALL)
        return answer if body == answer.body else replace(answer, body=body)


#: The faults that a client survives, or that end in an error: none may lose or tear anything.
SOUND: tuple[Fault, ...] = (
    _Fault("request lost", _ALL, _lost),
    _Fault("answer lost", _ALL, _done_and_lost),
    _Fault("silence", _ALL, _silent),
    _Fault("reset in the request", _PUTS, _lost),
    _Fault("reset in the answer", _BODIES, _cut(is_reset=True)),
    _Fault("answer cut", _BODIES, _cut()),
    _Fault("answer cut without a length", _BODIES, _cut(framing="close")),
    _Fault("answer cut in its chunks", _BODIES, _cut(framing="chunks")),
    _Fault("206 for the whole", _GETS, _whole(206)),
    _Fault("200 for a range", _GETS, _whole(200)),
    _Fault("503", _ALL, _refused(503, "SlowDown", wait=1)),
    _Fault("429", _ALL, _refused(429, "TooManyRequests", wait=1)),
    _Fault("500 after it was done", _ALL, _done_but(500)),
    _Fault("503 after it was done", _ALL, _done_but(503)),
    _Fault("409 for 412", _PUTS, _conflict_for_refusal),
    _Fault("token expired", _ALL, _refused(400, "ExpiredToken")),
    _Fault("credentials refused", _ALL, _refused(403, "InvalidAccessKeyId")),
    _Fault("read-only", _WRITES, _refused(403, "AccessDenied")),
    _Fault("a page of HTML", _BODIES, _page),
    _Fault("answer short", _BODIES, _short),
    _Fault("answer short of a line", _BODIES, _short_by_lines),
    _Fault("deletion forgotten", frozenset({"delete"}), _forgotten),
)
