"""Slips in HEAD, its leaves and pages, the past, and the states of refs."""

from lakevilla.branches import states
from lakevilla.global_log import leaves
from lakevilla.lake import newer
from lakevilla.transaction.commit import squash
from lakevilla_testing.planted.edits import slip

slip(
    "leaf_before_the_prefix",
    "The leaf that has the first names below a prefix is not fetched.",
    leaves.LeafMap.missing_between,
    ("key=lambda ref: ref.first) - 1", "key=lambda ref: ref.first)"),
    found_by=(
        "tests/contract/catalog/test_catalog_tables.py::"
        "test_a_query_of_the_catalog_opens_only_the_requested_tables"
    ),
)
slip(
    "set_back_by_one_unseen",
    "A HEAD that was set back by one commit is in no doubt.",
    newer._may_be_decided,
    ("commit.after >= _own_sequence(head)", "commit.after > _own_sequence(head)"),
    found_by=(
        "tests/contract/recovery/test_gone_back.py::"
        "test_a_branch_whose_head_was_set_back_is_reported"
    ),
)
slip(
    "kept_state_changed_twice",
    "A branch of a kept state applies commits that the kept state has already.",
    states.parted,
    ("pending=beyond(kept_at, state)", "pending=state.pending"),
    found_by=(
        "tests/contract/refs/test_keep.py::"
        "test_a_branch_of_a_kept_tag_has_what_was_unpublished_at_the_tag_once"
    ),
)
slip(
    "squash_in_the_place_of_its_first",
    "The object of many commits stands in HEAD under the number of the first of them.",
    squash._squash,
    ("PendingRef(last.sequence,", "PendingRef(refs[0].sequence,"),
    found_by=(
        "tests/contract/refs/branches/test_branch_past.py::"
        "test_each_version_can_be_read_though_many_commits_are_stored_as_one_object[delta]"
    ),
)
slip(
    "clone_of_the_next_version",
    "A ref of a version shows a clone that was made by the next one.",
    states.at_version,
    ("one.since <= past.sequence", "one.since <= past.sequence + 1"),
    found_by=(
        "tests/contract/refs/clones/test_clones.py::"
        "test_a_tag_of_the_version_before_a_clone_does_not_show_the_clone[delta]"
    ),
)
slip(
    "vacuums_of_a_version_unchecked",
    "A ref is made of a version whose files a vacuum may be deleting.",
    states._refuse_vacuumed,
    ("if not needed <= kept:", "if not needed & kept:"),
    found_by=(
        "tests/contract/refs/test_tags.py::"
        "test_a_version_with_one_file_that_a_vacuum_is_deleting_is_not_tagged[delta-once]"
    ),
)
