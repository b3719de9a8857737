"""The error classes: their tree, their stable kinds, and how they cross process borders."""

from __future__ import annotations

import copy
import multiprocessing
import pickle
from typing import Any

import pytest

from lakevilla import errors

#: Programs match on these: names may be added, never changed.
KINDS = {
    "AlreadyCommitted": "already_committed",
    "CommitOutcomeUnknown": "outcome_unknown",
    "ConflictError": "conflict",
    "CorruptObject": "corrupt_object",
    "ForeignConflict": "foreign_conflict",
    "InvalidOperation": "invalid_operation",
    "LakeVillaError": "error",
    "StoreError": "store",
    "TableExists": "table_exists",
    "TableNotFound": "table_not_found",
    "TransactionAborted": "aborted",
    "TransactionNotFound": "transaction_not_found",
    "UnsafeStore": "unsafe_store",
    "UnsupportedFormat": "unsupported_format",
    "UnsupportedTableFeature": "unsupported_table_feature",
    "VersionNotFound": "version_not_found",
    "RefNotFound": "ref_not_found",
    "RefExists": "ref_exists",
    "AuditFailed": "audit_failed",
    "MergeConflict": "merge_conflict",
}

WITH_RESULT = {"AlreadyCommitted", "ForeignConflict"}
WITH_KEY = {"CorruptObject", "UnsupportedFormat"}


def make(name: str) -> errors.LakeVillaError:
    extra: dict[str, Any] = {}
    if name in WITH_RESULT:
        extra["result"] = {"global_version": 7}
    if name in WITH_KEY:
        extra["key"] = "_lakevilla/HEAD.json"
    cls = getattr(errors, name)
    error: errors.LakeVillaError = cls(
        "table 'stock' changed: run it again", table="stock", txn_id="0192-7", **extra
    )
    return error


def raise_it(name: str) -> None:
    raise make(name)


def test_error_kinds_are_the_listed_ones() -> None:
    reported = [name for name in errors.__all__ if name != "LakeVillaWarning"]
    assert {name: getattr(errors, name).kind for name in reported} == KINDS
    assert len(set(KINDS.values())) == len(KINDS)


def test_every_error_is_caught_only_as_itself_and_as_lakevilla_error() -> None:
    for name in set(KINDS) - {"LakeVillaError"}:
        cls = getattr(errors, name)
        assert issubclass(cls, errors.LakeVillaError)
        caught_by = {base.__name__ for base in cls.__mro__} & set(KINDS)
        assert caught_by == {name, "LakeVillaError"}


@pytest.mark.parametrize("name", KINDS)
def test_an_error_has_its_message_its_table_and_its_transaction(name: str) -> None:
    error = make(name)
    assert str(error) == error.message == "table 'stock' changed: run it again"
    assert (error.table, error.txn_id) == ("stock", "0192-7")
    bare = getattr(errors, name)("it failed")
    assert (bare.table, bare.txn_id) == (None, None)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("protocol", range(2, pickle.HIGHEST_PROTOCOL + 1))
def test_an_error_survives_pickling(name: str, protocol: int) -> None:
    error = make(name)
    for other in (pickle.loads(pickle.dumps(error, protocol)), copy.copy(error)):
        assert type(other) is type(error)
        assert str(other) == str(error)
        assert other.args == error.args
        assert vars(other) == vars(error)


def test_an_error_crosses_a_process_border_unchanged() -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        with pytest.raises(errors.CorruptObject) as caught:
            pool.apply(raise_it, ("CorruptObject",))
        assert caught.value.key == "_lakevilla/HEAD.json"
        assert caught.value.table == "stock"
