"""A commit of another client that comes between a transaction's decision and its publishing."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import Field
from deltalake.schema import PrimitiveType
from typer.testing import CliRunner

import lakevilla as lv
from lakevilla.cli.app import app
from lakevilla.store.base import Condition, Failure, Refused, Stored, WrappedStore
from tests.support.inside import inside
from tests.support.places import Place, decide_and_leave, fill
from tests.support.stores import Closed, interrupted, is_entry
from tests.support.tables import accounts, add, kinds, values


@pytest.fixture
def place(local_place: Place) -> Place:
    fill(local_place, {"bank": accounts(4), "other": accounts(1)})
    with local_place.connect() as lake:
        lake.register({"bank": "bank", "other": "other"})
    return local_place


def balances(rows: list[dict[str, int]]) -> dict[int, int]:
    assert len({row["id"] for row in rows}) == len(rows), "a row is there twice"
    return {row["id"]: row["balance"] for row in rows}


def everywhere(place: Place, table: str = "bank") -> dict[int, int]:
    """Return the rows that a new client reads; a client without LakeVilla must read the same."""
    with place.connect() as lake:
        ours = balances(lake.snapshot().read(table).to_pylist())
    assert ours == balances(place.seen(table))
    return ours


def slip_in(
    lake: lv.Lake, foreign: Callable[[], object], work: Callable[[lv.Transaction], object]
) -> lv.Transaction:
    """Run ``work`` in a transaction, and ``foreign`` between its decision and its publishing."""
    txn = lake.transaction()
    work(txn)
    with interrupted(lake, is_entry("bank"), foreign):
        txn.commit()
    return txn


def test_a_foreign_append_between_decision_and_publishing_is_no_conflict(place: Place) -> None:
    with place.connect() as lake:
        txn = slip_in(
            lake,
            lambda: place.write("bank", [{"id": 9, "balance": 9}]),
            lambda txn: add(txn, 1, 5),
        )
        assert txn.result is not None
        assert txn.result.versions == {"bank": 2}
    assert everywhere(place) == {0: 100, 1: 105, 2: 100, 3: 100, 9: 9}


def test_a_foreign_append_does_not_disturb_an_append(place: Place) -> None:
    with place.connect() as lake:
        slip_in(
            lake,
            lambda: place.write("bank", [{"id": 9, "balance": 9}]),
            lambda txn: txn.append("bank", [{"id": 8, "balance": 8}]),
        )
    assert sorted(everywhere(place)) == [0, 1, 2, 3, 8, 9]


@pytest.mark.parametrize("how", ["update", "delete", "merge"])
def test_a_foreign_change_of_the_same_file_is_reconciled_and_reported(
    place: Place, how: str
) -> None:
    def foreign() -> None:
        table = place.delta("bank")
        if how == "update":
            table.update(updates={"balance": "50"}, predicate="id = 3")
        elif how == "delete":
            table.delete("id = 3")
        else:
            rows = pa.table({"id": [3], "balance": [50]})
            merge = table.merge(rows, "t.id = s.id", source_alias="s", target_alias="t")
            merge.when_matched_update_all().execute()

    events: list[lv.Event] = []
    with place.connect(on_event=events.append) as lake:
        with pytest.raises(lv.ForeignConflict) as raised:
            slip_in(lake, foreign, lambda txn: add(txn, 1, 5))
        error = raised.value
        assert error.table == "bank"
        assert error.result is not None
        assert error.result.global_version is not None
        assert lake.outcome(error.result.id).state == "committed"
    assert "reconcile" in kinds(events)
    expected = {0: 100, 1: 105, 2: 100, 3: 50}
    if how == "delete":
        del expected[3]
    assert everywhere(place) == expected


def test_a_foreign_update_of_the_very_row_is_replayed_on_its_new_value(place: Place) -> None:
    with place.connect() as lake, pytest.raises(lv.ForeignConflict):
        slip_in(
            lake,
            lambda: place.delta("bank").update(updates={"balance": "7"}, predicate="id = 1"),
            lambda txn: add(txn, 1, 5),
        )
    assert everywhere(place)[1] == 12


def test_a_foreign_update_of_rows_that_the_transaction_read_is_reported(place: Place) -> None:
    def work(txn: lv.Transaction) -> None:
        (row,) = txn.read("bank", where="id = 1").to_pylist()
        txn.update("bank", {"balance": row["balance"] + 5}, where="id = 1")

    with place.connect() as lake, pytest.raises(lv.ForeignConflict, match="read"):
        slip_in(
            lake,
            lambda: place.delta("bank").update(updates={"balance": "7"}, predicate="id = 1"),
            work,
        )
    assert everywhere(place)[1] == 105


def test_a_foreign_update_of_read_rows_after_a_first_replay_is_reported(
    place: Place,
) -> None:
    """deltalake changes another row of the file first; during the replay, the row that was read."""

    rows = [2, 1]

    class Between(WrappedStore):
        """Before each of the first two tries to publish, deltalake changes a row."""

        def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
            if is_entry("bank")(key) and rows:
                predicate = f"id = {rows.pop(0)}"
                place.delta("bank").update(updates={"balance": "7"}, predicate=predicate)
            return super().put(key, body, condition)

    with place.connect() as lake:
        txn = lake.transaction()
        (row,) = txn.read("bank", where="id = 1").to_pylist()
        txn.update("bank", {"balance": row["balance"] + 5}, where="id = 1")
        inside(lake).store = Between(inside(lake).store)
        with pytest.raises(lv.ForeignConflict, match="rows that it had read were changed"):
            txn.commit()
        told = [finding.message for finding in lake.doctor().findings]
        assert any("rows it had read were changed" in message for message in told)
    assert rows == []
    assert everywhere(place) == {0: 100, 1: 105, 2: 7, 3: 100}


def test_a_foreign_optimize_is_reconciled_without_an_error(place: Place) -> None:
    place.write("bank", [{"id": 8, "balance": 8}])
    events: list[lv.Event] = []
    with place.connect(on_event=events.append) as lake:
        txn = slip_in(
            lake, lambda: place.delta("bank").optimize.compact(), lambda txn: add(txn, 1, 5)
        )
        assert txn.state == "committed"
    assert "reconcile" in kinds(events)
    assert everywhere(place) == {0: 100, 1: 105, 2: 100, 3: 100, 8: 8}


def test_a_foreign_optimize_does_not_disturb_an_append(place: Place) -> None:
    place.write("bank", [{"id": 8, "balance": 8}])
    with place.connect() as lake:
        slip_in(
            lake,
            lambda: place.delta("bank").optimize.compact(),
            lambda txn: txn.append("bank", [{"id": 7, "balance": 7}]),
        )
    assert sorted(everywhere(place)) == [0, 1, 2, 3, 7, 8]


def test_a_reader_between_the_foreign_update_and_its_reconciling_sees_one_state(
    place: Place,
) -> None:
    seen: list[dict[int, int]] = []

    def foreign() -> None:
        place.delta("bank").update(updates={"balance": "50"}, predicate="id = 3")
        with place.connect() as reader:
            seen.append(balances(reader.snapshot().read("bank").to_pylist()))

    with place.connect() as lake, pytest.raises(lv.ForeignConflict):
        slip_in(lake, foreign, lambda txn: add(txn, 1, 5))
    # A lake's reader sees the decided update now, and the foreign one once it is reconciled.
    assert seen == [{0: 100, 1: 105, 2: 100, 3: 100}]
    assert everywhere(place) == {0: 100, 1: 105, 2: 100, 3: 50}


def test_commits_pending_behind_a_reconciled_commit_are_replayed_too(place: Place) -> None:
    with place.connect() as lake, place.connect() as second:
        first = lake.transaction(wait="decided")
        add(first, 1, 5)
        behind = second.transaction()
        add(behind, 1, 20)
        behind.append("bank", [{"id": 8, "balance": 8}])

        def foreign() -> None:
            place.delta("bank").update(updates={"balance": "50"}, predicate="id = 3")

        def decide_the_second() -> None:
            with interrupted(second, is_entry("bank"), foreign), pytest.raises(lv.ForeignConflict):
                behind.commit()

        # The first is decided and its publishing is held up while the second one's commit runs.
        with interrupted(lake, is_entry("bank"), decide_the_second):
            first.commit()
            lake.close()
    assert everywhere(place) == {0: 100, 1: 125, 2: 100, 3: 50, 8: 8}


def test_a_decided_commit_whose_owner_could_not_publish_is_published_by_the_next_client(
    place: Place,
) -> None:
    decide_and_leave(place)
    assert balances(place.seen("bank"))[1] == 100
    with place.connect() as lake:
        assert balances(lake.snapshot().read("bank").to_pylist())[1] == 105
        report = lake.recover()
        assert report.ok
    assert everywhere(place) == {0: 100, 1: 105, 2: 100, 3: 100}


def test_a_decided_commit_is_void_in_a_deleted_table_and_the_lake_goes_on(
    place: Place,
) -> None:
    txn_id = decide_and_leave(place)
    shutil.rmtree(place.uri("bank"))
    with place.connect() as lake:
        lake.recover()
        with lake.transaction() as txn:
            txn.append("other", [{"id": 9, "balance": 9}])
        assert lake.outcome(txn_id).state == "committed"
        with pytest.raises(lv.TableNotFound):
            lake.snapshot().read("bank")
    assert sorted(everywhere(place, "other")) == [0, 8, 9]


def test_a_decided_commit_does_not_touch_a_table_that_another_client_recreated(
    place: Place,
) -> None:
    decide_and_leave(place)
    shutil.rmtree(place.uri("bank"))
    for number in range(4):
        place.write("bank", [{"id": number, "balance": 0}])
    with place.connect() as lake:
        lake.recover()
        with lake.transaction() as txn:
            txn.append("other", [{"id": 9, "balance": 9}])
    assert balances(place.seen("bank")) == {0: 0, 1: 0, 2: 0, 3: 0}
    assert place.delta("bank").version() == 3
    assert sorted(everywhere(place, "other")) == [0, 8, 9]


def test_a_commit_does_not_touch_a_table_recreated_while_its_owner_publishes(
    place: Place,
) -> None:
    def foreign() -> None:
        shutil.rmtree(place.uri("bank"))
        for number in range(4):
            place.write("bank", [{"id": number, "balance": 0}])

    with place.connect() as lake, pytest.raises(lv.ForeignConflict, match="cancelled"):
        slip_in(lake, foreign, lambda txn: add(txn, 1, 5))
    assert place.delta("bank").version() == 3
    assert balances(place.seen("bank")) == {0: 0, 1: 0, 2: 0, 3: 0}


def test_a_client_that_knew_the_old_table_does_not_mix_it_with_the_recreated_one(
    local_place: Place,
) -> None:
    local_place.write("t", [{"id": 1, "balance": 1}])
    with local_place.connect() as lake:
        with lake.transaction(lv.Feature.NONE) as txn:
            assert values(txn.read("t")) == [1]
        shutil.rmtree(local_place.uri("t"))
        for number in range(3):
            local_place.write("t", [{"id": 10 + number, "balance": 1}])
        with lake.transaction(lv.Feature.NONE) as txn:
            assert values(txn.read("t")) == [10, 11, 12]


def test_a_decided_commit_to_a_column_that_another_client_dropped_is_voided_by_recovery(
    place: Place,
) -> None:
    decide_and_leave(place)
    rewrite_without(place, "balance")
    with place.connect() as lake:
        lake.recover()
        with lake.transaction() as txn:
            txn.append("bank", [{"id": 9}])
    assert values(place.delta("bank").to_pyarrow_table()) == [0, 1, 2, 3, 9]
    assert sorted(everywhere(place, "other")) == [0, 8]


def test_recover_reports_the_commits_that_it_makes_void(place: Place) -> None:
    txn_id = decide_and_leave(place)
    rewrite_without(place, "balance")
    shown = CliRunner().invoke(app, ["recover", place.root, "--json"])
    assert shown.exit_code == 1
    (void,) = [one for one in json.loads(shown.output)["findings"] if one["kind"] == "voided"]
    assert (void["severity"], void["table"], void["txn_id"]) == ("error", "bank", txn_id)
    assert "column balance" in void["message"]
    assert "update" in void["message"]
    # recover reports a void commit once: nothing is left to be done about it.
    assert CliRunner().invoke(app, ["recover", place.root]).exit_code == 0
    assert sorted(everywhere(place, "other")) == [0, 8]


def test_a_decided_append_whose_file_is_gone_is_void_and_reported_with_its_row_count(
    place: Place,
) -> None:
    with place.connect() as lake:
        inside(lake).store = Closed(inside(lake).store, is_entry("bank"))
        with lake.transaction() as txn:
            txn.append("bank", [{"id": 9, "balance": 9}])
    (file,) = Path(place.uri("bank")).glob(f"lv-h-{txn.id}-*.parquet")
    file.unlink()
    # A client considers a clean-up of its files after an hour; here at once.
    with place.connect(settings=lv.Settings(checked_tip_seconds=0.001)) as lake:
        report = lake.recover()
        (void,) = [finding for finding in report.findings if finding.kind == "voided"]
        assert not report.ok
        assert void.txn_id == txn.id
        assert file.name in void.message
        with lake.transaction() as later:
            add(later, 1, 5)
    assert everywhere(place) == {0: 100, 1: 105, 2: 100, 3: 100}


def test_a_decided_update_of_a_file_that_is_gone_is_void_and_the_queue_goes_on(
    place: Place,
) -> None:
    decide_and_leave(place)
    place.delta("bank").update(updates={"balance": "50"}, predicate="id = 3")
    (rewritten,) = place.delta("bank").file_uris()
    Path(rewritten).rename(f"{rewritten}.kept")
    with place.connect() as lake:
        (void,) = [one for one in lake.recover().findings if one.kind == "voided"]
        assert Path(rewritten).name in void.message
        with lake.transaction() as txn:
            txn.append("bank", [{"id": 9, "balance": 9}])
        assert txn.result is not None
        assert txn.result.versions["bank"] is not None
    Path(f"{rewritten}.kept").rename(rewritten)
    assert everywhere(place) == {0: 100, 1: 100, 2: 100, 3: 50, 9: 9}


def test_decided_rows_that_break_a_constraint_added_since_are_void(
    place: Place,
) -> None:
    """The rows fit the rules under which they were written, but not those in the log now."""
    with place.connect() as lake:
        inside(lake).store = Closed(inside(lake).store, is_entry("bank"))
        with lake.transaction() as txn:
            txn.append("bank", [{"id": 9, "balance": -9}])
    place.delta("bank").alter.add_constraint({"positive": "balance >= 0"})
    with place.connect() as lake:
        (void,) = [one for one in lake.recover().findings if one.kind == "voided"]
        assert void.txn_id == txn.id
        assert "no longer fit" in void.message
    assert everywhere(place) == {0: 100, 1: 100, 2: 100, 3: 100}


def rewrite_without(place: Place, column: str) -> None:
    rows = place.delta("bank").to_pyarrow_table().drop_columns([column])
    place.write("bank", rows, mode="overwrite", schema_mode="overwrite")


def test_decided_updates_of_a_column_that_another_client_dropped_are_void_and_the_queue_goes_on(
    place: Place,
) -> None:
    with place.connect() as lake:
        with pytest.raises(lv.ForeignConflict, match="cancelled"):
            slip_in(lake, lambda: rewrite_without(place, "balance"), lambda txn: add(txn, 1, 5))
        with lake.transaction() as txn:
            txn.append("bank", [{"id": 9}])
        assert values(lake.snapshot().read("bank")) == [0, 1, 2, 3, 9]
    assert place.seen("bank") == [{"id": n} for n in (0, 1, 2, 3, 9)]


def test_a_row_count_that_the_caller_read_and_a_replay_changes_is_reported(place: Place) -> None:
    def work(txn: lv.Transaction) -> None:
        assert txn.update("bank", {"balance": "0"}, where="balance = 100").rows_updated == 4

    with place.connect() as lake, pytest.raises(lv.ForeignConflict):
        slip_in(
            lake,
            lambda: place.delta("bank").update(updates={"balance": "50"}, predicate="id = 3"),
            work,
        )
    assert everywhere(place) == {0: 0, 1: 0, 2: 0, 3: 50}


def test_a_foreign_update_of_read_rows_before_the_decision_is_a_conflict(
    place: Place,
) -> None:
    with place.connect() as lake:
        txn = lake.transaction()
        (row,) = txn.read("bank", where="id = 1").to_pylist()
        add(txn, 1, row["balance"])
        place.delta("bank").update(updates={"balance": "7"}, predicate="id = 1")
        with pytest.raises(lv.ConflictError):
            txn.commit()
    assert everywhere(place)[1] == 7


def test_a_foreign_commit_after_a_verb_has_run_is_seen_by_validation(
    place: Place,
) -> None:
    events: list[lv.Event] = []
    with place.connect(on_event=events.append) as lake:
        txn = lake.transaction()
        add(txn, 1, 5)
        place.delta("bank").update(updates={"balance": "7"}, predicate="id = 1")
        txn.commit()
    assert everywhere(place)[1] == 12
    assert "redo" in kinds(events)
    assert "reconcile" not in kinds(events)


def test_both_tables_are_published_though_a_foreign_commit_hit_one_of_them(place: Place) -> None:
    def work(txn: lv.Transaction) -> None:
        add(txn, 1, -5)
        txn.update("other", {"balance": "balance + 5"}, where="id = 0")

    with place.connect() as lake, pytest.raises(lv.ForeignConflict) as raised:
        slip_in(
            lake,
            lambda: place.delta("bank").update(updates={"balance": "50"}, predicate="id = 3"),
            work,
        )
    assert raised.value.result is not None
    assert everywhere(place) == {0: 100, 1: 95, 2: 100, 3: 50}
    assert everywhere(place, "other") == {0: 105}


def test_run_does_not_repeat_a_transaction_that_had_a_foreign_conflict(place: Place) -> None:
    calls: list[int] = []

    def work(txn: lv.Transaction) -> None:
        calls.append(1)
        add(txn, 1, 5)

    with place.connect() as lake:
        foreign = lambda: place.delta("bank").delete("id = 3")  # noqa: E731
        with interrupted(lake, is_entry("bank"), foreign), pytest.raises(lv.ForeignConflict):
            lake.run(work)
    assert len(calls) == 1
    assert everywhere(place) == {0: 100, 1: 105, 2: 100}


def test_a_conflict_error_says_whether_schema_properties_or_rows_changed(place: Place) -> None:
    """After a change of the schema it doesn't say that rows changed: the user would find none."""
    with place.connect() as lake:
        for change, told in (
            (
                lambda: place.delta("bank").alter.add_columns(
                    [Field("w", PrimitiveType("string"))]
                ),
                "its schema was",
            ),
            (
                lambda: place.delta("bank").alter.set_table_properties(
                    {"delta.appendOnly": "false"}
                ),
                "its constraints, properties or protocol were",
            ),
            (lambda: place.delta("bank").delete("id = 0"), "rows that"),
        ):
            txn = lake.transaction()
            txn.append("other", txn.read("bank", columns=["id", "balance"]))
            change()
            with pytest.raises(lv.ConflictError, match=f"conflicts on table bank: {told}"):
                txn.commit()
