"""The words by which the history page names a commit."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from lakevilla.results import HistoryEntry, LoggedOperation
from lakevilla.serve.page.history import described

DEEP = "[" * 50_000 + "]" * 50_000


@pytest.mark.parametrize(
    ("noted", "words"),
    [
        ('[{"operation": "WRITE"}, {"operation": "DELETE"}]', "write, delete"),
        ("[7]", "transaction"),
        ('[{"a": 1}]', "transaction"),
        (f'[{{"operation": {DEEP}}}]', "transaction"),
    ],
)
def test_a_commit_has_the_names_of_its_operations_in_whatever_form_they_are_noted(
    noted: str, words: str
) -> None:
    one = LoggedOperation("t", "TRANSACTION", {"operations": noted})
    at = datetime(2026, 1, 1, tzinfo=UTC)
    assert described(HistoryEntry(1, at, "id", ("t",), (one,), {}, "transaction")) == words
