"""A conflict names the newest commit on its table that the transaction has not read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from lakevilla.errors import ConflictError, LakeVillaError, TableNotFound
from lakevilla.global_log.head import CommitSummary, Touch
from lakevilla.transaction.validation.others import name_commit


def summary(sequence: int, table: str, kind: Any = "transaction") -> CommitSummary:
    touch = {table: Touch(published=0)}
    return CommitSummary(
        sequence, sequence * 1000, kind, f"txn{sequence}", f"hash{sequence}", touch
    )


HEAD: Any = SimpleNamespace(
    commits=(summary(3, "a"), summary(4, "a"), summary(5, "b"), summary(6, "c", "foreign"))
)


def named(table: str, read: int, error: type[LakeVillaError] = ConflictError) -> Any:
    txn: Any = SimpleNamespace(bound=SimpleNamespace(sequence=read))
    return name_commit(txn, HEAD, error("changed", table=table))


def test_the_newest_commit_on_the_table_is_named() -> None:
    error = named("a", 2)
    assert (error.version, error.commit) == (4, ("txn4", "hash4"))
    assert str(error) == (
        "changed; the newest commit on it is global version 4 of 1970-01-01 00:00:04.000+00:00"
    )
    assert "commit on it of another client is global version 6" in str(named("c", 2))


@pytest.mark.parametrize(("table", "read"), [("a", 4), ("a", 5), ("unknown", 2)])
def test_a_commit_that_the_transaction_has_read_is_not_named(table: str, read: int) -> None:
    error = named(table, read)
    assert (error.version, error.timestamp, str(error)) == (None, None, "changed")


def test_an_error_that_is_no_conflict_stays_as_it_is() -> None:
    assert str(named("a", 2, TableNotFound)) == "changed"
