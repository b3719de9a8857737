"""Tags: named states of all tables, which no clean-up removes."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import deltalake
import pytest

import lakevilla as lv
from bench.size.many_tables import lake_of
from lakevilla.global_log.head import Head
from lakevilla.global_log.repo import maps_of
from lakevilla.store.base import WrappedStore
from lakevilla.store.runner import Requests
from lakevilla_testing.histories.plan import small_limits
from tests.contract.foreign_readers import Format
from tests.support.inside import inside
from tests.support.places import Place
from tests.support.refs.shop import clean_up, shop
from tests.support.search import how_many
from tests.support.traces import cost


def change(lake: lv.Lake) -> None:
    def both(txn: lv.Transaction) -> None:
        txn.update("stock", {"qty": "qty + 1"}, where="true")
        txn.append("sales/orders", [{"id": 2}])

    lake.run(both)


def quantities(lake: lv.Lake) -> list[Any]:
    return lake.read("stock")["qty"].to_pylist()


def test_a_tag_shows_all_tables_as_they_were(lake: lv.Lake, kind: Format) -> None:
    shop(lake, kind)
    made = lake.tag("closing", metadata={"by": "finance"})
    change(lake)
    then = lake.on("closing")
    assert (made.version, made.metadata) == (2, {"by": "finance"})
    assert quantities(then) == [5]
    assert list(then) == ["sales/orders", "stock"]
    assert [table.name for table in then.tables()] == ["sales/orders", "stock"]
    assert then.sql('SELECT count(*) AS n FROM "sales/orders"').to_pylist() == [{"n": 1}]
    assert then["stock"].read()["qty"].to_pylist() == [5]
    assert then.snapshot().version == 2
    assert [entry.version for entry in then.history()] == [2, 1]
    assert quantities(lake) == quantities(then.on("main")) == [6]


def test_a_tag_keeps_its_files_through_clean_ups_until_it_is_deleted(
    lake: lv.Lake, kind: Format
) -> None:
    shop(lake, kind)
    lake.tag("closing")
    for _ in range(3):
        change(lake)
        clean_up(lake)
    assert quantities(lake.on("closing")) == [5]
    assert quantities(lv.connect(lake.root).on("closing")) == [5]
    lake.delete_ref("closing")
    before = files_of(lake)
    clean_up(lake)
    assert files_of(lake) < before


def files_of(lake: lv.Lake) -> set[Path]:
    return set(Path(lake.root).rglob("*.parquet")) | set(Path(lake.root).rglob("bases/*"))


def test_an_older_version_can_be_tagged_until_it_is_vacuumed(lake: lv.Lake, kind: Format) -> None:
    shop(lake, kind)
    change(lake)
    instant = lake.history(1)[0].timestamp
    change(lake)
    assert quantities(lake.on(lake.tag("third", at=3).name)) == [6]
    assert quantities(lake.on(lake.tag("then", at=instant).name)) == [6]
    assert quantities(lake.on(lake.tag("same", at="third").name)) == [6]
    # A vacuum deletes no file of the version within the retention.
    lake["stock"].vacuum(dry_run=False)
    assert quantities(lake.on(lake.tag("second", at=2).name)) == [5]
    for ref in lake.refs():
        lake.delete_ref(ref.name)
    clean_up(lake)
    with pytest.raises(lv.VersionNotFound, match="is not kept as of"):
        lake.tag("gone", at=2)
    assert lake.refs() == []


class NothingDeleted(WrappedStore):
    def delete(self, key: str) -> None:
        pass


@pytest.mark.parametrize("again", [False, True], ids=["once", "and then with a longer retention"])
def test_a_version_with_one_file_that_a_vacuum_is_deleting_is_not_tagged(
    lake: lv.Lake, kind: Format, again: bool
) -> None:
    shop(lake, kind)
    lake.run(lambda txn: txn.append("stock", [{"sku": "jam", "qty": 7}]))
    version = lake.snapshot().version
    lake.run(lambda txn: txn.delete("stock", where="sku = 'jam'"))
    with lv.connect(lake.root) as other:
        inside(other).store = NothingDeleted(inside(other).store)
        clean_up(other)
        if again:
            other["stock"].vacuum(dry_run=False)
    with pytest.raises(lv.VersionNotFound, match="is not kept as of"):
        lake.tag("gone", at=version)


def test_a_tag_includes_a_commit_of_another_client(lake: lv.Lake) -> None:
    shop(lake)
    deltalake.write_deltalake(
        f"{lake.root}/stock", lake.read("stock"), mode="append", storage_options={}
    )
    lake.tag("closing")
    change(lake)
    clean_up(lake)
    assert quantities(lake.on("closing")) == [5, 5]


def test_a_tag_of_some_tables_keeps_these_alone(lake: lv.Lake) -> None:
    shop(lake)
    lake.tag("orders", tables=["sales/*"])
    assert list(lake.on("orders")) == ["sales/orders"]
    with pytest.raises(lv.TableNotFound, match="tag 'orders'"):
        lake.on("orders").read("stock")
    lake.drop_table("stock", delete_data=True)
    with pytest.raises(lv.InvalidOperation, match="matches 'nothing'"):
        lake.tag("none", tables=["nothing"])


def test_a_table_that_a_tag_keeps_is_not_unregistered_or_dropped_with_data(lake: lv.Lake) -> None:
    shop(lake)
    lake.tag("closing")
    with pytest.raises(lv.InvalidOperation, match="'closing' keeps it"):
        lake.unregister("stock")
    with pytest.raises(lv.InvalidOperation, match="'closing' keeps it"):
        lake.drop_table("stock", delete_data=True)
    assert quantities(lake) == [5]
    lake.drop_table("stock")
    lake.gc()
    assert quantities(lake.on("closing")) == [5]


def test_a_protected_tag_is_not_deleted(lake: lv.Lake) -> None:
    shop(lake)
    lake.tag("closing", protected=True)
    with pytest.raises(lv.InvalidOperation, match="is protected"):
        lake.delete_ref("closing")
    lake.protect("closing", on=False)
    lake.delete_ref("closing")
    with pytest.raises(lv.RefNotFound, match="there are none"):
        lake.protect("closing")


@pytest.mark.parametrize(
    "writes",
    [
        lambda lake: lake.transaction(),
        lambda lake: lake.run(lambda txn: txn.delete("stock")),
        lambda lake: lake.create_table("new", [{"a": 1}]),
        lambda lake: lake.drop_table("stock"),
        lambda lake: lake.drop_table("stock", delete_data=True),
        lambda lake: lake.rename_table("stock", "goods"),
        lambda lake: lake.register("stock"),
        lambda lake: lake.register(discover=True),
        lambda lake: lake.unregister("stock"),
        lambda lake: lake.guard("stock"),
        lambda lake: lake.gc(),
        lambda lake: lake.recover(),
        lambda lake: lake.doctor(),
        lambda lake: lake.tag("again"),
        lambda lake: lake["stock"].optimize(),
        lambda lake: lake["stock"].vacuum(),
    ],
)
def test_a_tag_refuses_writes(lake: lv.Lake, writes: Callable[[lv.Lake], object]) -> None:
    shop(lake)
    lake.tag("closing")
    version = lake.history(1)[0].version
    with pytest.raises(lv.InvalidOperation, match="only reads"):
        writes(lake.on("closing"))
    assert lake.history(1)[0].version == version


@pytest.mark.parametrize(
    ("name", "at", "error"),
    [
        ("57", None, lv.InvalidOperation),
        ("main", None, lv.InvalidOperation),
        ("a b", None, lv.InvalidOperation),
        ("a@1", None, lv.InvalidOperation),
        ("a//b", None, lv.InvalidOperation),
        ("../a", None, lv.InvalidOperation),
        ("a/", None, lv.InvalidOperation),
        ("", None, lv.InvalidOperation),
        ("a" * 129, None, lv.InvalidOperation),
        (7, None, lv.InvalidOperation),
        ("closing", None, lv.RefExists),
        ("new", True, lv.InvalidOperation),
        ("new", 1.5, lv.InvalidOperation),
        ("new", datetime(2026, 1, 1), lv.InvalidOperation),
        ("new", datetime(2000, 1, 1, tzinfo=UTC), lv.VersionNotFound),
        ("new", 99, lv.VersionNotFound),
        ("new", "nobody", lv.RefNotFound),
    ],
)
def test_invalid_names_and_states_of_a_tag_are_refused(
    lake: lv.Lake, name: Any, at: Any, error: type[Exception]
) -> None:
    shop(lake)
    lake.tag("closing")
    with pytest.raises(error):
        lake.tag(name, at=at)
    assert [ref.name for ref in lake.refs()] == ["closing"]


def test_a_tag_at_a_time_in_the_future_has_the_newest_state(lake: lv.Lake) -> None:
    shop(lake)
    assert lake.tag("soon", at=datetime.now(UTC) + timedelta(days=1)).version == 2


def test_a_lake_at_a_tag_can_be_pickled(lake: lv.Lake) -> None:
    shop(lake)
    lake.tag("closing")
    change(lake)
    again = pickle.loads(pickle.dumps(lake.on("closing")))
    assert quantities(again) == [5]
    assert "tag 'closing'" in repr(again)


def test_a_client_that_does_not_support_refs_refuses_the_lake(
    lake: lv.Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop(lake)
    with lv.connect(lake.root) as other:
        assert quantities(other) == [5]  # without refs, older clients can use the lake
        lake.tag("closing")
        monkeypatch.setattr(Head, "FORMAT", 1)
        with pytest.raises(lv.UnsupportedFormat, match=r"HEAD\.json has format version 2"):
            other.run(lambda txn: txn.append("stock", [{"sku": "jam", "qty": 1}]))


def test_tags_are_found_again_after_head_was_lost(lake: lv.Lake) -> None:
    shop(lake)
    lake.tag("closing")
    change(lake)
    lake.close()
    Path(lake.root, "_lakevilla/HEAD.json").unlink()
    with lv.connect(lake.root) as again:
        report = again.recover(rebuild_head=True)
        assert any(finding.kind == "ref_found" for finding in report.findings)
        again.recover(confirm_head=True)
        clean_up(again)
        assert quantities(again.on("closing")) == [5]


def test_the_doctor_reports_a_base_that_is_damaged_or_missing(lake: lv.Lake) -> None:
    shop(lake)
    lake.tag("closing")
    assert lake.doctor().ok
    (base,) = Path(lake.root, "_lakevilla/bases").iterdir()
    body = base.read_bytes()
    base.write_bytes(body.replace(b'"sequence":2', b'"sequence":3'))
    for said in ("does not match its name", "is missing although HEAD names it"):
        with pytest.raises(lv.CorruptObject, match=said):
            lake.on("closing")
        with pytest.raises(lv.CorruptObject, match=said):
            clean_up(lake)  # the tag's files are unknown
        found = [finding for finding in lake.doctor().findings if finding.severity == "error"]
        assert [said in finding.message for finding in found] == [True]
        base.unlink(missing_ok=True)
    lake.delete_ref("closing")
    clean_up(lake)
    assert lake.doctor().ok


def test_a_table_recreated_by_a_foreign_client_is_not_taken_for_the_tagged_one(
    lake: lv.Lake,
) -> None:
    shop(lake)
    lake.tag("closing")
    stock = f"{lake.root}/stock"
    rows = lake.read("stock")
    for path in Path(stock, "_delta_log").iterdir():
        path.unlink()
    deltalake.write_deltalake(stock, rows)
    with lv.connect(lake.root) as other:
        with pytest.raises(lv.VersionNotFound, match="tag 'closing'"):
            other.on("closing").read("stock")
        assert other.on("closing").read("sales/orders").num_rows == 1


def test_many_tags_are_stored_in_leaves(lake: lv.Lake) -> None:
    with small_limits(True):
        shop(lake)
        for number in range(12):
            lake.tag(f"t{number}")
            change(lake)
        clean_up(lake)
        head = inside(lake).client.head()
        assert head is not None
        assert all(found.refs for found in maps_of(head)[::2])
        with lv.connect(lake.root) as other:
            found = [quantities(other.on(f"t{number}")) for number in range(12)]
            assert found == [[5 + number] for number in range(12)]
            for ref in other.refs():
                other.delete_ref(ref.name)
            assert other.refs() == []


def test_a_tag_costs_two_writes_however_many_tables_there_are(tmp_path: Path) -> None:
    with lake_of(10, str(tmp_path / "ten"), commits=1) as few:
        few.tag("warm")
        ten = cost(few, lambda: few.tag("one"))
        assert (ten.put, ten.list) == (2, 0)
        assert ten.get <= 11  # HEAD, and each log
        assert cost(few, lambda: few.tag("none", absorb=[])) == Requests(put=2, get=1)
    count = how_many(20_000, whole=100_000)
    with lake_of(count, str(tmp_path / "many"), commits=1) as many, lv.connect(many.root) as new:
        many.tag("warm")
        before = sizes_of(many)
        assert cost(many, lambda: many.tag("one")) == Requests(put=2, get=1)
        assert cost(many, lambda: many.tag("none", absorb=[])) == Requests(put=2, get=1)
        # A client that has read only HEAD fetches no leaf for a tag either.
        # A process lists each kind of newer object once, to check that HEAD was not set back.
        assert cost(new, lambda: new.tag("two", absorb=[])) == Requests(put=2, get=1, list=5)
        assert cost(new, lambda: new.tag("three")) == Requests(put=2, get=1)
        written = {key: size for key, size in sizes_of(many).items() if before.get(key) != size}
        assert {Path(key).parts[:2] for key in written} == {
            ("_lakevilla", "HEAD.json"),
            ("_lakevilla", "bases"),
        }
        assert max(written.values()) < 64 * 1024  # lists of leaves, not of tables


def sizes_of(lake: lv.Lake) -> dict[str, int]:
    root = Path(lake.root)
    files = (path for path in root.rglob("*") if path.is_file())
    return {str(path.relative_to(root)): path.stat().st_size for path in files}


def test_reading_at_a_tag_costs_no_read_of_later_commits(lake: lv.Lake) -> None:
    shop(lake)
    lake.tag("closing")
    then = lake.on("closing")
    quantities(then)
    change(lake)
    assert cost(then, lambda: quantities(then)) == Requests()


def test_the_log_versions_of_a_table_end_at_the_tag(lake: lv.Lake, kind: Format) -> None:
    shop(lake, kind)
    change(lake)
    lake.tag("closing")
    change(lake)
    stock = lake.on("closing")["stock"]
    now = lake["stock"].version
    assert (stock.version, now) == (1, 2)
    assert [kept.version for kept in stock.versions()] == [1, 0]
    assert [entry.version for entry in stock.history(1)] == [1]
    assert stock.read(version=0)["qty"].to_pylist() == [5]
    assert stock.read(timestamp=datetime.now(UTC))["qty"].to_pylist() == [6]
    with pytest.raises(lv.VersionNotFound, match="has no version 2"):
        stock.read(version=now)


def test_log_versions_of_a_dropped_table_can_be_read_at_the_tag(lake: lv.Lake) -> None:
    shop(lake)
    change(lake)
    lake.tag("closing")
    lake.drop_table("stock")
    assert lake.on("closing")["stock"].read(version=0)["qty"].to_pylist() == [5]


def test_a_tag_is_one_version_of_the_lake(lake: lv.Lake) -> None:
    shop(lake)
    change(lake)
    lake.tag("closing")
    change(lake)
    then = lake.on("closing")
    assert then.read("stock", version=3)["qty"].to_pylist() == [6]
    for asked in ({"version": 2}, {"version": 4}, {"timestamp": datetime.now(UTC)}):
        with pytest.raises(lv.VersionNotFound, match="is global version 3 alone"):
            then.snapshot(**asked)
        with pytest.raises(lv.VersionNotFound, match="is global version 3 alone"):
            then.read("stock", **asked)


@pytest.mark.parametrize("name", [None, 7, b"closing", ["closing"]])
def test_values_that_are_no_ref_name_are_refused(lake: lv.Lake, name: Any) -> None:
    shop(lake)
    lake.tag("closing")
    with pytest.raises(lv.InvalidOperation, match="on takes the name of a ref"):
        lake.on(name)


def test_the_error_for_a_table_missing_in_a_tag_suggests_only_names_of_the_tag(
    lake: lv.Lake,
) -> None:
    shop(lake)
    lake.tag("closing")
    lake.rename_table("stock", "goods")
    lake.run(lambda txn: txn.append("goods", [{"sku": "jam", "qty": 1}]))
    then = lake.on("closing")
    assert quantities(then) == [5]
    with pytest.raises(lv.TableNotFound, match=r"goods is not in tag 'closing'.* of the tag$"):
        then.read("goods")
    with pytest.raises(lv.TableNotFound, match="did you mean sales/orders"):
        then.read("orders")


def test_a_read_at_a_deleted_tag_is_refused_after_a_clean_up(lake: lv.Lake, kind: Format) -> None:
    shop(lake, kind)
    lake.tag("closing")
    then = lake.on("closing")
    change(lake)
    lake.delete_ref("closing")
    assert quantities(then) == [5]  # no clean-up has run yet
    clean_up(lake)
    with pytest.raises(lv.VersionNotFound, match="'closing' any more: the tag was deleted"):
        then.read("stock")
    lake.tag("closing")  # another tag under the same name
    with pytest.raises(lv.VersionNotFound, match="'closing' any more: the tag was deleted"):
        then.read("stock")


def test_the_doctor_names_the_tag_whose_files_another_client_has_removed(
    lake: lv.Lake, local_place: Place
) -> None:
    shop(lake)
    lake.tag("closing")
    change(lake)
    table = local_place.delta("stock")
    assert table.vacuum(0, dry_run=False, enforce_retention_duration=False)
    assert lake.doctor().ok  # checking each file costs a request per file
    found = lake.doctor(files=True).findings[-1]
    assert (found.kind, found.table) == ("ref_lost", "stock")
    assert "in tag 'closing' any more: data file stock/" in found.message
    with pytest.raises(lv.VersionNotFound, match="clean-up of other clients does not know tags"):
        lake.on("closing").read("stock")
    assert lake.on("closing").read("sales/orders").num_rows == 1
    clean_up(lake)
    assert quantities(lake) == [6]


@pytest.mark.parametrize("name", [None, 7, b"closing", "main"])
@pytest.mark.parametrize("verb", ["delete_ref", "protect"])
def test_a_value_that_names_no_ref_is_neither_deleted_nor_protected(
    lake: lv.Lake, verb: str, name: Any
) -> None:
    shop(lake)
    lake.tag("closing")
    with pytest.raises(lv.InvalidOperation, match=f"^{verb}"):
        getattr(lake, verb)(name)
    assert [(ref.name, ref.protected) for ref in lake.refs()] == [("closing", False)]


def test_metadata_of_a_tag_above_4096_bytes_is_refused(lake: lv.Lake) -> None:
    shop(lake)
    lake.tag("small", metadata={"by": "x" * 4000})
    with pytest.raises(lv.InvalidOperation, match="at most 4096 bytes, and this has 4098"):
        lake.tag("large", metadata={"by": "ä" * 2048})
    assert [ref.name for ref in lake.refs()] == ["small"]


def test_the_error_for_a_missing_ref_names_similar_names_first(lake: lv.Lake) -> None:
    shop(lake)
    for number in range(30):
        lake.tag(f"day-{number:02}")
    lake.tag("closing")
    with pytest.raises(lv.RefNotFound, match=r"there are 'closing', 'day-00', .* and 11 more$"):
        lake.on("closed")


def test_a_refused_tag_of_a_missing_lake_creates_no_lake(local_place: Place) -> None:
    with local_place.connect() as lake:
        for at in (1, datetime.now(UTC), "other"):
            with pytest.raises((lv.VersionNotFound, lv.RefNotFound)):
                lake.tag("closing", at=at)
            assert not lake.exists()
        assert lake.tag("empty").version == 0
        lake.create_table("stock", [{"sku": "tea", "qty": 5}])
        assert list(lake.on("empty")) == []


@pytest.mark.parametrize(
    "name", ["tags", "untag", "delete_tag", "checkout", "list_refs", "branches", "create_tag"]
)
def test_verb_names_of_other_products_get_a_hint_of_the_verb_here(lake: lv.Lake, name: str) -> None:
    with pytest.raises(AttributeError, match=rf"no attribute '{name}': lake\.[a-z_]+\("):
        getattr(lake, name)


def test_a_ref_passed_for_its_name_or_a_name_passed_for_a_version_gets_a_hint(
    lake: lv.Lake,
) -> None:
    shop(lake)
    ref: Any = lake.tag("closing")
    for wrong in (
        lambda: lake.on(ref),
        lambda: lake.delete_ref(ref),
        lambda: lake.protect(ref),
        lambda: lake.tag("new", at=ref),
    ):
        with pytest.raises(lv.InvalidOperation, match="the name of a ref: pass 'closing'"):
            wrong()
    name: Any = "closing"
    for read in (lambda: lake.snapshot(name), lambda: lake.read("stock", version=name)):
        with pytest.raises(lv.InvalidOperation, match=r"is read by lake.on\('closing'\)"):
            read()
