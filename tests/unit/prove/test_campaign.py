"""The record of a campaign, and which layer's turn it is."""

from __future__ import annotations

import json
from collections import Counter
from importlib import import_module

import pytest

from lakevilla_testing.planted import __main__ as planted
from tests.prove import __main__ as prove
from tests.prove.campaign import Ended, add, counts, line, load, next_layer, total
from tests.prove.layers import LAYERS, Layer
from tests.prove.page import page
from tests.prove.turn import PLANTED_BUG, Failure, Report, Turn, read_report

FAST, SLOW = Layer("fast", 3, "much"), Layer("slow", 1, "little")


def ended(layer: str, seconds: float = 10.0, **report: object) -> Ended:
    found = Report(
        **{"next_seed": 5, "searched": {"histories": 4}, "fired": {"crash": 2}, **report}
    )
    return Ended(layer, "0123456789", 1e9, seconds, 1, found)


def test_a_layer_with_three_shares_has_three_turns_for_one_of_the_other():
    turns: list[Ended] = []
    for _ in range(8):
        layer = next_layer([FAST, SLOW], turns, [])
        assert layer is not None
        turns.append(ended(layer.name))
    assert Counter(turn.layer for turn in turns) == {"fast": 6, "slow": 2}


def test_a_layer_that_can_not_run_has_its_turn_once():
    turns = [ended("fast", left_out="Java is missing"), ended("slow", 1000.0)]
    assert next_layer([FAST, SLOW], turns, []) == SLOW
    assert next_layer([FAST, SLOW], turns, ["slow"]) is None
    assert line("fast", total(turns, "fast")) == f"{'fast':18} left out: Java is missing"


def test_the_counts_of_a_campaign_have_a_row_a_layer():
    turns = [ended("fast", 90.0), ended("fast", 90.0, failures=[failure()])]
    rows = counts([FAST, SLOW], turns).splitlines()[2:]
    assert rows == [
        "| `fast` | 3 | 8 histories | 4 of 1 kinds | 1 |",
        "| `slow` | 0 | nothing yet | none | 0 |",
    ]


def test_a_campaign_goes_on_with_the_turns_and_seeds_of_the_run_before(tmp_path):
    record = tmp_path / "turns.jsonl"
    turns = [ended("fast"), ended("fast", next_seed=9), ended("slow", failures=[failure()])]
    add(record, ended("fast", left_out="Java is missing"))
    for turn in turns:
        add(record, turn)
    # The last line was cut off by a kill.
    with record.open("a") as file:
        file.write(json.dumps({"layer": "fast"})[:10])
    found = load(record)
    assert found == turns
    add(record, ended("slow"))
    assert load(record) == [*turns, ended("slow")]
    done = total(found, "fast")
    assert (done.next_seed, done.searched, done.fired) == (9, {"histories": 8}, {"crash": 4})
    assert line("slow", total(found, "slow")).endswith("1 FAILED")


def test_a_layer_that_has_searched_nothing_is_not_all_right():
    assert "nothing searched yet" in line("fast", total([], "fast"))
    assert "all right" not in line("fast", total([ended("fast", searched={}, fired={})], "fast"))


def test_a_turn_takes_its_first_seed_however_late(tmp_path):
    turn = Turn(7, 0.0, tmp_path / "report.json")
    assert turn.goes_on()
    assert turn.next_seed() == 7
    assert not turn.goes_on()


def test_the_page_has_each_layer_and_each_failure_with_its_command():
    text = page([FAST, SLOW], [ended("fast"), ended("slow", failures=[failure()])], "3.11")
    assert "1 failures" in text
    assert "make it &lt;fail&gt;" in text
    assert "4 histories" in text
    assert "Nothing was searched" not in text


def test_the_page_names_the_layers_that_have_searched_nothing():
    text = page([FAST, SLOW], [ended("fast", fired={"409": 2, "never": 0})], "3.11")
    assert "Nothing was searched yet by: slow." in text
    assert "409: 2" in text


def test_a_turn_that_is_killed_has_reported_what_it_did_before(tmp_path):
    turn = Turn(7, 60.0, tmp_path / "report.json")
    assert [turn.next_seed(), turn.next_seed()] == [7, 8]
    turn.count("inputs", 3)
    turn.fired("answer lost")
    turn.failed(8, "make it fail", "x" * 100_000)
    found = read_report(tmp_path / "report.json")
    assert (found.next_seed, found.searched, found.fired) == (9, {"inputs": 3}, {"answer lost": 1})
    assert found.failures[0].seed == 8
    assert len(found.failures[0].text) < 10_000


def test_the_command_of_a_failure_plants_the_bug_again(tmp_path, monkeypatch):
    monkeypatch.setenv(PLANTED_BUG, "not_validated")
    turn = Turn(7, 60.0, tmp_path / "report.json")
    turn.failed(7, "python -m lakevilla_testing.damage delta 7", "wrong")
    again = "python -m lakevilla_testing.planted not_validated -m lakevilla_testing.damage delta 7"
    assert turn.report.failures[0].command == again


def test_a_bug_is_planted_in_what_is_run(capsys):
    shown = "from lakevilla.transaction.commit.together import join; print(join.examine.__module__)"
    planted.main(["not_validated", "-c", shown])
    assert capsys.readouterr().out.startswith("lakevilla_testing.")


def test_a_campaign_with_a_bug_that_is_not_known_is_refused(capsys):
    with pytest.raises(SystemExit):
        prove.main(["--planted", "not_validatd"])
    assert "not_validated" in capsys.readouterr().err


def test_each_layer_has_a_module_with_a_run():
    for layer in LAYERS:
        module = import_module(f"tests.prove.layers.{layer.name}")
        assert callable(module.run), layer


def failure() -> Failure:
    return Failure(3, "make it <fail>", "it failed")
