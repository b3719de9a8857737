"""Slips in group execution: combined commits, chains, intents, and proposals."""

from lakevilla.global_log.inbox import fold, proposal
from lakevilla.transaction.commit.together import chain, combine, join
from lakevilla.transaction.state.parts import Combined
from lakevilla_testing.planted.edits import slip

slip(
    "metadata_of_members_lost",
    "A transaction with metadata of its own becomes a member, and its commit lacks it.",
    combine.may_be_member,
    ("options.metadata or ", ""),
    found_by=(
        "tests/unit/transaction/commit/together/test_combine.py::"
        "test_a_transaction_of_which_something_was_seen_or_is_its_own_commits_by_itself"
        "[with metadata]"
    ),
)
slip(
    "applications_of_members_lost",
    "A transaction with an application's version becomes a member, and no log has it.",
    combine.may_be_member,
    ("or options.applications ", ""),
    found_by=(
        "tests/unit/transaction/commit/together/test_combine.py::"
        "test_a_transaction_of_which_something_was_seen_or_is_its_own_commits_by_itself"
        "[with an application's version]"
    ),
)
slip(
    "rules_of_members_unchecked",
    "A transaction that asks for validation by rules becomes a member, which has none.",
    combine.may_be_member,
    ('        and options.validation == "precise"\n', ""),
    found_by=(
        "tests/unit/transaction/commit/together/test_combine.py::"
        "test_a_transaction_of_which_something_was_seen_or_is_its_own_commits_by_itself"
        "[validated by rules]"
    ),
)
slip(
    "torn_chain_commits",
    "A chain whose HEAD a turn has moved, of which nothing is left, commits all the same.",
    chain.Chain._take_out,
    ("found.is_torn or found.txn.bound.held is not turn.held", "found.is_torn"),
    found_by=(
        "tests/simulation/races/test_chains.py::"
        "test_a_chain_is_refused_if_it_was_moved_in_a_turn_of_which_nothing_is_left"
    ),
)
slip(
    "reads_of_who_left_stay",
    "What a transaction has read that left its chain is gone, with what others had read.",
    chain.Chain._take_out,
    ("found.txn.work.reads = turn.reads", "found.txn.work.reads = {}"),
    found_by=(
        "tests/simulation/races/test_chains.py::"
        "test_a_members_reads_are_validated_though_a_later_transaction_has_left_the_chain"
    ),
)
slip(
    "reader_of_a_chain_one_behind",
    "A member that has only read is told the version before the one that it has read.",
    chain.commit_in_chain,
    ("max(txn.bound.sequence, summary.sequence)", "txn.bound.sequence"),
    found_by=(
        "tests/simulation/races/test_chains.py::"
        "test_a_member_that_has_only_read_has_the_version_in_which_that_is_true"
    ),
)
slip(
    "readers_of_a_chain_believed",
    "Members that have only read are not validated.",
    chain._only_read,
    ("is_true = yield from extend(found.txn)", "is_true = True\n        yield from ()"),
    found_by=(
        "tests/simulation/races/test_chains.py::"
        "test_rows_that_were_only_read_are_compared_with_the_newest_head"
    ),
)
slip(
    "one_number_too_late",
    "A leader may replace one HEAD more than the owner of an intent waits for.",
    Combined.is_too_late,
    ("one.until < number", "one.until < number - 1"),
    found_by=(
        "tests/unit/transaction/commit/together/test_intents.py::"
        "test_nothing_is_performed_in_a_replacement_after_the_proposals_last"
    ),
)
slip(
    "over_one_number_early",
    "The owner of a proposal gives it up one replacement before leaders do.",
    proposal.is_over,
    ("replacement + WINDOW", "replacement + WINDOW - 1"),
    found_by=(
        "tests/unit/global_log/inbox/test_fold.py::"
        "test_a_proposal_is_includable_until_the_last_head_of_its_window"
    ),
)
slip(
    "twice_in_one_replacement",
    "A transaction that two threads resume commits twice in one replacement of HEAD.",
    join.check_candidate,
    ("if find_commit(before, txn.id) is not None:", "if find_commit((), txn.id) is not None:"),
    found_by=(
        "tests/unit/transaction/commit/together/test_join.py::"
        "test_one_of_two_candidates_with_the_same_id_is_accepted"
    ),
)
slip(
    "reserved_tables_performed",
    "A leader performs an intent on a table that a transaction has reserved.",
    fold.why_unintended,
    ("any(table in one.tables for one in head.reserved)", "False"),
    found_by=(
        "tests/unit/transaction/commit/together/test_intents.py::"
        "test_head_shows_which_intents_may_be_performed"
    ),
)
slip(
    "old_proposals_of_the_busy",
    "A leader includes a commit so old that its files may have been cleaned up.",
    fold.take_along,
    ("< trusted_seconds", "< trusted_seconds * 1000"),
    found_by=(
        "tests/unit/transaction/commit/together/test_crowd.py::"
        "test_a_clock_that_is_an_hour_off_loses_or_doubles_no_commit[False-it-3600.0]"
    ),
)
slip(
    "published_by_the_claim_alone",
    "A leader drops pending commits that the owner has not found in the log.",
    fold._moved,
    ("if ref.sequence > claim.upto", "if ref.sequence > claim.upto + 1"),
    found_by=(
        "tests/unit/global_log/inbox/test_fold.py::"
        "test_a_pending_commit_that_the_owner_has_not_found_in_the_log_stays"
    ),
)
slip(
    "settled_without_looking",
    "A leader that finds an attempt unsettled answers its members without a new HEAD.",
    combine.settle,
    ("if tried is not None:", "if tried is None:"),
    found_by=(
        "tests/unit/transaction/commit/together/test_combine.py::"
        "test_the_members_of_an_interrupted_leader_are_committed_once"
    ),
)
