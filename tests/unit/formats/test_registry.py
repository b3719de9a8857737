"""The format of a table, recognised by its directory."""

from __future__ import annotations

from typing import Any

import pytest

from lakevilla.errors import TableNotFound, VersionNotFound
from lakevilla.formats.registry import Formats, Later
from lakevilla.store.effects import Program
from tests.support.by_hand import outcome


class Cleaned:
    """A format whose version 3 is cleaned up after it was found and before it is opened."""

    name = "iceberg"

    def open(self, location: str, table: str) -> Program[str]:
        yield from ()
        return "version 4"

    def open_at(self, location: str, table: str, version: int) -> Program[str]:
        yield from ()
        raise VersionNotFound(f"no version {version}")


def newest(location: str, table: str) -> Program[int]:
    yield from ()
    if location == "nowhere":
        raise TableNotFound("there is no iceberg table")
    return 3


def loading(loaded: list[str]) -> Formats:
    def made() -> Any:
        loaded.append("iceberg")
        return Cleaned()

    return Formats(later={"iceberg": Later(made, newest)})


def test_a_format_is_loaded_only_for_a_table_of_that_format() -> None:
    loaded: list[str] = []
    formats = loading(loaded)
    with pytest.raises(TableNotFound, match="no iceberg table"):
        outcome(formats.open("nowhere", "t"))
    assert loaded == []
    outcome(formats.open("t", "t"))
    outcome(formats.open("t", "t"))
    assert loaded == ["iceberg"]


def test_a_version_cleaned_up_after_it_was_found_is_searched_for_again() -> None:
    assert outcome(loading([]).open("t", "t")) == "version 4"  # type: ignore[comparison-overlap]
