"""Slips around fields of newer clients, and the limit of a rolling upgrade (note 87)."""

from lakevilla.branches import rebase
from lakevilla.global_log import head
from lakevilla.store import codec, formats
from lakevilla_testing.planted.edits import slip

slip(
    "kept_of_a_table_dropped",
    "A commit to a table drops what a newer client keeps of it.",
    head._with_kept,
    ("kept=state.kept or known.kept", "kept=state.kept"),
    found_by=(
        "tests/simulation/histories/test_newer_clients.py::"
        "test_an_older_client_keeps_what_a_newer_one_notes_in_any_order[delta]"
    ),
)
slip(
    "table_that_needs_more_written",
    "A client replaces the entry of a table that needs something which it does not know.",
    head._with_kept,
    ('    refuse_unknown(f"table {name}", known.needs)\n', ""),
    found_by=(
        "tests/unit/global_log/test_kept.py::"
        "test_a_table_that_needs_something_unknown_is_not_changed_and_others_are"
    ),
)
slip(
    "unknown_needs_read",
    "A client reads HEAD although it does not know what HEAD needs.",
    codec.decode,
    ('refuse_unknown(key, getattr(found, "needs", ()))', "pass"),
    found_by=(
        "tests/unit/global_log/test_kept.py::"
        "test_a_head_that_needs_something_unknown_is_refused_by_name"
    ),
)
slip(
    "earlier_epochs_in_an_old_format",
    "A rebased branch names its earlier epochs in a format whose clients drop them.",
    rebase.moved_to,
    ("max(following.format, FORMAT_WITH_KEPT) if epoch.earlier else ", ""),
    found_by=(
        "tests/contract/refs/test_rolling_upgrade.py::"
        "test_a_client_with_a_limit_is_told_what_needs_a_newer_format[rebase-delta]"
    ),
)
slip(
    "limit_of_what_is_needed_alone",
    "A client with a limit stores what needs the newest format that is counted for the object.",
    formats.check_written,
    ("if newest > limit:", "if number > limit:"),
    found_by=(
        "tests/unit/store/test_formats.py::"
        "test_an_object_is_stored_from_the_format_of_the_lake_on_that_its_readers_need"
        "[_lakevilla/commits/01a1fd3e-938f-7a0d-bcd3-691a01e45256-0a.json-commits-4]"
    ),
)
