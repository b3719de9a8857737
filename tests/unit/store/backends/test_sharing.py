"""Lakes share the client of a store if all that it is made of is the same, and only then."""

from __future__ import annotations

import gc
import os
from typing import Any

import boto3
import pytest

from lakevilla.settings import Settings
from lakevilla.store.backends import object_store
from lakevilla.store.backends.object_store import open_store
from lakevilla.store.location import parse_location

KEYS = {
    "AWS_ACCESS_KEY_ID": "a",
    "AWS_SECRET_ACCESS_KEY": "b",
    "AWS_REGION": "eu-north-1",
    "AWS_ENDPOINT_URL": "https://127.0.0.1:9",
}
AZURE = {"azure_storage_account_name": "a", "azure_storage_account_key": "YQ=="}


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)


def backend(root: str, options: dict[str, Any] | None = None, **more: Any) -> object:
    """Return the backend that holds the lake's root."""
    store = open_store(root, KEYS if options is None else options, **more)
    return store._backends[parse_location(root).store]


@pytest.mark.parametrize(
    ("root", "options"), [("s3://b", KEYS), ("abfss://b@a.dfs.core.windows.net", AZURE)]
)
def test_lakes_in_one_bucket_with_the_same_options_share_its_client(
    root: str, options: dict[str, Any]
) -> None:
    first = backend(f"{root}/one", options)
    assert backend(f"{root}/two", dict(reversed(options.items()))) is first
    assert backend(f"{root}/two", {key.lower(): one for key, one in options.items()}) is first


@pytest.mark.parametrize(
    "other",
    [
        {"AWS_ACCESS_KEY_ID": "another"},
        {"AWS_SECRET_ACCESS_KEY": "another"},
        {"AWS_SESSION_TOKEN": "one"},
        {"AWS_ENDPOINT_URL": "https://127.0.0.1:10"},
        {"AWS_REGION": "eu-north-2"},
        {"AWS_SKIP_SIGNATURE": "true"},
        {"timeout": "3s"},
    ],
    ids=lambda other: next(iter(other)),
)
def test_lakes_with_another_option_or_credential_share_no_client(other: dict[str, Any]) -> None:
    assert backend("s3://b/x", {**KEYS, **other}) is not backend("s3://b/x")


def test_lakes_in_different_buckets_share_no_client() -> None:
    assert backend("s3://b/x") is not backend("s3://c/x")


def test_lakes_with_different_limits_of_a_request_share_no_client() -> None:
    short = Settings(request_timeout_seconds=1.0)
    assert backend("s3://b/x", settings=short) is not backend("s3://b/x")


def test_lakes_of_different_environments_share_no_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials of the environment are read when the client is made."""
    options = {"AWS_REGION": "eu-north-1"}
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "one")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "one")
    first = backend("s3://b/x", options)
    assert backend("s3://b/x", options) is first
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "two")
    assert backend("s3://b/x", options) is not first


def test_lakes_share_a_client_if_they_were_given_the_same_session_of_boto3() -> None:
    def session(key: str = "k") -> boto3.Session:
        return boto3.Session(aws_access_key_id=key, aws_secret_access_key="s")

    options = {"AWS_REGION": "eu-north-1"}
    one = session()
    first = backend("s3://b/x", options, boto3_session=one)
    assert backend("s3://b/y", options, boto3_session=one) is first
    assert backend("s3://b/y", options, boto3_session=session()) is not first
    assert backend("s3://b/y", options) is not first


def test_lakes_with_a_session_that_is_not_of_boto3_share_no_client() -> None:
    """Such a session may give other credentials each time."""

    class Session(boto3.Session):
        pass

    own = Session(aws_access_key_id="k", aws_secret_access_key="s")
    first = backend("s3://b/x", {}, boto3_session=own)
    assert backend("s3://b/x", {}, boto3_session=own) is not first


def test_a_client_of_google_is_not_shared() -> None:
    """It reads its file of credentials when it is made."""
    options = {"google_skip_signature": "true"}
    assert backend("gs://b/x", options) is not backend("gs://b/x", options)


def test_a_client_is_kept_as_long_as_a_lake_has_it() -> None:
    gc.collect()  # the clients of earlier tests
    before = len(object_store._SHARED)
    first, second = open_store("s3://kept/x", KEYS), open_store("s3://kept/y", KEYS)
    assert len(object_store._SHARED) == before + 1
    del first
    gc.collect()
    assert len(object_store._SHARED) == before + 1
    del second
    gc.collect()
    assert len(object_store._SHARED) == before


def test_a_forked_child_shares_no_client_with_its_parent() -> None:
    first = open_store("s3://kept/x", KEYS)
    child = os.fork()
    if child == 0:
        status = 1
        try:
            status = len(object_store._SHARED)
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert status == 0
    assert first is not None
