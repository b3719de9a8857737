"""The words of a command: a root from the environment, second names, help and completion."""

from __future__ import annotations

from pathlib import Path

import pytest
import typer
from typer.main import get_command
from typer.testing import CliRunner

import lakevilla as lv
from lakevilla.cli.app import app
from lakevilla.cli.purposes import ALIASES, PURPOSES
from lakevilla.cli.root import leaves_root_out


@pytest.fixture
def root(tmp_path: Path) -> str:
    root = tmp_path / "warehouse"
    with lv.connect(root) as lake:
        lake.create_table("stock", [{"sku": "tea", "qty": 5}])
        lake.tag("closing")
    return str(root)


@pytest.mark.parametrize(
    ("words", "needed", "most", "left_out"),
    [
        ([], 1, 1, True),
        (["mine"], 1, 1, False),
        (["stock"], 2, 2, True),
        (["/sales"], 2, 2, True),
        (["mine", "stock"], 2, 2, False),
        (["mine", "stock", "more"], 2, 2, False),
        (["SELECT 1"], 1, 2, True),
        (["s3://bucket/lake"], 1, 2, False),
        (["./lake"], 1, 2, False),
        ([".."], 1, 2, False),
        (["stock", "id:int"], 2, None, True),
        (["/data/lake", "stock", "id:int"], 2, None, False),
    ],
)
def test_the_words_of_a_command_say_whether_its_root_is_left_out(
    words: list[str], needed: int, most: int | None, left_out: bool
) -> None:
    assert leaves_root_out(words, needed, most) is left_out


@pytest.mark.parametrize(
    "words",
    [
        ["tables"],
        ["export", "stock", "copies/stock"],
        ["sql", "SELECT 'stock'"],
        ["sql", "--param", "a=1", "SELECT 'stock', :a"],
        ["query", "/stock"],
        ["tables", "OTHER"],
    ],
)
def test_a_command_without_a_root_takes_that_of_the_environment(
    words: list[str], root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = [word.replace("OTHER", root) for word in words]
    monkeypatch.setenv("LAKEVILLA_ROOT", root if given == words else str(tmp_path / "none"))
    result = CliRunner().invoke(app, given)
    assert result.exit_code == 0, result.output
    assert "stock" in result.stdout


def test_a_command_without_any_root_says_that_it_is_missing() -> None:
    result = CliRunner().invoke(app, ["tables"])
    assert (result.exit_code, "root" in result.stderr.lower()) == (2, True)


def test_the_help_lists_each_command_below_its_purpose() -> None:
    group = get_command(app)
    context = typer.Context(group)
    listed = [group.get_command(context, name) for name in group.list_commands(context)]
    shown = [one.name for one in listed if not one.hidden]
    assert shown == [name for names in PURPOSES.values() for name in names]
    text = CliRunner().invoke(app, ["-h"]).stdout
    assert sorted(PURPOSES, key=text.index) == list(PURPOSES)


@pytest.mark.parametrize("alias", ALIASES)
def test_a_second_name_calls_the_command(alias: str, root: str) -> None:
    called = [CliRunner().invoke(app, [name, root]) for name in (alias, ALIASES[alias])]
    assert called[0].exit_code == 0
    assert called[0].stdout == called[1].stdout
    assert f"Also called {alias}" in CliRunner().invoke(app, [ALIASES[alias], "-h"]).stdout


@pytest.mark.parametrize(
    ("words", "found"),
    [
        ("lakevilla tab", "tables"),
        ("lakevilla schema ROOT st", "stock"),
        ("lakevilla tables ROOT --on cl", "closing"),
        ("lakevilla schema pr", "prod"),
    ],
)
def test_a_shell_completes_commands_lakes_tables_and_refs(
    words: str, found: str, root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    monkeypatch.setenv("HOME", str(tmp_path))
    CliRunner().invoke(app, ["config", "prod", root])
    typed = words.replace("ROOT", root)
    asked = {
        "_LAKEVILLA_COMPLETE": "complete_bash",
        "COMP_WORDS": typed,
        "COMP_CWORD": str(len(typed.split()) - 1),
    }
    assert CliRunner().invoke(app, [], env=asked, prog_name="lakevilla").stdout.split() == [found]


def test_a_shell_completes_nothing_in_a_lake_that_cannot_be_read(tmp_path: Path) -> None:
    asked = {
        "_LAKEVILLA_COMPLETE": "complete_bash",
        "COMP_WORDS": f"lakevilla schema {tmp_path / 'none'} st",
        "COMP_CWORD": "3",
    }
    result = CliRunner().invoke(app, [], env=asked, prog_name="lakevilla")
    assert (result.exit_code, result.output.strip()) == (0, "")
