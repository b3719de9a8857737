"""Endpoints, plain HTTP and credentials are checked before the backend's client is created."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from obstore.store import S3Store

import lakevilla as lv
from lakevilla.clock import SystemClock
from lakevilla.ids import Ids
from lakevilla.store.backends.endpoints import shown_endpoint
from lakevilla.store.backends.object_store import ObstoreBackend, open_store
from lakevilla.store.base import ABSENT, Failure
from lakevilla.store.effects import get
from lakevilla.store.runner import Runner

KEYS = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_REGION": "eu-north-1"}
HERE = "http://127.0.0.1:9"
NO_URLS = ["localhost:9", "host", "", "http://", "ftp://x", "//x", "http://a b", "https://[::1"]
NO_URLS += ["http://127.0.0.1:99999", "http://x:port", "s3://bucket"]
SPELLINGS = ["AWS_ENDPOINT_URL", "aws_endpoint", "AWS_ENDPOINT_URL_S3", "endpoint_url", "Endpoint"]
VARIABLES = ["AWS_ENDPOINT_URL", "AWS_ENDPOINT", "AWS_ENDPOINT_URL_S3"]


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)


@pytest.mark.parametrize("endpoint", NO_URLS)
def test_an_endpoint_option_that_is_no_url_is_refused_with_the_options_name(endpoint: str) -> None:
    for spelling in SPELLINGS:
        with pytest.raises(lv.InvalidOperation, match=f"storage option {spelling.lower()} is"):
            lv.connect("s3://bucket/x", storage_options={**KEYS, spelling: endpoint})


@pytest.mark.parametrize("endpoint", NO_URLS)
def test_an_endpoint_in_the_environment_that_is_no_url_is_refused_with_the_variables_name(
    monkeypatch: pytest.MonkeyPatch, endpoint: str
) -> None:
    for variable in VARIABLES:
        with monkeypatch.context() as patched:
            patched.setenv(variable, endpoint)
            with pytest.raises(lv.InvalidOperation, match=f"environment's {variable} is"):
                lv.connect("s3://bucket/x", storage_options=KEYS)


def test_a_secret_in_an_invalid_endpoint_is_not_repeated() -> None:
    with pytest.raises(lv.InvalidOperation) as raised:
        open_store("s3://b", {**KEYS, "endpoint": "key:hunter2@host"})
    assert "hunter2" not in str(raised.value)


@pytest.mark.parametrize(
    ("root", "options"),
    [
        ("s3://b", {"endpoint": "http://key:hunter2@127.0.0.1:9"}),
        ("az://b", {"azure_endpoint": "http://127.0.0.1:9?sig=hunter2"}),
        ("az://b", {"azure_endpoint": "ftp://127.0.0.1?sig=hunter2"}),
        ("az://b", {"azure_endpoint": "http://me:hunter2@[::1]:9/", "allow_http": "true"}),
        ("az://b", {"azure_endpoint": "http://127.0.0.1:9?sig=hunter2", "allow_http": "true"}),
    ],
)
def test_a_secret_in_a_refused_endpoint_is_not_repeated(root: str, options: Any) -> None:
    with pytest.raises(lv.InvalidOperation, match="endpoint is") as raised:
        open_store(root, options)
    assert "hunter2" not in str(raised.value)


def test_plain_http_is_refused_and_the_error_names_the_option_that_allows_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(lv.InvalidOperation, match="AWS_ALLOW_HTTP='true' in storage_options"):
        lv.connect("s3://bucket/x", storage_options={**KEYS, "endpoint": HERE})
    monkeypatch.setenv("AWS_ENDPOINT_URL", HERE)
    with pytest.raises(lv.InvalidOperation, match=r"environment's AWS_ENDPOINT_URL is .* plain"):
        lv.connect("s3://bucket/x", storage_options=KEYS)
    monkeypatch.setenv("AWS_ALLOW_HTTP", "true")
    with pytest.raises(lv.InvalidOperation, match="AWS_ALLOW_HTTP"):
        lv.connect("s3://bucket/x", storage_options={**KEYS, "allow_http": False})


def test_a_panic_in_the_client_library_is_reported_as_a_store_error() -> None:
    config: Any = {name.lower(): value for name, value in KEYS.items()}
    backend = ObstoreBackend(S3Store("bucket", config={**config, "aws_endpoint": "localhost:9"}))
    refused = backend.put("k", b"1", ABSENT)
    assert isinstance(refused, Failure)
    assert refused.ambiguous
    read = backend.get("k")
    assert isinstance(read, Failure)
    assert not read.ambiguous
    with pytest.raises(lv.StoreError, match="the store's client broke down"):
        Runner(backend, Ids(SystemClock()), lv.Settings()).run(get("k"))


@pytest.mark.parametrize("value", [None, b"x", ["x"], Path("x"), object()])
def test_a_storage_option_that_is_no_text_number_or_boolean_is_refused(value: Any) -> None:
    with pytest.raises(lv.InvalidOperation, match="storage option 'AWS_REGION' is of type"):
        lv.connect("s3://bucket/x", storage_options={**KEYS, "AWS_REGION": value})


def test_values_that_are_no_boto3_session_are_refused_with_advice(tmp_path: Path) -> None:
    boto3 = pytest.importorskip("boto3")
    client = boto3.client("s3", region_name="us-east-1")
    for given in (client, "default", {"aws_access_key_id": "a"}, 5, boto3, object(), b"x"):
        for root in ("s3://bucket/x", str(tmp_path)):
            with pytest.raises(lv.InvalidOperation, match=r"pass boto3.Session\(\)"):
                lv.connect(root, boto3_session=given)


def test_a_boto3_session_without_credentials_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    botocore = pytest.importorskip("botocore.session")
    session = botocore.Session()
    monkeypatch.setattr(session, "get_credentials", lambda: None)
    with pytest.raises(lv.InvalidOperation, match="boto3_session gives no credentials"):
        lv.connect("s3://bucket/x", boto3_session=session)


def test_an_endpoint_is_shown_without_its_secrets() -> None:
    options = {"endpoint_url": "https://me:secret@host:9000/path?secret"}
    assert shown_endpoint("s3", options, {}) == "https://host:9000"
    assert shown_endpoint("s3", {}, {"AWS_ENDPOINT_URL": "http://host"}) == "http://host"
    assert shown_endpoint("s3", {}, {}) is None
    emulated = {"azure_storage_use_emulator": "true"}
    assert shown_endpoint("az", emulated, {}) == "http://127.0.0.1:10000"
    elsewhere = {"AZURITE_BLOB_STORAGE_URL": "http://azurite:1"}
    assert shown_endpoint("az", emulated, elsewhere) == "http://azurite:1"
    assert shown_endpoint("az", {}, elsewhere) is None
