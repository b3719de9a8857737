"""Ctrl-C at any time: the shell reports the outcome that the statement has in the store."""

from __future__ import annotations

from contextlib import suppress

import pytest

import lakevilla as lv
from lakevilla.cli.output import Output
from lakevilla.cli.shell.actions import Desk
from lakevilla.cli.shell.loop import run_statement
from lakevilla.cli.sql.ending import Interrupted
from lakevilla.cli.sql.script import Script, ScriptRun

INSERT = "INSERT INTO stock VALUES ('gin', 3)"
BOTH = "BEGIN ATOMIC INSERT INTO stock VALUES ('gin', 3); DELETE FROM \"sales/orders\"; END"


class Interrupting:
    """An event listener that sends Ctrl-C at the end of a phase."""

    def __init__(self) -> None:
        self.phase = ""
        self.skipped = 0

    def __call__(self, event: lv.Event) -> None:
        if event.kind == "phase" and event.detail["phase"] == self.phase:
            if self.skipped:
                self.skipped -= 1
                return
            self.phase = ""
            raise KeyboardInterrupt


def interrupted(root: str, before: tuple[str, ...], text: str, phase: str, skipped: int) -> str:
    """Return the shell's message on a statement interrupted in a phase; "" if it was not."""
    pressed = Interrupting()
    with lv.connect(root, on_event=pressed) as lake:
        desk = Desk(lake, None)
        for statement in before:
            run_statement(desk, statement)
        pressed.phase, pressed.skipped = phase, skipped
        try:
            run_statement(desk, text)
        except Interrupted as stopped:
            assert desk.session.transaction is None
            return str(stopped)
        finally:
            pressed.phase = ""
            desk.close()
    return ""


def is_there(root: str) -> bool:
    with lv.connect(root) as lake:
        found = lake.sql("SELECT count(*) AS n FROM stock WHERE sku = 'gin'").to_pylist()
        assert lake.doctor().ok
    return bool(found[0]["n"])


@pytest.mark.parametrize("skipped", [0, 1, 2])
@pytest.mark.parametrize("phase", ["version", "metadata", "data", "decide", "publish", "free"])
@pytest.mark.parametrize(
    ("before", "text"),
    [((), INSERT), (("BEGIN", INSERT), "COMMIT"), ((), BOTH)],
    ids=["alone", "commit", "block"],
)
def test_an_interrupted_statement_reports_whether_it_committed(
    root: str,
    before: tuple[str, ...],
    text: str,
    phase: str,
    skipped: int,
) -> None:
    said = interrupted(root, before, text, phase, skipped)
    if not said:
        assert is_there(root)  # the statement has the phase less often
        return
    assert "not known" not in said
    assert is_there(root) == ("had committed as global version" in said), said
    assert is_there(root) != ("not" in said), said


@pytest.mark.parametrize("phase", ["metadata", "data"])
def test_a_statement_interrupted_in_a_transaction_changes_nothing_and_the_transaction_goes_on(
    root: str, phase: str
) -> None:
    pressed = Interrupting()
    with lv.connect(root, on_event=pressed) as lake:
        desk = Desk(lake, None)
        run_statement(desk, "BEGIN")
        run_statement(desk, INSERT)
        pressed.phase = phase
        with pytest.raises(Interrupted) as caught:
            run_statement(desk, "DELETE FROM stock WHERE sku = 'tea'")
        expected = "interrupted: DELETE has changed nothing; the transaction is still open"
        assert str(caught.value) == expected
        count = desk.session.sql("SELECT count(*) AS n FROM stock WHERE sku = 'tea'")
        assert count.to_pylist() == [{"n": 1}]
        run_statement(desk, "COMMIT")
        desk.close()
    assert is_there(root)


def test_an_interrupted_query_prints_nothing_else(root: str) -> None:
    assert interrupted(root, (), "SELECT * FROM stock", "data", 0) in ("", "interrupted")


@pytest.mark.parametrize("write", [True, False])
def test_an_interrupted_script_reports_which_statements_are_committed_and_which_rolled_back(
    root: str, capsys: pytest.CaptureFixture[str], write: bool
) -> None:
    pressed = Interrupting()
    query = "SELECT * FROM stock WHERE sku = 'tea'"
    text = f"{INSERT}; BEGIN; {INSERT}; DELETE FROM stock WHERE sku = 'tea'" if write else query
    phases: list[str] = []
    with lv.connect(
        root, on_event=lambda event: phases.append(event.detail.get("phase", ""))
    ) as lake:
        with suppress(lv.InvalidOperation):  # the script doesn't end its transaction
            ScriptRun(lake, Output(False), None, write=write, atomic=False).run([Script(text)])
    capsys.readouterr()
    with lv.connect(root, on_event=pressed) as lake:
        pressed.phase, pressed.skipped = "metadata", phases.count("metadata") - 1
        with pytest.raises(Interrupted) as caught:
            ScriptRun(lake, Output(False), None, write=write, atomic=False).run([Script(text)])
    assert str(caught.value) == "interrupted"
    errors = capsys.readouterr().err
    assert errors.count("\n") == (2 if write else 0)
    if write:
        assert "committed before that: global version" in errors
        assert ": nothing of it is stored" in errors
