"""Storage options: deltalake's keys, in any case; unknown keys are refused."""

from __future__ import annotations

import logging
import os
import re

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


@pytest.mark.parametrize(
    ("key", "advice"),
    [
        ("adls.account-key", "pyiceberg's name of azure_storage_account_key"),
        ("s3.endpoint", "pyiceberg's name of aws_endpoint"),
        ("adls.connection-string", "a property of pyiceberg"),
        (
            "fs.azure.account.key.acct.dfs.core.windows.net",
            "Hadoop's name of azure_storage_account_key",
        ),
        ("fs.azure.account.auth.type", "a property of Hadoop or Spark"),
        ("fs.s3a.endpoint", "Hadoop's name of aws_endpoint_url"),
        ("gcs.oauth2.token", "pyiceberg's name of google_bearer_token"),
        ("gcs.project-id", "a property of pyiceberg"),
        (
            "fs.gs.auth.service.account.json.keyfile",
            "Hadoop's name of google_service_account",
        ),
        ("connection_string", "the parts of a connection string"),
        ("azure_account_nam", "correct its name"),
        ("aws_profile", "pass boto3_session"),
    ],
)
def test_the_error_for_an_option_of_another_library_names_the_option_to_use(
    key: str, advice: str
) -> None:
    with pytest.raises(InvalidOperation, match=re.escape(advice)) as error:
        open_store("az://c/x", AZURE | {key: "hunter2"})
    assert "hunter2" not in error.value.message


AZURE = {"azure_storage_account_name": "mine", "azure_storage_account_key": "aGVsbG8="}
MINE = "abfss://c@mine.dfs.core.windows.net/x"
KEYS_OF_CREDENTIALS: list[dict[str, str]] = [
    {"account_key": "aGVsbG8="},
    {"azure_storage_access_key": "aGVsbG8="},
    {"azure_storage_sas_token": "sv=1&sig=x"},
    {"sas_key": "?sv=1&sig=x"},
    {"azure_client_id": "i", "azure_client_secret": "s", "azure_tenant_id": "t"},
    {"azure_client_id": "i", "azure_tenant_id": "t", "azure_federated_token_file": "/f"},
    {"azure_use_azure_cli": "true"},
    {"azure_msi_endpoint": "http://127.0.0.1/msi"},
    {"bearer_token": "t"},
    {"azure_skip_signature": "true"},
]


@pytest.mark.parametrize("credentials", KEYS_OF_CREDENTIALS, ids=lambda each: next(iter(each)))
def test_each_kind_of_credentials_for_azure_is_understood(credentials: dict[str, str]) -> None:
    store = open_store("az://c/x", {"account_name": "mine", **credentials})
    assert store.root.uri == MINE


@pytest.mark.parametrize(
    ("options", "environment", "uri"),
    [
        (AZURE, {}, MINE),
        ({"account_name": "mine"}, {"AZURE_STORAGE_ACCOUNT_NAME": "theirs"}, MINE),
        ({}, {"AZURE_STORAGE_ACCOUNT_NAME": "mine"}, MINE),
        (AZURE | {"endpoint": "https://mine.blob.core.windows.net"}, {}, MINE),
        (AZURE | {"endpoint": "https://mine.privatelink.blob.core.windows.net"}, {}, MINE),
        (AZURE | {"endpoint": "https://proxy.example.org/blobs"}, {}, MINE),
        (
            AZURE | {"azure_storage_endpoint": "https://mine.blob.core.chinacloudapi.cn"},
            {},
            "abfss://c@mine.dfs.core.chinacloudapi.cn/x",
        ),
        (
            {"azure_storage_use_emulator": "true"},
            {},
            "abfss://c@devstoreaccount1.dfs.core.windows.net/x",
        ),
    ],
)
def test_a_container_is_in_the_account_that_the_options_or_the_environment_name(
    options: dict[str, str],
    environment: dict[str, str],
    uri: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in [name for name in os.environ if name.startswith("AZURE_")]:
        monkeypatch.delenv(name)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    store = open_store("az://c/x", options)
    assert store.root.uri == uri
    assert open_store(uri, options).root == store.root


@pytest.mark.parametrize(
    ("root", "options", "says"),
    [
        ("abfss://c@theirs.dfs.core.windows.net/x", AZURE, r"account 'theirs'.*'mine'"),
        (
            "abfss://c@theirs.dfs.core.windows.net/x",
            {"azure_tenant_id": "t", "endpoint": "https://mine.blob.core.windows.net"},
            r"account 'theirs'.*endpoint is of the account 'mine'",
        ),
        (
            "abfss://c@theirs.dfs.core.windows.net/x",
            {"account_name": "mine", "endpoint": "https://proxy.example.org"},
            r"account 'theirs'.*endpoint is of the account 'mine'",
        ),
        (MINE, AZURE | {"endpoint": "http://127.0.0.1:1/other", "allow_http": "true"}, "'other'"),
        (
            MINE,
            AZURE | {"endpoint": "http://127.0.0.1:1", "allow_http": "true"},
            "write http://127.0.0.1:1/devstoreaccount1",
        ),
        (MINE, AZURE | {"endpoint": "http://azurite:1/", "allow_http": "true"}, "azurite:1/devst"),
        (
            MINE,
            AZURE | {"endpoint": "https://mine.blob.core.windows.net", "use_emulator": "true"},
            "leave one of them out",
        ),
        ("az://c/x", {"account_key": "aGVsbG8="}, "set AZURE_STORAGE_ACCOUNT_NAME"),
        ("az://c/x", AZURE | {"endpoint": "https://onelake.blob.fabric.microsoft.com"}, "OneLake"),
        ("az://c/x", AZURE | {"azure_use_fabric_endpoint": "true"}, "OneLake"),
    ],
)
def test_options_that_do_not_fit_an_azure_location_are_refused(
    root: str, options: dict[str, str], says: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("AZURE_")]:
        monkeypatch.delenv(name)
    with pytest.raises(InvalidOperation, match=says):
        open_store(root, options)


@pytest.mark.parametrize("name", ["azure_timeout", "timeout", "azure_connect_timeout"])
def test_a_time_limit_is_understood_with_and_without_the_providers_prefix(name: str) -> None:
    open_store("az://c/x", AZURE | {name: "5s"})
    open_store("s3://b/x", {"aws_region": "r", name.replace("azure", "aws"): "5s"})


@pytest.mark.parametrize(
    ("option", "variable", "refused"),
    [
        ("sas_token", "AZURE_STORAGE_ACCOUNT_KEY", True),
        ("azure_use_azure_cli", "AZURE_STORAGE_SAS_TOKEN", True),
        ("account_key", "AZURE_STORAGE_TOKEN", True),
        ("account_key", "AZURE_STORAGE_SAS_TOKEN", False),
        ("account_key", "AZURE_STORAGE_ACCESS_KEY", False),
        ("bearer_token", "AZURE_STORAGE_ACCOUNT_KEY", False),
        ("sas_token", "TOKEN", False),
    ],
)
def test_credentials_of_the_environment_do_not_take_the_place_of_an_option(
    option: str, variable: str, refused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in [name for name in os.environ if name.startswith("AZURE_")]:
        monkeypatch.delenv(name)
    value = {"azure_use_azure_cli": "true", "sas_token": "sv=1&sig=x"}.get(option, "aGVsbG8=")
    monkeypatch.setenv(variable, "sv=1&sig=x" if "SAS" in variable else "aGVsbG8=")
    options = {"account_name": "mine", option: value}
    if not refused:
        open_store("az://c/x", options)
        return
    with pytest.raises(InvalidOperation, match=rf"{variable} instead of {option}"):
        open_store("az://c/x", options)


def test_the_environments_key_is_not_sent_to_another_account(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "mine")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "aGVsbG8=")
    assert open_store(MINE).root.uri == MINE
    theirs = "abfss://c@theirs.dfs.core.windows.net/x"
    with pytest.raises(InvalidOperation, match=r"'theirs'.*of the environment is of .*'mine'"):
        open_store(theirs)
    assert open_store(theirs, {"account_key": "aGVsbG8="}).root.uri == theirs


KEY_OF_GOOGLE = (
    '{"gcs_base_url": "https://h", "disable_oauth": true, "client_email": "", "private_key": "", '
    '"private_key_id": ""}'
)


@pytest.mark.parametrize(
    "credentials",
    [
        {"google_service_account_key": KEY_OF_GOOGLE},
        {"service_account_key": KEY_OF_GOOGLE, "google_base_url": "https://other"},
        {"google_bearer_token": "t"},
        {"google_skip_signature": "true"},
    ],
    ids=lambda each: next(iter(each)),
)
def test_each_kind_of_credentials_for_gcs_is_understood(credentials: dict[str, str]) -> None:
    assert open_store("gcs://b/x", credentials).root.uri == "gs://b/x"


def test_plain_http_to_gcs_is_refused_unless_it_is_allowed() -> None:
    options = {"google_base_url": "http://127.0.0.1:1", "google_bearer_token": "t"}
    with pytest.raises(InvalidOperation, match="GOOGLE_ALLOW_HTTP"):
        open_store("gs://b/x", options).get("k")
    open_store("gs://b/x", options | {"google_allow_http": "true"})


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


@pytest.mark.parametrize("name", ["azure_storage_account_name", "account_name"])
def test_an_account_has_one_spelling(name: str) -> None:
    for spelled in ({"azure_storage_sas_token": "sv=1&sig=x"}, {"account_key": "aGVsbG8="}):
        options = spelled | {name: "Mine"}
        assert {open_store(root, options).root.uri for root in ("az://c/x", MINE)} == {MINE}


#: By provider, an option whose bad value the store's client quotes.
QUOTED = [
    ("s3://b", "aws_skip_signature"),
    ("az://c", "azure_use_azure_cli"),
    ("gs://b", "google_service_account"),
    ("gs://b", "google_application_credentials"),
]
ACCOUNT = '{\n "type": "service_account",\n "private_key": "-----BEGIN hunter2"\n}'


@pytest.mark.parametrize(("root", "name"), QUOTED)
@pytest.mark.parametrize("value", ["hunter2", ACCOUNT])
@pytest.mark.parametrize("where", ["options", "environment"])
def test_a_value_that_the_stores_client_quotes_is_not_repeated(
    monkeypatch: pytest.MonkeyPatch, root: str, name: str, value: str, where: str
) -> None:
    options = {"azure_storage_account_name": "account"}
    if where == "options":
        options[name] = value
    else:
        monkeypatch.setenv(name.upper(), value)
    with pytest.raises(InvalidOperation, match=r"\(the value of .*; correct storage_opt") as error:
        open_store(root, options)
    assert name in str(error.value).lower()
    assert "hunter2" not in repr(error.value)
    assert error.value.__context__ is None


def test_an_option_that_is_short_is_repeated_for_it_is_a_switch() -> None:
    with pytest.raises(InvalidOperation, match='failed to parse "maybe" as boolean'):
        open_store("s3://b", {"aws_skip_signature": "maybe"})


@pytest.mark.parametrize(
    "given", ["AccountKey=hunter2;x", "https://me:hunter2@", '{"k": "hunter2"}']
)
def test_an_endpoint_that_is_none_is_not_repeated_where_it_may_hold_a_secret(given: str) -> None:
    with pytest.raises(InvalidOperation, match="is no URL") as error:
        open_store("s3://b", {"aws_endpoint_url": given})
    assert "hunter2" not in str(error.value)
