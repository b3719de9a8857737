"""Errors of catalogs are shown without the secrets among the catalogs' properties."""

from __future__ import annotations

import traceback
from typing import Any

import pytest
from pyiceberg.catalog.noop import NoopCatalog

from lakevilla.errors import InvalidOperation
from lakevilla.formats.iceberg.catalog.object_store_catalog import Catalogs
from lakevilla.formats.iceberg.catalog.redaction import reason, without_secrets
from lakevilla.formats.iceberg.catalog.store import CatalogStore
from lakevilla.store.base import Failure

KEY = "catalog://prod/sales/orders"


@pytest.mark.parametrize(
    "properties",
    [
        {"token": "hunter2"},
        {"credential": "id:hunter2"},
        {"uri": "https://me:hunter2@host/x"},
        {"uri": "https://host/x?key=hunter2"},
        {"uri": "postgresql+psycopg2://me:hunter2@host/x"},
        {"oauth2-server-uri": "https://host/x?a=hunter2"},
        {"s3.secret-access-key": "hunter2"},
        {"adls.sas-token": "hunter2"},
        {"auth": {"type": "basic", "basic": {"username": "me", "password": "hunter2"}}},
    ],
)
def test_an_error_that_repeats_a_secret_of_a_catalog_is_shown_without_it(
    properties: dict[str, Any],
) -> None:
    text = without_secrets(f"no answer to {properties}", properties)
    assert "hunter2" not in text
    assert "no answer" in text
    assert "(from its property " in text


def test_the_words_of_an_error_without_secrets_stay() -> None:
    properties = {"type": "rest", "uri": "https://host/x", "token-refresh-enabled": "true"}
    assert reason(ValueError("https://host/x: is it true?\nno"), properties) == (
        "ValueError: https://host/x: is it true?"
    )


class Repeating(NoopCatalog):
    """A catalog whose server repeats the token that it refuses."""

    def load_table(self, identifier: Any) -> Any:
        raise ConnectionError(f"the token {self.properties['token']} has expired")


@pytest.mark.parametrize("is_made", [True, False])
def test_a_failure_of_a_catalog_shows_no_token(is_made: bool) -> None:
    properties = {"py-catalog-impl": f"{__name__}.Repeating", "token": "hunter2"}
    given: Any = Repeating("prod", **properties) if is_made else properties
    failure = CatalogStore({"prod": given}, timeout_seconds=5).get(KEY)
    assert isinstance(failure, Failure)
    assert "has expired" in failure.reason
    assert "hunter2" not in failure.reason


def test_the_error_for_a_catalog_that_can_not_be_made_shows_none_of_its_properties() -> None:
    given = {"type": "no such kind", "uri": "thrift://me:hunter2@host"}
    with pytest.raises(InvalidOperation, match="can't be made of its properties") as caught:
        Catalogs({"prod": given}, 5)["prod"]
    assert caught.value.__context__ is None
    assert "hunter2" not in "".join(traceback.format_exception(caught.value))
