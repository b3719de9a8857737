"""Run the whole campaign of searches for faults: ``make prove HOURS=3``.

Layers take turns on all processors, each in a process of its own, as long as HOURS say. What they
have done is in ``.cache/prove``: the next run goes on with other seeds, and adds to the counts.
``NEW=1`` begins a campaign anew. ``LAYERS="lists kills"`` runs some layers only; ``PLANTED=name``
plants a bug first, for which a layer must fail. ``FIRST=1`` ends the run at the first failure.

Each layer has a line in the end; the report, with plots, is ``.cache/prove/report.html``. A layer
that fails prints its seed and the command that repeats it, and the run returns exit status 1.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Collection, Generator, Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from tests.prove.campaign import Ended, add, counts, line, load, next_layer, total
from tests.prove.layers import LAYERS, Layer
from tests.prove.page import page
from tests.prove.turn import PLANTED_BUG, Failure, Report, read_report

ROOT = Path(__file__).parents[2]
#: The longest and the shortest turn, in seconds, and how long one may go on after its end: a test
#: that has begun is not broken off.
LONGEST, SHORTEST, GRACE = 300.0, 15.0, 900.0
#: A layer that has failed in so many turns has no further one in the run.
MOST_FAILED = 5
_STOPPED = 130


@dataclass(frozen=True)
class Running:
    """A turn that is under way."""

    layer: Layer
    process: subprocess.Popen[bytes]
    began: float
    seconds: float
    first_seed: int
    report: Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Return exit status 0 if no layer has found a fault, 1 if one has."""
    parser = argparse.ArgumentParser("make prove", description=__doc__)
    parser.add_argument("--hours", type=float, default=1.0)
    parser.add_argument("--layers", nargs="*", default=[], choices=[layer.name for layer in LAYERS])
    parser.add_argument("--planted", default="", metavar="BUG")
    parser.add_argument("--first", action="store_true", help="end at the first failure")
    parser.add_argument("--new", action="store_true", help="forget the campaign so far")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--directory", type=Path, default=ROOT / ".cache" / "prove")
    parser.add_argument(
        "--counts", action="store_true", help="print the counts so far in Markdown, and end"
    )
    given = parser.parse_args(arguments)
    if given.planted and given.planted not in (bugs := _planted_bugs()):
        near = get_close_matches(given.planted, bugs) or ["`python -m lakevilla_testing planted`"]
        parser.error(f"there is no planted bug {given.planted!r}: see {', '.join(near)}")
    directory: Path = given.directory / "planted" if given.planted else given.directory
    if given.new or given.planted:
        shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True, exist_ok=True)
    layers = [layer for layer in LAYERS if not given.layers or layer.name in given.layers]
    before = load(directory / "turns.jsonl")
    if given.counts:
        print(counts(layers, before))
        return 0
    environment = {**os.environ, PLANTED_BUG: given.planted}
    turns = list(before)
    stopped = _tell_all(
        _run(
            layers,
            given.hours * 3600,
            given.processes,
            directory,
            turns,
            environment,
            ["--first"] if given.first else [],
        )
    )
    failures = [(one.layer, fault) for one in turns[len(before) :] for fault in one.report.failures]
    print("\nstopped: the next run goes on from here" if stopped else "")
    for layer in layers:
        print(line(layer.name, total(turns, layer.name)))
    report = directory / "report.html"
    report.write_text(page(layers, turns, sys.version.split()[0]))
    print(f"\nthe report: {report}")
    for name, failure in failures:
        after = f"after {failure.processor_seconds:.1f} seconds of processor"
        print(f"\nFAILED: {name}, seed {failure.seed}, {after}\nrepeat it: {failure.command}")
        print("\n".join(failure.text.splitlines()[-30:]))
    if failures:
        return 1
    return _STOPPED if stopped else 0


def _tell_all(campaign: Generator[Ended, None, None]) -> bool:
    """Print a line for each turn; return whether Ctrl-C or SIGTERM has stopped the campaign."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        with closing(campaign):
            for ended in campaign:
                _tell(ended)
    except KeyboardInterrupt:
        return True
    finally:
        signal.signal(signal.SIGTERM, before)
    return False


def _run(
    layers: Sequence[Layer],
    seconds: float,
    processes: int,
    directory: Path,
    turns: list[Ended],
    environment: dict[str, str],
    options: Sequence[str],
) -> Generator[Ended, None, None]:
    """Run turns until the time is over, and yield each as it ends; ``turns`` grows by it.

    With the option ``--first``, the first failure ends the campaign as well as its turn.

    What was under way when the campaign is stopped counts as far as it has reported.
    """
    until = time.monotonic() + seconds
    each = min(LONGEST, max(SHORTEST, seconds * processes / len(layers) / 2))
    commit = _commit()
    running: list[Running] = []
    failed: Counter[str] = Counter()
    try:
        while True:
            left = until - time.monotonic()
            while len(running) < processes and left > SHORTEST / 2:
                stopped = [name for name, times in failed.items() if times >= MOST_FAILED]
                busy = [one.layer.name for one in running]
                layer = next_layer(layers, turns, stopped + busy)
                if layer is None:
                    break
                first_seed = max(0, total(turns, layer.name).next_seed)
                took = min(each, left)
                running.append(_start(layer, first_seed, took, directory, environment, options))
            if not running:
                return
            for one in [one for one in running if _is_over(one)]:
                running.remove(one)
                ended = _end(one, commit)
                turns.append(ended)
                failed[one.layer.name] += bool(ended.report.failures)
                add(directory / "turns.jsonl", ended)
                yield ended
                if "--first" in options and ended.report.failures:
                    return
            time.sleep(0.2)
    finally:
        for one in running:
            _kill(one)
            ended = _end(one, commit, stopped=True)
            turns.append(ended)
            add(directory / "turns.jsonl", ended)


def _start(
    layer: Layer,
    first_seed: int,
    seconds: float,
    directory: Path,
    environment: dict[str, str],
    options: Sequence[str],
) -> Running:
    report = directory / f"{layer.name}.json"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", f"tests.prove.layers.{layer.name}"]
    command += ["--seed", str(first_seed), "--seconds", str(seconds), "--report", str(report)]
    command += options
    with (directory / f"{layer.name}.log").open("wb") as log:
        # In a group of its own: Ctrl-C is the campaign's, which ends all that the turn has started.
        process = subprocess.Popen(
            command,
            cwd=ROOT,
            env=environment,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
    return Running(layer, process, time.monotonic(), seconds, first_seed, report)


def _is_over(one: Running) -> bool:
    if time.monotonic() > one.began + one.seconds + GRACE:
        _kill(one)
    return one.process.poll() is not None


def _kill(one: Running) -> None:
    """End a turn's process, and those that it has started."""
    with suppress(ProcessLookupError):
        os.killpg(one.process.pid, signal.SIGKILL)
    one.process.wait()


def _end(one: Running, commit: str, stopped: bool = False) -> Ended:
    """Return what a turn has done. A process that ended otherwise has failed, if not ``stopped``
    with the campaign.
    """
    written = one.report.exists()
    report = read_report(one.report) if written else Report(one.first_seed + (not stopped))
    status = one.process.returncode
    ended_well = written and (status == 0 or (status == 1 and report.failures))
    if not ended_well and not stopped:
        log = one.report.with_suffix(".log").read_text(errors="replace")
        command = f"python -m tests.prove.layers.{one.layer.name} --seed {one.first_seed}"
        how = f"the process ended with status {status}"
        if status == -signal.SIGKILL:
            how = f"the process was killed: it went on for {GRACE:.0f} seconds after its turn"
        report.failures.append(Failure(one.first_seed, command, f"{how}\n{log[-8000:]}"))
    seconds = time.monotonic() - one.began
    return Ended(one.layer.name, commit, time.time(), seconds, one.first_seed, report)


def _tell(ended: Ended) -> None:
    done = total([ended], ended.layer)
    print(f"{time.strftime('%H:%M:%S')} {line(ended.layer, done)}", flush=True)


def _planted_bugs() -> Collection[str]:
    from lakevilla_testing.planted.every import PLANTED

    return PLANTED


def _commit() -> str:
    def git(*arguments: str) -> str:
        command = ["git", "-C", str(ROOT), *arguments]
        return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

    changed = "+" if git("status", "--porcelain") else ""
    return (git("rev-parse", "--short=10", "HEAD") or "unknown") + changed


if __name__ == "__main__":
    sys.exit(main())
