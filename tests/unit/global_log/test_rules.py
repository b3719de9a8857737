"""R1, R2 and R3 with the paper's examples (module #4.2, Figure 6)."""

from __future__ import annotations

import pytest

from lakevilla.global_log.rules import (
    Rule,
    Versions,
    fires,
    r1_outdated_read,
    r2_number_taken,
    r3_lost_update,
)


def versions(read=7, hidden=7, log=7, write=8, written=1):
    return Versions(read, hidden, log, write, written)


def both(versions, **options):
    return fires(versions, reads=True, writes=True, **options)


def test_a_table_without_changes_by_other_clients_passes_all_rules():
    assert both(versions()) is None


def test_figure_6_the_second_of_two_updates_of_one_table_is_a_lost_update():
    # T3 and T4 both read Bank x at version 7; T4 commits first, as version 8. T3 has not read the
    # table's log again, so to its knowledge version 8 is still free.
    assert both(versions(log=8)) is Rule.R3
    # Had T3 read the log again, its read would be outdated and its number taken.
    assert both(versions(hidden=8, log=8)) is Rule.R1
    assert fires(versions(hidden=8, log=8), reads=False, writes=True) is Rule.R2


def test_figure_6_a_table_that_head_does_not_know_passes_all_rules():
    # T4 creates Bank z: the global version log has no version of it that could have advanced.
    assert both(versions(read=-1, hidden=-1, log=None, write=0)) is None


def test_a_writer_based_on_foreign_entries_absorbs_them():
    # HEAD has version 7; another client has written 8 and 9; 10 is based on them.
    assert both(versions(read=9, hidden=9, log=7, write=10, written=3)) is None
    # Another transaction has absorbed them meanwhile: "another concurrent transaction has already
    # committed using this version, and we must abort".
    assert both(versions(read=9, hidden=9, log=9, write=10, written=3)) is Rule.R3
    # A third foreign entry was written meanwhile.
    assert fires(versions(9, 10, 7, 10, 3), reads=False, writes=True) is Rule.R2


@pytest.mark.parametrize(
    ("slack", "hidden", "expected"),
    [(0, 7, False), (0, 8, True), (1, 8, False), (1, 9, True), (5, 12, False), (5, 13, True)],
)
def test_r1_accepts_a_read_that_is_at_most_slack_versions_behind(slack, hidden, expected):
    assert r1_outdated_read(7, hidden, slack) is expected
    rule = fires(versions(hidden=hidden), reads=True, writes=False, slack=slack)
    assert rule is (Rule.R1 if expected else None)


@pytest.mark.parametrize(("write", "expected"), [(6, True), (7, True), (8, False), (9, False)])
def test_r2_refuses_a_number_up_to_the_newest_known_version(write, expected):
    assert r2_number_taken(write, hidden=7) is expected


@pytest.mark.parametrize(
    ("log", "write", "written", "expected"),
    [(7, 8, 1, False), (8, 8, 1, True), (7, 10, 3, False), (7, 10, 1, True), (6, 8, 1, True)],
)
def test_r3_accepts_only_a_write_that_follows_the_log_without_a_gap(log, write, written, expected):
    assert r3_lost_update(log, write, written) is expected


def test_slack_has_no_effect_on_writes():
    assert both(versions(hidden=8, log=8), slack=10) is Rule.R2


def test_snapshot_isolation_applies_the_rules_only_to_writes():
    moved = versions(hidden=8, log=8)
    assert fires(moved, reads=True, writes=False, isolation="snapshot") is None
    assert both(moved, isolation="snapshot") is Rule.R2
    assert fires(moved, reads=True, writes=False, isolation="write-serializable") is Rule.R1


def test_a_blind_append_passes_the_rules_with_any_next_number():
    assert fires(versions(hidden=99, log=99), reads=False, writes=False) is None
