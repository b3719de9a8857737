"""Bugs of backups and restores that are planted: the test of the rule that each breaks fails."""

from __future__ import annotations

from collections.abc import Callable

import pytest

import lakevilla as lv
from lakevilla_testing.planted.every import PLANTED
from tests.contract.backup import test_backup, test_in_place
from tests.support.places import Place

FOUND_BY: dict[str, Callable[[Place], None]] = {
    "backups_keep_nothing": test_backup.test_a_backup_keeps_what_it_copies_from_vacuum_and_gc,
    "restored_without_a_fence": test_in_place.test_a_transaction_of_the_old_lake_never_commits,
    "tables_made_anew_keep_their_ids": (
        test_in_place.test_a_tag_of_a_log_that_is_lost_shows_no_other_state
    ),
    "changes_of_restored_branches_forgotten": (
        test_backup.test_a_restored_branch_merges_what_was_done_on_it
    ),
}


@pytest.mark.parametrize("name", FOUND_BY)
def test_a_planted_bug_is_found(local_place: Place, name: str) -> None:
    fails = (AssertionError, pytest.fail.Exception, lv.LakeVillaError)
    with PLANTED[name].plant(), pytest.raises(fails):
        FOUND_BY[name](local_place)
