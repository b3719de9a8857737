"""Plant bugs in given commits: the named tests find those that are no histories' business."""

import pytest

from lakevilla.errors import LakeVillaError
from lakevilla_testing.planted.every import PLANTED
from tests.contract.iceberg import test_given as contract
from tests.contract.iceberg import test_given_on_branches as branches
from tests.contract.iceberg import test_made_tables as made
from tests.support.iceberg_client import IcebergClient
from tests.support.simulated.memory_lake import MemoryLake
from tests.unit.global_log.inbox import test_fold as inbox


def on_a_branch(lake):
    lake.branch("etl")
    etl = lake.on("etl")
    return etl, IcebergClient(etl)


#: For each planted bug the test that must fail with it.
CATCHERS = {
    "another_snapshot_id": (
        contract.test_files_follow_a_foreign_version_under_the_client_s_snapshot_id
    ),
    "branch_base_not_compared": lambda lake, _: (
        branches.test_a_state_of_a_branch_is_compared_in_the_head_that_is_replaced(
            *on_a_branch(lake), "t"
        )
    ),
    "deletes_taken_as_they_are": lambda lake, _: (
        branches.test_position_deletes_of_several_files_become_marks_of_the_branch(
            lake, *on_a_branch(lake)
        )
    ),
    "decided_on_another_version": (
        contract.test_a_table_that_is_relied_on_is_compared_in_the_head_that_is_replaced
    ),
    "not_looked_for_on_its_branch": lambda lake, _: (
        branches.test_a_request_is_done_once_whatever_came_on_top_of_it(*on_a_branch(lake))
    ),
    "refused_by_hope_on_its_branch": lambda lake, _: (
        branches.test_a_request_that_many_commits_hide_is_not_refused(*on_a_branch(lake))
    ),
    "given_in_the_inbox": lambda *_: (
        inbox.test_the_commit_of_an_iceberg_client_is_proposed_to_nobody(MemoryLake())
    ),
    "half_refused": contract.test_a_request_that_is_void_on_one_of_two_tables_is_never_refused,
    "refused_and_not_bound": (
        contract.test_a_keyed_request_that_was_refused_is_refused_again_though_it_would_fit
    ),
    "refused_by_another_at_its_place": (
        made.test_a_request_beside_a_table_that_another_client_began_is_never_refused
    ),
    "refused_in_doubt": contract.test_a_request_whose_decision_has_no_answer_is_never_refused,
    "refused_while_it_may_land": (
        contract.test_a_refusal_by_a_version_that_head_does_not_know_replaces_head
    ),
    "relied_on_and_not_compared": (
        contract.test_a_table_that_is_relied_on_is_compared_in_the_head_that_is_replaced
    ),
    "relied_on_and_not_looked_at": (
        contract.test_a_table_that_is_relied_on_is_looked_at_before_head_is_replaced
    ),
    "removed_files_taken": lambda lake, client: (
        contract.test_a_snapshot_that_names_removed_files_is_refused(lake, client, "the manifest")
    ),
    "snapshot_of_a_ref_removed": (
        contract.test_a_ref_that_is_made_just_before_head_is_replaced_keeps_its_snapshot
    ),
    "updates_of_another_version": lambda lake, client: (
        contract.test_a_change_of_its_version_alone_is_void_on_a_foreign_one_and_refused(
            lake, client, contract.append_and_tag
        )
    ),
    "vacuum_knows_no_given": (
        contract.test_vacuum_keeps_what_a_decided_and_unpublished_commit_names
    ),
}

lake = contract.lake


@pytest.mark.cases(None)
@pytest.mark.parametrize("name", sorted(CATCHERS))
def test_the_named_test_finds_a_planted_bug(lake, name):
    with PLANTED[name].plant(), pytest.raises((AssertionError, LakeVillaError)):
        CATCHERS[name](lake, IcebergClient(lake))


def test_every_planted_bug_of_given_commits_has_its_test():
    here = {
        name
        for name, mutation in PLANTED.items()
        if mutation.plant.__wrapped__.__module__ == "lakevilla_testing.planted.given"
    }
    assert here == set(CATCHERS) | {n for n in here if PLANTED[n].for_histories}
