"""``lakevilla bench``: in a checkout it runs the benchmarks, elsewhere it says where they are."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

import lakevilla
from bench.harness.store.places import NAMES
from lakevilla.cli.app import app


def test_bench_list_in_a_checkout_lists_its_benchmarks(capsys: pytest.CaptureFixture[str]) -> None:
    done = CliRunner().invoke(app, ["bench", "list"])
    assert done.exit_code == 0
    for name in ("ycsb_lh", "banking", "tables_per_txn", "freshness"):
        assert name in done.output + capsys.readouterr().out


def test_bench_list_shows_only_the_named_benchmarks(capsys: pytest.CaptureFixture[str]) -> None:
    done = CliRunner().invoke(app, ["bench", "list", "banking"])
    said = done.output + capsys.readouterr().out
    assert done.exit_code == 0
    assert said.startswith("banking")
    assert "ycsb_lh" not in said


@pytest.mark.parametrize(
    ("name", "first"),
    [
        ("ycsb_lh", "ycsb_lh (Figure 8)  "),
        ("tpcc", "tpcc (Table 4)  "),
        ("queues", "queues (Figures 7a and 14)  "),
        ("banking", "banking  "),
    ],
)
def test_bench_list_names_the_figure_of_the_paper(
    capsys: pytest.CaptureFixture[str], name: str, first: str
) -> None:
    done = CliRunner().invoke(app, ["bench", "list", name])
    assert (done.output + capsys.readouterr().out).startswith(first)


@pytest.mark.parametrize("verb", ["run", "compare"])
def test_bench_help_describes_each_profile(capsys: pytest.CaptureFixture[str], verb: str) -> None:
    done = CliRunner().invoke(app, ["bench", verb, "--help"])
    said = " ".join((done.output + capsys.readouterr().out).replace("│", "").split())
    for name in NAMES:
        assert f" {name} " in said.partition("Latency of the store:")[2]


@pytest.mark.parametrize("verb", ["run", "list"])
def test_an_unknown_benchmark_is_refused_and_the_error_suggests_the_nearest(
    capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    done = CliRunner().invoke(app, ["bench", verb, "bankin"])
    assert done.exit_code == 2
    said = capsys.readouterr()
    assert "did you mean banking?" in done.output + said.out + said.err


def test_bench_in_an_installed_package_says_where_the_benchmarks_are(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lakevilla, "__file__", str(tmp_path / "lakevilla" / "__init__.py"))
    done = CliRunner().invoke(app, ["bench", "list"])
    assert done.exit_code == 2
    assert "the benchmarks are in the repository" in done.output
