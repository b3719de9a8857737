"""The names and values that PEP 249 requires of a module."""

from __future__ import annotations

import pickle
from datetime import date, datetime, time

import pytest

import lakevilla as lv
from lakevilla import dbapi, errors
from lakevilla.dbapi.errors import error_of

TREE = {
    "Warning": "Exception",
    "Error": "Exception",
    "InterfaceError": "Error",
    "DatabaseError": "Error",
    "DataError": "DatabaseError",
    "OperationalError": "DatabaseError",
    "TransactionConflict": "OperationalError",
    "IntegrityError": "DatabaseError",
    "InternalError": "DatabaseError",
    "ProgrammingError": "DatabaseError",
    "NotSupportedError": "DatabaseError",
}
#: Programs match on these: errors may be added; no error is ever mapped to another class.
MAPPED = {
    "AlreadyCommitted": "OperationalError",
    "AuditFailed": "IntegrityError",
    "CommitOutcomeUnknown": "OperationalError",
    "ConflictError": "TransactionConflict",
    "CorruptObject": "InternalError",
    "ForeignConflict": "OperationalError",
    "InvalidOperation": "ProgrammingError",
    "LakeVillaError": "OperationalError",
    "MergeConflict": "OperationalError",
    "RefExists": "ProgrammingError",
    "RefNotFound": "ProgrammingError",
    "StoreError": "OperationalError",
    "TableExists": "ProgrammingError",
    "TableNotFound": "ProgrammingError",
    "TransactionAborted": "TransactionConflict",
    "TransactionNotFound": "ProgrammingError",
    "UnsafeStore": "NotSupportedError",
    "UnsupportedFormat": "NotSupportedError",
    "UnsupportedTableFeature": "NotSupportedError",
    "VersionNotFound": "ProgrammingError",
}


def test_the_module_states_its_api_level_thread_safety_and_parameter_style() -> None:
    assert (dbapi.apilevel, dbapi.threadsafety, dbapi.paramstyle) == ("2.0", 2, "named")
    assert all(hasattr(dbapi, name) for name in dbapi.__all__)


def test_the_error_classes_form_the_tree_of_pep_249_and_are_attributes_of_connection() -> None:
    for name, base in TREE.items():
        assert [one.__name__ for one in getattr(dbapi, name).__bases__] == [base]
        if name != "TransactionConflict":
            assert getattr(dbapi.Connection, name) is getattr(dbapi, name)


@pytest.mark.parametrize("name", MAPPED)
def test_each_library_error_becomes_the_matching_error_of_pep_249(name: str) -> None:
    ours = getattr(errors, name)("it failed: do that", table="stock", txn_id="7")
    error = error_of(ours)
    assert type(error).__name__ == MAPPED[name]
    assert str(error) == "it failed: do that"
    assert (error.kind, error.table, error.txn_id) == (ours.kind, "stock", "7")
    assert error.retryable == (name in ("ConflictError", "TransactionAborted"))
    again = pickle.loads(pickle.dumps(error))
    assert (type(again), str(again), vars(again)) == (type(error), str(error), vars(error))


def test_every_library_error_is_mapped_to_an_error_of_pep_249() -> None:
    assert set(MAPPED) == set(errors.__all__) - {"LakeVillaWarning"}


@pytest.mark.parametrize(
    ("reason", "kind"),
    [
        ("constraint", dbapi.IntegrityError),
        ("value", dbapi.DataError),
        ("unsupported", dbapi.NotSupportedError),
    ],
)
def test_an_invalid_operation_becomes_an_error_class_by_its_reason(
    reason: errors.Reason, kind: type[dbapi.Error]
) -> None:
    assert type(error_of(lv.InvalidOperation("it is wrong", reason=reason))) is kind


def test_type_constructors_are_those_of_pep_249() -> None:
    assert dbapi.Date(2026, 1, 31) == date(2026, 1, 31)
    assert dbapi.Time(12, 30) == time(12, 30)
    assert dbapi.Timestamp(2026, 1, 31, 12) == datetime(2026, 1, 31, 12)
    assert dbapi.Binary(b"\0") == b"\0"
    noon = datetime(2026, 1, 31, 12).timestamp()
    assert dbapi.TimestampFromTicks(noon) == datetime(2026, 1, 31, 12)
    assert (dbapi.DateFromTicks(noon), dbapi.TimeFromTicks(noon)) == (date(2026, 1, 31), time(12))
