"""Stores that cannot be relied on, or do not let us in."""

from __future__ import annotations

import pickle
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

import lakevilla as lv
from lakevilla.api.lake import Lake
from lakevilla.store.backends.endpoints import shown_endpoint
from lakevilla.store.backends.local import LocalStore
from lakevilla.store.base import ANY, Absent, Condition, Failure, Match, Refused, Stored
from tests.builders import Place, WrappedStore, contents
from tests.fixtures.s3 import S3Server

SECRET = "wJalrXUtnFEMI-K7MDENG-bPxRfiCYEXAMPLEKEY"
QUICK = lv.Settings(retry_limit=2, retry_base_seconds=0.001)


class CarelessStore(WrappedStore):
    """A store that takes one kind of condition for none."""

    def __init__(self, inner: Any, ignored: type) -> None:
        super().__init__(inner)
        self._ignored = ignored

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        ignored = isinstance(condition, self._ignored)
        return self.inner.put(key, body, ANY if ignored else condition)


def test_a_store_that_fails_the_probe_is_refused_before_anything_is_written(place: Place) -> None:
    before = contents(place.root)
    check = "second create"
    # The root is written otherwise: what was probed of this one counts for no other store.
    store = CarelessStore(LocalStore(place.root), Absent)
    lake = Lake(f"{place.root}#{check}", store, settings=QUICK)
    for verb in (
        lambda txn: txn.append("orders", {"id": [9], "qty": [1]}),
        lambda txn: txn.create_table("new", {"id": [9]}),
    ):
        with pytest.raises(lv.UnsafeStore, match=check) as caught, lake.transaction() as txn:
            verb(txn)
        assert caught.value.kind == "unsafe_store"
    with pytest.raises(lv.UnsafeStore, match=check):
        lake.register("orders")
    assert contents(place.root) == before


def test_a_store_that_fails_the_probe_can_still_be_read(place: Place) -> None:
    lake = Lake(f"{place.root}#read", CarelessStore(LocalStore(place.root), Match), settings=QUICK)
    assert lake.snapshot().read("orders").num_rows == 3


@contextmanager
def answering(status: int, code: str) -> Iterator[str]:
    """A server that gives every request the same answer."""

    class Handler(BaseHTTPRequestHandler):
        def answer(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            self.rfile.read(length)
            told = f"<Error><Code>{code}</Code><Message>{self.headers['Authorization']}</Message>"
            body = f"{told}</Error>".encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_PUT = do_HEAD = do_DELETE = do_POST = answer

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def options(endpoint: str) -> dict[str, str]:
    return {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_ACCESS_KEY_ID": "AKIAIOSFODNN7EXAMPLE",
        "AWS_SECRET_ACCESS_KEY": SECRET,
        "AWS_SESSION_TOKEN": f"token-{SECRET}",
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    }


@pytest.mark.parametrize(
    ("status", "code", "told"),
    [
        (403, "AccessDenied", "credentials were refused"),
        (401, "InvalidAccessKeyId", "credentials"),
        (404, "NoSuchBucket", "no such bucket"),
        (500, "InternalError", "500"),
    ],
)
def test_a_store_that_does_not_let_us_in_is_told_without_secrets(
    status: int, code: str, told: str
) -> None:
    with answering(status, code) as endpoint:
        lake = lv.connect("s3://bucket/lake", storage_options=options(endpoint), settings=QUICK)
        calls = [
            lambda: lake.snapshot().read("orders"),
            lambda: lake.run(lambda txn: txn.append("orders", {"id": [1]})),
            lambda: lake.run(
                lambda txn: txn.append("orders", {"id": [1]}), features=lv.Feature.NONE
            ),
            lambda: lake.register("orders"),
            lambda: lake.recover(),
            lambda: lake.gc(),
        ]
        for call in calls:
            with pytest.raises(lv.StoreError, match=told) as caught:
                call()
            assert caught.value.kind == "store"
            assert type(caught.value) is lv.StoreError  # no name that is not public
            assert str(caught.value).startswith(f"s3://bucket/lake at {endpoint}: ")
            chain: BaseException | None = caught.value
            while chain is not None:
                assert SECRET not in repr(chain)
                assert "AKIAIOSFODNN7EXAMPLE" not in repr(chain)
                assert "Signature=" not in repr(chain)
                chain = chain.__cause__ or chain.__context__


def test_a_server_that_is_not_there_is_a_store_error() -> None:
    with answering(200, "OK") as endpoint:
        pass
    lake = lv.connect("s3://bucket/lake", storage_options=options(endpoint), settings=QUICK)
    for act in (lambda: lake.snapshot().read("orders"), lambda: lake.create_table("t", {"a": [1]})):
        with pytest.raises(lv.StoreError, match="could not connect") as caught:
            act()
        assert f"s3://bucket/lake at {endpoint}: " in str(caught.value)
        assert not caught.value.permanent


def test_a_bucket_that_is_not_there_is_a_store_error(s3_server: S3Server) -> None:
    lake = lv.connect(
        "s3://lakevilla-no-such-bucket/lake",
        storage_options=s3_server.storage_options,
        settings=QUICK,
    )
    with pytest.raises(lv.StoreError, match="no such bucket") as caught:
        lake.create_table("orders", {"id": [1]})
    assert type(caught.value) is lv.StoreError
    assert pickle.loads(pickle.dumps(caught.value)).permanent
    assert str(caught.value).startswith("s3://lakevilla-no-such-bucket/lake at http")


def test_a_directory_that_cannot_be_written_is_a_store_error_that_names_it() -> None:
    root = "/proc/lake"  # not even a superuser makes one there
    with pytest.raises(lv.StoreError) as caught:
        lv.connect(root, settings=QUICK).create_table("orders", {"id": [1]})
    assert type(caught.value) is lv.StoreError
    assert str(caught.value).startswith(f"{root}: put '_lakevilla/")


def test_an_endpoint_is_shown_without_what_may_be_secret() -> None:
    options = {"endpoint_url": f"https://me:{SECRET}@host:9000/path?{SECRET}"}
    assert shown_endpoint("s3", options, {}) == "https://host:9000"
    assert shown_endpoint("s3", {}, {"AWS_ENDPOINT_URL": "http://host"}) == "http://host"
    assert shown_endpoint("s3", {}, {}) is None


def test_a_lake_neither_shows_nor_pickles_more_than_its_arguments() -> None:
    with answering(403, "AccessDenied") as endpoint:
        lake = lv.connect("s3://bucket/lake", storage_options=options(endpoint), settings=QUICK)
        assert SECRET not in repr(lake)
        assert SECRET not in repr(lake.transaction())
