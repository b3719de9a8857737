"""Planted bugs of applying what changed between two states (docs/design/0032-apply.md)."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import msgspec

from lakevilla.lake import applicability, view
from lakevilla.lake.operations import transplant
from lakevilla.lake.operations.comparing import computed, dropped_columns
from lakevilla.store.effects import Program
from lakevilla.sublogs import operations
from lakevilla.sublogs.operations import Transplant
from lakevilla.transaction.validation import checks as kept
from lakevilla.transaction.validation import checks as within
from lakevilla.transaction.validation import validate
from lakevilla.transaction.verbs.applying import apply
from lakevilla_testing.planted.bugs import attribute, instead, nothing, planted


@planted(for_histories=False)
def rollback_reads_nothing() -> Iterator[None]:
    """A rollback leaves concurrent commits of other clients in place, against its purpose."""
    original = apply.become

    def become(txn: Any, *args: Any, **options: Any) -> Any:
        reads = dict(txn.work.reads)
        outcome = yield from original(txn, *args, **options)
        txn.work.reads = reads
        return outcome

    def tables_read(operation: Any) -> Any:
        read = validate_reads(operation)
        return {} if isinstance(operation, Transplant) else read

    validate_reads = operations.tables_read
    with instead(original, become), instead(validate_reads, tables_read):
        yield


@planted(for_histories=False)
def others_forgotten() -> Iterator[None]:
    """A rollback checks the tables that it changes, and not those that were unchanged."""
    with instead(within.touched_within, nothing):
        yield


@planted(for_histories=False)
def files_taken_blindly() -> Iterator[None]:
    """A rollback does not check, when it replaces HEAD, whether a vacuum may delete files that it
    restores.
    """
    with instead(kept.unkept, nothing):
        yield


@planted(for_histories=False)
def added_twice() -> Iterator[None]:
    """An apply adds a file once more that another client has added meanwhile by the same apply."""
    with attribute(validate, "_crosses", lambda operation, net: net.metadata or net.contract):
        yield


@planted(for_histories=False)
def added_by_others_too() -> Iterator[None]:
    """An apply adds a file to the log once more that a foreign writer has restored meanwhile."""
    original = view.breaks

    def breaks(entry: Any, contract: bool, part: Any) -> str | None:
        change = msgspec.structs.replace(part.change, adds=())
        return original(entry, contract, msgspec.structs.replace(part, change=change))

    with instead(original, breaks):
        yield


@planted(for_histories=False)
def paths_forgotten() -> Iterator[None]:
    """An apply takes a file that has got deletes meanwhile for another file, and restores its
    deleted rows.
    """
    original = transplant._found

    def found(*args: Any) -> Any:
        files = yield from original(*args)
        return dataclasses.replace(files, hidden=())

    with attribute(transplant, "_found", found):
        yield


@planted(for_histories=False)
def values_in_dropped_columns() -> Iterator[None]:
    """An apply drops a column whatever was written to it, and adds files with values of a dropped
    column.
    """

    def none(*_: Any) -> Program[str | None]:
        yield from ()
        return None

    def never(*_: Any) -> bool:
        return False

    with (
        instead(dropped_columns.value_that_came, none),
        instead(dropped_columns.may_lose_values, never),
    ):
        yield


@planted(for_histories=False)
def equal_changes_kept() -> Iterator[None]:
    """An apply counts a row that both sides have changed alike as changed once, even if it was
    computed.
    """

    def nothing_computed(*_: Any) -> Program[frozenset[str]]:
        yield from ()
        return frozenset()

    with instead(computed.columns_computed_separately, nothing_computed):
        yield


@planted(for_histories=False)
def nosources() -> Iterator[None]:
    """A vacuum deletes files that a pending commit removes, and that a replay may read."""
    with attribute(applicability, "source_files", lambda operation: ()):
        yield
