"""``InvalidOperation.reason`` tells programs the case that the message describes."""

from __future__ import annotations

import pickle
from collections.abc import Callable

import pyarrow as pa
import pytest

import lakevilla as lv
from tests.support.places import Place

COLUMNS = pa.schema(
    [
        pa.field("id", pa.int64(), nullable=False),
        pa.field("qty", pa.int16()),
    ]
)

WRONG: dict[str, tuple[str | None, Callable[[lv.Transaction], object]]] = {
    "a missing value": ("constraint", lambda txn: txn.append("t", [{"id": None, "qty": 1}])),
    "a missing column": ("constraint", lambda txn: txn.append("t", [{"qty": 1}])),
    "set to NULL": ("constraint", lambda txn: txn.update("t", {"id": "NULL"}, where="true")),
    "inserted NULL": ("constraint", lambda txn: txn.sql("INSERT INTO t VALUES (NULL, 1)")),
    "too large": ("value", lambda txn: txn.append("t", [{"id": 1, "qty": 2**40}])),
    "text for a number": ("value", lambda txn: txn.append("t", [{"id": "one", "qty": 1}])),
    "no number": ("value", lambda txn: txn.sql("SELECT CAST('one' AS BIGINT) FROM t")),
    "beyond its type": ("value", lambda txn: txn.sql("SELECT CAST(id * 99 AS TINYINT) FROM t")),
    "no column": (None, lambda txn: txn.append("t", [{"id": 1, "size": 1}])),
    "no sense": (None, lambda txn: txn.sql("SELECT FROM WHERE")),
}


@pytest.mark.parametrize("what", WRONG)
def test_an_invalid_operation_has_its_reason(quick_place: Place, what: str) -> None:
    reason, run = WRONG[what]
    lake = quick_place.connect()
    lake.create_table("t", COLUMNS)
    lake.run(lambda txn: txn.append("t", [{"id": 7, "qty": 1}]))
    with pytest.raises(lv.InvalidOperation) as caught, lake.transaction() as txn:
        run(txn)
    assert caught.value.reason == reason
    assert pickle.loads(pickle.dumps(caught.value)).reason == reason


def test_the_reason_of_a_broken_check_is_constraint(delta_place: Place) -> None:
    lake = delta_place.connect()
    lake.create_table("t", COLUMNS)
    with lake.transaction() as txn:
        txn.alter("t", add_constraints={"some": "qty > 0"})
    for wrong in ({"id": 1, "qty": 0}, {"id": 1, "qty": None}):
        with pytest.raises(lv.InvalidOperation) as caught, lake.transaction() as txn:
            txn.append("t", [wrong])
        assert caught.value.reason == "constraint"
