"""Messages of the library name command-line options in place of Python calls."""

from __future__ import annotations

import pytest

from lakevilla.cli.output import Output, _for_commands
from lakevilla.results import Finding, Report


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        (
            "table a/b was dropped and its log still exists: `register('a/b')` revives it",
            "table a/b was dropped and its log still exists: `lakevilla register ROOT a/b` "
            "revives it",
        ),
        (
            "a store, which is not in this client's settings: connect with "
            "settings=Settings(stores=('s3://archive',)) if it may be read",
            "a store, which is not in this client's settings: pass --option stores=s3://archive if "
            "it may be read",
        ),
        (
            "recover: force goes with rebuild_head only: leave it out",
            "recover: --force goes with --rebuild-head only: leave it out",
        ),
        (
            "branch 'etl' was found again: delete_ref('etl') if it had been deleted before",
            "branch 'etl' was found again: `lakevilla branch ROOT etl --delete` if it had been "
            "deleted before",
        ),
        (
            "table t was dropped since version 3: leave it out, by tables=",
            "table t was dropped since version 3: name the other tables by --table",
        ),
    ],
)
def test_a_python_call_in_a_message_is_shown_as_a_command(message: str, shown: str) -> None:
    assert _for_commands(message) == shown


def test_report_findings_name_command_line_options(
    capsys: pytest.CaptureFixture[str],
) -> None:
    finding = Finding("warning", "file_elsewhere", "connect with files_outside=['/data']")
    for as_json in (False, True):
        Output(as_json).report(Report(False, (finding,)))
        assert "pass --option files_outside=/data" in capsys.readouterr().out
