"""Validation after many commits of other transactions: its requests and its findings
(design, section 9).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from random import Random
from typing import Any

import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.store.effects import Program
from lakevilla.transaction.validation import validate
from lakevilla.transaction.validation.overlap import is_cleared, only_appends
from tests.support.inside import inside
from tests.support.places import Place
from tests.support.search import WHOLE, how_many
from tests.support.stores import interrupted
from tests.support.tables import in_order
from tests.support.traces import Trace, steps

#: As many other commits as validation examines without extra requests.
MANY = 64
PARTS = 8
#: How many random conflicts are tried, and how many of them one test does.
OVERLAPS, BLOCK = how_many(2, whole=60, soak=400), how_many(2, whole=20)


def rows(part: int) -> list[dict[str, int]]:
    return [{"id": part * 10 + number, "a": 0, "b": 0, "c": 0, "far": part} for number in range(3)]


@pytest.fixture
def lake(local_place: Place) -> Iterator[lv.Lake]:
    """Make ``stock`` with a file for each ten ids; the rivals change all files but the first."""
    with local_place.connect() as lake:
        lake.create_table("stock", rows(0))
        for part in range(1, PARTS):
            append(lake, "stock", rows(part))
        lake.create_table("elsewhere", rows(0))
        yield lake


def append(lake: lv.Lake, table: str, some: list[dict[str, int]]) -> None:
    with lake.transaction() as txn:
        txn.append(table, some)


def bump(lake: lv.Lake, where: str) -> None:
    with lake.transaction() as txn:
        txn.update("stock", {"a": "a + 1"}, where=where)


def requests_up_to_the_commit(lake: lv.Lake, txn: lv.Transaction) -> list[tuple[str, str]]:
    """Return the requests of the commit after its own objects are stored, until HEAD is
    replaced.
    """
    asked = steps(lake, txn.commit)
    begun = next(n for n, step in enumerate(asked) if any("/commits/" in key for _, key in step))
    heads = [n for n, step in enumerate(asked) if ("put", "_lakevilla/HEAD.json") in step]
    between = [request for step in asked[begun + 1 : heads[-1] + 1] for request in step]
    found = [request for request in asked[begun] if request[0] == "get"]
    return found + between


def began(lake: lv.Lake) -> lv.Transaction:
    """Return a transaction that has read and changed the first ten ids."""
    txn = lake.transaction()
    assert len(txn.read("stock", where="id < 10")) == 3
    txn.update("stock", {"b": "b + 1"}, where="id = 1")
    return txn


def test_validation_of_commits_that_do_not_overlap_costs_no_request(
    local_place: Place, lake: lv.Lake
) -> None:
    txn = began(lake)
    with local_place.connect() as rival:
        for number in range(MANY):
            if number % 4 == 0:
                append(rival, "elsewhere", rows(0))
            elif number % 4 == 1:
                append(rival, "stock", rows(PARTS + number))
            elif number % 4 == 2:
                rival.run(lambda txn, n=number % 7 + 1: txn.delete("stock", where=f"id = {n}2"))
            else:
                bump(rival, f"id = {number % 7 + 1}0")
    asked = requests_up_to_the_commit(lake, txn)
    # The search for foreign commits shows that HEAD is old. The client gets HEAD, and searches
    # again: the log entry that HEAD doesn't know yet, and the version after it.
    assert sorted(verb for verb, _ in asked) == ["get", "get", "get", "get if changed", "put"]
    (updated,) = (row for row in in_order(lake.snapshot().read("stock")) if row["id"] == 1)
    assert (updated["a"], updated["b"]) == (0, 1)


def test_a_commit_on_a_guarded_table_costs_one_get_and_one_put_more_if_head_changed(
    local_place: Place, lake: lv.Lake
) -> None:
    lake.guard("stock")
    txn = began(lake)
    with local_place.connect() as rival:
        for number in range(MANY):
            bump(rival, f"id = {number % 7 + 1}0")
    asked = requests_up_to_the_commit(lake, txn)
    assert sorted(verb for verb, _ in asked) == ["get", "put", "put"]


def test_validation_reads_each_commit_that_may_overlap_by_one_get_in_one_round(
    local_place: Place, lake: lv.Lake
) -> None:
    lake.guard("stock")
    with lake.transaction() as txn:
        txn.update("stock", {"far": "far + 100"}, where="far = 3")
    # Summaries have no statistics of the column far, as it is too far back in the schema.
    txn = lake.transaction()
    assert len(txn.read("stock", where="far = 0")) == 3
    txn.append("elsewhere", rows(0))
    with local_place.connect() as rival:
        for part in (1, 2, 4, 5):
            bump(rival, f"id = {part}0")
        append(rival, "elsewhere", rows(0))
    asked = steps(lake, txn.commit)
    looks = [step for step in asked if any(v == "get" and "/commits/" in key for v, key in step)]
    assert [len(step) for step in looks] == [4]
    assert not [key for step in asked for verb, key in step if verb == "get" and "stock/" in key]


@pytest.mark.parametrize("guarded", [False, True])
@pytest.mark.parametrize(
    "rival",
    [
        "update stock set a = 7 where id = 2",
        "delete from stock where id = 0",
        "insert into stock values (5, 0, 0, 0, 0)",
        "update stock set id = 4 where id = 70",
    ],
)
def test_a_read_conflicts_with_the_one_commit_that_changed_its_rows_among_many(
    local_place: Place, lake: lv.Lake, rival: str, guarded: bool
) -> None:
    if guarded:
        lake.guard("stock")
    txn = began(lake)
    with local_place.connect() as other:
        for number in range(10):
            bump(other, f"id = {number % 6 + 1}0")
            if number == 6:
                with other.transaction() as faster:
                    faster.sql(rival)
    with pytest.raises(lv.ConflictError, match="stock"):
        txn.commit()


def test_an_operation_whose_file_was_replaced_is_redone_on_the_newest_state(
    local_place: Place, lake: lv.Lake
) -> None:
    txn = lake.transaction()
    txn.update("stock", {"b": "b + 1"}, where="id = 1")
    txn.update("elsewhere", {"b": "b + 1"}, where="id = 1")
    with local_place.connect() as other:
        bump(other, "id = 2")  # a row in the same file
        bump(other, "id = 30")
    txn.commit()
    found = {row["id"]: (row["a"], row["b"]) for row in in_order(lake.snapshot().read("stock"))}
    assert (found[1], found[2], found[30]) == ((0, 1), (1, 0), (1, 0))


@pytest.mark.parametrize("told", ["summary", "commit object"])
def test_files_that_the_transaction_moves_are_compared_with_removed_files(
    local_place: Place, lake: lv.Lake, told: str
) -> None:
    """An optimize reads no row: validation compares the files that both commits remove."""

    def rival() -> None:
        with local_place.connect() as other:
            bump(other, "id = 30")
            if told == "commit object":
                # The commit is so far back that no summary of it is left.
                for number in range(MANY // 2):
                    append(other, "elsewhere", rows(number % PARTS))

    with interrupted(lake, lambda key: "/commits/" in key, rival):
        lake.table("stock").optimize()
    found = {row["id"]: row["a"] for row in in_order(lake.snapshot().read("stock"))}
    assert found == {row["id"]: int(row["id"] == 30) for part in range(PARTS) for row in rows(part)}
    assert lake.snapshot().read("stock").num_rows == 3 * PARTS


def test_a_schema_change_among_many_commits_is_noticed_by_validation(
    local_place: Place, lake: lv.Lake
) -> None:
    txn = began(lake)
    with local_place.connect() as other:
        bump(other, "id = 30")
        with other.transaction() as txn_of_other:
            txn_of_other.alter("stock", add_columns=pa.schema([("new", pa.int64())]))
        bump(other, "id = 40")
    with pytest.raises(lv.ConflictError, match="schema"):
        txn.commit()


def test_a_foreign_commit_after_many_that_do_not_overlap_is_noticed_by_validation(
    local_place: Place, lake: lv.Lake
) -> None:
    txn = began(lake)
    with local_place.connect() as other:
        for part in range(1, 6):
            bump(other, f"id = {part}0")
    local_place.delta("stock").update({"a": "9"}, predicate="id = 2")
    with pytest.raises(lv.ConflictError, match="stock"):
        txn.commit()


def test_an_absorbed_foreign_commit_that_does_not_overlap_is_skipped_by_its_summary(
    local_place: Place, lake: lv.Lake
) -> None:
    txn = began(lake)
    with local_place.connect() as other:
        bump(other, "id = 10")
        local_place.delta("stock").update({"a": "9"}, predicate="id = 20")
        bump(other, "id = 30")
    asked = requests_up_to_the_commit(lake, txn)
    assert sorted(verb for verb, _ in asked) == ["get", "get", "get", "get if changed", "put"]


def test_a_commit_without_concurrent_commits_makes_no_request_for_validation(lake: lv.Lake) -> None:
    txn = began(lake)
    trace = Trace(inside(lake).store)
    inside(lake).store = trace
    asked = requests_up_to_the_commit(lake, txn)
    assert [verb for verb, _ in asked] == ["get", "put"]


# ------------------------------------- equal outcomes with and without summaries


def only_blind(txn: Any, head: Any, location: str, tail: Any) -> Program[bool]:
    """Validate as without summaries: build the new state of every table that was read."""
    return (yield from is_cleared(txn, head, location, tail)) and only_appends(txn, location)


PREDICATES = [
    "id = 3",
    "id between 10 and 19",
    "id > 45",
    "id is null",
    "kind = 'k2'",
    "kind like 'k%' and id < 20",
    "kind is null",
    "qty > 5",
    "not (id < 40)",
    "id in (1, 21, 41)",
    "true",
]


def some_rows(random: Random, part: int) -> list[dict[str, Any]]:
    return [
        {
            "id": None if random.random() < 0.1 else part * 10 + random.randrange(10),
            "kind": random.choice(["k1", "k2", "k3", None]),
            "qty": random.randrange(10),
        }
        for _ in range(random.randrange(1, 4))
    ]


def one_operation(random: Random, txn: lv.Transaction) -> None:
    where = random.choice(PREDICATES)
    match random.randrange(6):
        case 0:
            txn.update("stock", {"qty": "qty + 1"}, where=where)
        case 1:
            txn.update("stock", {"id": str(random.randrange(60))}, where=where)
        case 2:
            txn.delete("stock", where=where)
        case 3:
            txn.append("stock", some_rows(random, random.randrange(6)))
        case 4:
            txn.update("stock", {"kind": "'k9'"}, where=f"id = {random.randrange(60)}")
        case 5:
            txn.delete("stock", where=f"id = {random.randrange(60)}")


def outcome_of_a_race(seed: int, root: str, cleared: Any) -> tuple[str, list[dict[str, Any]]]:
    random = Random(seed)
    place = Place(root)
    partitions = random.choice([[], ["kind"]])
    isolation = random.choice(["serializable", "serializable", "snapshot"])
    with place.connect() as lake, place.connect() as rival, pytest.MonkeyPatch.context() as patch:
        patch.setattr(validate, "is_cleared", cleared)
        schema = pa.schema([("id", pa.int64()), ("kind", pa.string()), ("qty", pa.int64())])
        lake.create_table("stock", schema, partition_by=partitions)
        for part in range(6):
            rows_of_part = some_rows(random, part)
            lake.run(lambda txn, r=rows_of_part: txn.append("stock", r))
        if random.random() < 0.3:
            lake.guard("stock")
        txn = lake.transaction(isolation=isolation)
        for _ in range(random.randrange(3)):
            txn.read("stock", where=random.choice(PREDICATES))
        for _ in range(random.randrange(1, 3)):
            one_operation(random, txn)
        for _ in range(random.randrange(1, 6)):
            with rival.transaction() as other:
                one_operation(random, other)
                if random.random() < 0.3:
                    one_operation(random, other)
        if random.random() < 0.1:
            rival.table("stock").optimize()
        try:
            txn.commit()
            outcome = "committed"
        except lv.ConflictError:
            outcome = "conflict"
        return outcome, in_order(lake.snapshot().read("stock"))


@pytest.mark.parametrize("first", range(0, OVERLAPS, BLOCK))
def test_a_commit_has_the_same_outcome_with_and_without_summaries(
    request: pytest.FixtureRequest, first: int
) -> None:
    outcomes: Counter[str] = Counter()
    for seed in range(first, first + BLOCK):
        root = f"memory://{request.function.__name__}-{seed}"
        told = outcome_of_a_race(seed, f"{root}-told", is_cleared)
        assert told == outcome_of_a_race(seed, f"{root}-whole", only_blind), f"seed {seed}"
        outcomes[told[0]] += 1
    if WHOLE:
        assert min(outcomes["committed"], outcomes["conflict"]) > 1


def test_a_row_that_a_merge_inserts_without_a_key_is_seen(
    lake: lv.Lake, local_place: Place
) -> None:
    """Its key equals none, so the keys of the source do not show that the merge makes no row."""
    without = pa.table({"id": pa.array([None], pa.int64()), "a": [5]})

    def inserts(txn: lv.Transaction) -> None:
        merge = txn.merge("stock", without, "target.id = source.id")
        merge.when_not_matched_insert({"id": "source.id", "a": "source.a"}).execute()

    with local_place.connect() as other:
        reader = lake.transaction()
        assert not reader.read("stock", where="a = 5").num_rows
        reader.append("elsewhere", rows(2))
        writer = lake.transaction()
        writer.update("stock", {"b": "7"}, where="a = 5")
        other.run(inserts)
        with pytest.raises(lv.ConflictError):
            reader.commit()
        writer.commit()
    assert lake.read("stock", where="a = 5")["b"].to_pylist() == [7]
