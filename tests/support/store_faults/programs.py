"""What a client does while its store is broken, and what each step should have done."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa

import lakevilla as lv

#: The rows of each table: (id, balance), as a multiset.
State = dict[str, Counter[tuple[int, int]]]

TABLES = ("north", "south")
ROWS = [{"id": number, "balance": 100} for number in range(5)]

_QUEUED = lv.Feature.R | lv.Feature.CT | lv.Feature.I


@dataclass(frozen=True)
class Step:
    """A piece of work that is done wholly or not at all.

    Attributes
    ----------
    work : callable
        Does it; ``mark`` is the step's own number.
    effect : callable
        Does the same to the rows of a state.
    """

    name: str
    work: Callable[[lv.Lake, int], object]
    effect: Callable[[State, int], None]


def beginning() -> State:
    return {table: Counter({(row["id"], row["balance"]): 1 for row in ROWS}) for table in TABLES}


def copied(state: State) -> State:
    return {table: Counter(rows) for table, rows in state.items()}


# -------------------- work on rows


def _row(mark: int) -> list[dict[str, int]]:
    return [{"id": mark, "balance": mark}]


def _appending(features: lv.Feature) -> Callable[[lv.Lake, int], object]:
    def work(lake: lv.Lake, mark: int) -> object:
        with lake.transaction(features) as txn:
            for table in TABLES:
                txn.append(table, _row(mark))
        return txn

    return work


def _appended(state: State, mark: int) -> None:
    for table in TABLES:
        state[table][(mark, mark)] += 1


def _append_alone(lake: lv.Lake, mark: int) -> object:
    with lake.transaction(lv.Feature.NONE) as txn:
        txn.append("north", _row(mark))
    return txn


def _appended_alone(state: State, mark: int) -> None:
    state["north"][(mark, mark)] += 1


def _transferring(features: lv.Feature) -> Callable[[lv.Lake, int], object]:
    def work(lake: lv.Lake, mark: int) -> object:
        with lake.transaction(features) as txn:
            txn.update("north", {"balance": f"balance - {mark}"}, where="id = 0")
            txn.update("south", {"balance": f"balance + {mark}"}, where="id = 0")
        return txn

    return work


def _changed(rows: Counter[tuple[int, int]], of: int, by: int) -> None:
    for (number, balance), count in list(rows.items()):
        if number == of:
            del rows[(number, balance)]
            rows[(number, balance + by)] += count


def _transferred(state: State, mark: int) -> None:
    _changed(state["north"], 0, -mark)
    _changed(state["south"], 0, mark)


def _large_append(lake: lv.Lake, mark: int) -> object:
    """Append rows whose file is stored before the commit, by the engine."""
    rows = pa.table({"id": [mark] * 20_000, "balance": range(20_000)})
    with lake.transaction() as txn:
        txn.append("south", rows)
    return txn


def _large_appended(state: State, mark: int) -> None:
    state["south"].update((mark, number) for number in range(20_000))


def _script(lake: lv.Lake, mark: int) -> object:
    with lake.session() as session:
        return session.sql(
            f"BEGIN; INSERT INTO north VALUES ({mark}, {mark}); "
            f"UPDATE south SET balance = balance + {mark} WHERE id = 1; COMMIT"
        )


def _scripted(state: State, mark: int) -> None:
    _appended_alone(state, mark)
    _changed(state["south"], 1, mark)


def _merge(lake: lv.Lake, mark: int) -> object:
    lake.branch(f"dev{mark}")
    branch = lake.on(f"dev{mark}")
    try:
        _appending(lv.Feature.R | lv.Feature.I)(branch, mark)
    except lv.CommitOutcomeUnknown as error:
        # Nothing is merged: the lake is as it was.
        raise lv.StoreError(f"the branch is not known to have the rows: {error}") from error
    finally:
        branch.close()
    return lake.merge(f"dev{mark}")


def _refresh(lake: lv.Lake, mark: int) -> object:
    with lake.transaction() as txn:
        rows = txn.read("north").to_pylist()
        txn.overwrite("north", [*rows, *_row(mark)], reuse_by=["id"])
    return txn


# -------------------- upkeep


def _nothing(state: State, mark: int) -> None:
    """Leave the rows as they are."""


def _vacuum(lake: lv.Lake, mark: int) -> object:
    return lake.table("south").vacuum(dry_run=False)


def _optimize(lake: lv.Lake, mark: int) -> object:
    return lake.table("north").optimize()


STEPS = (
    Step("append to both", _appending(lv.Feature.R | lv.Feature.I), _appended),
    Step("append to both, queued", _appending(_QUEUED), _appended),
    Step("append by log entry", _append_alone, _appended_alone),
    Step("transfer", _transferring(lv.Feature.R | lv.Feature.I), _transferred),
    Step("transfer, queued", _transferring(_QUEUED), _transferred),
    Step("large append", _large_append, _large_appended),
    Step("script", _script, _scripted),
    Step("branch and merge", _merge, _appended),
    Step("refresh", _refresh, _appended_alone),
    Step("gc", lambda lake, mark: lake.gc(), _nothing),
    Step("maintain", lambda lake, mark: lake.maintain(), _nothing),
    Step("recover", lambda lake, mark: lake.recover(), _nothing),
    Step("vacuum", _vacuum, _nothing),
    Step("optimize", _optimize, _nothing),
)

BY_NAME = {step.name: step for step in STEPS}
