"""Renamed tables: what the new and the old name mean at every version."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from pyiceberg.catalog.sql import SqlCatalog
from typer.testing import CliRunner

import lakevilla as lv
from lakevilla.cli.app import app
from tests.support.places import Place, make_place
from tests.support.tables import values

ROWS = [{"id": 1}]


@pytest.fixture(params=["local", "iceberg", "remote"])
def place(request: pytest.FixtureRequest) -> Place:
    return make_place(request.param, request)


@pytest.fixture
def lake(tmp_path: Path) -> lv.Lake:
    lake = lv.connect(tmp_path / "lake", settings=lv.Settings(reuse_after_seconds=0))
    lake.create_table("orders", ROWS)
    return lake


def names(lake: lv.Lake) -> list[str]:
    return [table.name for table in lake.tables()]


def ids(lake: lv.Lake, table: str, version: int | None = None) -> list[int]:
    return values(lake.snapshot(version).read(table))


def test_a_rename_moves_no_object_and_all_versions_are_read_by_the_new_name(place: Place) -> None:
    lake = place.connect()
    lake.create_table("orders", ROWS)
    before = lake.history(1)[0].version
    uri = lake.table("orders").uri
    lake.rename_table("orders", "sales")
    with lake.transaction() as txn:
        txn.append("sales", [{"id": 2}])
    assert names(lake) == ["sales"]
    assert lake.table("sales").uri == uri
    assert ids(lake, "sales") == [1, 2]
    assert ids(lake, "sales", before) == [1]
    assert {name for entry in lake.history() for name in entry.tables} == {"sales"}
    renamed = lake.history()[1].operations[0]
    assert (renamed.operation, renamed.parameters) == (
        "RENAME TABLE",
        {"from": "orders", "to": "sales"},
    )
    with lake.transaction() as txn:
        assert values(txn.changes("sales", before)) == [2]
    assert lake.doctor().ok
    assert {finding.kind for finding in lake.recover().findings} == set()


def test_clients_that_have_seen_the_table_before_learn_its_new_name(place: Place) -> None:
    lake, reader, writer, glancing = (place.connect() for _ in range(4))
    lake.create_table("orders", ROWS)
    for other in (reader, writer, glancing):
        assert ids(other, "orders") == [1]
    lake.rename_table("orders", "sales")
    with pytest.raises(lv.TableNotFound, match="table orders does not exist: it was renamed"):
        reader.snapshot().read("orders")
    with pytest.raises(lv.TableNotFound, match="renamed"):
        writer.run(lambda txn: txn.append("orders", ROWS))
    assert names(glancing) == ["sales"]
    for other in (reader, writer):
        assert ids(other, "sales") == [1]
        with pytest.raises(
            lv.TableNotFound, match="orders/ does not exist: it was renamed to sales"
        ):
            other.table("orders/")


def test_a_client_with_an_older_head_finds_a_renamed_table_by_its_new_name(place: Place) -> None:
    lake, other = place.connect(), place.connect()
    lake.create_table("orders", ROWS)
    other.tables()
    lake.rename_table("orders", "sales")
    assert ids(other, "sales") == [1]


def test_the_old_name_of_a_renamed_table_cannot_be_used_while_its_path_holds_data(
    lake: lv.Lake,
) -> None:
    lake.rename_table("orders", "sales")
    for refused in ("orders", "sales"):
        with pytest.raises(
            lv.TableExists, match=r"the table at orders was renamed to sales, and its path"
        ):
            lake.create_table(refused, ROWS)
    with pytest.raises(lv.InvalidOperation, match=r"rename_table\('sales', 'orders'\)"):
        lake.register("orders")
    lake.drop_table("sales", delete_data=True)
    for name in ("orders", "sales"):
        lake.create_table(name, ROWS)
    assert names(lake) == ["orders", "sales"]
    assert lake.table("sales").uri == f"{lake.root}/sales"


def test_a_renamed_table_can_be_read_by_its_uri(lake: lv.Lake) -> None:
    lake.rename_table("orders", "sales")
    assert values(lake.snapshot().read(f"{lake.root}/orders")) == [1]


def test_a_rename_is_committed_or_undone_with_its_transaction(lake: lv.Lake) -> None:
    with pytest.raises(ZeroDivisionError), lake.transaction() as txn:
        txn.rename_table("orders", "sales")
        assert values(txn.read("sales")) == [1]
        with pytest.raises(lv.TableNotFound, match="renamed to sales"):
            txn.read("orders")
        raise ZeroDivisionError
    assert names(lake) == ["orders"]
    with lake.transaction() as txn:
        txn.append("orders", [{"id": 2}])
        txn.rename_table("orders", "sales")
        txn.append("sales", [{"id": 3}])
        txn.rename_table("sales", "income")
    assert ids(lake, "income") == [1, 2, 3]
    assert lake.history(1)[0].tables == ("income",)


def test_a_saved_transaction_renames_when_another_process_resumes_it(lake: lv.Lake) -> None:
    txn = lake.transaction()
    txn.rename_table("orders", "sales")
    txn.save()
    lake.resume(txn.id).commit()
    assert names(lake) == ["sales"]


def test_a_table_created_in_a_transaction_can_be_renamed_in_it(lake: lv.Lake) -> None:
    with lake.transaction() as txn:
        txn.create_table("new", ROWS)
        with pytest.raises(lv.TableExists, match="this transaction creates a table at new"):
            txn.rename_table("orders", "new")
        txn.rename_table("new", "newer")
    assert names(lake) == ["newer", "orders"]


def test_a_transaction_begun_before_a_rename_continues_by_the_old_name(lake: lv.Lake) -> None:
    txn = lake.transaction()
    txn.read("orders", where="id = 7")
    lake.rename_table("orders", "sales")
    txn.append("orders", [{"id": 2}])
    txn.commit()
    assert ids(lake, "sales") == [1, 2]


def test_the_second_of_two_transactions_that_rename_a_table_conflicts(lake: lv.Lake) -> None:
    txn = lake.transaction()
    txn.rename_table("orders", "income")
    lake.rename_table("orders", "sales")
    with pytest.raises(lv.ConflictError, match="table orders was renamed"):
        txn.commit()
    assert names(lake) == ["sales"]


@pytest.mark.parametrize(
    ("new", "error", "words"),
    [
        ("orders", lv.InvalidOperation, "has that name already"),
        ("stock", lv.TableExists, "there is a table 'stock' already: choose another name"),
        ("left", lv.TableExists, "there is one at left, which can be registered"),
        ("unknown", lv.TableExists, "there is one at unknown, which can be registered"),
        ("prices", lv.TableExists, "'prices' is registered for the table at /"),
        ("was", lv.TableExists, "'was' is the path of a table that was renamed"),
        ("s3://bucket/x", lv.InvalidOperation, "is a path or a URI: give a name"),
        ("_lakevilla/x", lv.InvalidOperation, "choose another name"),
        ("../x", lv.InvalidOperation, "\\.\\."),
        ("", lv.InvalidOperation, "new"),
        (None, lv.InvalidOperation, "new"),
    ],
)
def test_a_rename_to_an_unusable_name_is_refused(
    lake: lv.Lake, tmp_path: Path, new: str, error: type[lv.LakeVillaError], words: str
) -> None:
    import deltalake
    import pyarrow as pa

    for name in ("stock", "left", "was"):
        lake.create_table(name, ROWS)
    lake.drop_table("left")
    lake.rename_table("was", "is")
    for path in ("lake/unknown", "elsewhere"):
        deltalake.write_deltalake(tmp_path / path, pa.table({"id": [1]}))
    lake.register("prices", tmp_path / "elsewhere")
    before = lake.history(1)
    with pytest.raises(error, match=words):
        lake.rename_table("orders", new)
    assert lake.history(1) == before
    assert ids(lake, "orders") == [1]


def test_two_registered_tables_can_be_renamed_one_to_the_others_name(
    lake: lv.Lake, tmp_path: Path
) -> None:
    import deltalake
    import pyarrow as pa

    for number, path in enumerate(("one", "two")):
        deltalake.write_deltalake(tmp_path / path, pa.table({"id": [number]}))
    lake.register({"prices": tmp_path / "one", "prices_new": tmp_path / "two"})
    with lake.transaction() as txn:
        txn.rename_table("prices", "prices_old")
        txn.rename_table("prices_new", "prices")
    assert ids(lake, "prices") == [1]
    assert ids(lake, "prices_old") == [0]
    with pytest.raises(lv.InvalidOperation, match=r"rename_table\('prices', ...\)"):
        lake.rename_table(str(tmp_path / "two"), "third")


def test_a_table_renamed_back_or_unregistered_has_its_path_as_its_name_again(lake: lv.Lake) -> None:
    lake.rename_table("orders", "sales")
    lake.rename_table("sales", "orders")
    assert names(lake) == ["orders"]
    lake.rename_table("orders", "sales")
    lake.unregister("sales")
    assert names(lake) == []
    lake.register("orders")
    assert names(lake) == ["orders"]
    assert ids(lake, "orders") == [1]


def test_a_renamed_and_dropped_table_registered_by_its_path_has_both_names(lake: lv.Lake) -> None:
    lake.rename_table("orders", "sales")
    lake.drop_table("sales")
    lake.register("orders")
    assert ids(lake, "orders") == ids(lake, "sales") == [1]


def test_a_renamed_table_keeps_its_name_when_head_is_rebuilt(lake: lv.Lake) -> None:
    lake.rename_table("orders", "sales")
    Path(lake.root, "_lakevilla/HEAD.json").unlink()
    again = lv.connect(lake.root)
    again.recover(rebuild_head=True)
    assert names(again) == ["sales"]
    with pytest.raises(lv.TableNotFound, match="renamed to sales"):
        again.table("orders")


def test_the_rename_command_renames_a_table_and_explains_a_refusal(lake: lv.Lake) -> None:
    done = CliRunner().invoke(app, ["rename", lake.root, "orders", "sales"])
    assert done.exit_code == 0, done.output
    assert "table orders is called sales now" in done.output
    refused = CliRunner().invoke(app, ["rename", lake.root, "orders", "x"])
    assert refused.exit_code == 2
    assert "renamed to sales" in refused.output


@pytest.fixture
def swapped(lake: lv.Lake, tmp_path: Path) -> Callable[[], None]:
    """Make tables ``live`` (row 1) and ``next`` (row 10); return a call that swaps their names."""
    for name, first in (("a", 1), ("b", 10)):
        lake.create_table(name, [{"id": first}])
    lake.rename_table("a", "live")
    lake.rename_table("b", "next")
    other = lv.connect(tmp_path / "lake")

    def swap() -> None:
        for old, new in (("live", "old"), ("next", "live"), ("old", "next")):
            other.rename_table(old, new)

    return swap


@pytest.mark.parametrize(
    "features", [lv.Feature.R, lv.Feature.R | lv.Feature.I, lv.Feature.R | lv.Feature.CT]
)
def test_a_name_means_the_same_table_throughout_a_transaction(
    lake: lv.Lake, swapped: Callable[[], None], features: lv.Feature
) -> None:
    with lake.transaction(features) as txn:
        read = values(txn.read("live"))
        swapped()
        txn.overwrite("live", [{"id": value + 1} for value in read])
        assert values(txn.read("live")) == [2]
    assert (ids(lake, "next"), ids(lake, "live")) == ([2], [10])


def test_a_name_means_the_same_table_in_a_transaction_that_is_resumed(
    lake: lv.Lake, swapped: Callable[[], None], tmp_path: Path
) -> None:
    txn = lake.transaction()
    read = values(txn.read("live"))
    txn.save()
    swapped()
    resumed = lv.connect(tmp_path / "lake").resume(txn.id)
    resumed.overwrite("live", [{"id": value + 1} for value in read])
    resumed.commit()
    assert (ids(lake, "next"), ids(lake, "live")) == ([2], [10])


def test_two_names_never_mean_one_table_because_another_client_swapped_them(
    lake: lv.Lake, swapped: Callable[[], None], tmp_path: Path
) -> None:
    with lake.transaction() as txn:
        assert values(txn.read("live")) == [1]
        swapped()
        assert values(txn.read("next")) == [10]
    waiting = lake.transaction(lv.Feature.R | lv.Feature.CT)
    assert values(waiting.read("live")) == [10]
    swapped()
    # From here on the transaction is bound to the newest HEAD.
    assert values(waiting.read("orders")) == [1]
    with pytest.raises(lv.ConflictError, match="live: the name that it was read by was given"):
        waiting.read("next")
    saved = lake.transaction()
    assert values(saved.read("live")) == [1]
    saved.save()
    swapped()
    resumed = lv.connect(tmp_path / "lake").resume(saved.id)
    with pytest.raises(lv.ConflictError, match="live: the name that it was read by was given"):
        resumed.read("next")


@pytest.fixture
def waiting(lake: lv.Lake) -> Callable[[], lv.Transaction]:
    """Return a call that begins a transaction bound to the newest HEAD at each new table."""
    for name in ("a", "b", "c"):
        lake.create_table(name, [{"id": ord(name) - ord("a")}])
    return partial(lake.transaction, lv.Feature.R | lv.Feature.CT)


def test_a_name_written_with_dots_for_slashes_conflicts_only_if_its_table_was_renamed(
    lake: lv.Lake, waiting: Callable[[], lv.Transaction], tmp_path: Path
) -> None:
    other = lv.connect(tmp_path / "lake")
    lake.rename_table("a", "s/live")
    with waiting() as txn:
        assert txn.sql("SELECT id FROM s.live")["id"].to_pylist() == [0]
        other.run(lambda other_txn: other_txn.append("b", [{"id": 2}]))
        assert values(txn.read("b")) == [1, 2]
    lake.register("s/kept", "c")  # the table can still be named by its path
    txn = waiting()
    assert txn.sql("SELECT id FROM s.kept")["id"].to_pylist() == [2]
    other.rename_table("s/kept", "s/other")
    assert values(txn.read("b")) == [1, 2]
    with pytest.raises(lv.ConflictError, match=r"s\.kept: the name that it was read by"):
        txn.read("s/other")


def test_a_catalog_table_name_is_not_confused_with_a_registered_name_with_slashes(
    lake: lv.Lake, waiting: Callable[[], lv.Transaction], tmp_path: Path
) -> None:
    warehouse = (tmp_path / "warehouse").as_uri()
    catalog = SqlCatalog("cat", uri=f"sqlite:///{tmp_path}/cat.db", warehouse=warehouse)
    catalog.create_namespace("ns")
    catalog.create_table("ns.t", pa.schema([("id", pa.int64())])).append(pa.table({"id": [5]}))
    lake.register("cat/ns/t", "a")
    both = lv.connect(tmp_path / "lake", catalogs={"cat": catalog})
    txn = both.transaction(lv.Feature.R | lv.Feature.CT)
    assert values(txn.read("cat.ns.t")) == [5]
    lake.run(lambda other: other.append("b", [{"id": 2}]))
    assert [values(txn.read(name)) for name in ("b", "c", "cat/ns/t")] == [[1, 2], [2], [0]]


def test_a_transactions_own_renames_are_not_reported_as_a_conflict_with_another_client(
    lake: lv.Lake, waiting: Callable[[], lv.Transaction], tmp_path: Path
) -> None:
    lake.rename_table("a", "live")
    lake.rename_table("b", "next")
    other = lv.connect(tmp_path / "lake")
    with waiting() as txn:
        for old, new in (("live", "old"), ("next", "live"), ("old", "next")):
            txn.rename_table(old, new)
        assert (values(txn.read("live")), values(txn.read("next"))) == ([1], [0])
        other.run(lambda other_txn: other_txn.append("c", [{"id": 3}]))
        assert values(txn.read("c")) == [2, 3]
        txn.append("live", [{"id": 9}])
    assert (ids(lake, "live"), ids(lake, "next")) == ([1, 9], [0])


def test_the_error_for_a_name_given_after_the_transaction_began_says_so(
    lake: lv.Lake, waiting: Callable[[], lv.Transaction]
) -> None:
    txn = waiting()
    assert values(txn.read("a")) == [0]
    lake.rename_table("b", "next")
    with pytest.raises(
        lv.TableNotFound, match="table next does not exist; a table was given this name since"
    ):
        txn.read("next")


def test_a_transaction_that_renames_one_name_of_a_table_keeps_the_meaning_of_its_others(
    lake: lv.Lake, waiting: Callable[[], lv.Transaction], tmp_path: Path
) -> None:
    for name in ("first", "second"):
        lake.register(name, "c")
    other = lv.connect(tmp_path / "lake")
    with waiting() as txn:
        assert values(txn.read("first")) == values(txn.read("second")) == [2]
        txn.rename_table("first", "third")
        other.rename_table("second", "fourth")
        other.rename_table("b", "second")
        txn.append("second", [{"id": 9}])
    assert (ids(lake, "third"), ids(lake, "second")) == ([2, 9], [1])


def test_names_that_a_transaction_changes_have_their_new_meaning_within_it(lake: lv.Lake) -> None:
    with lake.transaction() as txn:
        txn.append("orders", [{"id": 2}])
        txn.rename_table("orders", "sales")
        assert values(txn.read("sales")) == [1, 2]
        with pytest.raises(lv.TableNotFound, match="it was renamed"):
            txn.read("orders")
        txn.rename_table("sales", "orders")
        assert values(txn.read("orders")) == [1, 2]
    assert ids(lake, "orders") == [1, 2]


def _path(lake: lv.Lake) -> None:
    lake.create_table("a/b", ROWS)


def _name(lake: lv.Lake, name: str = "a.b") -> None:
    lake.create_table("other", ROWS)
    lake.unregister("other")
    lake.register(name, f"{lake.root}/other")


def _shown(lake: lv.Lake) -> None:
    lake.create_table("source", ROWS)
    lake.clone("source", "a/b")


def _register(lake: lv.Lake, name: str) -> None:
    lake.register(name, f"{lake.root}/t")


def _rename(lake: lv.Lake, name: str) -> None:
    lake.rename_table("t", name)


def _clone(lake: lv.Lake, name: str) -> None:
    lake.clone("t", name)


def _create(lake: lv.Lake, name: str) -> None:
    lake.create_table(name, ROWS)


@pytest.mark.parametrize(
    ("first", "second", "name"),
    [
        *((first, second, "a.b") for first in (_path, _shown) for second in (_rename, _clone)),
        (_path, _register, "a.b"),
        *((_name, second, "a/b") for second in (_rename, _clone, _create, _register)),
    ],
)
def test_no_two_names_of_a_lake_differ_by_dots_and_slashes_alone(
    lake: lv.Lake,
    first: Callable[[lv.Lake], None],
    second: Callable[[lv.Lake, str], None],
    name: str,
) -> None:
    lake.create_table("t", ROWS)
    first(lake)
    before = sorted(lake)
    with pytest.raises(
        lv.LakeVillaError, match=r"could (both be meant|mean two tables)|there is a table"
    ):
        second(lake, name)
    assert sorted(lake) == before
    lake.session().sql("INSERT INTO a.b VALUES (7)")
    assert values(lake.read("a.b")) == [1, 7]


def test_the_second_of_two_names_equal_but_for_dots_and_slashes_is_refused_at_commit(
    lake: lv.Lake,
) -> None:
    lake.create_table("t", ROWS)
    with lake.transaction() as txn:
        txn.rename_table("t", "a.b")
        with pytest.raises(lv.TableExists, match="was renamed to a/b by this transaction"):
            txn.create_table("a/b", ROWS)
        txn.abort()
    with lake.transaction() as txn:
        txn.create_table("c/d", ROWS)
        with pytest.raises(lv.TableExists, match="this transaction creates a table at c/d"):
            txn.rename_table("t", "c.d")
    renaming, making = lake.transaction(), lake.transaction()
    renaming.rename_table("t", "e.f")
    making.create_table("e/f", ROWS)
    making.commit()
    with pytest.raises(lv.TableExists, match="there is a table 'e/f' already"):
        renaming.commit()
    renaming, making = lake.transaction(), lake.transaction()
    renaming.rename_table("t", "g.h")
    making.create_table("g/h", ROWS)
    renaming.commit()
    with pytest.raises(lv.LakeVillaError, match="name 'g/h' could mean two tables"):
        making.commit()


def test_a_new_name_with_dots_means_a_path_as_in_every_other_verb(lake: lv.Lake) -> None:
    lake.create_table("t", ROWS)
    lake.rename_table("t", "sales.t")
    lake.session().sql("ALTER TABLE orders RENAME TO sales.orders")
    assert sorted(lake) == ["sales/orders", "sales/t"]
    with pytest.raises(lv.InvalidOperation, match="has that name already"):
        lake.rename_table("sales/t", "sales.t")


def test_a_table_whose_path_has_a_dot_gets_its_name_back(lake: lv.Lake) -> None:
    write_deltalake(f"{lake.root}/a.b", pa.table({"id": [1]}))
    lake.rename_table("a.b", "c")
    lake.rename_table("c", "a.b")
    assert values(lake.read("a.b")) == [1]
    assert "a.b" in lake
