"""Check that ``docs/cli.md`` has each command of the command line, with options of that command."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import typer
from typer.main import get_command

from lakevilla.cli.app import app

PAGE = Path(__file__).parents[2] / "docs" / "cli.md"
#: Commands that pass their options on to another program.
BEYOND = {"bench"}


def commands() -> dict[str, set[str]]:
    """Return the commands that the help lists, and the options of each."""
    group = get_command(app)
    context = typer.Context(group)
    found = {name: group.get_command(context, name) for name in group.list_commands(context)}
    return {
        name: {text for one in command.params for text in [*one.opts, *one.secondary_opts]}
        for name, command in found.items()
        if not command.hidden
    }


def rows() -> dict[str, str]:
    """Return the page's line on each command."""
    found: dict[str, str] = {}
    for line in re.findall(r"(?m)^\| (`lakevilla .+)$", PAGE.read_text()):
        for name in re.findall(r"`lakevilla ([\w-]+)", line.partition(" | ")[0]):
            assert name not in found, f"{name} has two lines"
            found[name] = line
    return found


def test_the_page_has_each_command_once() -> None:
    assert rows().keys() == commands().keys()


@pytest.mark.parametrize("name", sorted(commands().keys() - BEYOND))
def test_a_command_has_the_options_that_the_page_names(name: str) -> None:
    named = set(re.findall(r"(?<![\w`-])`?(--[a-z][a-z-]*|-[a-zA-Z]\b)", rows()[name]))
    assert named <= commands()[name]


def test_common_options_belong_to_the_commands_that_the_page_names() -> None:
    without = {
        "--json": {"bench", "mcp", "serve", "shell", "ui"},
        "--option": {"bench"},
        "--profile": {"bench"},
    }
    for option, others in without.items():
        assert {name for name, options in commands().items() if option not in options} == others
    limited = {name for name, options in commands().items() if "--limit" in options}
    (line,) = re.findall(r"(?m)^\| `--limit N`.*$", PAGE.read_text())
    assert set(re.findall(r"`([a-z]+)`", line)) == limited
