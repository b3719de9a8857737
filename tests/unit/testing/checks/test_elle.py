"""The checker of histories on histories with a known anomaly, and on some without."""

import random

import pytest

from lakevilla_testing.checks.elle import check, forbidden
from lakevilla_testing.checks.history import History, ListAppend, Txn
from lakevilla_testing.checks.known_bad import ANOMALIES, KNOWN_BAD, REPORTS, txn


def kinds(*txns, final=None, real_time=True):
    return {a.kind for a in check(list(txns), final=final, real_time=real_time)}


def test_a_serial_history_has_no_anomaly():
    assert not kinds(
        txn("A", ("x", []), ("x", 1), at=0, until=1),
        txn("B", ("x", [1]), ("x", 2), ("y", 3), at=2, until=3),
        txn("C", ("x", [1, 2]), ("y", [3]), at=4, until=5),
        final={"x": [1, 2], "y": [3]},
    )


def test_a_dirty_write_is_reported_as_g0():
    found = kinds(
        txn("A", ("x", 1), ("y", 3)),
        txn("B", ("x", 2), ("y", 4)),
        final={"x": [1, 2], "y": [4, 3]},
    )
    assert "G0" in found


def test_a_read_of_an_aborted_write_is_reported_as_g1a():
    found = kinds(txn("A", ("x", 1), status="aborted"), txn("B", ("x", [1])))
    assert found == {"G1a"}


def test_an_aborted_write_present_at_the_end_is_reported_as_g1a():
    assert "G1a" in kinds(txn("A", ("x", 1), status="aborted"), final={"x": [1]})


def test_a_read_of_an_intermediate_write_is_reported_as_g1b():
    found = kinds(
        txn("A", ("x", 1), ("x", 2)),
        txn("B", ("x", [1])),
        final={"x": [1, 2]},
    )
    assert "G1b" in found


def test_two_transactions_that_read_each_other_are_reported_as_g1c():
    found = kinds(
        txn("A", ("x", 1), ("y", [2])),
        txn("B", ("y", 2), ("x", [1])),
        final={"x": [1], "y": [2]},
    )
    assert found == {"G1c"}


def test_a_torn_read_of_two_keys_is_reported_as_g_single():
    found = kinds(
        txn("A", ("x", 1), ("y", 2)),
        txn("B", ("x", [1]), ("y", [])),
        final={"x": [1], "y": [2]},
    )
    assert found == {"G-single"}


def test_write_skew_is_reported_as_g2_item_and_allowed_by_snapshot_isolation():
    history = [
        txn("A", ("x", []), ("y", 1)),
        txn("B", ("y", []), ("x", 2)),
    ]
    found = check(history, final={"x": [2], "y": [1]})
    assert {a.kind for a in found} == {"G2-item"}
    assert not forbidden(found, "snapshot")
    assert forbidden(found, "serializable")


def test_a_long_fork_is_forbidden_under_snapshot_isolation():
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


def test_two_updates_after_the_same_read_are_reported_as_a_lost_update():
    found = check(
        [txn("A", ("x", []), ("x", 1)), txn("B", ("x", []), ("x", 2))],
        final={"x": [1, 2]},
    )
    assert {a.kind for a in found} == {"lost update", "G-single"}
    assert not forbidden(found, "read-committed")
    assert forbidden(found, "snapshot")


def test_an_acknowledged_append_that_is_missing_is_reported_as_lost():
    assert "lost append" in kinds(txn("A", ("x", 1)), final={"x": []})


def test_an_append_with_an_unknown_outcome_may_be_missing_or_present():
    assert not kinds(txn("A", ("x", 1), status="unknown", until=None), final={"x": []})
    assert not kinds(txn("A", ("x", 1), status="unknown", until=None), final={"x": [1]})


def test_an_append_with_an_unknown_outcome_counts_as_committed_once_read():
    torn = kinds(
        txn("A", ("x", 1), ("y", 2), status="unknown", until=None),
        txn("B", ("x", [1])),
        final={"x": [1], "y": []},
    )
    assert "lost append" in torn


def test_a_stale_read_is_an_anomaly_only_in_real_time():
    history = [
        txn("A", ("x", 1), at=0, until=1),
        txn("B", ("x", []), at=2, until=3),
    ]
    assert not check(history, final={"x": [1]}, real_time=False)
    found = check(history, final={"x": [1]})
    assert {a.kind for a in found} == {"G-single-realtime"}
    assert not forbidden(found, "serializable")
    assert forbidden(found, "linearizable")


def test_reads_that_disagree_on_the_order_of_appends_are_reported():
    found = kinds(
        txn("A", ("x", 1)), txn("B", ("x", 2)), txn("C", ("x", [1, 2])), txn("D", ("x", [2]))
    )
    assert "incompatible order" in found


#: X reads x without the append of E, and commits y; R has read from E, and not from X.
AHEAD = [
    txn("E", ("x", 1)),
    txn("X", ("x", []), ("y", 2)),
    txn("R", ("x", [1]), ("y", [])),
]


def test_an_unplaced_transaction_need_not_precede_its_reader():
    final = {"x": [1], "y": [2]}
    assert [a.kind for a in check(AHEAD, final=final)] == ["G2-item"]
    assert not check(AHEAD, final=final, unplaced={"R": {"E"}})
    # This holds for that reader, and for a transaction from which it has read.
    assert check(AHEAD, final=final, unplaced={"X": {"E"}, "R": {"X"}})


def test_a_transaction_before_an_unplaced_one_must_still_precede_the_reader():
    history = [
        txn("A", ("x", 1)),
        txn("E", ("x", 2)),
        txn("B", ("x", []), ("y", 3)),
        txn("R", ("x", [1, 2]), ("y", [])),
    ]
    found = check(history, final={"x": [1, 2], "y": [3]}, unplaced={"R": {"E"}})
    assert [set(a.txns) for a in found] == [{"R", "B", "A"}]


def test_a_duplicate_value_is_reported():
    assert "duplicate" in kinds(txn("A", ("x", 1)), final={"x": [1, 1]})


def test_a_value_that_no_transaction_wrote_is_reported():
    assert "unwritten" in kinds(txn("A", ("x", [7])), final={"x": [7]})


def test_a_transaction_that_misses_its_own_append_is_reported():
    assert "internal" in kinds(txn("A", ("x", 1), ("x", [])), final={"x": [1]})
    assert not kinds(txn("A", ("x", 1), ("x", [1])), final={"x": [1]})


def test_a_transaction_that_reads_two_states_is_reported():
    found = kinds(txn("A", ("x", []), ("x", [1])), txn("B", ("x", 1)), final={"x": [1]})
    assert "internal" in found


def random_history(seed, *, isolated):
    """Return transactions of a toy database that runs them one at a time, or with stale
    snapshots.
    """
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
def test_serial_histories_have_no_anomaly(seed):
    history, final = random_history(seed, isolated=True)
    assert check(history, final=final) == []


def test_histories_with_stale_reads_are_caught():
    caught = sum(
        bool(check(h, final=f))
        for h, f in (random_history(seed, isolated=False) for seed in range(30))
    )
    assert caught >= 28


def skew_of(*levels):
    """Check a history of two with write skew; ``levels`` says which are at snapshot isolation."""
    history = [
        txn("A", ("x", []), ("y", []), ("x", 1)),
        txn("B", ("x", []), ("y", []), ("y", 2)),
    ]
    lenient = {made.name for made, level in zip(history, levels, strict=True) if level}
    return check(history, final={"x": [1], "y": [2]}, snapshot=lenient)


@pytest.mark.parametrize("levels", [(True, True), (True, False), (False, True)])
def test_write_skew_is_allowed_if_one_of_the_two_is_at_snapshot_isolation(levels):
    assert skew_of(*levels) == []
    assert [a.kind for a in skew_of(False, False)] == ["G2-item"]


def test_transactions_at_snapshot_isolation_are_still_checked_for_other_anomalies():
    circular = [txn("A", ("x", 1), ("y", [2])), txn("B", ("y", 2), ("x", [1]))]
    found = check(circular, final={"x": [1], "y": [2]}, snapshot={"A", "B"})
    assert {a.kind for a in found} == {"G1c"}


def test_a_torn_serializable_read_is_reported_although_the_writer_is_at_snapshot_isolation():
    found = check(
        [
            txn("A", ("x", []), ("y", [2])),  # serializable, with a torn read
            txn("B", ("x", 1), ("y", 2)),  # at snapshot isolation
        ],
        final={"x": [1], "y": [2]},
        snapshot={"B"},
    )
    assert {a.kind for a in found} == {"G-single"}


@pytest.mark.cases(None)
@pytest.mark.parametrize("kind", ANOMALIES)
def test_each_known_bad_history_is_reported_with_its_anomaly(kind):
    bad = ANOMALIES[kind]
    assert bad.kind in {a.kind for a in check(bad.txns, final=bad.final)}


@pytest.mark.cases(None)
@pytest.mark.parametrize("report", REPORTS)
def test_a_history_like_that_of_another_system_s_report_is_reported(report):
    bad = REPORTS[report]
    found = check(bad.txns, final=bad.final)
    assert bad.kind in {a.kind for a in found}
    assert forbidden(found, "snapshot"), "it is an anomaly also where less is promised"


@pytest.mark.parametrize("name", KNOWN_BAD)
def test_a_known_bad_history_is_found_among_many_correct_transactions(name):
    """The bad history is hidden among twenty serial transactions, under other keys and values."""
    bad = KNOWN_BAD[name]
    for seed in range(5):
        good, final = random_history(seed, isolated=True)
        assert check(good, final=final) == []
        shift = random.Random(seed).uniform(0, 40)
        hidden = [renamed(one, shift) for one in bad.txns]
        final |= {f"bad {key}": [1000 + v for v in values] for key, values in bad.final.items()}
        assert bad.kind in {a.kind for a in check([*good.txns, *hidden], final=final)}


def renamed(one, shift):
    made = Txn(
        f"bad {one.name}",
        one.client,
        one.invoked + shift,
        status=one.status,
        completed=None if one.completed is None else one.completed + shift,
    )
    for operation in one.operations:
        if isinstance(operation, ListAppend):
            made.append(f"bad {operation.key}", 1000 + operation.value)
        else:
            made.read(f"bad {operation.key}", [1000 + v for v in operation.values])
    return made


@pytest.mark.parametrize("seed", range(30))
def test_concurrent_transactions_may_take_effect_in_any_order(seed):
    """Each transaction takes effect at one time between its begin and its end: linearizable."""
    source = random.Random(seed)
    state = {"x": (), "y": ()}
    made = []
    for at in range(30):
        one = txn(f"T{at}", at=at - 8 * source.random(), until=at + 8 * source.random())
        for _ in range(source.randint(1, 4)):
            key = source.choice("xy")
            if source.random() < 0.5:
                one.read(key, state[key])
            else:
                value = sum(map(len, state.values()))
                one.append(key, value)
                state[key] += (value,)
        made.append(one)
    source.shuffle(made)
    assert check(made, final=state) == []


def test_stricter_isolation_levels_forbid_every_anomaly_of_the_weaker_ones():
    levels = ("read-committed", "snapshot", "serializable", "linearizable")
    for bad in KNOWN_BAD.values():
        found = check(bad.txns, final=bad.final)
        refused = [bool(forbidden(found, level)) for level in levels]
        assert refused == sorted(refused), bad.kind
        assert refused[-1], bad.kind
