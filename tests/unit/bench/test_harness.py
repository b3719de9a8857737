"""The base of all benchmarks: parameters, clients that may die, and stored results."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from matplotlib.figure import Figure

import lakevilla as lv
from bench import command
from bench.harness.benchmark import Benchmark, NotInstalled, Run
from bench.harness.clients import Counts, Measured, closed_loop
from bench.harness.parameters import Parameter, WrongParameter, numbers, settled
from bench.harness.results import by_verb, load
from bench.harness.running import execute
from bench.harness.store.own_store import OwnStore
from bench.harness.store.places import places

PARAMETERS = (
    Parameter("clients", "1,8", "1", "how many"),
    Parameter("operations", 100, 5, "of each client", least=1),
    Parameter("rate", 0.5, 0.5, "a second", least=0),
)


def test_given_parameters_override_quick_defaults_which_override_defaults() -> None:
    assert settled(PARAMETERS, {}, quick=False) == {
        "clients": "1,8",
        "operations": 100,
        "rate": 0.5,
    }
    assert settled(PARAMETERS, {"operations": "7"}, quick=True) == {
        "clients": "1",
        "operations": 7,
        "rate": 0.5,
    }


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"client": "1"}, "no parameter 'client', did you mean clients?"),
        ({"xyz": "1"}, "no parameter 'xyz'. There are: clients, operations"),
        ({"operations": "many"}, "operations='many' is no whole number"),
        ({"operations": "0"}, "operations=0 is too small: 1 or more"),
        ({"clients": " , "}, "clients is empty"),
        ({"rate": "inf"}, "rate=inf is no number to go by"),
    ],
)
def test_a_wrong_parameter_is_refused_with_its_name(given: dict[str, str], message: str) -> None:
    with pytest.raises(WrongParameter) as caught:
        settled(PARAMETERS, given, quick=False)
    assert message in str(caught.value)


def test_list_parameters_accept_only_whole_numbers() -> None:
    assert numbers("1, 8,64") == [1, 8, 64]
    with pytest.raises(WrongParameter, match="is no list of whole numbers"):
        numbers("one")


def steps(count: int, fails_at: int | None = None) -> Callable[[Counts], Iterator[str]]:
    def work(counts: Counts) -> Iterator[str]:
        for number in range(count):
            yield "read" if number % 2 else "write"
            if number == fails_at:
                raise OSError("the disk is full")
            counts.redos += 1

    return work


def test_a_client_that_dies_is_named_and_the_other_clients_continue() -> None:
    measured = closed_loop([steps(10), steps(10, fails_at=4), steps(6)])
    assert measured.n == 10 + 4 + 6
    assert measured.counts.redos == 20
    (death,) = measured.deaths
    assert death.startswith("client 1, after 4 operations: OSError: the disk is full")


def test_operations_are_counted_by_kind() -> None:
    measured = closed_loop([steps(9)])
    counts = {kind: one.get_total_count() for kind, one in measured.histograms.items()}
    assert counts == {"write": 5, "read": 4}


def test_requests_are_counted_by_http_verb() -> None:
    assert by_verb({"GET": 2, "POST": 1, "PUT": 3}) == {
        "get": 2,
        "put": 4,
        "head": 0,
        "list": 0,
        "delete": 0,
    }


def made(run: Callable[[Run], None]) -> Benchmark:
    return Benchmark("tried", "a try", "nothing", "none", PARAMETERS, run, {"empty": drawn})


def drawn(result: object) -> Figure:
    return Figure()


def test_a_run_stores_its_result_and_its_plots(tmp_path: Path) -> None:
    def run(run: Run) -> None:
        for _ in range(3):
            run.add("one", {"clients": 2}, closed_loop([steps(4), steps(4)]))
        run.check("it adds up", True)
        run.check("it holds", False)
        run.check("it holds", True)

    result = execute(made(run), tmp_path / "out", given={}, seed=3, profile="local", quick=True)
    assert load(tmp_path / "out" / "result.json") == result
    (series,) = result.series
    assert (series.system, series.params, series.n, series.redos) == ("one", {"clients": 2}, 24, 24)
    assert len(series.repeats) == 3
    assert 0 < series.min_ms <= series.p50_ms <= series.p95_ms <= series.p99_ms <= series.max_ms
    assert result.checks == {"it adds up": True, "it holds": False}
    assert not result.ok, "what was broken once stays broken"
    assert {path.name for path in (tmp_path / "out").iterdir()} == {
        "result.json",
        "tried-empty.png",
        "tried-empty.svg",
    }
    saved = json.loads((tmp_path / "out" / "result.json").read_text())
    assert saved["seed"] == 3
    assert saved["versions"]["lakevilla"]


def test_phase_times_are_means_over_all_operations_and_add_up_to_the_mean_latency(
    tmp_path: Path,
) -> None:
    """Medians of the repeats would not add up: each phase has its median in another repeat."""
    times = [(1, 1, 7), (2, 9, 1), (3, 2, 3)]  # operations, and milliseconds in each of two phases

    def run(run: Run) -> None:
        for count, *phases in times:
            measured = Measured()
            for _ in range(count):
                measured.record("read", sum(phases) / 1000)
                for name, ms in zip(("version", "data"), phases, strict=True):
                    measured.counts.spend("read", name, ms / 1000)
            run.add("one", {}, measured)
            run.add("given", {}, measured, phases_ms={"plan": float(count)})

    one, given = execute(made(run), tmp_path, given={}, seed=1, profile="local").series
    assert one.phases_ms == pytest.approx({"read/data": 3.0, "read/version": 25 / 6}, abs=1e-3)
    assert sum(one.phases_ms.values()) == pytest.approx(one.kinds["read"]["mean"], rel=1e-2)
    assert given.phases_ms == {"plan": 2.0}


def test_plots_of_a_quick_run_are_marked_as_such(tmp_path: Path) -> None:
    def run(run: Run) -> None:
        run.add("one", {}, closed_loop([steps(1)]))

    one = made(run)
    for name, quick in (("quick", True), ("whole", False)):
        execute(one, tmp_path / name, given={}, seed=1, profile="local", quick=quick)
    pictures = {
        name: (tmp_path / name / "tried-empty.svg").read_text() for name in ("quick", "whole")
    }
    assert "a quick run" in pictures["quick"]
    assert "a quick run" not in pictures["whole"]


def test_a_server_that_does_not_start_is_reported_without_a_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    broken = tmp_path / "broken"
    (broken / "ministack").mkdir(parents=True)
    (broken / "ministack" / "__init__.py").touch()
    (broken / "ministack" / "__main__.py").write_text("raise SystemExit(3)\n")
    monkeypatch.setenv("PYTHONPATH", str(broken))
    monkeypatch.setattr(command, "benchmark", lambda name: made(lambda run: None))
    assert command.main(["run", "tried", "--profile", "zero", "--output", str(tmp_path / "o")]) == 2
    said = capsys.readouterr().err
    assert "did not start: it ended with status 3" in said
    assert "--profile local" in said


def test_a_series_without_operations_fails_the_run_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(run: Run) -> None:
        run.add("one", {"clients": 2}, closed_loop([steps(2)]))
        run.add("other", {"clients": 2}, closed_loop([steps(0)]))

    monkeypatch.setattr(command, "benchmark", {"tried": made(run)}.__getitem__)
    options = ["--profile", "local", "--output", str(tmp_path)]
    assert command.main(["run", "tried", *options]) == 1
    assert "no operation was done: other, clients 2\n" in capsys.readouterr().out
    result = load(tmp_path / "tried" / "result.json")
    assert not result.ok
    assert result.broken == ["no operation was done: other, clients 2"]


def test_series_measured_before_ctrl_c_are_kept(tmp_path: Path) -> None:
    def run(run: Run) -> None:
        run.add("one", {}, closed_loop([steps(4)]))
        raise KeyboardInterrupt

    result = execute(made(run), tmp_path, given={}, seed=1, profile="local")
    assert result.interrupted
    assert load(tmp_path / "result.json").series[0].n == 4


def test_a_repeat_interrupted_before_its_first_operation_is_left_out(tmp_path: Path) -> None:
    def run(run: Run) -> None:
        run.add("one", {}, closed_loop([steps(4)]))
        run.add("one", {}, Measured(interrupted=True))

    result = execute(made(run), tmp_path, given={}, seed=1, profile="local")
    assert result.interrupted
    (series,) = result.series
    assert len(series.repeats) == 1
    assert series.throughput_per_s > 0


def test_an_output_directory_that_is_not_empty_is_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(WrongParameter, match="is not empty"):
        execute(made(lambda run: None), tmp_path, given={}, seed=1, profile="local")


def test_an_output_directory_that_can_not_be_created_is_refused_before_the_run(
    tmp_path: Path,
) -> None:
    def measures(run: Run) -> None:
        raise AssertionError("it ran")

    (tmp_path / "file").touch()
    with pytest.raises(WrongParameter, match="name another --output"):
        execute(made(measures), tmp_path / "file" / "one", given={}, seed=1, profile="local")


def test_an_unknown_profile_is_refused(tmp_path: Path) -> None:
    with pytest.raises(WrongParameter, match="there are local, zero, s3, express"):
        execute(made(lambda run: None), tmp_path, given={}, seed=1, profile="gs")


def test_a_users_own_store_must_be_empty_and_is_emptied_after_the_run(tmp_path: Path) -> None:
    mine = tmp_path / "mine"
    mine.mkdir()

    def run(run: Run) -> None:
        root = Path(run.places.root("one"))
        (root / "data").write_text("rows")
        assert root.parent == mine
        run.add("one", {}, closed_loop([steps(4)]))

    execute(made(run), tmp_path / "1", given={}, seed=1, store=OwnStore(str(mine)))
    assert not list(mine.iterdir())
    (mine / "notes.txt").write_text("mine")
    with pytest.raises(WrongParameter, match=r"is not empty, it has notes\.txt"):
        execute(made(run), tmp_path / "2", given={}, seed=1, store=OwnStore(str(mine)))
    assert (mine / "notes.txt").read_text() == "mine"
    with pytest.raises(WrongParameter, match="needs --option AWS_ENDPOINT_URL="):
        OwnStore("s3://bucket/path")


def test_a_users_own_server_must_be_empty_under_the_given_prefix(tmp_path: Path) -> None:
    def run(run: Run) -> None:
        with lv.connect(run.places.root("one"), storage_options=run.places.options) as lake:
            lake.create_table("t", {"id": "bigint"})

    with places("zero") as server:
        store = OwnStore("s3://lake/mine", server.options)
        execute(made(run), tmp_path / "1", given={}, seed=1, store=store)
        execute(made(run), tmp_path / "2", given={}, seed=1, store=store)
        with lv.connect("s3://lake/mine/others", storage_options=server.options) as lake:
            lake.create_table("t", {"id": "bigint"})
        with pytest.raises(WrongParameter, match="is not empty, it has others/"):
            execute(made(run), tmp_path / "3", given={}, seed=1, store=store)


def test_a_benchmark_that_is_not_installed_is_reported_and_the_others_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing(run: Run) -> None:
        raise NotInstalled("spark needs pyspark: pip install 'lakevilla[spark]'")

    def measured(run: Run) -> None:
        run.add("one", {}, closed_loop([steps(2)]))

    found = {"spark": made(missing), "tried": made(measured)}
    monkeypatch.setattr(command, "benchmark", found.__getitem__)
    options = ["--profile", "local", "--output", str(tmp_path)]
    assert command.main(["run", "spark", "tried", *options]) == 2
    assert "pip install 'lakevilla[spark]'" in capsys.readouterr().err
    assert load(tmp_path / "tried" / "result.json").ok
