"""Options, environment variables and boto3 or botocore sessions take effect at a server."""

from __future__ import annotations

import os
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.credentials import RefreshableCredentials  # type: ignore[import-untyped]

import lakevilla as lv
from lakevilla.store.backends import sessions
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


class Fleeting:
    """A session whose credentials expire; the service that renews them fails at times."""

    region_name = "us-east-1"

    def __init__(self, server: S3Server) -> None:
        self._keys = {"access_key": server.access_key, "secret_key": server.secret_key}
        self.asked = 0
        self.fails: set[int] = set()

    def renew(self) -> dict[str, str]:
        self.asked += 1
        if self.asked in self.fails:
            raise RuntimeError("token=hunter2")
        expiry = datetime.now(UTC) + timedelta(minutes=12)
        return {**self._keys, "token": f"t{self.asked}", "expiry_time": expiry.isoformat()}

    def get_credentials(self) -> Any:
        return RefreshableCredentials.create_from_metadata(self.renew(), self.renew, "tests")


def test_credentials_of_a_session_are_not_used_after_they_have_expired(
    s3_server: S3Server,
) -> None:
    session = Fleeting(s3_server)
    given: Any = sessions.boto3_credentials(session)
    expires = given()["expires_at"]
    assert datetime.now(UTC) < expires < datetime.now(UTC) + timedelta(minutes=12)


def test_a_commit_goes_on_where_the_service_of_credentials_fails_once(
    s3_server: S3Server, s3_root: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = Fleeting(s3_server)
    # Each request asks the session, and each time the session asks its service.
    monkeypatch.setattr(sessions, "_LIFE", timedelta(0))
    monkeypatch.setattr(RefreshableCredentials, "_mandatory_refresh_timeout", 3600)
    monkeypatch.setattr(RefreshableCredentials, "_advisory_refresh_timeout", 3600)
    options = {"AWS_ENDPOINT_URL": s3_server.endpoint, "AWS_ALLOW_HTTP": "true"}
    settings = lv.Settings(retry_base_seconds=0.001)
    with lv.connect(
        s3_root, storage_options=options, boto3_session=session, settings=settings
    ) as lake:
        lake.create_table("t", [{"id": 1}])
        before = session.asked
        for number in range(before + 1, before + 12, 2):
            session.fails = {number}
            lake.run(lambda txn: txn.append("t", [{"id": 2}]))
            assert session.asked >= number
        session.fails = set(range(session.asked, session.asked + 1000))
        with pytest.raises(lv.StoreError, match=r"boto3_session gave no credentials") as error:
            lake.run(lambda txn: txn.append("t", [{"id": 3}]))
        assert "hunter2" not in error.value.message
        session.fails = set()
        assert lake.table("t").count() == 7
