"""All verbs with ``schema_mode="merge"`` add fields within structs, lists and maps."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakevilla as lv
from tests.contract.foreign_readers import Format, read_by_others
from tests.support.tables import contents

OLD = pa.schema(
    [
        ("k", pa.int64()),
        ("s", pa.struct([("a", pa.int64()), ("t", pa.struct([("u", pa.int64())]))])),
        ("l", pa.list_(pa.struct([("a", pa.int64())]))),
        ("m", pa.map_(pa.string(), pa.struct([("a", pa.int64())]))),
    ]
)
FIRST = {"k": 1, "s": {"a": 1, "t": {"u": 2}}, "l": [{"a": 3}], "m": [("q", {"a": 4})]}
MORE = pa.schema(
    [
        ("k", pa.int64()),
        (
            "s",
            pa.struct(
                [
                    ("n", pa.int32()),
                    ("t", pa.struct([("w", pa.list_(pa.struct([("z", pa.int64())])))])),
                    ("A", pa.int64()),
                ]
            ),
        ),
        ("l", pa.list_(pa.struct([("b", pa.string()), ("a", pa.int64())]))),
        ("m", pa.map_(pa.string(), pa.struct([("b", pa.string())]))),
        ("more", pa.struct([("x", pa.int64())])),
    ]
)
SECOND = {
    "k": 2,
    "s": {"n": 5, "t": {"w": [{"z": 6}]}, "A": 7},
    "l": [{"b": "i", "a": 8}],
    "m": [("r", {"b": "j"})],
    "more": {"x": 9},
}
GIVEN = pa.Table.from_pylist([SECOND], MORE)
#: The second row in the columns of the merged schema; below, the first row after the merge.
THEN = {
    "k": 2,
    "s": {"a": 7, "t": {"u": None, "w": [{"z": 6}]}, "n": 5},
    "l": [{"a": 8, "b": "i"}],
    "m": [("r", {"a": None, "b": "j"})],
    "more": {"x": 9},
}
BEFORE = {
    "k": 1,
    "s": {"a": 1, "t": {"u": 2, "w": None}, "n": None},
    "l": [{"a": 3, "b": None}],
    "m": [("q", {"a": 4, "b": None})],
    "more": None,
}
KINDS: dict[str, tuple[Format, dict[str, str]]] = {
    "delta": ("delta", {}),
    "mapped": ("delta", {"delta.columnMapping.mode": "name"}),
    "by id": ("delta", {"delta.columnMapping.mode": "id"}),
    "iceberg": ("iceberg", {}),
}


@pytest.fixture(params=list(KINDS))
def kind(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


@pytest.fixture
def lake(tmp_path: Path, kind: str) -> Iterator[lv.Lake]:
    format, properties = KINDS[kind]
    with lv.connect(tmp_path) as lake:
        rows = pa.Table.from_pylist([FIRST], OLD)
        lake.create_table("t", rows, format=format, properties=properties)
        yield lake


def rows(lake: lv.Lake, kind: str) -> list[dict[str, Any]]:
    """Return the rows sorted by key; foreign readers must see the same ones.

    pyiceberg (0.12) shows a NULL list or map as an empty one.
    """
    ours = lake.read("t").sort_by("k")
    others = read_by_others(
        lake.table("t").uri, KINDS[kind][0], is_mapped=kind in ("mapped", "by id")
    )
    for name, theirs in others.items():
        seen = without_empty if name == "pyiceberg" else list
        assert seen(theirs.sort_by("k").to_pylist()) == seen(ours.to_pylist()), name
    found: list[dict[str, Any]] = ours.to_pylist()
    return found


def without_empty(value: Any) -> Any:
    """Return the value with None in place of each empty list or map."""
    if isinstance(value, dict):
        return {name: without_empty(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(map(without_empty, value)) or None
    return value


def append(txn: lv.Transaction, data: pa.Table = GIVEN) -> None:
    txn.append("t", data, schema_mode="merge")


def overwrite(txn: lv.Transaction, data: pa.Table = GIVEN) -> None:
    txn.overwrite("t", data, "k = 2", schema_mode="merge")


def merge(txn: lv.Transaction, data: pa.Table = GIVEN) -> None:
    merging = txn.merge("t", data, "source.k = target.k", schema_mode="merge")
    merging.when_matched_update_all().when_not_matched_insert_all().execute()


def upsert(txn: lv.Transaction, data: pa.Table = GIVEN) -> None:
    txn.upsert("t", data, keys="k", schema_mode="merge")


VERBS = pytest.mark.parametrize("verb", [append, overwrite, merge, upsert])
Verb = Callable[..., None]


@VERBS
def test_fields_are_added_at_every_depth_after_the_existing_fields(
    lake: lv.Lake, kind: str, verb: Verb
) -> None:
    lake.run(verb)
    assert rows(lake, kind) == [BEFORE, THEN]
    assert lake.read("t", where="s.n = 5").num_rows == 1
    assert lake.read("t", where="s.n is null and s.t.u = 2").num_rows == 1
    lake.run(lambda txn: txn.update("t", {"s.n": "k", "more.x": 1}, "true"))
    assert [row["s"]["n"] for row in rows(lake, kind)] == [1, 2]
    lake.run(lambda txn: txn.append("t", pa.Table.from_pylist([{**FIRST, "k": 3}], OLD)))
    assert rows(lake, kind)[2] == {**BEFORE, "k": 3}


@pytest.mark.parametrize("verb", [merge, upsert])
def test_a_matched_row_keeps_fields_that_the_data_lack(
    lake: lv.Lake, kind: str, verb: Verb
) -> None:
    verb_given = GIVEN.set_column(0, "k", pa.array([1]))
    lake.run(lambda txn: verb(txn, verb_given))
    kept = {"a": 7, "t": {"u": 2, "w": [{"z": 6}]}, "n": 5}
    assert rows(lake, kind) == [{**THEN, "k": 1, "s": kept}]


@VERBS
def test_the_same_field_added_by_two_concurrent_transactions_is_one_field(
    lake: lv.Lake, kind: str, verb: Verb
) -> None:
    if verb is overwrite:
        pytest.skip("it replaces the other's row, which is a conflict")
    with lake.transaction() as txn:
        verb(txn)
        with lake.transaction() as other:
            append(other, GIVEN.set_column(0, "k", pa.array([3])))
    assert rows(lake, kind) == [BEFORE, THEN, {**THEN, "k": 3}]


@VERBS
def test_a_field_added_meanwhile_with_another_type_is_a_conflict(lake: lv.Lake, verb: Verb) -> None:
    with pytest.raises(lv.ConflictError), lake.transaction() as txn:
        verb(txn)
        with lake.transaction() as other:
            other.alter("t", add_columns={"s.n": "string"})
    assert lake.read("t").num_rows == 1


@VERBS
def test_only_missing_fields_are_added_and_types_of_existing_fields_stay(
    lake: lv.Lake, kind: str, verb: Verb, tmp_path: Path
) -> None:
    before = lake.table("t").schema
    narrow = pa.table({"k": [2], "s": pa.array([{"A": 1}], pa.struct([("A", pa.int16())]))})
    lake.run(lambda txn: verb(txn, narrow))
    assert lake.table("t").schema == before
    wrong = pa.table({"k": [3], "s": [{"a": "text"}]})
    at = contents(tmp_path)
    with pytest.raises(lv.InvalidOperation, match=r"s\.a|column s"):
        lake.run(lambda txn: verb(txn, wrong))
    untyped = pa.table({"k": [3], "s": pa.array([{"new": None}])})
    with pytest.raises(lv.InvalidOperation, match=r"s\.new"):
        lake.run(lambda txn: verb(txn, untyped))
    assert contents(tmp_path) == at


def test_a_new_field_is_refused_without_schema_mode_merge(lake: lv.Lake) -> None:
    with pytest.raises(lv.InvalidOperation, match="'s' of table 't' has no field 'n'"):
        lake.run(lambda txn: txn.append("t", GIVEN.drop_columns("more")))
    with pytest.raises(lv.InvalidOperation, match="has no field"):
        lake.run(lambda txn: txn.upsert("t", GIVEN.drop_columns("more"), keys="k"))
    with pytest.raises(lv.InvalidOperation, match="pass schema_mode='merge'"):
        lake.run(lambda txn: txn.upsert("t", GIVEN, keys="k"))
    with pytest.raises(lv.InvalidOperation, match="schema_mode must be None or 'merge'"):
        lake.run(lambda txn: txn.upsert("t", GIVEN, keys="k", schema_mode="overwrite"))  # type: ignore[arg-type]


def test_only_columns_that_a_clause_sets_from_the_source_get_new_fields(
    lake: lv.Lake, kind: str
) -> None:
    with lake.transaction() as txn:
        merging = txn.merge("t", GIVEN, "true", schema_mode="merge")
        merging.when_matched_update({"s": "source.s", "l": [{"a": 1}]}).execute()
    assert rows(lake, kind) == [{**FIRST, "s": THEN["s"], "l": [{"a": 1}]}]


def test_python_rows_add_the_fields_that_they_name(lake: lv.Lake, kind: str) -> None:
    lake.run(
        lambda txn: txn.append("t", [{"k": 2, "s": {"a": None, "n": "x"}}], schema_mode="merge")
    )
    lake.run(lambda txn: txn.upsert("t", [{"k": 1, "s": {"n": "y"}}], "k", schema_mode="merge"))
    assert [row["s"] for row in rows(lake, kind)] == [
        {"a": 1, "t": {"u": 2}, "n": "y"},
        {"a": None, "t": None, "n": "x"},
    ]


def test_a_saved_append_is_resumed_with_its_new_fields(lake: lv.Lake, kind: str) -> None:
    txn = lake.transaction()
    append(txn)
    txn.save()
    with lake.transaction() as other:
        other.append("t", [{"k": 7}])
    with lv.connect(lake.root) as elsewhere:
        elsewhere.resume(txn.id).commit()
    assert rows(lake, kind)[:2] == [BEFORE, THEN]
