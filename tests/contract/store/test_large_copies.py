"""Copies of objects that S3 refuses to copy (above 5 GB; the tests set a lower limit)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from lakevilla.store.backends import object_store
from lakevilla.store.backends.object_store import CAPABILITIES, open_store
from lakevilla.store.backends.routing import LakeStore
from lakevilla.store.base import AnyVersion, Failure, Found, Missing, Stored
from tests.fixtures.s3 import S3Server
from tests.support.gateway import Gateway

BODY = bytes(range(256)) * 48 * 1024  # 12 MiB are copied in three parts


@pytest.fixture
def gateway(s3_server: S3Server) -> Iterator[Gateway]:
    gateway = Gateway(s3_server.endpoint)
    yield gateway
    gateway.close()


@pytest.fixture
def store(
    s3_server: S3Server, s3_root: str, gateway: Gateway, monkeypatch: pytest.MonkeyPatch
) -> LakeStore:
    """Return a store that refuses to copy more than 8 MiB, as S3 does above 5 GB."""
    limited = replace(CAPABILITIES["s3"], copied_bytes=8 * 1024**2)
    monkeypatch.setitem(CAPABILITIES, "s3", limited)
    monkeypatch.setattr(object_store, "_COPIED_PART_BYTES", 5 * 1024**2)
    refused: list[str] = []

    def fails(method: str, path: str) -> tuple[int, bool] | None:
        if method != "PUT" or not path.endswith("/refused") or refused:
            return None
        refused.append(path)
        return 400, False

    gateway.fails = fails
    return open_store(s3_root, s3_server.at(gateway.endpoint).storage_options)


def test_an_object_that_the_store_refuses_to_copy_is_copied_in_parts(store: LakeStore) -> None:
    assert isinstance(store.put("t/large", BODY, AnyVersion()), Stored)
    assert isinstance(store.copy_object("t/large", "copies/refused"), Stored)
    found = store.get("copies/refused")
    assert isinstance(found, Found)
    assert found.body == BODY


def test_a_copy_that_the_store_refuses_for_another_reason_fails(store: LakeStore) -> None:
    assert isinstance(store.put("t/small", b"rows", AnyVersion()), Stored)
    assert isinstance(store.copy_object("t/small", "copies/refused"), Failure)
    assert store.get("copies/refused") == Missing()
    assert isinstance(store.copy_object("t/nowhere", "copies/of-nothing"), Missing)
