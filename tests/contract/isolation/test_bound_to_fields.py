"""A predicate keeps its meaning after a schema change, by whichever transaction (hazard 35).

A verb is bound to columns, not to their names. It keeps these columns, whatever they are called
when its predicate is validated, redone, resumed or replayed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pyarrow as pa
import pytest

import lakevilla as lv
from tests.support.foreign_changes import alter as alter_delta
from tests.support.inside import inside
from tests.support.places import Place
from tests.support.stores import Closed, is_entry
from tests.support.tables import in_order, kinds

TABLE = "bank"
MAPPED = {"delta.columnMapping.mode": "name"}
WHOLE = pa.int64()


@pytest.fixture
def bank(shared_place: Place) -> Place:
    """Make a table of columns a and b that can be renamed; each row is in a file of its own."""
    properties = {} if shared_place.format == "iceberg" else MAPPED
    with shared_place.connect() as lake:
        lake.create_table(TABLE, {"a": [1], "b": [10]}, properties=properties)
        add(lake, a=2, b=20)
        lake.create_table("log", {"n": [0]})
    return shared_place


def add(lake: lv.Lake, **row: object) -> None:
    with lake.transaction() as txn:
        txn.append(TABLE, [row])


def rows(place: Place) -> list[dict[str, Any]]:
    """Return a new client's rows; pyiceberg must agree (deltalake can't read mapped columns)."""
    with place.connect() as lake:
        found = in_order(lake.snapshot().read(TABLE))
    assert place.format == "delta" or place.seen(TABLE) == found
    return found


def swap(txn: lv.Transaction) -> None:
    """Rename column ``a`` to x and column ``b`` to a."""
    txn.alter(TABLE, rename_columns={"a": "x"})
    txn.alter(TABLE, rename_columns={"b": "a"})


def swap_back(txn: lv.Transaction) -> None:
    txn.alter(TABLE, rename_columns={"a": "b"})
    txn.alter(TABLE, rename_columns={"x": "a"})


# ------------------------------------------- the transaction's own schema change


@pytest.mark.parametrize("verb", ["update", "delete", "overwrite"])
def test_a_write_after_its_transactions_renames_includes_rows_that_others_add(
    bank: Place, verb: str
) -> None:
    with bank.connect() as lake, bank.connect() as rival:
        with lake.transaction() as txn:
            swap(txn)
            if verb == "update":
                txn.update(TABLE, {"x": -1}, where="a = 5")
            elif verb == "delete":
                txn.delete(TABLE, where="a = 5")
            else:
                txn.overwrite(TABLE, {"x": [-1], "a": [5]}, where="a = 5")
            add(rival, a=9, b=5)
    left = [] if verb == "delete" else [{"x": -1, "a": 5}]
    assert rows(bank) == [*left, {"x": 1, "a": 10}, {"x": 2, "a": 20}]


def test_a_read_after_its_transactions_renames_conflicts_with_matching_new_rows(
    bank: Place,
) -> None:
    with bank.connect() as lake, bank.connect() as rival:
        txn = lake.transaction()
        swap(txn)
        assert not len(txn.read(TABLE, where="a = 5"))
        txn.append("log", {"n": [1]})
        add(rival, a=9, b=5)
        with pytest.raises(lv.ConflictError):
            txn.commit()


def test_a_read_after_its_transactions_renames_ignores_new_rows_that_do_not_match(
    bank: Place,
) -> None:
    events: list[lv.Event] = []
    with bank.connect(on_event=events.append) as lake, bank.connect() as rival:
        with lake.transaction() as txn:
            swap(txn)
            assert not len(txn.read(TABLE, where="a = 5"))
            txn.append("log", {"n": [1]})
            add(rival, a=5, b=9)
    assert "redo" not in kinds(events)
    assert {"x": 5, "a": 9} in rows(bank)


def test_a_new_column_is_read_and_filled_concurrently_with_other_transactions(bank: Place) -> None:
    with bank.connect() as lake, bank.connect() as rival:
        with lake.transaction() as txn:
            txn.alter(TABLE, add_columns=pa.schema([("c", WHOLE)]))
            txn.update(TABLE, {"c": "a * 100"}, where="c IS NULL AND a = 1")
            assert len(txn.read(TABLE, where="c = 100")) == 1
            add(rival, a=3, b=30)
    assert {(row["a"], row["c"]) for row in rows(bank)} == {(1, 100), (2, None), (3, None)}


def test_a_new_column_is_filled_in_rows_that_other_clients_add(bank: Place) -> None:
    with bank.connect() as lake, bank.connect() as rival:
        with lake.transaction() as txn:
            txn.alter(TABLE, add_columns=pa.schema([("c", WHOLE)]))
            txn.update(TABLE, {"c": "a * 100"}, where="c IS NULL")
            add(rival, a=3, b=30)
    assert {(row["a"], row["c"]) for row in rows(bank)} == {(1, 100), (2, 200), (3, 300)}


def test_a_column_dropped_and_recreated_in_a_transaction_is_a_new_column(bank: Place) -> None:
    with bank.connect() as lake, bank.connect() as rival:
        with lake.transaction() as txn:
            txn.alter(TABLE, drop_columns=["b"])
            txn.alter(TABLE, add_columns=pa.schema([("b", WHOLE)]))
            assert not len(txn.read(TABLE, where="b = 5"))
            txn.update(TABLE, {"b": 7}, where="a = 1")
            add(rival, a=9, b=5)
    found = {row["a"]: row["b"] for row in rows(bank)}
    assert found == {1: 7, 2: None, 9: None}


def test_a_delete_follows_a_nested_field_that_its_transaction_renamed(shared_place: Place) -> None:
    if shared_place.format == "iceberg":
        pytest.skip("fields within columns of Iceberg tables are not renamed here")
    place = shared_place
    pair = pa.struct([("p", WHOLE), ("q", WHOLE)])

    def row(p: int, q: int) -> pa.Table:
        return pa.table({"s": pa.array([{"p": p, "q": q}], pair)})

    with place.connect() as lake, place.connect() as rival:
        lake.create_table(TABLE, row(1, 10), properties=MAPPED)
        with lake.transaction() as txn:
            txn.alter(TABLE, rename_columns={"s.p": "r"})
            txn.alter(TABLE, rename_columns={"s.q": "p"})
            txn.delete(TABLE, where="s.p = 5")
            with rival.transaction() as other:
                other.append(TABLE, row(9, 5))
    assert rows(place) == [{"s": {"r": 1, "p": 10}}]


# --------------------------------------------- another transaction's schema change


Change = Callable[[lv.Transaction], object]


def meanwhile(place: Place, change: Change) -> None:
    with place.connect() as rival, rival.transaction() as txn:
        change(txn)


def test_writes_follow_the_columns_that_another_transaction_has_renamed(bank: Place) -> None:
    with bank.connect() as lake:
        with lake.transaction() as txn:
            txn.update(TABLE, {"b": "b + 1"}, where="a = 1")
            txn.delete(TABLE, where="b = 20")
            merge = txn.merge(TABLE, {"k": [1, 7]}, on="target.a = source.k")
            merge = merge.when_matched_update(updates={"b": "target.b + source.k"})
            merge.when_not_matched_insert(updates={"a": "source.k", "b": 70}).execute()
            meanwhile(bank, swap)
    assert rows(bank) == [{"x": 1, "a": 12}, {"x": 7, "a": 70}]


def test_a_transaction_moves_to_no_state_in_which_its_columns_have_other_names(bank: Place) -> None:
    with bank.connect() as lake, bank.connect() as rival:
        txn = lake.transaction(features=lv.Feature.R | lv.Feature.CT)
        txn.update(TABLE, {"b": 11}, where="a = 1")
        txn.update(TABLE, {"b": 21}, where="a = 2")
        with rival.transaction(features=lv.Feature.R | lv.Feature.I) as other:
            swap(other)
        # There, "a" is another column than in the updates.
        with pytest.raises(lv.ConflictError, match="its column a was renamed or dropped"):
            for _ in range(3):
                txn.append("log", {"n": [1]})
                txn.read(TABLE, where="a = 1")
        txn.abort()


def test_the_conflict_over_a_column_that_another_transaction_drops_names_it(bank: Place) -> None:
    with bank.connect() as lake:
        txn = lake.transaction()
        txn.update(TABLE, {"a": 0}, where="b = 10")
        meanwhile(bank, lambda other: other.alter(TABLE, drop_columns=["b"]))
        with pytest.raises(lv.ConflictError, match="column b of table bank was dropped"):
            txn.commit()


def test_a_write_that_names_a_column_which_another_transaction_recreates_conflicts(
    bank: Place,
) -> None:
    def anew(other: lv.Transaction) -> None:
        other.alter(TABLE, drop_columns=["b"])
        other.alter(TABLE, add_columns=pa.schema([("b", WHOLE)]))
        other.update(TABLE, {"b": 10}, where="true")

    with bank.connect() as lake:
        txn = lake.transaction()
        txn.update(TABLE, {"a": 0}, where="b = 10")
        meanwhile(bank, anew)
        with pytest.raises(lv.ConflictError, match="column b of table bank was dropped"):
            txn.commit()


#: A transaction's schema change, and what another commit does to the names that it uses.
OVERTAKEN: Mapping[str, tuple[Change, list[dict[str, str]]]] = {
    "renamed": (
        lambda txn: txn.alter(TABLE, rename_columns={"a": "mine"}),
        [{"a": "theirs"}],
    ),
    "renamed alike": (
        lambda txn: txn.alter(TABLE, rename_columns={"a": "theirs"}),
        [{"a": "theirs"}],
    ),
    "there and back": (
        lambda txn: (
            txn.alter(TABLE, rename_columns={"a": "tmp"}),
            txn.alter(TABLE, rename_columns={"tmp": "a"}),
        )[-1],
        [{"a": "theirs"}],
    ),
    "swapped": (
        lambda txn: txn.alter(TABLE, rename_columns={"a": "b", "b": "a"}),
        [{"a": "q"}, {"b": "a"}, {"q": "b"}],
    ),
    "dropped": (lambda txn: txn.alter(TABLE, drop_columns=["a"]), [{"a": "theirs"}]),
    "its name went on": (
        lambda txn: txn.alter(TABLE, rename_columns={"a": "mine"}),
        [{"a": "theirs"}, {"b": "a"}],
    ),
    "made nullable": (lambda txn: txn.alter(TABLE, drop_not_null=["a"]), [{"a": "theirs"}]),
}


def renamed_by_another(place: Place, renames: list[dict[str, str]], *, foreign: bool) -> list[str]:
    """Have another commit rename columns; return the columns' names afterwards."""
    for names in renames:
        if foreign:
            altered_by_another(place, rename_columns=names)
        else:
            meanwhile(place, lambda txn, names=names: txn.alter(TABLE, rename_columns=names))
    with place.connect() as lake:
        return list(lake.snapshot().read(TABLE, columns=None).column_names)


@pytest.mark.parametrize("foreign", [False, True], ids=["ours", "foreign"])
@pytest.mark.parametrize("case", OVERTAKEN)
def test_a_rename_is_not_undone_by_a_transaction_that_has_not_seen_it(
    bank: Place, case: str, foreign: bool
) -> None:
    change, renames = OVERTAKEN[case]
    with bank.connect() as lake:
        txn = lake.transaction()
        change(txn)
        names = renamed_by_another(bank, renames, foreign=foreign)
        with pytest.raises(lv.ConflictError, match=r"was renamed to .* by another commit"):
            txn.commit()
    assert list(rows(bank)[0]) == names


def test_an_alter_does_not_conflict_with_a_concurrent_rename_of_another_column(
    bank: Place,
) -> None:
    with bank.connect() as lake, lake.transaction() as txn:
        txn.alter(TABLE, rename_columns={"a": "mine"})
        txn.update(TABLE, {"mine": -1}, where="b = 10")
        meanwhile(bank, lambda other: other.alter(TABLE, rename_columns={"b": "theirs"}))
    assert rows(bank) == [{"mine": -1, "theirs": 10}, {"mine": 2, "theirs": 20}]


def test_of_two_transactions_that_add_a_column_of_the_same_name_only_one_commits(
    bank: Place,
) -> None:
    new = pa.schema([("c", WHOLE)])
    with bank.connect() as lake:
        txn = lake.transaction()
        txn.alter(TABLE, add_columns=new)
        altered_by_another(bank, add_columns=new)
        with pytest.raises(lv.ConflictError, match="c"):
            txn.commit()


def test_an_inserts_target_columns_follow_a_rename_but_its_query_conflicts_with_one(
    bank: Place,
) -> None:
    with bank.connect() as lake:
        with lake.transaction() as txn:
            txn.sql("INSERT INTO bank (b, a) SELECT n + 30, n + 3 FROM log")
            meanwhile(bank, swap)
        assert {"x": 3, "a": 30} in rows(bank)

        txn = lake.transaction()
        txn.sql("INSERT INTO log (n) SELECT count(a) FROM bank")
        meanwhile(bank, swap_back)
        with pytest.raises(
            lv.ConflictError, match="column a of table bank was dropped, renamed or c"
        ):
            txn.commit()


def test_a_new_constraint_conflicts_with_a_concurrent_rename_of_its_column(bank: Place) -> None:
    if bank.format == "iceberg":
        pytest.skip("Iceberg has no constraints")
    with bank.connect() as lake:
        txn = lake.transaction()
        txn.alter(TABLE, add_constraints={"small": "a < 50"})
        meanwhile(bank, swap)
        with pytest.raises(lv.ConflictError, match="column a of table bank was dropped, renamed"):
            txn.commit()


def test_a_new_column_is_not_confused_with_one_that_another_transaction_added(bank: Place) -> None:
    def other_column(other: lv.Transaction) -> None:
        other.alter(TABLE, add_columns=pa.schema([("d", WHOLE)]))
        other.update(TABLE, {"d": 1}, where="a = 1")

    with bank.connect() as lake:
        with lake.transaction() as txn:
            txn.alter(TABLE, add_columns=pa.schema([("c", WHOLE)]))
            txn.update(TABLE, {"c": 7}, where="c IS NULL")
            txn.delete(TABLE, where="c = 1")
            meanwhile(bank, other_column)
    assert rows(bank) == [
        {"a": 1, "b": 10, "d": 1, "c": 7},
        {"a": 2, "b": 20, "d": None, "c": 7},
    ]


def test_a_saved_transaction_keeps_its_renamed_columns_when_it_is_resumed(bank: Place) -> None:
    lake = bank.connect()
    txn = lake.transaction(durability="every_op")
    swap(txn)
    txn.update(TABLE, {"x": -1}, where="a = 5")
    with bank.connect() as rival:
        add(rival, a=9, b=5)
    with bank.connect() as another:
        another.resume(txn.id).commit()
    assert rows(bank) == [{"x": -1, "a": 5}, {"x": 1, "a": 10}, {"x": 2, "a": 20}]


def test_a_resumed_transaction_follows_columns_that_another_client_renamed(bank: Place) -> None:
    lake = bank.connect()
    txn = lake.transaction(durability="every_op")
    txn.update(TABLE, {"b": -1}, where="a = 1")
    meanwhile(bank, swap)
    with bank.connect() as another:
        another.resume(txn.id).commit()
    assert rows(bank) == [{"x": 1, "a": -1}, {"x": 2, "a": 20}]


# ------------------------------------------- decided commits, replayed by other clients


def decided(place: Place, change: Change) -> str:
    """Decide a commit whose owner goes away before it publishes."""
    with place.connect() as lake:
        inside(lake).store = Closed(inside(lake).store, is_entry("bank"))
        with lake.transaction() as txn:
            change(txn)
            txn.append("log", {"n": [1]})
        assert txn.result is not None
        assert txn.result.versions[TABLE] is None
        return txn.id


def rewritten_by_another(place: Place, sql: str, value: int) -> None:
    """Change a row as a client without LakeVilla, so that the decided commit no longer fits."""
    if place.format == "iceberg":
        table = place.catalog().load_table((TABLE,))
        kept = table.scan(row_filter=sql).to_arrow()
        column = kept.schema.get_field_index("b")
        changed = kept.set_column(column, kept.schema.field(column), pa.array([value], WHOLE))
        table.overwrite(changed, overwrite_filter=sql)
    else:
        # deltalake can't write tables with mapped columns; LakeVilla without its HEAD can.
        with place.connect() as lake, lake.transaction(features=lv.Feature.R) as txn:
            txn.update(TABLE, {"b": value}, where=sql)


def altered_by_another(place: Place, **what: Any) -> None:
    if place.format == "delta":
        return alter_delta(place, **what)
    with place.catalog().load_table((TABLE,)).update_schema() as update:
        for name, kind in zip(
            *(lambda s: (s.names, s.types))(what.get("add_columns", pa.schema([]))), strict=True
        ):
            assert kind == WHOLE
            update.add_column(name, _long())
        for old, new in what.get("rename_columns", {}).items():
            update.rename_column(old, new)
        for name in what.get("drop_columns", ()):
            update.delete_column(name)
    return None


def _long() -> Any:
    from pyiceberg.types import LongType

    return LongType()


def goes_on(place: Place) -> dict[str, str]:
    """Assert that the next commit is published; return the findings about voided commits."""
    with place.connect() as lake:
        lake.recover()
        lake.run(lambda txn: txn.append("log", {"n": [50]}))
        findings = lake.doctor().findings
        assert not [finding for finding in findings if finding.kind == "unpublished"]
        return {finding.kind: finding.message for finding in findings if finding.kind == "voided"}


def fill_a_new_column(txn: lv.Transaction) -> None:
    txn.alter(TABLE, add_columns=pa.schema([("c", WHOLE)]))
    txn.update(TABLE, {"c": "b + 1"}, where="c IS NULL AND a = 1")


def test_a_decided_commit_that_fills_a_new_column_is_replayed(bank: Place) -> None:
    decided(bank, fill_a_new_column)
    altered_by_another(bank, add_columns=pa.schema([("d", WHOLE)]))
    assert not goes_on(bank)
    assert rows(bank) == [
        {"a": 1, "b": 10, "d": None, "c": 11},
        {"a": 2, "b": 20, "d": None, "c": None},
    ]


def test_a_decided_commit_that_read_a_new_column_is_replayed(bank: Place) -> None:
    def change(txn: lv.Transaction) -> None:
        fill_a_new_column(txn)
        assert len(txn.read(TABLE, where="c = 11")) == 1

    decided(bank, change)
    rewritten_by_another(bank, "a = 1", 30)
    assert not goes_on(bank)
    found = {row["a"]: (row["b"], row["c"]) for row in rows(bank)}
    assert found == {1: (30, 31), 2: (20, None)}


def test_a_decided_commit_follows_the_columns_that_another_client_has_renamed(
    bank: Place,
) -> None:
    decided(bank, lambda txn: txn.update(TABLE, {"b": "b + 1"}, where="a = 1"))
    altered_by_another(bank, rename_columns={"a": "x"})
    altered_by_another(bank, rename_columns={"b": "a"})
    assert not goes_on(bank)
    assert rows(bank) == [{"x": 1, "a": 11}, {"x": 2, "a": 20}]


@pytest.mark.parametrize("case", [case for case in OVERTAKEN if case != "made nullable"])
def test_a_decided_schema_change_whose_column_was_renamed_is_void_and_reported(
    bank: Place, case: str
) -> None:
    change, renames = OVERTAKEN[case]
    txn_id = decided(bank, change)
    for names in renames:
        altered_by_another(bank, rename_columns=names)
    told = goes_on(bank)
    assert txn_id in told["voided"]
    assert "was renamed to" in told["voided"]
    after = {name: name for name in ("a", "b")}
    for names in renames:
        after = {first: names.get(name, name) for first, name in after.items()}
    assert list(rows(bank)[0]) == list(after.values())


def test_a_decided_commit_is_voided_if_another_client_has_dropped_its_column(
    bank: Place,
) -> None:
    decided(bank, lambda txn: txn.update(TABLE, {"a": 0}, where="b = 10"))
    altered_by_another(bank, drop_columns=["b"])
    assert "voided" in goes_on(bank)
    assert rows(bank) == [{"a": 1}, {"a": 2}]


def test_a_decided_commit_on_another_decided_commits_new_column_is_replayed_on_that_column(
    bank: Place,
) -> None:
    """The second commit is replayed with the first, whose column gets another id."""
    decided(bank, fill_a_new_column)
    decided(bank, lambda txn: txn.update(TABLE, {"c": 5}, where="c = 11"))
    altered_by_another(bank, add_columns=pa.schema([("d", WHOLE)]))
    assert not goes_on(bank)
    assert {row["a"]: (row["c"], row["d"]) for row in rows(bank)} == {1: (5, None), 2: (None, None)}


def test_a_decided_commit_on_a_voided_commits_column_is_not_replayed_on_another_column(
    bank: Place,
) -> None:
    def change(txn: lv.Transaction) -> None:
        fill_a_new_column(txn)
        txn.update(TABLE, {"a": 1}, where="b = 10")

    decided(bank, change)
    decided(bank, lambda txn: txn.update(TABLE, {"c": 5}, where="c = 11 OR a = 2"))
    altered_by_another(bank, drop_columns=["b"])
    altered_by_another(bank, add_columns=pa.schema([("d", WHOLE)]))
    assert "voided" in goes_on(bank)
    assert rows(bank) == [{"a": 1, "d": None}, {"a": 2, "d": None}]


def test_a_transaction_that_saw_a_pending_new_column_conflicts_once_that_is_reconciled(
    bank: Place,
) -> None:
    """The reconcile gave the column another id; another client's column may have its old one."""
    decided(bank, fill_a_new_column)
    with bank.connect() as lake:
        inside(lake).store = Closed(inside(lake).store, is_entry("bank"))
        txn = lake.transaction()
        txn.update(TABLE, {"c": 5}, where="c IS NULL")
        altered_by_another(bank, add_columns=pa.schema([("d", WHOLE)]))
        goes_on(bank)
        with pytest.raises(lv.ConflictError):
            txn.commit()
    assert [row["d"] for row in rows(bank)] == [None, None]


def test_stored_operations_hold_the_field_ids_of_their_columns(bank: Place) -> None:
    """By the ids that are stored beside the names, a helper finds the columns again."""
    txn_id = decided(bank, lambda txn: txn.update(TABLE, {"b": 1}, where="a = 1"))
    with bank.connect() as lake:
        (key,) = [k for k in _keys(lake, "_lakevilla/commits/") if txn_id in k]
        body = inside(lake).store.get(key).body
    operation = _decoded(body)["operations"][0]
    known = operation["fields"]["b"]
    assert operation["where"]["args"][0]["ids"] != known
    assert isinstance(known, list)
    assert len(known) == 1


def _keys(lake: lv.Lake, prefix: str) -> list[str]:
    found = inside(lake).store.list(prefix)
    assert isinstance(found, list)
    return [info.key for info in found]


def _decoded(body: bytes) -> Mapping[str, Any]:
    import json

    found: Mapping[str, Any] = json.loads(bytes(body))
    return found
