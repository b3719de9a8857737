"""Each location has one spelling."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import lakevilla as lv
from lakevilla.errors import InvalidOperation, StoreError
from lakevilla.store.location import (
    check_key,
    in_account,
    normalise_location,
    parse_location,
    refuse_half_scheme,
    root_location,
)


@pytest.mark.parametrize(
    ("root", "name", "expected"),
    [
        ("s3://lake", "orders", "orders"),
        ("s3://lake/", "sales/orders/", "sales/orders"),
        ("s3://lake/base", "s3://lake/base/orders", "orders"),
        ("s3a://lake/base", "s3://lake//base///orders/", "orders"),
        ("s3://lake/base", "s3n://lake/base/a b/%20", "a b/%20"),
        ("s3://lake/base", "s3://lake/basement/orders", "s3://lake/basement/orders"),
        ("s3://lake/base", "s3a://other/orders/", "s3://other/orders"),
        ("gs://lake", "gcs://lake/orders", "orders"),
        ("az://box/base", "abfs://box/base/t", "t"),
        (
            "abfss://box@account.dfs.core.windows.net/base",
            "abfss://box@account.blob.core.windows.net/base/t",
            "t",
        ),
        ("abfss://box@account.dfs.core.windows.net/base", "az://box/base/t", "t"),
        (
            "abfss://box@account.dfs.core.windows.net/base",
            "https://Account.blob.core.windows.net/box/base/t",
            "t",
        ),
        (
            "abfss://box@account.dfs.core.windows.net/base",
            "wasbs://box@account.blob.core.windows.net/base/t",
            "t",
        ),
        (
            "abfss://box@account.dfs.core.windows.net/base",
            "abfss://box@account.dfs.core.chinacloudapi.cn/base/t",
            "abfss://box@account.dfs.core.chinacloudapi.cn/base/t",
        ),
        (
            "https://account.z12.blob.storage.azure.net/box/base",
            "abfss://box@account.z12.dfs.storage.azure.net/base/t",
            "t",
        ),
        (
            "abfss://box@account.privatelink.dfs.core.windows.net/base",
            "abfss://box@account.dfs.core.windows.net/base/t",
            "t",
        ),
        (
            "abfss://box@account.dfs.core.windows.net/base",
            "az://other/t",
            "abfss://other@account.dfs.core.windows.net/t",
        ),
        (
            "s3://lake",
            "abfss://box@account.dfs.core.windows.net/t",
            "abfss://box@account.dfs.core.windows.net/t",
        ),
        ("s3://lake", "/data/orders/", "/data/orders"),
        ("/data/lake", "/data/lake/orders", "orders"),
        ("/data/lake/", "file:///data//lake/orders/", "orders"),
        ("/data/lake", "file://localhost/data/lake/a%20b", "a b"),
        ("file:///data/lake%20x", "/data/lake x/t", "t"),
        ("/data/lake", "/data/lake%20/t", "/data/lake%20/t"),
        ("/data/x/../lake", "/data/lake/t", "t"),
        ("/", "/data/t", "data/t"),
        ("memory://m", "t/./u", "t/u"),
    ],
)
def test_a_table_has_one_location_however_its_name_is_spelled(
    root: str, name: str, expected: str
) -> None:
    assert normalise_location(root, name) == expected
    assert normalise_location(root, expected) == expected


@pytest.mark.parametrize(
    ("root", "name", "says"),
    [
        ("s3://lake", "../other", r"'\.\.'"),
        ("s3://lake", "a/../../b", r"'\.\.'"),
        ("s3://lake", "a/%2e%2E/b", r"'\.\.'"),
        ("s3://lake/base", "s3://lake/base/../t", r"'\.\.'"),
        ("/data/lake", "/data/lake/../t", r"'\.\.'"),
        ("/data/lake", "file:///data/lake/../t", r"'\.\.'"),
        ("s3://lake", "", "empty"),
        ("s3://lake", "./", "empty"),
        ("s3://lake/base", "s3://lake/base/", "root"),
        ("s3://lake", "s3:///t", "no bucket"),
        ("s3://lake", "ftp://host/t", "unknown scheme"),
        ("s3://lake", "file://host/t", "host"),
        ("s3://lake", "bad\nname", "control character"),
        ("az://box", "abfss://box@account.dfs.core.windows.net/t", "two ways"),
        ("az://box", "abfss://box@account.example.org/t", "not of the form"),
        ("az://box", "abfss://account.dfs.core.windows.net/box/t", "not of the form"),
        ("az://box", "https://account.blob.core.windows.net", "names no container"),
        ("az://box", "az:///t", "no container; write az://container/path"),
        ("az://box", "https://account.blob.core.windows.net/", "windows.net/container/path"),
        ("az://box", "az://other\\\\t", "lower-case letters, digits and hyphens"),
        ("az://box", "abfss://Box@account.dfs.core.windows.net/t", "can't have the name 'Box'"),
        ("az://box", "https://account.blob.core.windows.net/a_b/t", "can't have the name 'a_b'"),
        ("az://box", "https://example.org/box/t", "unknown scheme"),
        ("az://box", "abfss://work@onelake.dfs.fabric.microsoft.com/i.Lakehouse/t", "OneLake"),
        ("az://box", "https://onelake.dfs.fabric.microsoft.com/work/i.Lakehouse/t", "OneLake"),
    ],
)
def test_an_invalid_or_ambiguous_name_is_refused(root: str, name: str, says: str) -> None:
    with pytest.raises(InvalidOperation, match=says):
        normalise_location(root, name)


def test_a_directory_that_can_not_be_read_is_refused_with_its_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def denied(path: str) -> str:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(os.path, "realpath", denied)
    with pytest.raises(StoreError, match="/proc/1/root can't be read: Permission denied"):
        root_location("/proc/1/root")


@pytest.mark.parametrize(
    "location",
    [
        "az://box/t?sv=1&sig=hunter2",
        "abfss://box@account.dfs.core.windows.net/t?sig=hunter2&sv=1",
        "https://account.blob.core.windows.net/box/t?sv=1&sig=hunter2",
        "abfss://box:hunter2@account.dfs.core.windows.net/t",
        "abfss://box:hunter2@account/t",
        "abfss://box@hunter2@account.dfs.core.windows.net/t",
    ],
)
def test_a_token_in_a_location_on_azure_is_refused_and_not_repeated(location: str) -> None:
    with pytest.raises(InvalidOperation, match="in storage_options") as error:
        root_location(location)
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    "location",
    [
        "s3://bucket/t?X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Signature=hunter2",
        "s3://bucket/t?X-Amz-Security-Token=hunter2&a=b",
        "s3a://bucket/t?AWSAccessKeyId=AKIA&Signature=hunter2&Expires=1",
        "gs://bucket/t?X-Goog-Signature=hunter2",
        "gs://bucket/t?access_token=hunter2",
    ],
)
def test_a_signed_url_is_refused_and_its_signature_not_repeated(location: str) -> None:
    with pytest.raises(InvalidOperation, match="followed by a signature") as error:
        root_location(location)
    assert "hunter2" not in str(error.value)


def test_the_user_of_a_files_uri_is_not_repeated() -> None:
    with pytest.raises(InvalidOperation, match="names the host 'h'") as error:
        root_location("file://me:hunter2@h/x")
    assert "hunter2" not in str(error.value)


@pytest.mark.parametrize(
    "root",
    [
        "DefaultEndpointsProtocol=https;AccountName=a;AccountKey=hunter2;EndpointSuffix=b",
        "BlobEndpoint=https://a.blob.core.windows.net;SharedAccessSignature=sig=hunter2",
        "host=db; password=hunter2",
    ],
)
def test_a_connection_string_is_refused_and_not_repeated(root: str) -> None:
    with pytest.raises(InvalidOperation, match="is a connection string") as error:
        lv.connect(root)
    assert "hunter2" not in str(error.value)


def test_a_question_mark_in_a_path_is_part_of_it() -> None:
    assert root_location("s3://box/a?b=c/t").path == "a?b=c/t"


def test_a_question_mark_in_a_path_on_azure_is_part_of_it() -> None:
    assert root_location("az://box/a?b=c/t").path == "a?b=c/t"


def test_credentials_in_a_location_are_refused_and_not_repeated() -> None:
    with pytest.raises(InvalidOperation) as error:
        parse_location("s3://AKIA:hunter2@bucket/t")
    assert "hunter2" not in error.value.message


@pytest.mark.parametrize(
    "text",
    [
        "https://account.blob.core.windows.net?sv=1&sig=hunter2",
        "http://127.0.0.1:10000/devstoreaccount1/box/t?sv=1&sig=hunter2",
        "https://me:hunter2@account.blob.core.windows.net/box/t",
        "https://hunter2@example.org/box/t",
        "https://bucket.s3.amazonaws.com/t?X-Amz-Signature=hunter2",
    ],
)
def test_an_address_that_is_no_location_is_refused_without_its_secrets(text: str) -> None:
    with pytest.raises(InvalidOperation, match="unknown scheme") as error:
        parse_location(text)
    assert "hunter2" not in error.value.message


@pytest.mark.parametrize("text", ["https:/a.blob/box?sig=hunter2", "s3:/key:hunter2@bucket/t"])
def test_half_a_uri_is_refused_without_its_secrets(text: str) -> None:
    with pytest.raises(InvalidOperation) as error:
        refuse_half_scheme(text)
    assert "hunter2" not in error.value.message


def test_the_url_of_a_portal_is_the_place_that_it_spells() -> None:
    host = "account.blob.core.windows.net"
    for spelled, path in (("my%20lake", "my lake"), ("%C3%BC/a%23b%25", "ü/a#b%")):
        place = parse_location(f"https://{host}/box/{spelled}")
        assert place == parse_location(f"abfss://box@{host}/{path}")
        assert parse_location(place.uri) == place
    for spelled, message in (("%ff", "UTF-8"), ("a/%2E%2e/b", "'..'"), ("a%0A", "control")):
        with pytest.raises(InvalidOperation, match=message):
            parse_location(f"https://{host}/box/{spelled}")


def test_a_container_without_an_account_is_in_a_given_one() -> None:
    bare, whole = (
        parse_location(text) for text in ("az://box/t", "abfss://box@a.dfs.core.windows.net/t")
    )
    assert in_account(bare, "a") == whole
    assert in_account(bare, None) == bare
    assert in_account(whole, "another") == whole
    assert in_account(parse_location("s3://box/t"), "a") == parse_location("s3://box/t")


def test_a_location_reached_by_two_paths_is_one_location(tmp_path: Path) -> None:
    (tmp_path / "lake" / "orders").mkdir(parents=True)
    os.symlink(tmp_path / "lake", tmp_path / "link")
    assert normalise_location(str(tmp_path / "link"), str(tmp_path / "lake" / "orders")) == "orders"
    assert normalise_location(str(tmp_path / "lake"), str(tmp_path / "link" / "orders")) == "orders"
    assert root_location(str(tmp_path / "link")) == root_location(str(tmp_path / "lake"))


def test_a_relative_root_is_relative_to_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "work").mkdir()
    monkeypatch.chdir(tmp_path / "work")
    assert root_location("../lake").uri == os.path.realpath(tmp_path / "lake")
    assert root_location("lake") == root_location(str(tmp_path / "work" / "lake"))


SEGMENT = st.text(
    st.characters(codec="utf-8", exclude_categories=["Cc", "Cs"], exclude_characters="/"),
    min_size=1,
    max_size=8,
).filter(lambda part: part != "." and "%2" not in part and part != "..")


@given(st.lists(SEGMENT, min_size=1, max_size=4), st.sampled_from(["s3://b/lake", "/lake"]))
def test_a_plain_name_is_kept_and_its_full_path_is_normalised_to_the_name(
    parts: list[str], root: str
) -> None:
    name = "/".join(parts)
    if "://" in name:
        return
    assert normalise_location(root, name) == name
    assert normalise_location(root, f"{root}//{name}/") == name
    assert check_key(name) == name


def test_a_linked_name_below_the_root_is_normalised_to_its_target(tmp_path: Path) -> None:
    (tmp_path / "lake" / "t").mkdir(parents=True)
    (tmp_path / "beside").mkdir()
    os.symlink(tmp_path / "lake" / "t", tmp_path / "lake" / "ln")
    os.symlink(tmp_path / "beside", tmp_path / "lake" / "out")
    root = str(tmp_path / "lake")
    assert normalise_location(root, "ln") == "t"
    assert normalise_location(root, "ln/inner") == "t/inner"
    assert normalise_location(root, "out") == str((tmp_path / "beside").resolve())
    assert normalise_location(root, "absent") == "absent"
