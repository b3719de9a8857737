"""Storage options: deltalake's keys, in any case; unknown keys are refused."""

from __future__ import annotations

import logging

import pytest

from lakevilla.errors import InvalidOperation
from lakevilla.store.backends.object_store import open_store
from lakevilla.store.base import ABSENT, Found, Stored

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
def test_options_of_several_providers_may_be_given_together(root: str) -> None:
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


def test_options_only_for_deltalake_are_accepted_with_a_warning_for_dangerous_ones(
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


def test_a_memory_store_is_private_unless_it_has_a_name() -> None:
    assert isinstance(open_store("memory://").put("k", b"1", ABSENT), Stored)
    assert not isinstance(open_store("memory://").get("k"), Found)
    one, other = open_store("memory://test-options/a"), open_store("memory://test-options")
    assert isinstance(one.put("k", b"1", ABSENT), Stored)
    assert isinstance(other.get("a/k"), Found)
