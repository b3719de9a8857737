"""Commands that begin with a backslash: their names, and the arguments that they refuse."""

from __future__ import annotations

import pytest

from lakevilla.cli.shell.completing import command_suggestions
from lakevilla.cli.shell.screen import COMMANDS, help_lines, is_short, short
from lakevilla.errors import InvalidOperation
from tests.unit.cli.shell.test_completing import Lake


@pytest.mark.parametrize(
    ("line", "verb", "argument"),
    [
        ("\\d", "describe", None),
        ("  \\d  stock ", "describe", "stock"),
        ("\\d stock;", "describe", "stock"),
        ('\\d "Odd Name"', "describe", "Odd Name"),
        ("\\i it's.sql", "include", "it's.sql"),
        (".tables", "tables", None),
        (".mode csv", "format", "csv"),
        ("exit", "quit", None),
        ("QUIT;", "quit", None),
    ],
)
def test_a_backslash_line_is_parsed_into_command_and_argument(
    line: str, verb: str, argument: str | None
) -> None:
    assert is_short(line)
    command, found = short(line)
    assert (command.verb, found) == (verb, argument)


@pytest.mark.parametrize("text", ["SELECT 1", "exit_codes;", "quit where", "1.5", "help me"])
def test_statements_are_not_taken_as_backslash_commands(text: str) -> None:
    assert not is_short(text)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("\\tming", "did you mean \\timing?"),
        (".tabels", "did you mean .tables?"),
        ("\\nonsense", "\\? lists the commands"),
        ("\\c other", "`lakevilla shell ROOT` opens another lake"),
        ("\\i", "\\i takes FILE"),
        ("\\q now", "\\q takes no argument, such as 'now'"),
    ],
)
def test_wrong_backslash_commands_are_refused_and_the_error_names_the_right_ones(
    line: str, message: str
) -> None:
    with pytest.raises(InvalidOperation) as caught:
        short(line)
    assert message in str(caught.value)


def test_each_name_means_one_backslash_command_and_help_lists_all() -> None:
    names = [name for one in COMMANDS for name in one.names]
    assert len(names) == len(set(names))
    text = "\n".join(help_lines())
    assert all(name in text for name in names)
    assert max(map(len, help_lines())) <= 100


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\\ti", ["\\timing"]),
        (".ta", [".tables"]),
        ("\\d sa", ["sales.orders", "sales.items"]),
        ("\\d sales.o", ["sales.orders"]),
        ("\\on e", ["etl"]),
        ("\\timing o", ["on", "off"]),
        ("\\format m", ["markdown"]),
        ("\\q ", []),
        ("\\nonsense x", []),
    ],
)
def test_backslash_commands_and_their_arguments_are_completed(
    text: str, expected: list[str]
) -> None:
    assert [one.text for one in command_suggestions(text, Lake())] == expected
