"""The page of all results with their costs, and the reports on results that can't be read."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from bench.command import main
from bench.freshness import delays
from bench.harness.benchmark import Benchmark, Run
from bench.harness.clients import Measured
from bench.harness.drawing import figure
from bench.harness.results import Result, Series, load
from bench.harness.running import execute
from bench.harness.targets import ratio, target
from bench.registry import benchmark
from bench.report import compare, page
from bench.report.command import command
from bench.report.costs import costs, stores
from bench.requests import by_tables


@pytest.fixture
def blank_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Save pictures as empty files: painting one takes longer than the rest of a test."""

    def paint(made: Figure, path: Path, **options: object) -> None:
        path.touch()

    monkeypatch.setattr(Figure, "savefig", paint)


def series(system: str = "NONE", n: int = 20, **requests: int) -> Series:
    repeats = [{"n": n, "seconds": 1.0, "p50_ms": 4.0}, {"n": n, "seconds": 2.0, "p50_ms": 6.0}]
    return Series(
        system,
        {"kind": "append", "tables": 1, "transactions": n},
        n=2 * n,
        requests=requests,
        repeats=repeats,
    )


def result(name: str, *all_: Series, profile: str = "zero", began: str = "2026-01-01") -> Result:
    return Result(name, 1, profile, True, {"systems": "NONE"}, began, series=list(all_))


# -- targets -------------------------------------------------------------------------


def test_a_target_compares_its_limit_with_the_median_of_the_repeats() -> None:
    one = target("requests of an append", 3, [2, 3, 7])
    assert (one.measured, one.least, one.most, one.met) == (3, 2, 7, True)
    assert not target("requests of an append", 2.5, [2, 3, 7]).met


def test_a_ratio_compares_medians_and_its_spread_compares_repeats_pairwise() -> None:
    one = ratio("append / deltalake", 0.5, [1, 2, 3], [4, 4, 2])
    assert (one.measured, one.least, one.most, one.met) == (0.5, 0.25, 1.5, True)


@pytest.mark.usefixtures("blank_pictures")
def test_a_missed_target_does_not_fail_a_run_and_a_failed_check_does(tmp_path: Path) -> None:
    def measure(run: Run) -> None:
        for system, seconds in (("ours", 2.0), ("theirs", 1.0)):
            measured = Measured(seconds=seconds)
            measured.record("once", seconds)
            run.add(system, {}, measured, figures={"peak_mb": seconds})
        find = run.result.find
        run.ratio("ours / theirs", 1.5, find("ours"), find("theirs"))
        run.ratio("memory", 3.0, find("ours"), find("theirs"), "peak_mb")
        run.ratio("ours / one that is not installed", 1.5, find("ours"), find("nobody"))

    one = Benchmark("tried", "a try", "nothing", "none", (), measure, {})
    made = execute(one, tmp_path, given={}, seed=1, profile="local")
    assert made.ok
    assert [(held.target, held.met) for held in made.targets] == [
        ("ours / theirs", False),
        ("memory", True),
    ]
    assert load(tmp_path / "result.json") == made


def test_a_target_whose_clients_died_counts_as_missed(tmp_path: Path) -> None:
    """Dead clients do nothing, in no time: less than any limit."""

    def measure(run: Run) -> None:
        for system, measured in (("ours", Measured(deaths=["no"])), ("theirs", Measured())):
            if system == "theirs":
                measured.record("once", 1.0)
            run.add(system, {}, measured)
        find = run.result.find
        run.ratio("ours / theirs", 1.5, find("ours"), find("theirs"))

    one = Benchmark("tried", "a try", "nothing", "none", (), measure, {})
    made = execute(one, tmp_path, given={}, seed=1, profile="local")
    (held,) = made.targets
    assert not held.met
    assert held.cells() == ["ours / theirs", "1.5", "", "", "", "its clients died"]
    assert load(tmp_path / "result.json") == made


# -- costs ---------------------------------------------------------------------------


def test_a_million_transactions_cost_the_sum_of_their_requests() -> None:
    (one,) = costs(result("requests", series(put=40, get=10, delete=20)))
    assert one.requests == {"put": 2_000_000, "get": 500_000, "delete": 1_000_000}
    (standard, express), _ = stores()
    assert standard.name == "S3 Standard"
    # 2 PUT at 5 dollars a million, half a GET at 0.40; deleting is free.
    assert standard.dollars(one.requests, {}) == pytest.approx(2 * 5.0 + 0.5 * 0.4)
    assert express.dollars(one.requests, {}) == pytest.approx(2 * 1.13 + 0.5 * 0.03)
    gigabyte = {"written": 2**30, "read": 2**30}
    assert express.dollars({}, gigabyte) == pytest.approx(0.0032 + 0.0006)
    assert standard.dollars({}, gigabyte) == 0


def test_requests_are_divided_by_the_operations_of_the_repeat_that_counted_them() -> None:
    one = series(put=6)
    one.repeats[-1]["n"] = 3
    assert costs(result("requests", one))[0].requests["put"] == 2_000_000


def test_results_without_counted_requests_have_no_price() -> None:
    assert costs(result("requests", series(), series(n=0, put=3))) == []


def test_costs_are_shown_with_the_date_of_the_price_list(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result("requests", series(put=40)).save(tmp_path / "one")
    assert main(["cost", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    assert "2 put" in said
    assert "$10.00" in said
    assert "as of 20" in said
    assert "https://aws.amazon.com/s3/pricing/" in said


def test_a_cost_report_without_usable_results_names_the_benchmarks_that_have_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result("freshness", series(put=40)).save(tmp_path / "one")
    assert main(["cost", str(tmp_path)]) == 2
    said = capsys.readouterr().err
    assert "tables_per_txn, contention, hot, requests, smoke" in said
    assert "banking" not in said, "its operations are not registered as transactions"


# -- the page ------------------------------------------------------------------------


def test_the_html_page_has_targets_costs_the_command_and_the_papers_figure(tmp_path: Path) -> None:
    one = result("requests", series(put=40))
    one.targets = [target("requests of an append", 1, [2])]
    page.write(tmp_path / "page.html", [(benchmark("requests"), one, [])])
    text = (tmp_path / "page.html").read_text()
    assert (
        "<tr class=bad><td>requests, profile zero, a quick run</td><td>requests of an append</td>"
        in text
    )
    assert "<td>$10.00</td>" in text
    assert "Figure 14" in text
    assert "lakevilla bench run requests --quick -p systems=NONE" in text
    assert "4 (4 to 6)" not in text, "the median of all operations, which is 0 here"
    assert "0 (4 to 6)" in text
    assert "<th>redos</th>" in text


@pytest.mark.usefixtures("blank_pictures")
def test_the_newest_result_of_each_benchmark_and_profile_is_on_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result("requests", series("old"), began="2026-01-01").save(tmp_path / "b")
    result("requests", series("new"), began="2026-01-02").save(tmp_path / "a")
    result("requests", series("far"), profile="s3").save(tmp_path / "c")
    assert main(["report", str(tmp_path), "--output", str(tmp_path / "page.html")]) == 0
    text = (tmp_path / "page.html").read_text()
    assert "<td>new</td>" in text
    assert "<td>far</td>" in text
    assert "<td>old</td>" not in text
    assert text.count("id='result-0'") == text.count("id='result-1'") == 1
    assert (tmp_path / "a" / "requests-by-verb.png").exists()


def test_the_page_is_written_next_to_its_results_by_default(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result("requests", series(put=40)).save(tmp_path / "one")
    assert main(["report", str(tmp_path)]) == 0
    assert (tmp_path / "report.html").exists()
    assert f"{tmp_path}/report.html" in capsys.readouterr().out


@pytest.mark.usefixtures("blank_pictures")
def test_the_markdown_page_has_the_command_the_table_and_the_failed_checks(tmp_path: Path) -> None:
    made = result("requests", series("R|I", put=40))
    made.parameters = {"systems": "NONE|R", "tables": "1,2,4,8"}
    made.checks = {"it held": True, "it did not": False}
    made.targets = [target("requests of an append", 3, [2, 3, 7])]
    made.save(tmp_path / "one")
    assert main(["report", str(tmp_path), "--output", str(tmp_path / "page.md")]) == 0
    text = (tmp_path / "page.md").read_text()
    assert "bench run requests --quick -p 'systems=NONE|R'" in text
    assert "not for publishing" in text
    assert "**The check failed: it did not.**" in text
    assert "| R\\|I | kind append" in text
    assert "| requests of an append | 3 | 3 | 2 | 7 | met |" in text
    assert "redos" not in text, "a column of noughts says nothing"


def test_the_command_of_a_run_on_a_users_own_store_names_the_store() -> None:
    made = result("requests", profile="s3://bucket/path")
    assert "--store s3://bucket/path" in command(benchmark("requests"), made)
    assert "--profile" not in command(benchmark("requests"), made)


BROKEN: dict[str, Callable[[Path], object]] = {
    "cut off": lambda path: path.write_text('{"benchmark": "banking", "ser'),
    "of something else": lambda path: path.write_text("[1, 2]"),
    "with a field that there is not": lambda path: path.write_text(
        '{"benchmark": "banking", "series": [{"system": "x", "params": {}, "n_of_all": 1}]}'
    ),
    "with a figure that is a word": lambda path: path.write_text(
        '{"benchmark": "banking", "seed": 1, "profile": "s3", "quick": true, "parameters": {}, '
        '"series": [{"system": "x", "params": {}, "p95_ms": "fast"}]}'
    ),
    "of a benchmark that is no more": lambda path: result("bankin", series()).save(path.parent),
}


@pytest.mark.parametrize("how", BROKEN)
@pytest.mark.usefixtures("blank_pictures")
def test_an_unreadable_result_is_named_and_the_other_results_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], how: str
) -> None:
    (tmp_path / "bad").mkdir()
    BROKEN[how](tmp_path / "bad" / "result.json")
    result("requests", series(put=40)).save(tmp_path / "good")
    assert main(["report", str(tmp_path), "--output", str(tmp_path / "page.html")]) == 1
    said = capsys.readouterr()
    assert f"left out: {tmp_path}/bad/result.json" in said.err
    text = (tmp_path / "page.html").read_text()
    assert f"{tmp_path}/bad/result.json" in text
    assert "Figure 14" in text


def test_a_result_that_lacks_data_for_a_picture_still_has_its_table(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    one = series()
    one.params = {}
    result("requests", one).save(tmp_path / "short")
    assert main(["report", str(tmp_path), "--output", str(tmp_path / "page.html")]) == 1
    assert "no picture of it can be drawn" in capsys.readouterr().err
    assert "<td>NONE</td>" in (tmp_path / "page.html").read_text()


@pytest.mark.parametrize("verb", ["report", "cost"])
def test_a_directory_without_results_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], verb: str
) -> None:
    assert main([verb, str(tmp_path / "empty")]) == 2
    assert f"no result.json below {tmp_path}/empty" in capsys.readouterr().err.replace("\n", "")


# -- pictures ------------------------------------------------------------------------


def test_the_plot_of_requests_by_tables_has_a_linear_axis_and_labels() -> None:
    many = [series("R|I"), series("R|CT"), series("R|I"), series("R|CT|I")]
    for one, tables, puts in zip(many, (1, 1, 2, 2), (100, 120, 200, 300), strict=True):
        one.params["tables"] = tables
        one.metadata = {"put": puts}
    (panel,) = by_tables(result("requests", *many)).axes
    assert panel.get_yscale() == "linear"
    # R|CT has no result for two tables here; R|CT|I, cut off, has none for one.
    assert [text.get_text() for text in panel.texts] == ["5", "15", "10"]


def test_all_series_of_one_system_have_one_colour_in_the_delay_plot() -> None:
    systems = ("LakeVilla, published", "LakeVilla, decided", "Spark+Delta")
    made = result("freshness", *(series(system) for system in systems))
    for one in made.series:
        one.params = {"until": "read started"}
    (axes,) = delays(made).axes
    ours, decided, spark = (bar.get_facecolor() for bar in axes.patches)
    assert ours == decided != spark


@pytest.mark.parametrize("panels", [1, 2, 5])
def test_a_plot_title_is_not_wider_than_its_figure(panels: int) -> None:
    made, _ = figure(panels, "YCSB-LH, 8 clients, profile s3: box 25 to 75 %, whiskers 5 and 95 %")
    made.draw_without_rendering()
    (title,) = made.texts
    shown = title.get_window_extent()
    assert 0 <= shown.x0 < shown.x1 <= made.bbox.width


# -- two revisions -------------------------------------------------------------------


def test_a_comparison_shows_only_what_both_sides_measured() -> None:
    old = [result("requests", timed(2.0, put=2)), result("requests", timed(4.0, put=2))]
    new = [result("requests", timed(1.0, put=2), series("added")) for _ in range(2)]
    (row,) = compare.rows((old, new))
    assert row[:3] == ["requests", "NONE", "kind append, tables 1, transactions 20"]
    assert row[3:] == ["3 (2 to 4)", "1 (1 to 1)", "0.33", "the same"]
    (row,) = compare.rows((old, [result("requests", timed(1.0, put=1, get=1))]))
    assert row[-1] == "2 put → 1 put 1 get"


@pytest.mark.parametrize("quick", [True, False])
def test_a_comparison_of_quick_runs_warns_that_quick_is_for_trying(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], quick: bool
) -> None:
    both = [result("requests", timed(2.0, put=2))]
    monkeypatch.setattr(compare, "in_turn", lambda *arguments: (both, both))
    assert main(["compare", "HEAD", "requests", *(["--quick"] if quick else [])]) == 0
    assert ("--quick is for trying" in capsys.readouterr().out) == quick


def timed(p50_ms: float, **requests: int) -> Series:
    one = series(**requests)
    one.p50_ms = p50_ms
    return one


def test_an_unknown_revision_is_reported(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["compare", "no-such-revision", "banking"]) == 2
    said = capsys.readouterr().err.replace("\n", "")
    assert "no revision 'no-such-revision'" in said
    assert "name a commit, a branch or a tag" in said


def test_an_unknown_benchmark_is_reported_before_a_worktree_is_made(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["compare", "HEAD", "bankin"]) == 2
    assert "did you mean banking?" in capsys.readouterr().err
