"""Planted bugs of the catalog: sizes of tables in HEAD, and reads of them (note 35)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from lakevilla.formats.sizes import NOTHING, UNKNOWN
from lakevilla.lake import absorb
from lakevilla.lake.publishing import reconcile
from lakevilla.transaction.validation import catalog
from lakevilla_testing.planted.bugs import attribute, instead, nothing, planted

_OTHERS: dict[str, Any] = {"foreign": ("rewrite", "append"), "kinds": ("transfer", "add", "lists")}


@planted(first_seed=56, **_OTHERS)
def sizes_forget_what_others_did() -> Iterator[None]:
    """A size counts what the lake's own commits have added, and ignores foreign commits."""
    with (
        attribute(absorb, "growth_by_others", lambda change: NOTHING),
        attribute(absorb, "measured", lambda context, tail, placement: UNKNOWN),
    ):
        yield


@planted(first_seed=21, **_OTHERS)
def own_entries_counted_again() -> Iterator[None]:
    """A reconcile adds all that the log has, including what was counted at the decision."""
    original = reconcile._by_others

    def by_others(tail: Any, published: int, application: str) -> Any:
        return original(tail, published, "")

    with (
        attribute(reconcile, "_by_others", by_others),
        attribute(reconcile, "size_from", lambda known: UNKNOWN),
    ):
        yield


@planted(first_seed=6, **_OTHERS)
def replaced_commits_still_count() -> Iterator[None]:
    """A reconcile adds its changes, and subtracts nothing for the commits that it replaces."""
    with (
        attribute(reconcile, "_undone", lambda parts, waiting, lost: NOTHING),
        attribute(reconcile, "size_from", lambda known: UNKNOWN),
    ):
        yield


@planted(for_histories=False)
def phantoms_are_let_through() -> Iterator[None]:
    """A commit does not check whether the transaction's reads of the catalog are still true."""
    with instead(catalog.changed_catalog, nothing):
        yield
