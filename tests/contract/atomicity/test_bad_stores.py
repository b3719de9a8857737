"""Stores that are unsafe, or that refuse access."""

from __future__ import annotations

import json
import pickle
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import lakevilla as lv
from lakevilla.api.client.client import LakeClient
from lakevilla.api.lake import Lake
from lakevilla.cli.app import app
from lakevilla.store.backends.local import LocalStore
from lakevilla.store.backends.object_store import open_store
from lakevilla.store.base import (
    ANY,
    Absent,
    Condition,
    Failure,
    Found,
    Match,
    Refused,
    Stored,
    WrappedStore,
)
from tests.contract.atomicity.conftest import Open
from tests.fixtures.servers import Server
from tests.support import loopback
from tests.support.places import Place
from tests.support.tables import contents

SECRET = "wJalrXUtnFEMI-K7MDENG-bPxRfiCYEXAMPLEKEY"
QUICK = lv.Settings(retry_limit=2, retry_base_seconds=0.001)


class CarelessStore(WrappedStore):
    """A store that ignores one kind of condition."""

    def __init__(self, inner: Any, ignored: type) -> None:
        super().__init__(inner)
        self._ignored = ignored

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        ignored = isinstance(condition, self._ignored)
        return self.inner.put(key, body, ANY if ignored else condition)


def test_a_store_that_fails_the_probe_is_refused_before_anything_is_written(shop: Place) -> None:
    before = contents(shop.root)
    check = "second create"
    # The root's spelling is unique, so that results of earlier probes don't count for it.
    store = CarelessStore(LocalStore(shop.root), Absent)
    lake = Lake(LakeClient(f"{shop.root}#{check}", store, settings=QUICK))
    for verb in (
        lambda txn: txn.append("orders", {"id": [9], "qty": [1]}),
        lambda txn: txn.create_table("new", {"id": [9]}),
    ):
        with pytest.raises(lv.UnsafeStore, match=check) as caught, lake.transaction() as txn:
            verb(txn)
        assert caught.value.kind == "unsafe_store"
    with pytest.raises(lv.UnsafeStore, match=check):
        lake.register("orders")
    assert contents(shop.root) == before


def test_a_store_that_fails_the_probe_can_still_be_read(shop: Place) -> None:
    lake = Lake(
        LakeClient(f"{shop.root}#read", CarelessStore(LocalStore(shop.root), Match), settings=QUICK)
    )
    assert lake.snapshot().read("orders").num_rows == 3


@contextmanager
def answering(status: int, code: str) -> Iterator[str]:
    """Run a server that gives every request the same answer."""

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

    with loopback.answering(Handler) as address:
        yield address


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
        (403, "AccessDenied", "credentials were refused: check AWS_ACCESS_KEY_ID"),
        (403, "SignatureDoesNotMatch", "credentials were refused: check AWS_ACCESS_KEY_ID"),
        (401, "InvalidAccessKeyId", "check AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY in storage"),
        (404, "NoSuchBucket", "no such bucket or container: create it"),
        (500, "InternalError", "500"),
    ],
)
def test_the_error_for_a_store_that_refuses_access_shows_no_secrets(
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
            assert type(caught.value) is lv.StoreError  # the class itself, which is public
            assert str(caught.value).startswith(f"s3://bucket/lake at {endpoint}: ")
            if code in ("NoSuchBucket", "InvalidAccessKeyId", "SignatureDoesNotMatch"):
                assert "_lakevilla" not in str(caught.value)  # the error concerns no object
            assert "-absent" not in str(caught.value)
            chain: BaseException | None = caught.value
            while chain is not None:
                assert SECRET not in repr(chain)
                assert "AKIAIOSFODNN7EXAMPLE" not in repr(chain)
                assert "Signature=" not in repr(chain)
                chain = chain.__cause__ or chain.__context__


def test_an_unreachable_server_raises_a_store_error() -> None:
    with answering(200, "OK") as endpoint:
        pass
    lake = lv.connect("s3://bucket/lake", storage_options=options(endpoint), settings=QUICK)
    for act in (lambda: lake.snapshot().read("orders"), lambda: lake.create_table("t", {"a": [1]})):
        with pytest.raises(lv.StoreError, match=r"could not connect: .*AWS_ENDPOINT_URL") as caught:
            act()
        assert "_lakevilla" not in str(caught.value)
        assert f"s3://bucket/lake at {endpoint}: " in str(caught.value)
        assert not caught.value.permanent


def test_the_error_for_an_unreachable_external_table_names_its_bucket(tmp_path: Path) -> None:
    with answering(200, "OK") as endpoint:
        pass
    lake = lv.connect(tmp_path, storage_options=options(endpoint), settings=QUICK)
    with pytest.raises(lv.StoreError, match=r"^s3://bucket: could not connect"):
        lake.table("s3://bucket/far/orders")


def test_an_access_key_without_its_secret_is_reported() -> None:
    half = options("http://127.0.0.1:9")
    del half["AWS_SECRET_ACCESS_KEY"]
    with pytest.raises(
        lv.InvalidOperation, match="is given without AWS_SECRET_ACCESS_KEY: set both"
    ):
        lv.connect("s3://bucket/lake", storage_options=half)


@pytest.mark.night
def test_the_command_line_reports_an_unreachable_store_in_one_line() -> None:
    with answering(200, "OK") as endpoint:
        pass
    given = [part for key, value in options(endpoint).items() for part in ("-o", f"{key}={value}")]
    result = CliRunner().invoke(app, ["tables", "s3://bucket/lake", *given, "--json"])
    assert result.exit_code == 2
    error = json.loads(result.stderr)
    assert error["error"] == "store"
    assert error["message"].startswith(f"s3://bucket/lake at {endpoint}: could not connect")
    assert "_lakevilla" not in error["message"]
    assert SECRET not in result.output


def test_a_missing_bucket_raises_a_store_error(server: Server) -> None:
    lake = lv.connect(
        server.nowhere,
        storage_options=server.storage_options,
        settings=QUICK,
    )
    with pytest.raises(lv.StoreError, match="no such bucket") as caught:
        lake.create_table("orders", {"id": [1]})
    assert type(caught.value) is lv.StoreError
    assert pickle.loads(pickle.dumps(caught.value)).permanent
    assert str(caught.value).startswith(f"{server.nowhere} at http")


def test_a_store_that_answers_a_range_with_the_whole_object_is_reported(behind: Open) -> None:
    place, _ = behind("without ranges")
    store = open_store(place.root, place.storage_options)
    for key, body in (("some", b"0123456789"), ("empty", b"")):
        assert isinstance(store.put(key, body, ANY), Stored)
    for byte_range in ((2, 4), (-4, 0)):
        failure = store.get("some", byte_range=byte_range)
        assert isinstance(failure, Failure)
        assert "it must support Range" in failure.reason
        nothing = store.get("empty", byte_range=byte_range)
        assert isinstance(nothing, Found), "the whole of it is right"
        assert nothing.body == b""


def test_the_store_error_for_an_unwritable_directory_names_it() -> None:
    root = "/proc/lake"  # even a superuser can't create a directory there
    with pytest.raises(lv.StoreError) as caught:
        lv.connect(root, settings=QUICK).create_table("orders", {"id": [1]})
    assert type(caught.value) is lv.StoreError
    assert str(caught.value).startswith(f"{root}: put '_lakevilla/")


def test_the_repr_of_a_lake_shows_no_secret() -> None:
    with answering(403, "AccessDenied") as endpoint:
        lake = lv.connect("s3://bucket/lake", storage_options=options(endpoint), settings=QUICK)
        assert SECRET not in repr(lake)
        assert SECRET not in repr(lake.transaction())
