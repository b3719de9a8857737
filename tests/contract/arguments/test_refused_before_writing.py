"""Bad input: one of LakeVilla's errors, with its kind, before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.settings import shown
from tests.support.places import Place
from tests.support.tables import contents

Verb = Callable[[lv.Transaction], object]


def refused(
    lake: lv.Lake,
    verb: Callable[[lv.Transaction], object],
    error: type[lv.LakeVillaError],
    *told: str,
    table: str | None = "orders",
    **options: Any,
) -> lv.LakeVillaError:
    """Assert that a verb is refused, the store unchanged, and that the transaction commits."""
    before = contents(lake.root)
    with lake.transaction(**options) as txn:
        with pytest.raises(error) as caught:
            verb(txn)
        assert contents(lake.root) == before
    assert contents(lake.root) == before
    for words in told:
        assert words in str(caught.value)
    assert caught.value.kind == error.kind
    assert caught.value.table == table
    if error is not lv.TableNotFound:
        assert table is None or table in str(caught.value)
    assert "\n  File" not in str(caught.value)
    return caught.value


EVERY_VERB: dict[str, Verb] = {
    "read": lambda txn: txn.read("ordres"),
    "scan": lambda txn: txn.scan("ordres"),
    "append": lambda txn: txn.append("ordres", {"id": [1]}),
    "overwrite": lambda txn: txn.overwrite("ordres", {"id": [1]}),
    "update": lambda txn: txn.update("ordres", {"qty": "1"}, "true"),
    "delete": lambda txn: txn.delete("ordres", "true"),
    "upsert": lambda txn: txn.upsert("ordres", pa.table({"id": [1]}), "id"),
    "merge": lambda txn: txn.merge("ordres", pa.table({"id": [1]}), "source.id = target.id"),
    "alter": lambda txn: txn.alter("ordres", drop_columns=["id"]),
    "drop": lambda txn: txn.drop_table("ordres"),
    "select": lambda txn: txn.sql("select * from ordres"),
    "insert": lambda txn: txn.sql("insert into ordres values (1)"),
    "insert-select": lambda txn: txn.sql("insert into orders select * from ordres"),
    "sql-update": lambda txn: txn.sql("update ordres set qty = 1"),
    "sql-delete": lambda txn: txn.sql("delete from ordres"),
    "sql-merge": lambda txn: txn.sql(
        "merge into orders using ordres as s on orders.id = s.id when matched then delete"
    ),
}


@pytest.mark.parametrize("verb", EVERY_VERB.values(), ids=EVERY_VERB.keys())
def test_an_unknown_table_is_not_found_by_any_verb(lake: lv.Lake, verb: Verb) -> None:
    refused(lake, verb, lv.TableNotFound, "ordres", "did you mean orders?", table="ordres")


@pytest.mark.parametrize("method", ["table", "register", "guard", "unguard", "drop_table"])
def test_an_unknown_table_is_not_found_by_the_lake(lake: lv.Lake, method: str) -> None:
    before = contents(lake.root)
    with pytest.raises(lv.TableNotFound, match="ordres"):
        getattr(lake, method)("ordres")
    assert contents(lake.root) == before


@pytest.mark.parametrize(
    ("name", "verb"),
    [
        ("update", lambda txn: txn.update("orders", {"id": "id + 1"})),
        ("update", lambda txn: txn.update("orders", {"id": "id + 1"}, None)),
        ("delete", lambda txn: txn.delete("orders")),
        ("delete", lambda txn: txn.delete("orders", where=None)),
    ],
)
def test_a_missing_where_is_refused_with_a_hint(lake: lv.Lake, name: str, verb: Any) -> None:
    error = refused(lake, verb, lv.InvalidOperation, name, 'where="true"', table="orders")
    assert f"{name} orders: " in str(error)


def test_the_error_for_a_directory_without_a_table_says_so(lake: lv.Lake, root: Path) -> None:
    (root / "photos").mkdir()
    (root / "photos" / "a.jpg").write_bytes(b"x")
    error = refused(lake, lambda txn: txn.read("photos"), lv.TableNotFound, table="photos")
    assert "its directory has neither a Delta log nor Iceberg metadata" in str(error)
    with pytest.raises(lv.TableNotFound, match="does not exist"):
        lake.register("photos")


UNKNOWN_COLUMNS: dict[str, Verb] = {
    "read": lambda txn: txn.read("orders", ["qyt"]),
    "where": lambda txn: txn.read("orders", where="qyt = 1"),
    "update": lambda txn: txn.update("orders", {"qyt": "1"}, "true"),
    "update-from": lambda txn: txn.update("orders", {"qty": "qyt + 1"}, "true"),
    "update-where": lambda txn: txn.update("orders", {"qty": "1"}, "qyt = 1"),
    "delete": lambda txn: txn.delete("orders", "qyt = 1"),
    "append": lambda txn: txn.append("orders", {"id": [9], "qyt": [1]}),
    "overwrite": lambda txn: txn.overwrite("orders", {"id": [9], "qyt": [1]}),
    "overwrite-where": lambda txn: txn.overwrite("orders", {"id": [9]}, "qyt = 1"),
    "upsert-key": lambda txn: txn.upsert("orders", {"id": [9]}, "qyt"),
    "upsert-data": lambda txn: txn.upsert("orders", {"id": [9], "qyt": [1]}, "id"),
    "merge-on": lambda txn: txn.merge("orders", {"id": [9]}, "source.qyt = target.id"),
    "merge-set": lambda txn: (
        txn.merge("orders", {"id": [9]}, "source.id = target.id")
        .when_matched_update({"qyt": "1"})
        .execute()
    ),
    "merge-all": lambda txn: txn.merge(
        "orders", {"id": [9], "qyt": [1]}, "source.id = target.id"
    ).when_matched_update_all(),
    "merge-except": lambda txn: txn.merge(
        "orders", {"id": [9]}, "source.id = target.id"
    ).when_matched_update_all(except_cols=["qyt"]),
    "insert": lambda txn: txn.sql("insert into orders (id, qyt) values (9, 9)"),
    "sql-update": lambda txn: txn.sql("update orders set qyt = 1"),
    "alter-drop": lambda txn: txn.alter("orders", drop_columns=["qyt"]),
    "alter-rename": lambda txn: txn.alter("orders", rename_columns={"qyt": "x"}),
    "alter-constraint": lambda txn: txn.alter("orders", add_constraints={"c": "qyt > 0"}),
}


@pytest.mark.parametrize("verb", UNKNOWN_COLUMNS.values(), ids=UNKNOWN_COLUMNS.keys())
def test_the_error_for_an_unknown_column_names_it(lake: lv.Lake, verb: Verb) -> None:
    refused(lake, verb, lv.InvalidOperation, "qyt")


@pytest.mark.parametrize("features", ["R", 3, None, "R|I"])
def test_an_unknown_feature_is_refused(lake: lv.Lake, features: Any) -> None:
    with pytest.raises(lv.InvalidOperation, match=r"features must be a lakevilla\.Feature"):
        lake.transaction(features)


@pytest.mark.parametrize(
    "options",
    [
        {"isolation": "read-committed"},
        {"validation": "none"},
        {"slack": -1},
        {"slack": 1.5},
        {"slack": True},
        {"durability": "never"},
        {"wait": "forever"},
        {"idempotency_key": 5},
        {"idempotency_key": ""},
        {"idempotency_key": ("app", -1)},
        {"idempotency_key": ("app", True)},
        {"idempotency_key": ("app", 2**63)},
        {"idempotency_key": ("app", 10**5000)},
        {"idempotency_key": "\ud800"},
        {"idempotency_key": ("half \udfff of a pair", 1)},
        {"metadata": {"who": 5}},
        {"metadata": 5},
        {"metadata": {"who": "\ud800"}},
        {"metadata": {"\udc00": "who"}},
    ],
    ids=shown,
)
def test_the_error_for_an_unknown_option_names_it(lake: lv.Lake, options: dict[str, Any]) -> None:
    with pytest.raises(lv.InvalidOperation, match=next(iter(options))):
        lake.transaction(**options)
    with pytest.raises(lv.InvalidOperation, match=next(iter(options))):
        lake.run(lambda txn: None, **options)


def test_the_largest_application_version_can_be_read_by_deltalake(
    lake: lv.Lake, shop: Place
) -> None:
    lake.run(
        lambda txn: txn.append("stock", [{"sku": "fig", "left": 1}]),
        idempotency_key=("loader", 2**63 - 1),
        metadata={"who": "\U0001f4a7"},
    )
    assert shop.delta("stock").transaction_version("loader") == 2**63 - 1


def test_a_misspelt_option_of_run_is_refused_before_anything_runs(lake: lv.Lake) -> None:
    with pytest.raises(lv.InvalidOperation, match=r"'durablity': choose from .*durability"):
        lake.run(lambda txn: pytest.fail("it ran"), durablity="lazy")
    with pytest.raises(lv.InvalidOperation, match="'durablity'"):
        lake.transactional(durablity="lazy")


@pytest.mark.parametrize("attempts", [0, -1, True, 1.5, "x", None], ids=repr)
def test_a_wrong_number_of_attempts_is_refused_before_anything_runs(
    lake: lv.Lake, attempts: Any
) -> None:
    with pytest.raises(lv.InvalidOperation, match="attempts must be a whole number"):
        lake.run(lambda txn: pytest.fail("it ran"), attempts=attempts)
    with pytest.raises(lv.InvalidOperation, match="attempts must be a whole number"):
        lake.transactional(attempts=attempts)


@pytest.mark.parametrize("fn", [None, 5, "select 1"], ids=repr)
def test_run_refuses_objects_that_are_not_functions(lake: lv.Lake, fn: Any) -> None:
    with pytest.raises(lv.InvalidOperation, match=f"not {fn!r}: write `lake.run"):
        lake.run(fn)
    with pytest.raises(lv.InvalidOperation, match="a function of the transaction"):
        lake.transactional()(fn)


#: A number too large for Python to convert to text or to a float.
HUGE = 10**5000


@pytest.mark.parametrize("seconds", [HUGE, True], ids=["huge", "bool"])
def test_a_wait_timeout_that_is_no_number_of_seconds_is_refused(
    lake: lv.Lake, seconds: Any
) -> None:
    with pytest.raises(lv.InvalidOperation, match="wait_timeout_seconds must be a number"):
        lake.transaction(wait_timeout_seconds=seconds)


def test_connect_refuses_invalid_roots_and_options(tmp_path: Path) -> None:
    with pytest.raises(lv.InvalidOperation, match="unknown scheme 'ftp'"):
        lv.connect("ftp://lake")
    with pytest.raises(lv.InvalidOperation, match="'aws_colour' is not known"):
        lv.connect("s3://bucket/lake", storage_options={"aws_colour": "red"})
    with pytest.raises(lv.InvalidOperation, match="names no bucket"):
        lv.connect("s3:///lake")
    wrong: Any
    for wrong in (None, 5, "", f"{tmp_path}/a\0b"):
        with pytest.raises(lv.InvalidOperation, match="is neither a path nor a URI"):
            lv.connect(wrong)
    wrong = 5
    with pytest.raises(lv.InvalidOperation, match="storage_options"):
        lv.connect(str(tmp_path), storage_options=wrong)
    with pytest.raises(lv.InvalidOperation, match="settings"):
        lv.connect(str(tmp_path), settings=wrong)


PREDICATES = {
    "not-parsed": ("qty = = 1", "near '='"),
    "two": ("qty = 1; delete from orders", "exactly one expression"),
    "a-string-for-a-number": ("qty = 'many'", "long and string"),
    "a-number-for-a-string": ("sku > 5", "string"),
    "no-boolean": ("qty + 1", "must be boolean"),
    "none": (None, 'where="true"'),
    "empty": ("", 'where="true"'),
    "blank": ("  ", 'where="true"'),
    "unknown-function": ("frobnicate(qty) = 1", "frobnicate"),
    "volatile-function": ("random() < 0.5", "random"),
    "subquery": ("id in (select id from stock)", "select"),
    "window": ("row_number() over () = 1", "row_number"),
    "aggregate": ("sum(qty) > 3", "sum"),
    "parameter-without-value": ("qty = :n", ":n"),
    "zone": ("timestamp '2024-01-01' > qty", "timestamp"),
    "unclosed": ("sku = 'x", ""),
    "deep": ("(" * 5000 + "true" + ")" * 5000, ""),
}


@pytest.mark.parametrize(("where", "told"), PREDICATES.values(), ids=PREDICATES.keys())
def test_an_invalid_predicate_is_refused(lake: lv.Lake, where: Any, told: str) -> None:
    refused(lake, lambda txn: txn.delete("orders", where), lv.InvalidOperation, told)
    refused(lake, lambda txn: txn.update("orders", {"qty": "1"}, where), lv.InvalidOperation, told)
    if where is not None:
        refused(lake, lambda txn: txn.read("orders", where=where), lv.InvalidOperation, told)


def test_a_parameter_that_is_not_used_is_refused(lake: lv.Lake) -> None:
    refused(
        lake,
        lambda txn: txn.delete("orders", "id = :n", params={"n": 1, "m": 2}),
        lv.InvalidOperation,
        "m",
    )


def test_params_without_a_predicate_are_refused(lake: lv.Lake) -> None:
    refused(lake, lambda txn: txn.read("orders", params={"n": 1}), lv.InvalidOperation, "params")


def test_columns_given_as_one_string_are_refused(lake: lv.Lake) -> None:
    columns: Any = "id"
    refused(lake, lambda txn: txn.read("orders", columns), lv.InvalidOperation, "['id']")


MISFITS: dict[str, tuple[Any, tuple[str, ...]]] = {
    "string-for-long": ({"id": ["a"], "qty": [1]}, ("'id'", "int64", "string")),
    "double-with-a-fraction": ({"id": [1.5], "qty": [1]}, ("'id'", "int64", "double")),
    "timestamp-for-long": (
        {"id": [datetime(2024, 1, 1, tzinfo=UTC)], "qty": [1]},
        ("'id'", "int64", "timestamp"),
    ),
    "list-for-string": ({"id": [1], "sku": [["a"]]}, ("'sku'", "string", "list")),
    "not-null-column-missing": ({"qty": [1]}, ("'id'", "NOT NULL")),
    "same-column-twice": (
        pa.table([pa.array([1]), pa.array([2])], names=["id", "ID"]),
        ("id",),
    ),
}


@pytest.mark.parametrize(("data", "told"), MISFITS.values(), ids=MISFITS.keys())
def test_the_error_for_data_that_does_not_fit_names_the_column_and_both_types(
    lake: lv.Lake, data: Any, told: tuple[str, ...]
) -> None:
    refused(lake, lambda txn: txn.append("orders", data), lv.InvalidOperation, *told)
    refused(lake, lambda txn: txn.overwrite("orders", data), lv.InvalidOperation, *told)


@pytest.mark.parametrize("data", [None, 5, 2.5, "rows", b"rows"], ids=repr)
def test_objects_that_are_not_data_are_refused(lake: lv.Lake, data: Any) -> None:
    refused(lake, lambda txn: txn.append("orders", data), lv.InvalidOperation, "data")


NULLS: dict[str, Verb] = {
    "append": lambda txn: txn.append("orders", {"id": [None], "qty": [1]}),
    "overwrite": lambda txn: txn.overwrite("orders", {"id": [5, None], "qty": [1, 2]}),
    "update": lambda txn: txn.update("orders", {"id": None}, "qty = 10"),
    "insert": lambda txn: txn.sql("insert into orders (id, qty) values (null, 1)"),
    "merge": lambda txn: (
        txn.merge("orders", {"n": [1]}, "source.n = target.id")
        .when_matched_update({"id": None})
        .execute()
    ),
}


@pytest.mark.parametrize("verb", NULLS.values(), ids=NULLS.keys())
def test_null_in_a_not_null_column_is_refused(lake: lv.Lake, verb: Verb) -> None:
    error = refused(lake, verb, lv.InvalidOperation, "id")
    assert "null" in str(error).lower()


BROKEN_CHECKS: dict[str, Verb] = {
    "append": lambda txn: txn.append("orders", {"id": [5], "qty": [-1]}),
    "overwrite": lambda txn: txn.overwrite("orders", {"id": [5, 6], "qty": [1, 0]}),
    "update": lambda txn: txn.update("orders", {"qty": "qty - 10"}, "true"),
    "upsert": lambda txn: txn.upsert("orders", {"id": [1], "qty": [-1]}, "id"),
    "insert": lambda txn: txn.sql("insert into orders (id, qty) select id, 0 - qty from orders"),
}


@pytest.mark.parametrize("verb", BROKEN_CHECKS.values(), ids=BROKEN_CHECKS.keys())
def test_the_error_for_a_row_that_breaks_a_check_names_the_check(lake: lv.Lake, verb: Verb) -> None:
    refused(lake, verb, lv.InvalidOperation, "qty_positive", "qty > 0")


def test_an_empty_batch_is_no_error_and_adds_no_file(lake: lv.Lake) -> None:
    empty = pa.schema([("id", pa.int64())]).empty_table()
    with lake.transaction() as txn:
        appended = txn.append("orders", empty)
        upserted = txn.upsert("orders", empty, "id")
        assert (appended.rows_inserted, appended.files_added) == (0, 0)
        assert (upserted.rows_inserted, upserted.files_added) == (0, 0)
    assert lake.snapshot().read("orders").num_rows == 4


def test_overwriting_with_an_empty_batch_empties_the_table(lake: lv.Lake, root: Path) -> None:
    with lake.transaction() as txn:
        txn.overwrite("orders", pa.schema([("id", pa.int64())]).empty_table())
    assert lake.snapshot().read("orders").num_rows == 0


def test_a_huge_batch_is_streamed_into_several_files(shop: Any) -> None:
    settings = lv.Settings(target_file_size_bytes=4 << 20, in_memory_file_limit_bytes=1 << 20)
    rows, batch = 2_000_000, 100_000

    def batches() -> Any:
        for start in range(0, rows, batch):
            ids = pa.array(range(start, start + batch), pa.int64())
            yield pa.record_batch([ids, ids], names=["id", "qty"])

    schema = pa.schema([("id", pa.int64()), ("qty", pa.int64())])
    with shop.connect(settings=settings) as lake:
        lake.create_table("big", schema)
        with lake.transaction() as txn:
            stream = pa.RecordBatchReader.from_batches(schema, batches())
            assert txn.append("big", stream).rows_inserted == rows
    table = shop.delta("big")
    assert len(table.file_uris()) > 1
    assert table.to_pyarrow_dataset().count_rows() == rows


def test_the_error_for_a_second_table_without_isolation_names_the_feature_to_add(
    lake: lv.Lake, root: Path
) -> None:
    before = contents(root)
    with pytest.raises(lv.InvalidOperation, match=r"Feature\.I") as caught:
        with lake.transaction(lv.Feature.R) as txn:
            txn.append("orders", {"id": [9], "qty": [1]})
            txn.append("stock", {"sku": ["fig"], "left": [1]})
    assert caught.value.table == "stock"
    assert "orders" in str(caught.value)
    assert contents(root) == before


def test_the_error_for_a_second_operation_without_recovery_names_the_feature_to_add(
    lake: lv.Lake,
) -> None:
    with lake.transaction(lv.Feature.NONE) as txn:
        txn.append("orders", {"id": [9], "qty": [1]})
        with pytest.raises(lv.InvalidOperation, match=r"Feature\.R"):
            txn.append("orders", {"id": [10], "qty": [1]})
    assert lake.snapshot().read("orders", where="id >= 9")["id"].to_pylist() == [9]


def test_writing_in_a_read_only_transaction_is_refused(lake: lv.Lake) -> None:
    refused(
        lake,
        lambda txn: txn.append("orders", {"id": [9], "qty": [1]}),
        lv.InvalidOperation,
        "read-only",
        read_only=True,
    )


def test_creating_an_existing_table_is_refused_with_a_hint(lake: lv.Lake) -> None:
    schema = pa.schema([("id", pa.int64())])
    refused(lake, lambda txn: txn.create_table("orders", schema), lv.TableExists, "another name")
    assert lake.create_table("orders", schema, exist_ok=True).schema.names == ["id", "sku", "qty"]


BAD_TABLES: dict[str, tuple[Callable[[lv.Lake], object], str]] = {
    "partition": (
        lambda lake: lake.create_table("t", pa.schema([("a", pa.int64())]), partition_by="b"),
        "'b'",
    ),
    "all-partitions": (
        lambda lake: lake.create_table("t", pa.schema([("a", pa.int64())]), partition_by="a"),
        "every column",
    ),
    "no-columns": (lambda lake: lake.create_table("t", pa.schema([])), "no columns"),
    "feature": (
        lambda lake: lake.create_table(
            "t", pa.schema([("a", pa.int64())]), properties={"delta.feature.magic": "supported"}
        ),
        "'magic'",
    ),
    "retention": (
        lambda lake: lake.create_table(
            "t",
            pa.schema([("a", pa.int64())]),
            properties={"delta.setTransactionRetentionDuration": "interval 1 day"},
        ),
        "setTransactionRetentionDuration",
    ),
    "type": (
        lambda lake: lake.create_table("t", pa.schema([("a", pa.duration("s"))])),
        "'a'",
    ),
    "twice": (
        lambda lake: lake.create_table("t", pa.schema([("a", pa.int64()), ("A", pa.int64())])),
        "A",
    ),
}


@pytest.mark.parametrize(("create", "told"), BAD_TABLES.values(), ids=BAD_TABLES.keys())
def test_a_table_with_an_invalid_definition_is_not_created(
    lake: lv.Lake, create: Callable[[lv.Lake], object], told: str
) -> None:
    before = contents(lake.root)
    with pytest.raises(lv.InvalidOperation) as caught:
        create(lake)
    assert told in str(caught.value)
    assert caught.value.table == "t"
    assert contents(lake.root) == before


@pytest.mark.parametrize("call", ["resume", "abort", "outcome"])
@pytest.mark.parametrize("txn_id", ["", "nope", "../HEAD", 5], ids=repr)
def test_ill_formed_transaction_ids_are_refused(lake: lv.Lake, call: str, txn_id: Any) -> None:
    with pytest.raises(lv.InvalidOperation, match="not a transaction id"):
        getattr(lake, call)(txn_id)


def test_outcome_without_an_id_or_a_key_is_refused(lake: lv.Lake) -> None:
    with pytest.raises(lv.InvalidOperation, match="a transaction id or an idempotency key"):
        lake.outcome()
