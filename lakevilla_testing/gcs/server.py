"""The XML API over HTTP: requests read, and answers written."""

from __future__ import annotations

import re
import socket
from collections.abc import Callable, Mapping
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from time import gmtime, sleep, strftime
from urllib.parse import parse_qsl, unquote, urlsplit
from xml.sax.saxutils import escape

from lakevilla_testing.gcs.objects import Objects, Page, Refusal, StoredObject

#: A bucket that there is not; all others are there.
NO_BUCKET = "no-such-bucket-here"
_RANGE = re.compile(r"bytes=(\d*)-(\d*)")
_XML = "<?xml version='1.0' encoding='UTF-8'?>"


class Server(ThreadingHTTPServer):
    """A server of objects on loopback.

    Parameters
    ----------
    port : int
        0 for any free one.
    objects : Objects
        What it serves.
    latency_seconds : float
        The time that each request takes at least.
    """

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, port: int, objects: Objects, latency_seconds: float = 0.0) -> None:
        super().__init__(("127.0.0.1", port), _Handler)
        self.objects = objects
        self.latency_seconds = latency_seconds

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def setup(self) -> None:
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def log_message(self, *_: object) -> None:
        """Say nothing."""

    def do_PUT(self) -> None:
        self._answer(self._put)

    def do_GET(self) -> None:
        self._answer(self._get)

    def do_HEAD(self) -> None:
        self._answer(self._get)

    def do_POST(self) -> None:
        self._answer(self._post)

    def do_DELETE(self) -> None:
        self._answer(self._delete)

    def _answer(self, request: Callable[[], None]) -> None:
        url = urlsplit(self.path)
        self._query = dict(parse_qsl(url.query, keep_blank_values=True))
        bucket, _, key = url.path.lstrip("/").partition("/")
        self._bucket, self._key = unquote(bucket), unquote(key)
        self._body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.server.latency_seconds:
            sleep(self.server.latency_seconds)
        try:
            if self._bucket == NO_BUCKET:
                raise Refusal(404, "NoSuchBucket", "The specified bucket does not exist.")
            request()
        except Refusal as refusal:
            text = f"<Code>{refusal.code}</Code><Message>{escape(refusal.message)}</Message>"
            self._say(refusal.status, {}, f"{_XML}<Error>{text}</Error>".encode())

    def _put(self) -> None:
        objects = self.server.objects
        if "uploadId" in self._query:
            number = int(self._query["partNumber"])
            return self._say(
                200, {"ETag": objects.add_part(self._query["uploadId"], number, self._body)}
            )
        source = self.headers.get("x-goog-copy-source")
        if source is not None:
            bucket, _, key = unquote(source).lstrip("/").partition("/")
            copied = objects.copy((bucket, key), self._bucket, self._key)
            text = f"<CopyObjectResult><ETag>{copied.e_tag}</ETag></CopyObjectResult>"
            return self._say(200, _headers(copied), f"{_XML}{text}".encode())
        wanted = self.headers.get("x-goog-if-generation-match")
        if_generation = None if wanted is None else int(wanted)
        stored = objects.write(self._bucket, self._key, self._body, if_generation)
        return self._say(200, _headers(stored))

    def _get(self) -> None:
        if not self._key:
            return self._list()
        found = self.server.objects.read(self._bucket, self._key)
        headers = _headers(found)
        if self.headers.get("If-None-Match") in (found.e_tag, "*"):
            return self._say(304, headers)
        if self.headers.get("If-Match") not in (None, found.e_tag, "*"):
            raise Refusal(412, "PreconditionFailed")
        size = len(found.body)
        asked = _RANGE.fullmatch(self.headers.get("Range", ""))
        if asked is None:
            return self._say(200, headers, found.body)
        if asked[1]:
            start, end = int(asked[1]), min(size, int(asked[2]) + 1 if asked[2] else size)
        else:
            start, end = max(0, size - int(asked[2])), size
        if start >= size:
            raise Refusal(416, "InvalidRange")
        headers["Content-Range"] = f"bytes {start}-{end - 1}/{size}"
        return self._say(206, headers, found.body[start:end])

    def _list(self) -> None:
        query = self._query
        after = query.get("continuation-token") or query.get("start-after") or ""
        page = self.server.objects.page(
            self._bucket,
            query.get("prefix", ""),
            query.get("delimiter", ""),
            after,
            int(query.get("max-keys", "1000")),
        )
        self._say(200, {"Content-Type": "application/xml"}, _listed(self._bucket, page))

    def _post(self) -> None:
        objects = self.server.objects
        if "uploads" in self._query:
            upload = objects.begin_upload(self._bucket, self._key)
            text = (
                f"<Bucket>{self._bucket}</Bucket><Key>{escape(self._key)}</Key>"
                f"<UploadId>{upload}</UploadId>"
            )
            root = "InitiateMultipartUploadResult"
            return self._say(200, {}, f"{_XML}<{root}>{text}</{root}>".encode())
        if "uploadId" in self._query:
            stored = objects.complete_upload(self._query["uploadId"])
            text = f"<ETag>{escape(stored.e_tag)}</ETag>"
            root = "CompleteMultipartUploadResult"
            return self._say(200, _headers(stored), f"{_XML}<{root}>{text}</{root}>".encode())
        raise Refusal(400, "InvalidArgument", f"POST {self.path} is not served here")

    def _delete(self) -> None:
        if "uploadId" in self._query:
            self.server.objects.end_upload(self._query["uploadId"])
        else:
            self.server.objects.delete(self._bucket, self._key)
        self._say(204)

    def _say(
        self, status: int, headers: Mapping[str, str] | None = None, body: bytes = b""
    ) -> None:
        self.send_response(status)
        for name, value in (headers or {}).items():
            self.send_header(name, value)
        if status not in (204, 304):
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD" and status not in (204, 304):
            self.wfile.write(body)


def _headers(found: StoredObject) -> dict[str, str]:
    return {
        "ETag": found.e_tag,
        "x-goog-generation": str(found.generation),
        "x-goog-metageneration": "1",
        "Last-Modified": formatdate(found.modified_seconds, usegmt=True),
        "Accept-Ranges": "bytes",
    }


def _listed(bucket: str, page: Page) -> bytes:
    count = len(page.objects) + len(page.directories)
    text = [f"<Name>{bucket}</Name><KeyCount>{count}</KeyCount>"]
    text.append(f"<IsTruncated>{str(page.next_token is not None).lower()}</IsTruncated>")
    if page.next_token is not None:
        text.append(f"<NextContinuationToken>{escape(page.next_token)}</NextContinuationToken>")
    for key, found in page.objects.items():
        modified = strftime("%Y-%m-%dT%H:%M:%S.000Z", gmtime(found.modified_seconds))
        text.append(
            f"<Contents><Key>{escape(key)}</Key><Generation>{found.generation}</Generation>"
            f"<LastModified>{modified}</LastModified><ETag>{escape(found.e_tag)}</ETag>"
            f"<Size>{len(found.body)}</Size></Contents>"
        )
    for directory in page.directories:
        text.append(f"<CommonPrefixes><Prefix>{escape(directory)}</Prefix></CommonPrefixes>")
    return f"{_XML}<ListBucketResult>{''.join(text)}</ListBucketResult>".encode()
