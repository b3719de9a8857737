"""Unit tests need neither Java nor a server: fixtures that start these are unavailable here."""

from __future__ import annotations

import pytest


@pytest.fixture
def servers() -> None:
    pytest.fail("a test that needs a server stands in tests/contract")


@pytest.fixture
def server() -> None:
    pytest.fail("a test that needs a server stands in tests/contract")


@pytest.fixture
def s3_server() -> None:
    pytest.fail("a test that needs a server stands in tests/contract")


@pytest.fixture
def rest_server() -> None:
    pytest.fail("a test that needs a catalog's server stands in tests/interop")


@pytest.fixture
def spark() -> None:
    pytest.fail("a test that needs Spark stands in tests/contract/spark or tests/interop")
