"""A campaign that is stopped, and a layer that was ended at an input."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.prove import fuzzed
from tests.prove.campaign import load
from tests.prove.fuzzed import Notes
from tests.prove.turn import Turn

ROOT = Path(__file__).parents[3]


def test_a_campaign_that_is_stopped_has_its_turns_and_its_report(tmp_path):
    command = [sys.executable, "-m", "tests.prove", "--hours", "1", "--layers", "lists"]
    command += ["--processes", "1", "--directory", str(tmp_path)]
    campaign = subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True)
    while not (tmp_path / "lists.json").exists():
        assert campaign.poll() is None
        time.sleep(0.05)
    campaign.send_signal(signal.SIGTERM)
    said, _ = campaign.communicate(timeout=60)
    assert campaign.returncode == 130
    assert "stopped" in said
    assert "FAILED" not in said
    assert [one.report.failures for one in load(tmp_path / "turns.jsonl")] == [[]]
    assert (tmp_path / "report.html").exists()


@pytest.mark.night  # each process imports half of the tests
def test_a_campaign_to_the_first_failure_ends_with_it(tmp_path):
    command = [sys.executable, "-m", "tests.prove", "--hours", "1", "--layers", "lists"]
    command += ["--processes", "1", "--directory", str(tmp_path)]
    command += ["--planted", "not_validated", "--first"]
    ended = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 1
    (turn,) = load(tmp_path / "planted" / "turns.jsonl")
    (failure,) = turn.report.failures
    assert failure.processor_seconds > 0
    assert "seconds of processor" in ended.stdout


@pytest.mark.parametrize("ends", [0, 1])
def test_an_input_is_at_fault_only_if_it_ends_a_process_again(tmp_path, monkeypatch, ends):
    monkeypatch.setattr(fuzzed, "_NOTES", tmp_path)
    monkeypatch.setattr(fuzzed, "_ended_again", lambda kind, seed: "it ended" * ends)
    (tmp_path / "fuzz_sql.input").write_text("text 7".ljust(64))
    turn = Turn(9, 60.0, tmp_path / "report.json")
    with Notes("fuzz_sql", turn):
        assert len(turn.report.failures) == ends


def test_an_input_that_ends_well_is_no_fault():
    assert fuzzed._ended_again("text", 0) == ""
