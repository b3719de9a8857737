"""Fixtures: a lake without tables, and the format of its tables."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import lakevilla as lv
from tests.contract.foreign_readers import FORMATS, Format
from tests.support.places import Place


@pytest.fixture
def lake(local_place: Place) -> Iterator[lv.Lake]:
    with local_place.connect() as lake:
        yield lake


@pytest.fixture(params=FORMATS)
def kind(request: pytest.FixtureRequest) -> Format:
    return request.param
