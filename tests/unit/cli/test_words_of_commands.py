"""A message of the library names what the command line has for a call."""

from __future__ import annotations

import pytest

from lakevilla.cli.output import _for_commands


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        (
            "table a/b was dropped and its log still exists: `register('a/b')` revives it",
            "table a/b was dropped and its log still exists: `lakevilla register ROOT a/b` "
            "revives it",
        ),
    ],
)
def test_a_call_becomes_a_command(message: str, shown: str) -> None:
    assert _for_commands(message) == shown
