"""The list of tests in quarantine: its form, and the outcome of a test that it names."""

from __future__ import annotations

from datetime import date
from pathlib import Path

import pytest

from tests.support import quarantine
from tests.support.quarantine import Entry, entries, names_a_test

pytest_plugins = ["pytester"]


def test_a_quarantine_line_has_a_test_a_date_and_a_reason() -> None:
    text = "# a comment\n\ntests/test_a.py::test_b[1] | 2026-11-28 | the server | is slow\n"
    assert entries(text) == [
        Entry("tests/test_a.py::test_b[1]", date(2026, 11, 28), "the server | is slow")
    ]


@pytest.mark.parametrize("line", ["tests/test_a.py::test_b", "a | 2026-11-28 |", "a | soon | b"])
def test_a_malformed_quarantine_line_is_refused(line: str) -> None:
    with pytest.raises(ValueError, match=r"line 1 is not|isoformat"):
        entries(line)


def test_a_quarantine_entry_must_name_an_existing_test(tmp_path: Path) -> None:
    (tmp_path / "test_a.py").write_text("def test_b(x):\n    pass\n")
    known, unknown = "test_a.py::test_b[1]", "test_a.py::test_c"
    assert names_a_test(Entry(known, date.today(), "slow"), tmp_path)
    assert not names_a_test(Entry(unknown, date.today(), "slow"), tmp_path)
    assert not names_a_test(Entry("test_d.py::test_b", date.today(), "slow"), tmp_path)


def test_a_failure_of_a_quarantined_test_does_not_fail_the_run(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> None:
    (pytester.path / "list").write_text("test_it.py::test_fails | 2026-11-28 | nobody knows why\n")
    monkeypatch.setattr(quarantine, "LIST", pytester.path / "list")
    pytester.makepyfile(
        test_it="def test_fails():\n    assert 0\ndef test_fails_too():\n    assert 0\n"
    )
    result = pytester.inline_run("-p", "tests.support.quarantine")
    result.assertoutcome(failed=1, skipped=1)
