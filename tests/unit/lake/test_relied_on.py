"""Objects that a client relies on for a decision once it has read them, and all other objects."""

from __future__ import annotations

import pytest

from lakevilla.lake.context import is_relied_on


@pytest.mark.parametrize(
    ("key", "relied_on"),
    [
        ("_lakevilla/HEAD.json", True),
        ("_lakevilla/heads/00000000000000000007.json", True),
        ("sales/eu/_delta_log/00000000000000000000.json", True),
        ("sales/_delta_log/00000000000000000010.checkpoint.parquet", False),
        ("sales/_delta_log/_last_checkpoint", False),
        ("sales/_delta_log/0000000000000000000.json", False),
        ("_lakevilla/pages/00000000000000000001-ab.json", False),
        ("_lakevilla/txns/0199a0b1-0000-7000-8000-000000000001.json", False),
        ("sales/_lakevilla/markers/00000000000000000001.json", False),
        ("sales/part-0.parquet", False),
    ],
)
def test_head_and_log_entries_are_relied_on_and_other_objects_are_not(
    key: str, relied_on: bool
) -> None:
    assert is_relied_on(key) == relied_on
