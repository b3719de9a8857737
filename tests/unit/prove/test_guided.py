"""The layer of guided fuzzing: what it reports of a run, and where it can't run."""

from __future__ import annotations

import subprocess

import pytest

from tests.prove.campaign import Ended, total
from tests.prove.layers import fuzz_guided
from tests.prove.turn import PLANTED_BUG, Turn

FOUND = {"target": "parser HEAD", "inputs": 900, "began": 20, "edges": 26, "kept": 7}


@pytest.fixture
def turn(tmp_path):
    return Turn(3, 60.0, tmp_path / "report.json")


def test_the_layer_is_left_out_where_atheris_is_missing(turn, tmp_path, monkeypatch):
    monkeypatch.setattr(fuzz_guided, "ATHERIS", tmp_path / "none")
    monkeypatch.setattr(fuzz_guided, "find_spec", lambda name: None)
    fuzz_guided.run(turn)
    assert turn.report.left_out.startswith("atheris is missing")


def test_a_fault_is_reported_with_a_command_that_shows_it_again(turn, tmp_path, monkeypatch):
    monkeypatch.setattr(fuzz_guided, "_shown_again", lambda command: "a raw KeyError")
    path = str(tmp_path / "input")
    fuzz_guided.tell(turn, 3, {**FOUND, "faults": {path: "a raw KeyError"}})
    (failure,) = turn.report.failures
    assert failure.command == f"python -m lakevilla_testing.fuzzing target 'parser HEAD' {path}"


def test_an_error_that_a_fresh_process_does_not_show_is_reported_all_the_same(turn, monkeypatch):
    monkeypatch.setattr(fuzz_guided, "_shown_again", lambda command: "")
    fuzz_guided.tell(turn, 3, {**FOUND, "faults": {"input": "a raw KeyError, at first after 3"}})
    (failure,) = turn.report.failures
    assert failure.text.endswith("it needs a past.")


def test_an_input_is_tried_again_with_the_bug_that_is_planted(monkeypatch):
    ran = []

    def run(command, **options):
        ran.append(command[1:])
        return subprocess.CompletedProcess(command, 1, "a raw ValueError", "")

    monkeypatch.setattr(subprocess, "run", run)
    monkeypatch.setenv(PLANTED_BUG, "no_rows_in_a_vector")
    assert fuzz_guided._shown_again("python -m a 'b c'") == "a raw ValueError"
    assert ran == [["-m", "lakevilla_testing.planted", "no_rows_in_a_vector", "-m", "a", "b c"]]


def test_an_excess_that_instruments_alone_have_shown_is_counted(turn, monkeypatch):
    monkeypatch.setattr(fuzz_guided, "_shown_again", lambda command: "")
    fuzz_guided.tell(turn, 3, {**FOUND, "faults": {"input": "1.2 s"}})
    turn.write()
    assert turn.report.failures == []
    assert "faults that instruments alone have shown" in turn.report.searched


def test_the_coverage_of_a_campaign_is_that_of_the_turn_that_reached_most(turn):
    turns = []
    for edges in (26, 31, 30):
        fuzz_guided.tell(turn, 3, {**FOUND, "edges": edges, "faults": {}})
        turn.write()
        turns.append(Ended("fuzz_guided", "c", 0.0, 60.0, 3, turn.report))
    assert total(turns, "fuzz_guided").reached["edges by parser HEAD"] == 31
