"""Planted bugs of Delta tables that are shown to Iceberg clients."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import msgspec

from lakevilla.formats import file_statistics
from lakevilla.serve.delta import footers, schema
from lakevilla_testing.planted.bugs import attribute, instead, planted


@planted(for_histories=False)
def footers_not_read() -> Iterator[None]:
    """A gateway takes every file for one of LakeVilla's, and shows files with any field ids."""
    with instead(footers.is_own, lambda path: True):
        yield


@planted(for_histories=False)
def logical_names_mapped() -> Iterator[None]:
    """The name mapping has the columns' own names, too: a dropped column's values come back."""
    original = schema.shown_definition

    def shown_definition(*given: Any) -> Any:
        shown = original(*given)
        known = dict(shown.definition)
        (current,) = known["schemas"]
        names = {one["id"]: one["name"] for one in current["fields"]}
        mapping = msgspec.json.decode(known["properties"]["schema.name-mapping.default"])
        for entry in mapping:
            entry["names"] = sorted({*entry["names"], names[entry["field-id"]]})
        text = msgspec.json.encode(mapping).decode()
        known["properties"] = {**known["properties"], "schema.name-mapping.default": text}
        return dataclasses.replace(shown, definition=known)

    with instead(original, shown_definition):
        yield


@planted(for_histories=False)
def bounds_as_cut() -> Iterator[None]:
    """Bounds are those of the log, in which times are cut to milliseconds."""
    with attribute(file_statistics, "_widen", lambda low, high, type_: (low, high)):
        yield
