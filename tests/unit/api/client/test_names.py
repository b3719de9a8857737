"""A name becomes the one location that identifies the table."""

from __future__ import annotations

import pathlib

import pytest

import lakevilla as lv
from lakevilla.api.client.names import resolve

ROOT = "s3://bucket/lake"
NAMES = {"stock": "s3://elsewhere/stock", "sales.orders": "prod/orders"}


@pytest.mark.parametrize(
    ("name", "location"),
    [
        ("orders", "orders"),
        ("sales/orders", "sales/orders"),
        ("orders/", "orders"),
        ("s3://bucket/lake/orders", "orders"),
        ("s3://other/orders", "s3://other/orders"),
        ("stock", "s3://elsewhere/stock"),
        ("sales.orders", "prod/orders"),
    ],
)
def test_names_paths_and_uris_resolve_to_locations(name: str, location: str) -> None:
    assert resolve(ROOT, NAMES, name) == location


@pytest.mark.parametrize("name", ["_lakevilla", "a/_lakevilla/b", "a/_delta_log"])
def test_names_of_log_directories_are_refused_as_table_names(name: str) -> None:
    with pytest.raises(lv.InvalidOperation, match="choose another name"):
        resolve(ROOT, NAMES, name)


@pytest.mark.parametrize("name", [None, 1, b"orders", ["orders"]])
def test_table_names_that_are_not_strings_are_refused(name: object) -> None:
    with pytest.raises(lv.InvalidOperation, match="a table is named by a string, not"):
        resolve(ROOT, NAMES, name)  # type: ignore[arg-type]


def test_a_path_object_is_refused_and_the_error_shows_a_valid_name() -> None:
    with pytest.raises(lv.InvalidOperation, match="such as 'sales/orders'"):
        resolve(ROOT, NAMES, pathlib.Path("orders"))  # type: ignore[arg-type]
