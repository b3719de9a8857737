"""Slips around refs: rebases, copies for `keep`, clones, merges, keys on branches."""

from lakevilla.branches import clones, rebase
from lakevilla.global_log.refs import RefEntry
from lakevilla.lake.tables import claims
from lakevilla.maintenance import recovery
from lakevilla.maintenance.gc import gc
from lakevilla.transaction.commit.together import join
from lakevilla.transaction.verbs import idempotency
from lakevilla_testing.planted.edits import slip

slip(
    "epochs_of_moved_files_forgotten",
    "A rebased branch does not tell that files of its earlier epoch are in its new commit.",
    rebase._epochs_named,
    ("for path in paths_of(location, file)", "for path in ()"),
    found_by=(
        "tests/contract/refs/test_rebase.py::"
        "test_a_rebased_branch_is_found_again_after_head_was_lost[delta]"
    ),
)
slip(
    "vectors_epochs_forgotten",
    "A rebased branch tells the epochs of its data files, and not those of their vectors.",
    rebase._epochs_named,
    ("for path in paths_of(location, file)", "for path in (file.path,)"),
    found_by=(
        "tests/contract/maintenance/test_gc_of_branches.py::"
        "test_gc_keeps_the_vectors_of_a_rebased_branchs_earliest_epoch"
    ),
)
slip(
    "clone_ends_before_its_log",
    "A clone ends although the log of one of its tables still names files of its source.",
    clones._needs_it,
    ("return bool((yield from files_elsewhere(context, head, location)))", "return False"),
    found_by=(
        "tests/contract/refs/clones/test_clones.py::"
        "test_a_clone_is_not_deleted_while_a_table_needs_files_that_it_keeps[delta]"
    ),
)
slip(
    "reached_is_not_noted",
    "gc does not note in HEAD how far a branch has come.",
    gc._reached,
    ("if number > entry.reached", "if number < entry.reached"),
    found_by=(
        "tests/contract/recovery/test_gone_back.py::"
        "test_a_branch_whose_head_was_set_back_is_reported"
    ),
)
slip(
    "merge_forgets_how_far",
    "A merge does not note in HEAD how far the branch has come.",
    join.with_merged,
    (".having_reached(merging.reached)", ""),
    found_by=(
        "tests/contract/recovery/test_gone_back.py::"
        "test_a_branch_whose_head_was_set_back_to_before_a_merge_is_reported"
    ),
)
slip(
    "reached_goes_back",
    "The number up to which a branch has come may get lower.",
    RefEntry.having_reached,
    ("max(", "min("),
    found_by=(
        "tests/contract/recovery/test_gone_back.py::"
        "test_a_branch_whose_head_was_set_back_is_reported_though_it_is_protected"
    ),
)
slip(
    "key_of_the_base_itself",
    "A key that was committed by the very version of which a branch was made runs again there.",
    idempotency.committed_in_base,
    ("found.sequence > base.sequence", "found.sequence >= base.sequence"),
    found_by=(
        "tests/contract/refs/branches/test_branch_keys.py::"
        "test_a_branch_with_keys_is_rebased_only_after_they_are_merged"
    ),
)
slip(
    "keys_of_earlier_epochs",
    "A key that was committed on a branch before its rebase runs again after it.",
    idempotency.committed_in_base,
    ("if epoch != branch.epoch.id:", "if epoch == branch.epoch.id:"),
    found_by=(
        "tests/contract/refs/branches/test_branch_keys.py::"
        "test_a_key_of_the_earlier_epoch_counts_as_committed_after_an_interrupted_rebase"
    ),
)
slip(
    "key_of_the_first_commit",
    "A merge leaves behind the key of the branch's first commit.",
    idempotency._committed_after,
    ("max(sequence, head.history_start)", "max(sequence, head.history_start) + 1"),
    found_by=(
        "tests/contract/refs/branches/test_branch_keys.py::"
        "test_a_branch_with_keys_is_rebased_only_after_they_are_merged"
    ),
)
slip(
    "adopted_claims_forget_names",
    "The claims of an adopted lake's tables do not tell the tables' names.",
    claims._adopt,
    ("        aliases,\n", "        (),\n"),
    found_by="tests/contract/recovery/test_rebuilt_twice.py::test_names_of_an_adopted_lake_are_found_again",
)
slip(
    "adoption_takes_tables_of_others",
    "An adopted lake claims a table that another lake has taken over.",
    claims._adopt,
    (
        "if owner is not None and owner.lake_id not in head.former:",
        "if owner is not None and not owner.lake_id:",
    ),
    found_by="tests/contract/recovery/test_rebuilt_twice.py::test_an_adopted_lake_takes_no_table_that_another_lake_has_taken_over",
)
slip(
    "adoption_is_not_finished",
    "A lake whose adoption was interrupted stays without the claims of its tables.",
    recovery.adopt_lake,
    ("if held.head.adopted:", "if not held.head.adopted:"),
    found_by="tests/contract/recovery/test_rebuilt_twice.py::test_an_interrupted_adoption_is_finished_by_the_next_one",
)
