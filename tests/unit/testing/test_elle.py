"""The checker against histories whose anomaly is known, and against ones that have none."""

import random

import pytest

from lakevilla.testing.elle import check, forbidden
from lakevilla.testing.history import History, Txn


def txn(name, *operations, status="committed", at=0.0, until=100.0):
    made = Txn(name, "client", at, status=status, completed=until)
    for operation in operations:
        key, what = operation
        if isinstance(what, int):
            made.append(key, what)
        else:
            made.read(key, what)
    return made


def kinds(*txns, final=None, real_time=True):
    return {a.kind for a in check(list(txns), final=final, real_time=real_time)}


def test_serial_history_has_no_anomaly():
    assert not kinds(
        txn("A", ("x", []), ("x", 1), at=0, until=1),
        txn("B", ("x", [1]), ("x", 2), ("y", 3), at=2, until=3),
        txn("C", ("x", [1, 2]), ("y", [3]), at=4, until=5),
        final={"x": [1, 2], "y": [3]},
    )


def test_dirty_write_is_g0():
    found = kinds(
        txn("A", ("x", 1), ("y", 3)),
        txn("B", ("x", 2), ("y", 4)),
        final={"x": [1, 2], "y": [4, 3]},
    )
    assert "G0" in found


def test_read_of_what_was_taken_back_is_g1a():
    found = kinds(txn("A", ("x", 1), status="aborted"), txn("B", ("x", [1])))
    assert found == {"G1a"}


def test_what_was_taken_back_and_is_there_at_the_end_is_g1a():
    assert "G1a" in kinds(txn("A", ("x", 1), status="aborted"), final={"x": [1]})


def test_read_in_the_middle_of_another_transaction_is_g1b():
    found = kinds(
        txn("A", ("x", 1), ("x", 2)),
        txn("B", ("x", [1])),
        final={"x": [1, 2]},
    )
    assert "G1b" in found


def test_two_that_read_each_other_are_g1c():
    found = kinds(
        txn("A", ("x", 1), ("y", [2])),
        txn("B", ("y", 2), ("x", [1])),
        final={"x": [1], "y": [2]},
    )
    assert found == {"G1c"}


def test_torn_read_of_two_keys_is_g_single():
    found = kinds(
        txn("A", ("x", 1), ("y", 2)),
        txn("B", ("x", [1]), ("y", [])),
        final={"x": [1], "y": [2]},
    )
    assert found == {"G-single"}


def test_write_skew_is_g2_item_and_snapshot_isolation_allows_it():
    history = [
        txn("A", ("x", []), ("y", 1)),
        txn("B", ("y", []), ("x", 2)),
    ]
    found = check(history, final={"x": [2], "y": [1]})
    assert {a.kind for a in found} == {"G2-item"}
    assert not forbidden(found, "snapshot")
    assert forbidden(found, "serializable")


def test_long_fork_is_not_allowed_under_snapshot_isolation():
    found = check(
        [
            txn("A", ("x", 1)),
            txn("B", ("y", 2)),
            txn("C", ("x", [1]), ("y", [])),
            txn("D", ("x", []), ("y", [2])),
        ],
        final={"x": [1], "y": [2]},
    )
    assert {a.kind for a in found} == {"G-nonadjacent"}
    assert forbidden(found, "snapshot")


def test_two_updates_from_one_read_are_a_lost_update():
    found = check(
        [txn("A", ("x", []), ("x", 1)), txn("B", ("x", []), ("x", 2))],
        final={"x": [1, 2]},
    )
    assert {a.kind for a in found} == {"lost update", "G-single"}
    assert not forbidden(found, "read-committed")
    assert forbidden(found, "snapshot")


def test_acknowledged_append_that_is_gone_is_lost():
    assert "lost append" in kinds(txn("A", ("x", 1)), final={"x": []})


def test_unknown_outcome_may_be_gone_or_there():
    assert not kinds(txn("A", ("x", 1), status="unknown", until=None), final={"x": []})
    assert not kinds(txn("A", ("x", 1), status="unknown", until=None), final={"x": [1]})


def test_unknown_outcome_that_was_seen_counts_as_committed():
    torn = kinds(
        txn("A", ("x", 1), ("y", 2), status="unknown", until=None),
        txn("B", ("x", [1])),
        final={"x": [1], "y": []},
    )
    assert "lost append" in torn


def test_stale_read_is_wrong_only_in_real_time():
    history = [
        txn("A", ("x", 1), at=0, until=1),
        txn("B", ("x", []), at=2, until=3),
    ]
    assert not check(history, final={"x": [1]}, real_time=False)
    found = check(history, final={"x": [1]})
    assert {a.kind for a in found} == {"G-single-realtime"}
    assert not forbidden(found, "serializable")
    assert forbidden(found, "linearizable")


def test_reads_that_disagree_on_order_are_told():
    found = kinds(
        txn("A", ("x", 1)), txn("B", ("x", 2)), txn("C", ("x", [1, 2])), txn("D", ("x", [2]))
    )
    assert "incompatible order" in found


def test_value_held_twice_is_told():
    assert "duplicate" in kinds(txn("A", ("x", 1)), final={"x": [1, 1]})


def test_value_that_nobody_wrote_is_told():
    assert "unwritten" in kinds(txn("A", ("x", [7])), final={"x": [7]})


def test_transaction_that_misses_its_own_append_is_told():
    assert "internal" in kinds(txn("A", ("x", 1), ("x", [])), final={"x": [1]})
    assert not kinds(txn("A", ("x", 1), ("x", [1])), final={"x": [1]})


def test_transaction_that_reads_two_states_is_told():
    found = kinds(txn("A", ("x", []), ("x", [1])), txn("B", ("x", 1)), final={"x": [1]})
    assert "internal" in found


def random_history(seed, *, isolated):
    """Transactions of a toy database that runs them one at a time, or with stale snapshots."""
    source = random.Random(seed)
    now = [0.0]
    history = History(lambda: now[0])
    states = [{"x": (), "y": (), "z": ()}]
    for _ in range(20):
        now[0] += 1
        made = history.begin("c")
        stale = 0 if isolated else source.choice((0, 0, 1, 2))
        seen = dict(states[max(0, len(states) - 1 - stale)])
        added = {}
        for _ in range(source.randint(1, 4)):
            key = source.choice("xyz")
            if source.random() < 0.5:
                made.read(key, seen[key])
            else:
                value = history.value()
                made.append(key, value)
                seen[key] += (value,)
                added[key] = (*added.get(key, ()), value)
        states.append({k: v + added.get(k, ()) for k, v in states[-1].items()})
        now[0] += 1
        history.end(made, "committed")
    return history, states[-1]


@pytest.mark.parametrize("seed", range(30))
def test_serial_executions_pass(seed):
    history, final = random_history(seed, isolated=True)
    assert check(history, final=final) == []


def test_stale_executions_are_caught():
    caught = sum(
        bool(check(h, final=f))
        for h, f in (random_history(seed, isolated=False) for seed in range(30))
    )
    assert caught >= 28


def skew_of(*levels):
    """Write skew of two, and the names of those at snapshot isolation."""
    history = [
        txn("A", ("x", []), ("y", []), ("x", 1)),
        txn("B", ("x", []), ("y", []), ("y", 2)),
    ]
    lenient = {made.name for made, level in zip(history, levels, strict=True) if level}
    return check(history, final={"x": [1], "y": [2]}, snapshot=lenient)


@pytest.mark.parametrize("levels", [(True, True), (True, False), (False, True)])
def test_write_skew_is_no_concern_of_others_where_one_of_the_two_allows_it(levels):
    assert skew_of(*levels) == []
    assert [a.kind for a in skew_of(False, False)] == ["G2-item"]


def test_what_a_lenient_transaction_has_overwritten_and_read_is_still_checked():
    circular = [txn("A", ("x", 1), ("y", [2])), txn("B", ("y", 2), ("x", [1]))]
    found = check(circular, final={"x": [1], "y": [2]}, snapshot={"A", "B"})
    assert {a.kind for a in found} == {"G1c"}


def test_a_serializable_reader_is_not_excused_by_another_ones_leniency():
    found = check(
        [
            txn("A", ("x", []), ("y", [2])),  # serializable, and torn
            txn("B", ("x", 1), ("y", 2)),  # lenient
        ],
        final={"x": [1], "y": [2]},
        snapshot={"B"},
    )
    assert {a.kind for a in found} == {"G-single"}
