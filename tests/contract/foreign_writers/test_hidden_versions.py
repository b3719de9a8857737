"""Commits of other clients at every moment of a transaction: none is lost, none is applied twice.

The transaction always adds 5 to the balance of row 1 and a row to a second table. If the other
client's commit is earlier in the table's log, the transaction works on its rows; if it is later,
the other client worked on the transaction's rows. No client may see anything else.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

import lakevilla as lv
from tests.support.foreign_changes import (
    APPEND,
    CONSTRAINT,
    DELETE,
    MERGE,
    OPTIMIZE,
    OVERWRITE,
    PROPERTY,
    RESTORE,
    START,
    TABLE,
    UPDATE,
    UPDATE_SAME,
    VECTOR,
    Change,
    Rows,
    make_bank,
    rows_seen,
)
from tests.support.inside import inside
from tests.support.places import Place, make_place
from tests.support.stores import Closed, interrupted, is_entry, is_head
from tests.support.tables import kinds

CHANGES = (
    APPEND, UPDATE, UPDATE_SAME, DELETE, MERGE, OVERWRITE, OPTIMIZE, RESTORE, VECTOR,
    PROPERTY, CONSTRAINT,
)  # fmt: skip
every_change = pytest.mark.parametrize("change", CHANGES, ids=str)


@pytest.fixture
def place(request: pytest.FixtureRequest) -> Place:
    local = make_place("local", request)
    make_bank(local)
    with local.connect() as lake:
        lake.register({TABLE: TABLE, "other": "other"})
    return local


def add_five(txn: lv.Transaction) -> None:
    txn.update(TABLE, {"balance": "balance + 5"}, where="id = 1")
    txn.append("other", [{"id": 8, "balance": 8}])


def with_five(rows: Rows) -> Rows:
    return {row: balance + 5 if row == 1 else balance for row, balance in rows.items()}


def whole(place: Place, expected: Rows) -> None:
    """Assert the rows that new clients and other readers see, and that recovery and doctor find
    no error.
    """
    with place.connect() as lake:
        found = lake.snapshot().read(TABLE).to_pylist()
        assert {row["id"]: row["balance"] for row in found} == expected
        assert lake.recover().ok
        assert all(finding.severity != "error" for finding in lake.doctor().findings)
        assert sorted(lake.snapshot().read("other")["id"].to_pylist()) == [0, 8]
    assert rows_seen(place) == expected


# ------------------------------------------------------------ before the decision


def before_it_is_bound(place: Place, lake: lv.Lake, foreign: Callable[[], object]) -> None:
    lake.snapshot().read(TABLE)  # the client has cached the log up to here
    foreign()
    with lake.transaction() as txn:
        add_five(txn)


def between_bind_and_first_use(place: Place, lake: lv.Lake, foreign: Callable[[], object]) -> None:
    with lake.transaction() as txn:
        txn.append("other", [{"id": 8, "balance": 8}])
        foreign()
        txn.update(TABLE, {"balance": "balance + 5"}, where="id = 1")


def between_use_and_commit(place: Place, lake: lv.Lake, foreign: Callable[[], object]) -> None:
    with lake.transaction() as txn:
        add_five(txn)
        foreign()


def while_its_files_are_stored(place: Place, lake: lv.Lake, foreign: Callable[[], object]) -> None:
    def is_data(key: str) -> bool:
        return key.startswith(f"{TABLE}/") and key.endswith(".parquet")

    txn = lake.transaction()
    add_five(txn)
    with interrupted(lake, is_data, foreign):
        txn.commit()


BEFORE = (
    before_it_is_bound,
    between_bind_and_first_use,
    between_use_and_commit,
    while_its_files_are_stored,
)


@pytest.mark.parametrize("position", BEFORE, ids=lambda position: position.__name__)
@every_change
def test_a_foreign_commit_before_the_decision_comes_first_and_raises_no_error(
    place: Place, change: Change, position: Callable[..., None]
) -> None:
    events: list[lv.Event] = []
    with place.connect(on_event=events.append) as lake:
        try:
            position(place, lake, lambda: change.make(place))
        except lv.ForeignConflict:
            # The foreign commit may come after the client looked for it: then it is reconciled.
            assert position is while_its_files_are_stored
    if position is not while_its_files_are_stored:
        assert "reconcile" not in kinds(events)
    whole(place, with_five(change.model(START)))


@every_change
def test_a_foreign_change_of_a_read_row_before_the_decision_is_a_conflict(
    place: Place, change: Change
) -> None:
    runs: list[int] = []

    def work(txn: lv.Transaction) -> None:
        seen = txn.read(TABLE, where="id = 1").to_pylist()
        runs.append(len(seen))
        for row in seen:
            txn.update(TABLE, {"balance": row["balance"] + 5}, where="id = 1")
        txn.append("other", [{"id": 8, "balance": 8}])
        if len(runs) == 1:
            change.make(place)

    with place.connect() as lake:
        lake.run(work)
    expected = with_five(change.model(START))
    if expected.get(1) != 105 or change is CONSTRAINT:
        assert len(runs) == 2, "what was computed from an old value must not stand"
    whole(place, expected)


# ------------------------------------------------------ decided and not published


def before_head_is_replaced(
    lake: lv.Lake, txn: lv.Transaction, foreign: Callable[[], object]
) -> None:
    with interrupted(lake, is_head, foreign):
        txn.commit()


def before_its_entry_is_created(
    lake: lv.Lake, txn: lv.Transaction, foreign: Callable[[], object]
) -> None:
    with interrupted(lake, is_entry(TABLE), foreign):
        txn.commit()


AFTER_VALIDATION = (before_head_is_replaced, before_its_entry_is_created)


@pytest.mark.parametrize("position", AFTER_VALIDATION, ids=lambda position: position.__name__)
@every_change
def test_a_foreign_commit_after_the_validation_is_reconciled_and_reported(
    place: Place, change: Change, position: Callable[..., None]
) -> None:
    events: list[lv.Event] = []
    with place.connect(on_event=events.append) as lake:
        txn = lake.transaction()
        add_five(txn)
        told = None
        try:
            position(lake, txn, lambda: change.make(place))
        except lv.ForeignConflict as error:
            told = error
    assert ("reconcile" in kinds(events)) == change.removes
    # Rows that were only moved to other files are not reported.
    assert (told is not None) == (change.removes and change is not OPTIMIZE)
    if told is not None:
        assert told.table == TABLE
        assert told.result is not None
        assert TABLE in str(told)
        assert "guard" in str(told)
    assert txn.result is not None
    whole(place, with_five(change.model(START)))


@every_change
def test_readers_see_the_same_state_until_a_decided_commit_is_reconciled(
    place: Place, change: Change
) -> None:
    """The commit was decided first: readers use HEAD's state until a writer reconciles it."""
    decided_and_left(place, add_five)
    change.make(place)
    seen = []
    for _ in range(2):
        with place.connect() as reader, reader.snapshot() as snapshot:
            rows = {row["id"]: row["balance"] for row in snapshot.read(TABLE).to_pylist()}
            others = sorted(snapshot.read("other")["id"].to_pylist())
        seen.append((rows, others))
    assert seen[0] == seen[1]
    rows, others = seen[0]
    assert others == [0, 8]
    if change.removes:
        assert rows == with_five(START), "what does not fit is left out until it is reconciled"
    else:
        assert rows == with_five(change.model(START)), "what fits is laid over"
    with place.connect() as lake:
        lake.recover()
    whole(place, with_five(change.model(START)))


def decided_and_left(place: Place, work: Callable[[lv.Transaction], object]) -> None:
    """Decide a commit that its owner can't publish in ``bank``."""
    with place.connect() as lake:
        inside(lake).store = Closed(inside(lake).store, is_entry(TABLE))
        txn = lake.transaction()
        work(txn)
        try:
            txn.commit()
        except lv.ForeignConflict:
            return  # replayed; the commit had no change left to publish
        assert txn.result is not None
        assert txn.result.versions is not None
        assert txn.result.versions[TABLE] is None


@every_change
def test_a_foreign_commit_between_two_pending_commits_comes_before_both(
    place: Place, change: Change
) -> None:
    """A decided, unpublished commit gives way to an entry that is in the log already."""
    decided_and_left(place, add_five)
    change.make(place)
    with place.connect() as lake:
        try:
            lake.run(lambda txn: txn.update(TABLE, {"balance": "balance + 20"}, where="id = 1"))
        except lv.ForeignConflict:
            assert change.removes
    expected = change.model(START)
    if 1 in expected:
        expected = {**expected, 1: expected[1] + 25}
    whole(place, expected)


@every_change
def test_two_pending_commits_around_a_foreign_commit_are_published_by_a_third_client(
    place: Place, change: Change
) -> None:
    decided_and_left(place, add_five)
    change.make(place)

    def add_twenty(txn: lv.Transaction) -> None:
        txn.update(TABLE, {"balance": "balance + 20"}, where="id = 1")

    decided_and_left(place, add_twenty)
    expected = change.model(START)
    if 1 in expected:
        expected = {**expected, 1: expected[1] + 25}
    with place.connect() as lake:
        lake.recover()
    whole(place, expected)


# ------------------------------------------------------------- after, several, one of two


@every_change
def test_a_foreign_commit_after_publishing_is_seen_by_the_next_transaction(
    place: Place, change: Change
) -> None:
    with place.connect() as lake:
        with lake.transaction() as txn:
            add_five(txn)
        change.make(place)
        expected = change.model(with_five(START))
        warm = lake.snapshot().read(TABLE).to_pylist()
        assert {row["id"]: row["balance"] for row in warm} == expected
        with lake.transaction() as txn:
            txn.update(TABLE, {"balance": "balance + 0"}, where="true")
    whole(place, expected)


SEVERAL = (
    (APPEND, UPDATE, PROPERTY),
    (PROPERTY, APPEND, OPTIMIZE),
    (UPDATE, RESTORE, APPEND),
    (UPDATE_SAME, UPDATE_SAME, UPDATE),
    (CONSTRAINT, APPEND, DELETE),
    (APPEND, VECTOR),
)


def in_a_row(changes: tuple[Change, ...]) -> str:
    return "+".join(map(str, changes))


@pytest.mark.parametrize("changes", SEVERAL, ids=in_a_row)
@pytest.mark.parametrize("decided", [False, True], ids=["before", "decided"])
def test_several_foreign_commits_in_a_row_are_all_kept(
    place: Place, changes: tuple[Change, ...], decided: bool
) -> None:
    def foreign() -> None:
        for change in changes:
            change.make(place)

    expected = START
    for change in changes:
        expected = change.model(expected)
    with place.connect() as lake:
        txn = lake.transaction()
        add_five(txn)
        try:
            (before_its_entry_is_created if decided else before_head_is_replaced)(
                lake, txn, foreign
            )
        except lv.ForeignConflict:
            assert any(change.removes for change in changes)
    whole(place, with_five(expected))


@every_change
def test_a_foreign_commit_on_one_of_two_tables_keeps_both_in_one_state(
    place: Place, change: Change
) -> None:
    """A reader that saw the table with the foreign commit reads the other table in the same
    state.
    """
    with place.connect() as lake, place.connect() as other:
        bound = lake.transaction(read_only=True)
        assert sorted(bound.read("other")["id"].to_pylist()) == [0]
        change.make(place)
        with other.transaction() as txn:
            add_five(txn)
        rows = {row["id"]: row["balance"] for row in bound.read(TABLE).to_pylist()}
        assert rows != with_five(rows) or 1 not in rows
        assert rows in (START, change.model(START)), "ours must not be seen: it is bound to before"
    whole(place, with_five(change.model(START)))


def test_a_guarded_table_refuses_foreign_writers_before_a_decided_commit_is_published(
    place: Place,
) -> None:
    """Every foreign writer is refused at every position, so nothing is ever reconciled."""
    refused = []
    events: list[lv.Event] = []

    def foreign() -> None:
        for change in (APPEND, UPDATE_SAME, DELETE, MERGE, OVERWRITE, OPTIMIZE, RESTORE):
            with pytest.raises(Exception, match="lakevilla"):
                change.make(place)
            refused.append(change)

    with place.connect(on_event=events.append) as lake:
        lake.guard(TABLE)
        txn = lake.transaction()
        add_five(txn)
        before_its_entry_is_created(lake, txn, foreign)
    assert len(refused) == 7
    assert "reconcile" not in kinds(events)
    whole(place, with_five(START))
