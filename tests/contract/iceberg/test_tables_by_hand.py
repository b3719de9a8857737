"""Tables as other projects write them, made by hand: field ids tell a data file's columns."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakevilla as lv
from tests.support.iceberg_by_hand import File, Table, column, of_ids
from tests.support.places import Place
from tests.support.tables import contents

INT = pa.int32()
CORRUPT = lv.CorruptObject


def table(place: Place, fields: Sequence[Any], **options: Any) -> Table:
    return Table(Path(place.uri("t")), fields, **options)


def rows(place: Place, where: str | None = None) -> list[dict[str, Any]]:
    with place.connect() as lake:
        return lake.snapshot().read("t", where=where).to_pylist()


def struct(*fields: Any) -> dict[str, Any]:
    return {"type": "struct", "fields": list(fields)}


def ints(**columns: list[int]) -> pa.Table:
    return pa.table({name: pa.array(values, INT) for name, values in columns.items()})


def refuses(place: Place, match: str, error: type[Exception] = lv.UnsupportedTableFeature) -> None:
    """Assert that the table is neither read nor written, and that nothing is stored in it."""
    before = contents(place.root)
    with place.connect() as lake:
        with pytest.raises(error, match=match):
            lake.snapshot().read("t")
        with pytest.raises(error, match=match), lake.transaction() as txn:
            txn.delete("t", where="true")
    assert {n: b for n, b in contents(place.root).items() if n.startswith("t/")} == before


BY_P = [{"source-id": 2, "field-id": 1000, "transform": "identity", "name": "p"}]


@pytest.mark.parametrize("nulls", [{}, {1: 0, 2: 0}, {1: 0, 2: 2}], ids=["none", "no", "all"])
def test_a_partition_value_that_the_data_file_lacks_is_read_and_kept_by_a_rewrite(
    place: Place, nulls: dict[int, int]
) -> None:
    """The null counts in the manifest don't matter (hazard 37)."""
    own = table(
        place,
        [column(1, "k", "int"), column(2, "p", "string")],
        partitioned=BY_P,
        partition_types={"p": "string"},
    )
    lacks = of_ids(ints(k=[1, 2]), {"k": 1})
    holds = of_ids(ints(k=[3]).append_column("p", [["y"]]), {"k": 1, "p": 2})
    says = {"null_value_counts": nulls, "value_counts": {1: 2, 2: 2}}
    own.add(
        File("a.parquet", lacks, {"p": "x"}, says=says),
        File("b.parquet", lacks, {"p": None}, says=says),
        File("c.parquet", holds, {"p": "y"}),
    ).write()
    expected = [(1, ""), (1, "x"), (2, ""), (2, "x"), (3, "y")]
    assert sorted((r["k"], r["p"] or "") for r in rows(place)) == expected
    assert [r["k"] for r in rows(place, "p = 'x'")] == [1, 2]
    assert [r["k"] for r in rows(place, "p IS NULL")] == [1, 2]
    with place.connect() as lake, lake.transaction() as txn:
        txn.update("t", {"k": "k + 10"}, where="k <> 2")
    expected = [(2, ""), (2, "x"), (11, ""), (11, "x"), (13, "y")]
    assert sorted((r["k"], r["p"] or "") for r in rows(place)) == expected


def test_many_partition_values_that_data_files_lack_are_read(place: Place) -> None:
    fields = [column(1, "k", "int"), column(2, "p", "int")]
    own = table(place, fields, partitioned=BY_P, partition_types={"p": "int"})
    lacks = of_ids(ints(k=[1]), {"k": 1})
    own.add(*(File(f"{n}.parquet", lacks, {"p": n}) for n in range(100))).write()
    assert sorted(r["p"] for r in rows(place)) == list(range(100))
    assert [r["p"] for r in rows(place, "p = 77")] == [77]


def test_a_partition_value_takes_precedence_over_the_columns_default(place: Place) -> None:
    """The specification says so; a partition value of NULL counts, too."""
    fields = [column(1, "k", "int"), column(2, "p", "string", **{"initial-default": "d"})]
    own = table(place, fields, version=3, partitioned=BY_P, partition_types={"p": "string"})
    lacks = of_ids(ints(k=[1]), {"k": 1})
    own.add(File("a.parquet", lacks, {"p": "x"}), File("b.parquet", lacks, {"p": None})).write()
    assert {r["p"] for r in rows(place)} == {"x", None}


@pytest.mark.parametrize("value", ["x", None])
def test_a_table_partitioned_by_a_struct_field_that_a_data_file_lacks_is_refused(
    place: Place, value: str | None
) -> None:
    """LakeVilla neither puts the partition value into the struct nor reads the field as NULL."""
    kind = struct(column(2, "p", "string"), column(3, "q", "int"))
    own = table(place, [column(1, "s", kind)], partitioned=BY_P, partition_types={"p": "string"})
    held = pa.table({"s": pa.array([(1,)], pa.struct([("q", INT)]))})
    own.add(File("a.parquet", of_ids(held, {"s": 1, "s.q": 3}), {"p": value})).write()
    refuses(place, "partitioned by a field of a struct that data file .*a.parquet does not hold")


@pytest.mark.parametrize(
    "fields",
    [
        [column(1, "a", "int"), column(2, "A", "int")],
        [column(3, "s", struct(column(1, "a", "int"), column(2, "A", "int")))],
        [
            column(
                3,
                "l",
                {
                    "type": "list",
                    "element-id": 4,
                    "element": struct(column(1, "a", "int"), column(2, "A", "int")),
                },
            )
        ],
    ],
    ids=["columns", "fields", "fields in a list"],
)
def test_a_table_with_column_names_that_differ_only_by_case_is_refused(
    place: Place, fields: list[Any]
) -> None:
    """An engine could take one column for the other (hazard 37)."""
    own = table(place, fields)
    flat = pa.table([pa.array([1], INT), pa.array([2], INT)], names=["a", "A"])
    own.add(File("a.parquet", of_ids(flat, {"a": 1, "A": 2}))).write()
    refuses(place, "table t has columns a and A, whose names differ only by case")


def test_a_column_is_read_by_id_beside_a_dropped_one_whose_name_differs_by_case(
    place: Place,
) -> None:
    """The file still has the dropped column."""
    twins = pa.table([pa.array([1, 2], INT), pa.array([3, 4], INT)], names=["A", "a"])
    own = table(place, [column(2, "a", "int")])
    own.add(File("a.parquet", of_ids(twins, {"A": 1, "a": 2}))).write()
    assert rows(place, "a > 3") == [{"a": 4}]
    assert rows(place) == [{"a": 3}, {"a": 4}]


def test_a_table_is_refused_if_a_data_file_has_a_struct_with_names_that_differ_only_by_case(
    place: Place,
) -> None:
    inner = pa.struct([("A", INT), ("a", INT)])
    twins = pa.table({"s": pa.array([(1, 2)], inner)})
    own = table(place, [column(1, "s", struct(column(3, "a", "int")))])
    own.add(File("a.parquet", of_ids(twins, {"s": 1, "s.A": 2, "s.a": 3}))).write()
    refuses(place, "column s of table t has fields that differ only by case in data file .*a.parq")


def nested(place: Place, wanted: Any, held: dict[str, int]) -> list[Any]:
    """Return a struct of type ``wanted``, read from a file with the fields ``held`` (name: id)."""
    kind = pa.struct([(name, INT) for name in held])
    values = pa.array([dict.fromkeys(held, 7), None], kind)
    ids = {"s": 1, **{f"s.{name}": number for name, number in held.items()}}
    own = table(place, [column(1, "s", wanted)])
    own.add(File("a.parquet", of_ids(pa.table({"s": values}), ids))).write()
    found = [r["s"] for r in rows(place)]
    with place.connect() as lake, lake.transaction() as txn:
        txn.append("t", [{"s": None}])
        txn.delete("t", where="false")
    return found


@pytest.mark.parametrize(
    ("name", "held", "value"),
    [
        ("x", {"x": 2}, 7),
        ("x", {"y": 2}, 7),
        ("x", {"y": 2, "x": 3}, 7),
        ("x", {"x": 3}, None),
        ("x", {"X": 3}, None),
        ("x-y", {"x_x2Dy": 2}, 7),
        ("9", {"_9": 2, "z": 3}, 7),
    ],
)
def test_struct_fields_are_found_by_their_ids(
    place: Place, name: str, held: dict[str, int], value: int | None
) -> None:
    """A field's name in the file may be an older one, or one escaped for Avro."""
    found = nested(place, struct(column(2, name, "int")), held)
    assert found == [{name: value}, None]


MAPPING = [
    {"field-id": 1, "names": ["k", "old_k"]},
    {"field-id": 2, "names": ["s"], "fields": [{"field-id": 3, "names": ["x", "old_x"]}]},
]


def unnumbered(place: Place, mapping: Any) -> Table:
    properties = {} if mapping is None else {"schema.name-mapping.default": json.dumps(mapping)}
    fields = [column(1, "k", "int"), column(2, "s", struct(column(3, "x", "int")))]
    kind = pa.struct([("other", INT), ("old_x", INT)])
    held = pa.table({"s": pa.array([(6, 5)], kind), "old_k": pa.array([1], INT)})
    own = table(place, fields, properties=properties).add(File("a.parquet", held))
    own.write()
    return own


def test_a_file_without_field_ids_is_read_by_the_name_mapping(place: Place) -> None:
    unnumbered(place, MAPPING)
    assert rows(place) == [{"k": 1, "s": {"x": 5}}]


def test_a_file_without_field_ids_in_a_table_without_a_name_mapping_is_refused(
    place: Place,
) -> None:
    """Its columns would all be read as NULL, and a rewrite would store these NULLs."""
    unnumbered(place, None)
    refuses(place, "data file .*a.parquet of table t has no field ids, and the table no name map")


def test_a_table_whose_data_file_is_missing_is_refused(place: Place) -> None:
    own = table(place, [column(1, "s", struct(column(2, "x", "int"), column(3, "z", "int")))])
    values = pa.table({"s": pa.array([(1,)], pa.struct([("x", INT)]))})
    own.add(File("a.parquet", of_ids(values, {"s": 1, "s.x": 2}), store=False)).write()
    refuses(place, r"table t: data file .*a\.parquet is missing", lv.StoreError)


def test_a_table_with_a_struct_without_fields_is_refused(place: Place) -> None:
    own = table(place, [column(1, "k", "int"), column(2, "s", struct())])
    own.add(File("a.parquet", of_ids(ints(k=[1]), {"k": 1}))).write()
    refuses(place, "table t has column s, a struct without fields")


def test_a_required_column_that_a_data_file_lacks_is_refused_until_drop_not_null(
    place: Place,
) -> None:
    own = table(place, [column(1, "k", "int"), column(2, "v", "int", required=True)])
    lacks, holds = of_ids(ints(k=[1]), {"k": 1}), of_ids(ints(k=[2], v=[5]), {"k": 1, "v": 2})
    own.add(File("a.parquet", lacks), File("b.parquet", holds)).write()
    refuses(place, r"column v of table t is required, and data file .*drop_not_null", CORRUPT)
    with place.connect() as lake:
        with lake.transaction() as txn:
            txn.alter("t", drop_not_null=["v"])
        assert sorted((r["k"], r["v"]) for r in lake.snapshot().read("t").to_pylist()) == [
            (1, None),
            (2, 5),
        ]


def test_a_required_column_that_a_data_file_lacks_is_read_as_its_default(place: Place) -> None:
    added = column(2, "v", "int", required=True, **{"initial-default": 7})
    own = table(place, [column(1, "k", "int"), added], version=3)
    own.add(File("a.parquet", of_ids(ints(k=[1]), {"k": 1}))).write()
    assert rows(place) == [{"k": 1, "v": 7}]


def test_a_required_field_of_a_struct_that_a_data_file_lacks_is_null(place: Place) -> None:
    kind = struct(column(3, "a", "int"), column(4, "b", "int", required=True))
    own = table(place, [column(1, "k", "int"), column(2, "s", kind)])
    held = pa.table(
        {"k": pa.array([1], INT), "s": [{"a": 5}]},
        schema=pa.schema([("k", INT), ("s", pa.struct([("a", INT)]))]),
    )
    own.add(File("a.parquet", of_ids(held, {"k": 1, "s": 2, "s.a": 3}))).write()
    assert rows(place) == [{"k": 1, "s": {"a": 5, "b": None}}]
