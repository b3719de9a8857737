"""Another client changes a table's schema at several moments of a transaction that writes to it."""

from __future__ import annotations

import uuid
from collections.abc import Callable
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake

import lakevilla as lv
from tests.contract.foreign_writers.test_hidden_versions import add_five, decided_and_left
from tests.support.foreign_changes import (
    TABLE,
    alter,
    entries,
    lake_state,
    live_files,
    make_anew,
    make_bank,
    newest,
    remove_table,
    require,
    rows_seen,
    widen,
    write_entry,
)
from tests.support.places import Place, make_place
from tests.support.stores import interrupted, is_entry, is_head
from tests.support.tables import values

Foreign = Callable[[], object]


@pytest.fixture
def mapped(request: pytest.FixtureRequest) -> Place:
    """Make a lake whose ``bank`` maps its columns, so that they can be dropped and renamed."""
    place = make_place("local", request)
    make_bank(place, mapped=True)
    with place.connect() as lake:
        lake.register("other")
    return place


@pytest.fixture
def plain(request: pytest.FixtureRequest) -> Place:
    place = make_place("local", request)
    make_bank(place)
    with place.connect() as lake:
        lake.register({TABLE: TABLE, "other": "other"})
    return place


def before_commit(place: Place, foreign: Foreign) -> BaseException | None:
    """Run ``foreign`` between the transaction's verbs and its commit."""

    def moment(lake: lv.Lake, txn: lv.Transaction) -> None:
        foreign()
        txn.commit()

    return _run(place, moment)


def after_validation(place: Place, foreign: Foreign) -> BaseException | None:
    """Run ``foreign`` between validation and decision, where the transaction can't notice it."""

    def moment(lake: lv.Lake, txn: lv.Transaction) -> None:
        with interrupted(lake, is_head, foreign):
            txn.commit()

    return _run(place, moment)


def before_publishing(place: Place, foreign: Foreign) -> BaseException | None:
    def moment(lake: lv.Lake, txn: lv.Transaction) -> None:
        with interrupted(lake, is_entry(TABLE), foreign):
            txn.commit()

    return _run(place, moment)


def while_nobody_comes_by(place: Place, foreign: Foreign) -> BaseException | None:
    """Decide as a client that then goes away; run ``foreign``; recover as another client."""
    decided_and_left(place, add_five)
    foreign()
    with place.connect() as lake:
        lake.recover()
    return None


def _run(place: Place, moment: Callable[[lv.Lake, lv.Transaction], object]) -> BaseException | None:
    with place.connect() as lake:
        txn = lake.transaction()
        add_five(txn)
        try:
            moment(lake, txn)
        except lv.LakeVillaError as error:
            return error
    return None


Moment = Callable[[Place, Foreign], "BaseException | None"]
DECIDED = (after_validation, before_publishing, while_nobody_comes_by)
every_moment = pytest.mark.parametrize(
    "moment", [before_commit, *DECIDED], ids=lambda moment: moment.__name__
)
once_decided = pytest.mark.parametrize("moment", DECIDED, ids=lambda moment: moment.__name__)


def rows(place: Place, table: str = TABLE) -> list[dict[str, Any]]:
    with place.connect() as lake:
        found = lake.snapshot().read(table).to_pylist()
    return sorted(found, key=lambda row: repr(row))


def told_by_doctor(place: Place) -> set[tuple[str, str | None]]:
    with place.connect() as lake:
        return {(finding.kind, finding.table) for finding in lake.doctor().findings}


def goes_on(place: Place) -> None:
    """Assert that the lake isn't held up: the next transaction commits and is published."""
    with place.connect() as lake:
        lake.run(lambda txn: txn.append("other", [{"id": 50, "balance": 0}]))
        assert not [f for f in lake.doctor().findings if f.kind == "unpublished"]
    assert 50 in values(place.delta("other").to_pyarrow_table())


@every_moment
def test_a_column_that_another_client_adds_is_kept_beside_the_transactions_change(
    plain: Place, moment: Moment
) -> None:
    def foreign() -> None:
        extra = pa.table({"id": [9], "balance": [9], "note": ["x"]})
        plain.write(TABLE, extra, schema_mode="merge")

    error = moment(plain, foreign)
    assert error is None or (moment is not before_commit and isinstance(error, lv.ForeignConflict))
    assert rows_seen(plain) == {0: 100, 1: 105, 2: 100, 3: 100, 7: 7, 9: 9}
    assert {"id": 9, "balance": 9, "note": "x"} in rows(plain)
    goes_on(plain)


@every_moment
def test_changes_to_a_column_that_another_client_renames_go_to_the_renamed_column(
    mapped: Place, moment: Moment
) -> None:
    """The transaction's values reach the column under its new name."""
    error = moment(mapped, lambda: alter(mapped, rename_columns={"balance": "money"}))
    assert error is None or isinstance(error, lv.ForeignConflict), error
    assert ("voided", TABLE) not in told_by_doctor(mapped)
    assert values(mapped.delta("other").to_pyarrow_table()) == [0, 8]
    assert [row["money"] for row in rows(mapped)] == [100, 105, 100, 100, 7]
    goes_on(mapped)


@every_moment
def test_a_change_to_a_column_that_another_client_drops_conflicts_or_is_voided(
    mapped: Place, moment: Moment
) -> None:
    error = moment(mapped, lambda: alter(mapped, drop_columns=["balance"]))
    if moment is before_commit:
        assert isinstance(error, lv.ConflictError | lv.InvalidOperation), error
        assert values(mapped.delta("other").to_pyarrow_table()) == [0]
    else:
        assert ("voided", TABLE) in told_by_doctor(mapped)
        assert values(mapped.delta("other").to_pyarrow_table()) == [0, 8]
    assert rows(mapped) == [{"id": number} for number in (0, 1, 2, 3, 7)]
    goes_on(mapped)


@every_moment
def test_a_column_that_another_client_widens_keeps_its_new_type_and_the_change(
    request: pytest.FixtureRequest, moment: Moment
) -> None:
    place = make_place("local", request)
    narrow = pa.table({"id": [0, 1], "balance": pa.array([100, 100], pa.int32())})
    write_deltalake(place.uri(TABLE), narrow)
    place.write("other", [{"id": 0, "balance": 0}])
    with place.connect() as lake:
        lake.register({TABLE: TABLE, "other": "other"})

    error = moment(place, lambda: widen(place))
    assert error is None or (moment is not before_commit and isinstance(error, lv.ForeignConflict))
    assert rows_seen(place) == {0: 100, 1: 105}
    with place.connect() as lake:
        assert lake.table(TABLE).schema.field("balance").type == pa.int64()
        lake.run(lambda txn: txn.append(TABLE, [{"id": 5, "balance": 2**40}]))
    assert rows_seen(place) == {0: 100, 1: 105, 5: 2**40}
    goes_on(place)


@every_moment
def test_a_change_that_breaks_another_clients_new_constraint_conflicts_or_is_voided(
    plain: Place, moment: Moment
) -> None:
    error = moment(plain, lambda: plain.delta(TABLE).alter.add_constraint({"low": "balance < 103"}))
    if moment is before_commit:
        assert isinstance(error, lv.ConflictError | lv.InvalidOperation), error
        assert values(plain.delta("other").to_pyarrow_table()) == [0]
    else:
        assert ("voided", TABLE) in told_by_doctor(plain)
        assert values(plain.delta("other").to_pyarrow_table()) == [0, 8]
    assert rows_seen(plain) == {0: 100, 1: 100, 2: 100, 3: 100, 7: 7}
    goes_on(plain)


@every_moment
def test_a_change_to_a_table_that_another_client_makes_append_only_conflicts_or_is_voided(
    plain: Place, moment: Moment
) -> None:
    error = moment(
        plain,
        lambda: plain.delta(TABLE).alter.set_table_properties({"delta.appendOnly": "true"}),
    )
    if moment is before_commit:
        assert isinstance(error, lv.ConflictError | lv.InvalidOperation), error
    else:
        assert ("voided", TABLE) in told_by_doctor(plain)
    assert rows_seen(plain) == {0: 100, 1: 100, 2: 100, 3: 100, 7: 7}
    goes_on(plain)


@every_moment
def test_a_table_for_which_another_client_requires_an_unknown_feature_is_not_written(
    plain: Place, moment: Moment
) -> None:
    """A client that does not know the feature must not write: a decided commit waits for one that
    does.
    """
    error = moment(plain, lambda: require(plain, "yonder"))
    log = len(entries(plain))
    assert log == 3, "an entry was written to a table whose writers must know yonder"
    if moment is before_commit:
        assert isinstance(error, lv.UnsupportedTableFeature), error
        assert "yonder" in str(error)
        assert values(plain.delta("other").to_pyarrow_table()) == [0]
        return
    with plain.connect() as lake:
        assert any("yonder" in finding.message for finding in lake.recover().findings)
        assert {("unsupported_table_feature", TABLE), ("unpublished", TABLE)} & told_by_doctor(
            plain
        )
        # The commit is decided, so the lake shows it.
        found = {row["id"]: row["balance"] for row in rows(plain)}
        assert found[1] == 105
        with pytest.raises(lv.UnsupportedTableFeature, match="yonder"):
            lake.run(lambda txn: txn.append(TABLE, [{"id": 9, "balance": 0}]))
        # Other tables can be written.
        lake.run(lambda txn: txn.append("other", [{"id": 50, "balance": 0}]))
    assert len(entries(plain)) == 3
    assert values(plain.delta("other").to_pyarrow_table()) == [0, 8, 50]


# ------------------------------------------------------------------ drops


def replaced(place: Place, versions: int) -> Foreign:
    return (lambda: make_anew(place, versions)) if versions else (lambda: remove_table(place))


every_end = pytest.mark.parametrize(
    "versions", [0, 1, 2, 5], ids=lambda n: f"anew-{n}" if n else "removed"
)


def stands_alone(place: Place, versions: int) -> None:
    """Assert that the recreated table is not changed, and is not taken for the lake's old table."""
    if versions:
        found = place.seen(TABLE)
        assert found == [{"id": number, "balance": 0} for number in range(versions)]
        assert place.delta(TABLE).version() == versions - 1
    with place.connect() as lake:
        with pytest.raises(lv.TableNotFound, match=TABLE) as caught:
            lake.snapshot().read(TABLE)
        assert "register" in str(caught.value)
        with pytest.raises(lv.TableNotFound, match=TABLE):
            lake.run(lambda txn: txn.append(TABLE, [{"id": 60, "balance": 0}]))
    goes_on(place)


@every_end
def test_a_table_removed_or_recreated_before_its_first_use_is_not_found_and_not_changed(
    plain: Place, versions: int
) -> None:
    with plain.connect() as lake:
        txn = lake.transaction()
        txn.append("other", [{"id": 8, "balance": 8}])
        replaced(plain, versions)()
        before = lake_state(plain)
        with pytest.raises(lv.TableNotFound, match=TABLE):
            txn.update(TABLE, {"balance": "0"}, where="true")
        assert lake_state(plain) == before
        txn.commit()  # a verb that raises has had no effect
    assert ("table_lost", TABLE) in told_by_doctor(plain)
    assert values(plain.delta("other").to_pyarrow_table()) == [0, 8]
    stands_alone(plain, versions)


@every_end
def test_a_decided_commit_is_voided_once_its_table_is_recreated_or_unregistered_after_its_removal(
    plain: Place, versions: int
) -> None:
    assert while_nobody_comes_by(plain, replaced(plain, versions)) is None
    if not versions:
        assert ("table_lost", TABLE) in told_by_doctor(plain)
        with plain.connect() as lake:
            lake.unregister(TABLE)
    assert ("voided", TABLE) in told_by_doctor(plain)
    assert values(plain.delta("other").to_pyarrow_table()) == [0, 8]
    stands_alone(plain, versions)


@pytest.mark.parametrize("moment", [before_commit, after_validation, before_publishing])
def test_a_client_that_knows_the_old_log_notices_a_recreated_table_with_a_longer_log(
    plain: Place, moment: Moment
) -> None:
    error = moment(plain, replaced(plain, 5))
    if moment is before_commit:
        assert isinstance(error, lv.ConflictError), error
        assert "unregister" in str(error)
        assert values(plain.delta("other").to_pyarrow_table()) == [0]
    else:
        assert isinstance(error, lv.ForeignConflict), error
        assert "cancelled" in str(error)
        assert values(plain.delta("other").to_pyarrow_table()) == [0, 8]
    stands_alone(plain, 5)


def test_a_table_that_another_client_replaces_within_its_log_stays_the_same_table(
    plain: Place,
) -> None:
    """REPLACE TABLE writes a new table id in a further entry: new metadata, but no new table."""
    decided_and_left(plain, lambda txn: txn.append(TABLE, [{"id": 8, "balance": 8}]))
    metadata = newest(plain, "metaData")
    gone = [
        {"remove": {"path": path, "deletionTimestamp": 1, "dataChange": True}}
        for path in live_files(plain)
    ]
    write_entry(plain, {"metaData": {**metadata, "id": str(uuid.uuid4())}}, *gone)
    with plain.connect() as lake:
        assert ("table_lost", TABLE) not in told_by_doctor(plain)
        lake.recover()
    assert rows_seen(plain) == {8: 8}
    with plain.connect() as lake:
        lake.run(lambda txn: txn.append(TABLE, [{"id": 9, "balance": 9}]))
    assert rows_seen(plain) == {8: 8, 9: 9}
    goes_on(plain)


def test_a_recreated_table_enters_the_lake_by_unregister_and_register(plain: Place) -> None:
    make_anew(plain, 5)
    before = lake_state(plain)
    with plain.connect() as lake:
        with pytest.raises(lv.TableNotFound, match="unregister"):
            lake.run(lambda txn: txn.append(TABLE, [{"id": 9, "balance": 0}]))
        assert lake_state(plain) == before
        lake.unregister(TABLE)
        lake.register(TABLE)
        lake.run(lambda txn: txn.append(TABLE, [{"id": 9, "balance": 0}]))
        assert values(lake.snapshot().read(TABLE)) == [0, 1, 2, 3, 4, 9]
    assert values(plain.delta(TABLE).to_pyarrow_table()) == [0, 1, 2, 3, 4, 9]


@pytest.mark.parametrize("features", [lv.Feature.NONE, lv.Feature.R | lv.Feature.I], ids=str)
@pytest.mark.parametrize("where", [None, "id >= 0"])
def test_an_overwrite_whose_columns_another_client_has_replaced_conflicts(
    plain: Place, features: lv.Feature, where: str | None
) -> None:
    rows_then = pa.table({"id": [5], "balance": [50]})
    with plain.connect() as lake:
        lake.run(lambda txn: txn.append(TABLE, rows_then), features=features)
        others = pa.table({"balance": ["text"], "other": ["x"]})
        write_deltalake(plain.uri(TABLE), others, mode="overwrite", schema_mode="overwrite")
        with pytest.raises(lv.ConflictError, match="its schema or constraints were changed"):
            with lake.transaction(features) as txn:
                txn.overwrite(TABLE, rows_then, where=where)
        with pytest.raises(lv.InvalidOperation, match="no column"):
            lake.run(lambda txn: txn.overwrite(TABLE, rows_then, where=where), features=features)
        assert rows(plain) == [{"balance": "text", "other": "x"}]
        lake.run(
            lambda txn: txn.overwrite(TABLE, rows_then, schema_mode="overwrite"), features=features
        )
    assert rows(plain) == [{"id": 5, "balance": 50}]
