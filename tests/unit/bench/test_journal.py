"""The table expected after a run of YCSB-LH, computed from the clients' journals of writes."""

from __future__ import annotations

import pytest

from bench.ycsb_lh.journal import (
    CHANGED,
    LOST_INSERT,
    LOST_RMW,
    LOST_VALUE,
    NOT_FOUND,
    Acknowledged,
    Begun,
    NotFound,
    broken,
)
from bench.ycsb_lh.workload import FIELDS, Kind, Operation, modified, times_modified

T = "usertable"


def write(
    client: int,
    order: int,
    value: str,
    begun: float,
    ended: float | None,
    kind: Kind = "update",
) -> list[object]:
    operation = Operation(kind, 7, 0, f"---------{value}")
    first = Begun(T, client, order, operation, begun)
    return [first] if ended is None else [first, Acknowledged(T, client, order, ended)]


def found(facts: list[object], *values: str) -> list[str]:
    """Return the checks that fail if record 7 has these values in its first field."""
    rows = {7: [[value, *[""] * (FIELDS - 1)] for value in values]}
    return [check for check, is_broken in broken(facts, T, rows, {}).items() if is_broken]


def test_the_value_of_the_last_acknowledged_write_must_be_stored() -> None:
    facts = [*write(0, 1, "one", 0, 1), *write(1, 1, "two", 2, 3)]
    assert not found(facts, "---------two")
    assert found(facts, "---------one") == [LOST_VALUE]
    assert found(facts, "---------other") == [LOST_VALUE]


def test_either_of_two_concurrent_writes_may_be_the_last() -> None:
    facts = [*write(0, 1, "one", 0, 3), *write(1, 1, "two", 1, 2)]
    assert not found(facts, "---------one")
    assert not found(facts, "---------two")


def test_writes_of_one_client_keep_their_order_even_within_one_transaction() -> None:
    facts = [*write(0, 1, "one", 0, 5), *write(0, 2, "two", 1, 5)]
    assert not found(facts, "---------two")
    assert found(facts, "---------one") == [LOST_VALUE]


def test_a_write_without_an_acknowledgement_may_be_stored_or_not() -> None:
    facts = [*write(0, 1, "one", 0, 1), *write(1, 1, "two", 2, None)]
    assert not found(facts, "---------one")
    assert not found(facts, "---------two")


def test_each_acknowledged_read_modify_write_must_be_counted_exactly_once() -> None:
    facts = [fact for n in range(3) for fact in write(n, 1, f"{n}", n, n + 0.5, "rmw")]
    assert not found(facts, "rmw0000032")
    assert found(facts, "rmw0000022") == [LOST_RMW]
    assert not found([*facts, *write(9, 1, "9", 9, None, "rmw")], "rmw0000049")
    assert found(facts, "rmw0000042") == [LOST_RMW], "one was done twice"


@pytest.mark.parametrize(("rows", "is_broken"), [([], True), (["x"], False), (["x", "x"], True)])
def test_an_acknowledged_insert_must_be_stored_exactly_once(
    rows: list[str], is_broken: bool
) -> None:
    assert (LOST_INSERT in found(write(0, 1, "", 0, 1, "insert"), *rows)) == is_broken
    assert not found(write(0, 1, "", 0, None, "insert"), *rows), "it may have happened or not"


def test_a_record_missed_by_a_read_is_a_violation_only_in_the_table_that_was_read() -> None:
    assert found([NotFound(T, 7, 0, 1)], "x") == [NOT_FOUND]
    assert not found([NotFound("another", 7, 0, 1)], "x")


@pytest.mark.parametrize(
    ("rows", "began", "is_broken"), [(0, 3, True), (0, 1, False), (2, 1, True)]
)
def test_a_transaction_must_see_records_inserted_before_it_began(
    rows: int, began: float, is_broken: bool
) -> None:
    facts = [*write(0, 1, "", 0, 2, "insert"), NotFound(T, 7, rows, began)]
    assert found(facts, "x") == ([NOT_FOUND] if is_broken else [])


def test_a_value_records_the_number_of_its_read_modify_writes() -> None:
    once = modified("anything at all", "-" * 100)
    assert (times_modified(once), len(once)) == (1, 100)
    assert times_modified(modified(once, "+" * 100)) == 2


def test_changes_to_rows_that_no_client_has_written_are_found() -> None:
    facts, start = write(0, 1, "one", 0, 1), ["", *"abcdefghi"]
    ours, other = ["---------one", *start[1:]], ["x", *start[1:]]

    def is_changed(of_7: list[str], of_8: list[list[str]]) -> bool:
        return broken(facts, T, {7: [of_7], 8: of_8}, {7: [start], 8: [other]})[CHANGED]

    assert not is_changed(ours, [other])
    assert is_changed([*ours[:-1], "z"], [other]), "another field of the same record"
    assert is_changed(ours, [["z", *other[1:]]]), "another record"
    assert is_changed(ours, []), "one that is gone"
    assert is_changed(ours, [other, other]), "one that is there twice"
    assert broken(facts, T, {7: [ours], -1: [other]}, {7: [start]})[CHANGED], "one of nobody"
