"""pyiceberg's properties for a store, as storage options."""

from __future__ import annotations

import pytest
from pyiceberg import io as names

from lakevilla.formats.iceberg.catalog.fileio import storage_options
from lakevilla.store.backends.object_store import open_store

MINE = {"adls.account-name": "mine", "adls.account-key": "aGVsbG8="}
OPTIONS = {"azure_storage_account_name": "mine", "azure_storage_account_key": "aGVsbG8="}


@pytest.mark.parametrize(
    ("properties", "options"),
    [
        ({}, {}),
        (
            {
                "s3.endpoint": "http://host:1",
                "s3.region": "r",
                "client.access-key-id": "a",
                "client.secret-access-key": "b",
            },
            {
                "aws_endpoint": "http://host:1",
                "aws_allow_http": "true",
                "aws_region": "r",
                "aws_access_key_id": "a",
                "aws_secret_access_key": "b",
            },
        ),
        (MINE, OPTIONS),
        (
            MINE | {"adls.account-host": "mine.blob.core.usgovcloudapi.net"},
            OPTIONS | {"azure_storage_endpoint": "https://mine.blob.core.usgovcloudapi.net"},
        ),
        (
            MINE
            | {
                "adls.blob-storage-authority": "127.0.0.1:10000",
                "adls.blob-storage-scheme": "http",
            },
            OPTIONS
            | {"azure_storage_endpoint": "http://127.0.0.1:10000/mine", "azure_allow_http": "true"},
        ),
        (
            MINE | {"adls.blob-storage-authority": ".blob.core.chinacloudapi.cn"},
            OPTIONS | {"azure_storage_endpoint": "https://mine.blob.core.chinacloudapi.cn"},
        ),
        (
            {
                "adls.connection-string": "DefaultEndpointsProtocol=http;AccountName=mine;"
                "AccountKey=aGVsbG8=;BlobEndpoint=http://127.0.0.1:10000/mine;"
            },
            OPTIONS
            | {"azure_storage_endpoint": "http://127.0.0.1:10000/mine", "azure_allow_http": "true"},
        ),
        (
            {
                "adls.connection-string": "AccountName=mine; AccountKey=aGVsbG8=;"
                "EndpointSuffix=core.windows.net"
            },
            OPTIONS | {"azure_storage_endpoint": "https://mine.blob.core.windows.net"},
        ),
        (
            {"adls.sas-token.mine.dfs.core.windows.net": "sv=1&sig=x"},
            {"azure_storage_account_name": "mine", "azure_storage_sas_token": "sv=1&sig=x"},
        ),
        (
            {
                "adls.account-name": "mine",
                "adls.tenant-id": "t",
                "adls.client-id": "i",
                "adls.client-secret": "s",
            },
            {
                "azure_storage_account_name": "mine",
                "azure_storage_tenant_id": "t",
                "azure_storage_client_id": "i",
                "azure_storage_client_secret": "s",
            },
        ),
        (
            {"adls.account-name": "mine", "adls.token": "t"},
            {"azure_storage_account_name": "mine", "azure_storage_token": "t"},
        ),
        (
            {"adls.account-name": "mine", "adls.anon": "true"},
            {"azure_storage_account_name": "mine", "azure_skip_signature": "true"},
        ),
        (
            {"gcs.oauth2.token": "t", "gcs.service.host": "http://host:1"},
            {
                "google_bearer_token": "t",
                "google_base_url": "http://host:1",
                "google_allow_http": "true",
            },
        ),
    ],
)
def test_properties_of_pyiceberg_become_storage_options(
    properties: dict[str, str], options: dict[str, str]
) -> None:
    assert storage_options(properties) == options
    root = "az://c/x" if "azure_storage_account_name" in options else "s3://b/x"
    open_store(root, options)  # each of them is known


def test_each_property_of_pyiceberg_for_azure_is_used_or_known_not_to_be() -> None:
    unused = {
        names.ADLS_CREDENTIAL,  # an object of azure-identity, and no text
        names.ADLS_DFS_STORAGE_AUTHORITY,  # of the interface that LakeVilla does not use
        names.ADLS_DFS_STORAGE_SCHEME,
        names.ADLS_BLOB_STORAGE_SCHEME,  # nothing without the authority
        names.ADLS_CONNECTION_STRING,  # nothing without its parts
    }
    known = {value for name, value in vars(names).items() if name.startswith("ADLS_")}
    assert known - {name for name in known if storage_options({name: "x"})} == unused


def test_each_property_of_pyiceberg_for_gcs_is_used_or_known_not_to_be() -> None:
    unused = {
        names.GCS_TOKEN_EXPIRES_AT_MS,  # a token is used until the store refuses it
        names.GCS_PROJECT_ID,  # of buckets that are made or listed
        names.GCS_DEFAULT_LOCATION,
        names.GCS_ACCESS,
        names.GCS_CONSISTENCY,  # of gcsfs alone, and so are the others
        names.GCS_CACHE_TIMEOUT,
        names.GCS_REQUESTER_PAYS,
        names.GCS_SESSION_KWARGS,
        names.GCS_VERSION_AWARE,
    }
    known = {value for name, value in vars(names).items() if name.startswith("GCS_")}
    assert known - {name for name in known if storage_options({name: "x"})} == unused
