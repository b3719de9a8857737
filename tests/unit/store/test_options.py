"""Storage options: deltalake's keys in any case, nothing unknown."""

from __future__ import annotations

import logging

import pytest

from lakevilla.errors import InvalidOperation
from lakevilla.store.backends.object_store import open_store
from lakevilla.store.base import ABSENT, Found, Stored
from tests.fixtures.s3 import S3Server

KEYS = {
    "AWS_REGION": "eu-north-1",
    "aws_access_key_id": "a",
    "AWS_SECRET_ACCESS_KEY": "b",
    "aws_session_token": "c",
    "endpoint_url": "https://example.org",
    "allow_http": True,
    "timeout": "10s",
    "connect_timeout": "5s",
    "aws_conditional_put": "etag",
}


@pytest.mark.parametrize("root", ["s3://b/x", "gs://b/x", "az://c/x", "/tmp/x", "memory://"])
def test_options_of_every_provider_may_stand_together(root: str) -> None:
    options = KEYS | {
        "azure_storage_account_name": "account",
        "AZURE_STORAGE_ACCOUNT_KEY": "aGVsbG8=",
        "google_skip_signature": "true",
    }
    assert open_store(root, options).root.path in ("x", "tmp/x", "")


@pytest.mark.parametrize("root", ["s3://b", "/tmp/x", "memory://"])
@pytest.mark.parametrize("key", ["AWS_REGON", "profile", "aws_profile"])
def test_an_unknown_option_is_refused_by_name(root: str, key: str) -> None:
    with pytest.raises(InvalidOperation, match=f"{key.lower()!r} is not known"):
        open_store(root, KEYS | {key: "hunter2"})


def test_an_option_given_twice_is_refused() -> None:
    with pytest.raises(InvalidOperation, match="twice"):
        open_store("s3://b", {"AWS_REGION": "a", "aws_region": "b"})
    with pytest.raises(InvalidOperation, match="Duplicate"):
        open_store("s3://b", {"aws_region": "a", "region": "b"})


def test_a_malformed_value_is_refused_when_the_store_is_opened() -> None:
    with pytest.raises(InvalidOperation, match="cannot be opened"):
        open_store("s3://b", {"timeout": "soon"})


def test_options_for_deltalake_alone_are_taken_and_dangerous_ones_warned_of(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING, "lakevilla"):
        open_store(
            "s3://b",
            {"max_retries": 3, "backoff_config.init_backoff": "1s", "AWS_S3_LOCKING_PROVIDER": ""},
        )
        assert caplog.records == []
        open_store("s3://b", {"AWS_S3_ALLOW_UNSAFE_RENAME": "true"})
    assert "aws_s3_allow_unsafe_rename" in caplog.text


def test_memory_is_private_unless_it_is_named() -> None:
    assert isinstance(open_store("memory://").put("k", b"1", ABSENT), Stored)
    assert not isinstance(open_store("memory://").get("k"), Found)
    one, other = open_store("memory://test-options/a"), open_store("memory://test-options")
    assert isinstance(one.put("k", b"1", ABSENT), Stored)
    assert isinstance(other.get("a/k"), Found)


def test_absolute_keys_reach_other_stores_with_the_same_options(
    s3_server: S3Server, s3_root: str, tmp_path: object
) -> None:
    store = open_store(s3_root, s3_server.storage_options)
    other = s3_root.replace("s3://", "s3a://") + "-other"
    assert isinstance(store.put(f"{other}/t/a b%20", b"1", ABSENT), Stored)
    listed = store.list(f"{other}/t")
    assert isinstance(listed, list)
    assert [info.key for info in listed] == [f"{other}/t/a b%20"]
    assert isinstance(store.get(listed[0].key), Found)
    assert store.list("") == []
    for prefix in (f"{tmp_path}/x", f"file://{tmp_path}/y"):
        assert isinstance(store.put(f"{prefix}/k", b"2", ABSENT), Stored)
        listed = store.list(prefix)
        assert isinstance(listed, list)
        assert [info.key for info in listed] == [f"{prefix}/k"]
    assert store.local_path(f"{tmp_path}/x/k") == f"{tmp_path}/x/k"
    assert store.local_path("k") is None


def test_boto3_gives_the_credentials(s3_server: S3Server, s3_root: str) -> None:
    boto3 = pytest.importorskip("boto3")
    session = boto3.Session(
        aws_access_key_id=s3_server.access_key,
        aws_secret_access_key=s3_server.secret_key,
        region_name="us-east-1",
    )
    options = {"AWS_ENDPOINT_URL": s3_server.endpoint, "AWS_ALLOW_HTTP": "true"}
    store = open_store(s3_root, options, boto3_session=session)
    assert isinstance(store.put("k", b"1", ABSENT), Stored)
