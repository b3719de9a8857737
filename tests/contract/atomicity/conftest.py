"""Fixtures: real S3 endpoints with a flaw."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from tests.fixtures.s3 import S3Server
from tests.support.gateway import Flaw, Gateway
from tests.support.places import Place

Open = Callable[[Flaw], tuple[Place, Gateway]]


@pytest.fixture
def behind(s3_server: S3Server, s3_root: str) -> Iterator[Open]:
    """Return a function that opens a new place behind a gateway with a given flaw."""
    opened: list[Gateway] = []

    def open_behind(flaw: Flaw) -> tuple[Place, Gateway]:
        gateway = Gateway(s3_server.endpoint, flaw)
        opened.append(gateway)
        server = s3_server.at(gateway.endpoint)
        return Place(s3_root, server.storage_options), gateway

    yield open_behind
    for gateway in opened:
        gateway.close()
