"""The prompt, tested key by key."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from prompt_toolkit.input import PipeInput, create_pipe_input
from prompt_toolkit.output import DummyOutput

import lakevilla as lv
from lakevilla.cli.shell.actions import Desk
from lakevilla.cli.shell.loop import Shell
from lakevilla.cli.shell.prompt import Prompt

CTRL_C, CTRL_D, ENTER, ESCAPE, UP = "\x03", "\x04", "\r", "\x1b", "\x1b[A"


@pytest.fixture(autouse=True)
def history(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "state" / "history"
    monkeypatch.setenv("LAKEVILLA_HISTORY", str(path))
    return path


@contextmanager
def prompt_of(desk: Desk) -> Iterator[tuple[Prompt, PipeInput, Shell]]:
    shell = Shell(desk)
    with create_pipe_input() as keys:
        yield Prompt(shell.is_complete, lambda: desk.names, keys, DummyOutput()), keys, shell


@pytest.fixture
def desk(root: str) -> Iterator[Desk]:
    with lv.connect(root) as lake:
        desk = Desk(lake, None)
        yield desk
        desk.close()


def typed(desk: Desk, *keys: str) -> str:
    """Return the text that the prompt reads from these keys."""
    with prompt_of(desk) as (prompt, source, _):
        source.send_text("".join(keys))
        return prompt.read(desk.prompt)


def test_enter_adds_lines_until_the_statement_has_its_semicolon(desk: Desk) -> None:
    assert typed(desk, "SELECT 1", ENTER, "  + 2", ENTER, ";", ENTER) == "SELECT 1\n  + 2\n;"


@pytest.mark.parametrize("text", ["\\dt", ".tables", "exit", "SELECT 1 \\gx", ""])
def test_short_commands_need_no_semicolon(desk: Desk, text: str) -> None:
    assert typed(desk, text, ENTER) == text


def test_a_semicolon_in_a_string_does_not_end_a_statement(desk: Desk) -> None:
    assert typed(desk, "SELECT ';", ENTER, "';", ENTER) == "SELECT ';\n';"


def test_a_block_ends_at_its_end_keyword(desk: Desk) -> None:
    text = typed(desk, "BEGIN ATOMIC", ENTER, "SELECT 1;", ENTER, "END;", ENTER)
    assert text == "BEGIN ATOMIC\nSELECT 1;\nEND;"


def test_escape_and_enter_run_an_incomplete_statement(desk: Desk) -> None:
    assert typed(desk, "SELECT 1", ESCAPE, ENTER) == "SELECT 1"


def test_a_menu_opens_while_typing_and_tab_completes_from_it(desk: Desk) -> None:
    # Another thread looks up names, so each key waits until the one before has taken effect.
    then = {"SELECT * FROM stock": " WHERE q", "SELECT * FROM stock WHERE qty": f";{ENTER}"}
    with prompt_of(desk) as (prompt, keys, _):
        buffer = prompt.session.default_buffer

        def go_on(_: object) -> None:
            if buffer.text in then:
                keys.send_text(then.pop(buffer.text))

        def take(_: object) -> None:
            menu = buffer.complete_state
            if menu is not None and menu.complete_index is None and menu.completions:
                keys.send_text("\t")

        buffer.on_text_changed += go_on
        buffer.on_completions_changed += take
        keys.send_text("SELECT * FROM sto")
        assert prompt.read(desk.prompt) == "SELECT * FROM stock WHERE qty;"


@pytest.mark.parametrize(
    ("key", "raised"), [(CTRL_C, KeyboardInterrupt), (CTRL_D, EOFError)], ids=["ctrl-c", "ctrl-d"]
)
def test_prompt_raises_keyboard_interrupt_on_ctrl_c_and_eof_on_ctrl_d(
    desk: Desk, key: str, raised: type[BaseException]
) -> None:
    with pytest.raises(raised):
        typed(desk, key)


def test_the_prompt_shows_the_ref_and_the_transaction(desk: Desk) -> None:
    desk.lake.branch("etl")
    assert desk.prompt == "warehouse=> "
    desk.session.sql("BEGIN")
    assert desk.prompt == "warehouse*=> "
    desk.session.sql("ROLLBACK")
    desk.go_to("etl")
    assert desk.prompt == "warehouse@etl=> "


def test_a_transaction_that_can_only_be_rolled_back_is_marked_in_the_prompt(desk: Desk) -> None:
    desk.session.sql("BEGIN")
    desk.session.sql("UPDATE stock SET qty = 1 WHERE sku = 'tea'")
    txn = desk.session.transaction
    assert txn is not None
    desk.lake.abort(txn.id)
    with pytest.raises(lv.TransactionAborted):
        txn.commit()
    assert desk.prompt == "warehouse!=> "
    desk.session.sql("ROLLBACK")
    assert desk.prompt == "warehouse=> "


def test_errors_and_ctrl_c_do_not_end_the_shell(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = [
        ("SELECT * FROM nobody;", ENTER),
        ("SELECT half of", CTRL_C),
        ("\\tming", ENTER),
        ("SELECT 6 * 7 AS answer;", ENTER),
        (CTRL_D,),
    ]
    with prompt_of(desk) as (prompt, source, shell):
        source.send_text("".join(key for some in keys for key in some))
        shell.converse(prompt)
    said = capsys.readouterr()
    assert "nobody" in said.err
    assert "did you mean \\timing?" in said.err
    assert "42" in said.out


def test_ctrl_d_rolls_back_an_open_transaction_and_reports_it(
    root: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with lv.connect(root) as lake:
        desk = Desk(lake, None)
        with prompt_of(desk) as (prompt, source, shell):
            source.send_text(f"BEGIN;{ENTER}DELETE FROM stock;{ENTER}{CTRL_D}")
            shell.converse(prompt)
        desk.close()
        assert "rolled back transaction" in capsys.readouterr().err
        assert lake.sql("SELECT count(*) AS n FROM stock").to_pylist() == [{"n": 2}]


def test_the_next_shell_has_the_history_of_the_last_without_secrets(
    desk: Desk, history: Path
) -> None:
    typed(desk, "SELECT\n1;", ENTER)
    typed(desk, "SELECT 'my password';", ENTER)
    typed(desk, " SELECT 'unseen';", ENTER)
    written = history.read_text()
    assert "password" not in written
    assert "unseen" not in written
    with prompt_of(desk) as (prompt, _, _shell):
        assert list(prompt.session.history.load_history_strings()) == ["SELECT\n1;"]


def test_a_short_command_within_a_statement_runs_and_the_statement_continues(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = "SELECT qty", ENTER, "\\d stock", ENTER, "FROM stock", ENTER, "WHERE qty = 5;", ENTER
    with prompt_of(desk) as (prompt, source, shell):
        source.send_text("".join((*keys, CTRL_D)))
        shell.converse(prompt)
    described, _, rows = capsys.readouterr().out.partition("delta table at version 0")
    assert "sku" in described
    assert rows.split()[-3:] == ["5", "(1", "row)"]


def test_the_command_q_within_a_statement_leaves_the_shell(desk: Desk) -> None:
    with prompt_of(desk) as (prompt, source, shell):
        source.send_text("".join(("SELECT qty", ENTER, "\\q", ENTER)))
        shell.converse(prompt)


def test_ctrl_c_discards_the_statement_kept_over_a_short_command(
    desk: Desk, capsys: pytest.CaptureFixture[str]
) -> None:
    keys = "SELECT nobody", ENTER, "\\conninfo", ENTER, CTRL_C, "SELECT 5;", ENTER, CTRL_D
    with prompt_of(desk) as (prompt, source, shell):
        source.send_text("".join(keys))
        shell.converse(prompt)
    assert capsys.readouterr().out.split()[-3:] == ["5", "(1", "row)"]


def test_a_backslash_at_the_start_of_a_line_within_a_string_is_text(desk: Desk) -> None:
    text = "SELECT 'a\n\\q\n';"
    assert typed(desk, text.replace("\n", ENTER), ENTER) == text
