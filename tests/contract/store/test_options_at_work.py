"""Options, environment variables and boto3 or botocore sessions take effect at a server."""

from __future__ import annotations

import os

import pytest

import lakevilla as lv
from lakevilla.store.backends.object_store import open_store
from lakevilla.store.base import ABSENT, Found, Stored
from tests.fixtures.s3 import S3Server
from tests.fixtures.servers import Server


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith(("AWS_", "AZURE_"))]:
        monkeypatch.delenv(name)


def test_client_options_from_the_environment_are_applied(
    monkeypatch: pytest.MonkeyPatch, server: Server, server_root: str
) -> None:
    for name, value in server.storage_options.items():
        monkeypatch.setenv(name.upper(), value)
    assert os.environ[server.allow_http_option.upper()] == "true"
    assert isinstance(open_store(server_root).put("k", b"1", ABSENT), Stored)


def test_storage_options_take_precedence_over_the_environment(
    monkeypatch: pytest.MonkeyPatch, server: Server, server_root: str
) -> None:
    monkeypatch.setenv(server.endpoint_option.upper(), "no url")
    store = open_store(server_root, server.storage_options)
    assert isinstance(store.put("k", b"1", ABSENT), Stored)


def test_a_botocore_session_provides_the_credentials(s3_server: S3Server, s3_root: str) -> None:
    botocore = pytest.importorskip("botocore.session")
    session = botocore.Session()
    session.set_credentials(s3_server.access_key, s3_server.secret_key)
    session.set_config_variable("region", "us-east-1")
    options = {"AWS_ENDPOINT_URL": s3_server.endpoint, "AWS_ALLOW_HTTP": "true"}
    store = open_store(s3_root, options, boto3_session=session)
    assert isinstance(store.put("k", b"1", ABSENT), Stored)


def test_absolute_keys_reach_other_stores_with_the_same_options(
    server: Server, server_root: str, tmp_path: object
) -> None:
    store = open_store(server_root, server.storage_options)
    other = server.respelled(server_root) + "-other"
    assert isinstance(store.put(f"{other}/t/a b%20", b"1", ABSENT), Stored)
    listed = store.list(f"{other}/t")
    assert isinstance(listed, list)
    assert [info.key for info in listed] == [f"{other}/t/a b%20"]
    assert isinstance(store.get(listed[0].key), Found)
    assert store.list("") == []
    for prefix in (f"{tmp_path}/x", f"file://{tmp_path}/y"):
        with pytest.raises(lv.InvalidOperation, match="never opened from there"):
            store.put(f"{prefix}/k", b"2", ABSENT)
    assert store.local_path("k") is None


def test_a_boto3_session_provides_the_credentials(s3_server: S3Server, s3_root: str) -> None:
    boto3 = pytest.importorskip("boto3")
    session = boto3.Session(
        aws_access_key_id=s3_server.access_key,
        aws_secret_access_key=s3_server.secret_key,
        region_name="us-east-1",
    )
    options = {"AWS_ENDPOINT_URL": s3_server.endpoint, "AWS_ALLOW_HTTP": "true"}
    store = open_store(s3_root, options, boto3_session=session)
    assert isinstance(store.put("k", b"1", ABSENT), Stored)
