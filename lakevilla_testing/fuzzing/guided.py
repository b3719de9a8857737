"""Search for inputs with faults, guided by coverage: atheris instruments the whole library.

``python -m lakevilla_testing.fuzzing.guided --seconds 60`` runs the targets in turn, each in a
process that is forked after the library was instrumented. Each line that is printed tells of one
run, as JSON. Below the directory, a target's corpus has the
inputs that reached code which those before did not reach; the next run begins with them.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import os
import re
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import atheris

from lakevilla_testing.fuzzing.instrumented import instrument, instrumented_code

# What is searched is imported after this, so that each module has its counters.
instrument("lakevilla", Path(".cache/fuzz/instrumented"))

from lakevilla_testing.fuzzing.choices import Choices, drawn  # noqa: E402
from lakevilla_testing.fuzzing.targets import targets  # noqa: E402
from lakevilla_testing.planted import edits  # noqa: E402
from lakevilla_testing.planted.every import planted_by_environment  # noqa: E402

#: An input that takes longer than this, by the wall, ends its process.
_LONGEST_SECONDS = 120
#: The most bytes of an input, and of what a process may have in memory, in MB.
_LONGEST_INPUT, _MOST_MB = 300_000, 4096
#: What a layer reports of one place in the library: the shortest input that came to it.
_PLACES = re.compile(r'File "[^"]*/lakevilla/([^"]+)", line (\d+)')
_COVERAGE = re.compile(rb"(INITED|DONE) +cov: (\d+)")
_LAST_WORD = b"stat::peak_rss_mb"
_DONE = re.compile(rb"DONE +cov: ")
#: The option of ``prctl`` that ends a process with its parent.
_DIE_WITH_PARENT = 1
_INPUTS = re.compile(rb"stat::number_of_executed_units: *(\d+)")


@dataclass(frozen=True)
class Run:
    """A run of one target.

    Attributes
    ----------
    target : str
        The target's name.
    inputs : int
        How many inputs it has judged.
    began, edges : int
        The edges of the library's code that inputs have reached: those of the corpus, at the
        beginning and at the end.
    kept : int
        The inputs in the corpus.
    faults : dict of str to str
        The files with inputs that showed faults, with what these are.
    """

    target: str
    inputs: int
    began: int
    edges: int
    kept: int
    faults: dict[str, str]


def directory_of(name: str, below: Path) -> Path:
    """Return the directory of a target."""
    return below / re.sub(r"[^A-Za-z0-9]+", "-", name)


def main(arguments: Sequence[str]) -> None:
    """Run targets in turn for some seconds, or the one that is named."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--each", type=int, default=20, help="the seconds of a target's run")
    parser.add_argument("--first", type=int, default=0, help="the number of the first run")
    parser.add_argument("--directory", type=Path, default=Path(".cache/fuzz"))
    parser.add_argument("--target", help="run this one alone")
    given = parser.parse_args(arguments)
    until = time.monotonic() + given.seconds
    edited_code = edits.edited_code
    edits.edited_code = lambda *given: instrumented_code(edited_code(*given))
    with planted_by_environment():
        names = [given.target] if given.target else sorted(targets())
        number = given.first
        while number == given.first or time.monotonic() < until:
            name = names[number % len(names)]
            print(json.dumps(asdict(run(name, given.directory, given.each, number))), flush=True)
            number += 1


def run(name: str, below: Path, seconds: int, seed: int) -> Run:
    """Run a target in a process of its own for some seconds."""
    directory = directory_of(name, below)
    corpus, found = directory / "corpus", directory / "faults"
    for one in (corpus, found):
        one.mkdir(parents=True, exist_ok=True)
    for body in targets()[name].seeds:
        (corpus / hashlib.sha1(body).hexdigest()).write_bytes(body)
    told = directory / "told"
    told.unlink(missing_ok=True)
    began = time.time()
    said_in = directory / "said"
    said_in.unlink(missing_ok=True)
    child = os.fork()
    if child == 0:
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        _search(name, directory, seconds, seed)
    status = _ended(child, said_in, seconds + 2 * _LONGEST_SECONDS)
    said = said_in.read_bytes()
    faults = json.loads(told.read_text()) if told.exists() else {}
    if status:
        ended = [one for one in found.iterdir() if one.name.split("-")[0] in _ENDED]
        last = [one for one in ended if one.stat().st_mtime >= began - 1]
        what = f"the process ended with status {status}"
        faults |= dict.fromkeys(map(str, last or [said_in]), what)
    edges = {word: int(many) for word, many in _COVERAGE.findall(said)}
    inputs = _INPUTS.search(said)
    return Run(
        name,
        int(inputs[1]) if inputs else 0,
        edges.get(b"INITED", 0),
        edges.get(b"DONE", edges.get(b"INITED", 0)),
        len(list(corpus.iterdir())),
        faults,
    )


def _ended(child: int, said_in: Path, most_seconds: float) -> int:
    """Wait for a process that searches; return its status, 0 if it has searched to its end.

    Threads that the library had before the fork are not in it, and the process waits for them at
    its exit, or crashes: so one that has searched to its end is killed.
    """
    until = time.monotonic() + most_seconds
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        said = said_in.read_bytes() if said_in.exists() else b""
        has_said = _DONE.search(said) is not None and (_LAST_WORD in said or ended)
        if has_said:
            status = 0
            if not ended:
                os.kill(child, signal.SIGKILL)
                os.waitpid(child, 0)
        if ended or has_said:
            return status
        time.sleep(0.1)
    os.kill(child, signal.SIGKILL)
    return os.waitpid(child, 0)[1]


#: How libFuzzer names the input at which a process has ended.
_ENDED = ("crash", "timeout", "oom", "leak")


def _search(name: str, directory: Path, seconds: int, seed: int) -> None:
    """Let libFuzzer search; it ends the process."""
    target = targets()[name]
    notes = _Notes(directory)
    out = os.open(directory / "said", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
    os.dup2(out, 1)
    os.dup2(out, 2)

    def judge(data: bytes) -> None:
        notes.inputs += 1
        for fault in target.judge(data):
            notes.add(data, fault.what, fault.text)

    def mutate(data: bytes, most: int, number: int) -> bytes:
        choices = Choices(drawn(number))
        if choices.happens(4):
            return bytes(atheris.Mutate(data, most))
        return target.change(data, choices)[:most]

    options = {
        "max_total_time": seconds,
        "seed": seed + 1,
        "max_len": _LONGEST_INPUT,
        "len_control": 0,
        "mutate_depth": 3,
        "timeout": _LONGEST_SECONDS,
        "rss_limit_mb": _MOST_MB,
        "detect_leaks": 0,
        "print_final_stats": 1,
        "artifact_prefix": f"{directory}/faults/",
    }
    flags = [f"-{key}={value}" for key, value in options.items()]
    atheris.Setup([sys.argv[0], *flags, str(directory / "corpus")], judge, custom_mutator=mutate)
    atheris.Fuzz()
    os._exit(0)


class _Notes:
    """The faults of a run: of each place in the library, the shortest input that shows it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self.inputs = 0
        self._shortest: dict[str, int] = {}
        self._first: dict[str, str] = {}
        self._told: dict[str, str] = {}

    def add(self, data: bytes, what: str, text: str) -> None:
        kind = what if what.startswith("a raw") else re.sub(r"[\d.]+", "", what)
        place = "\n".join([kind, *(":".join(one) for one in _PLACES.findall(text)[-3:])])
        if len(data) >= self._shortest.get(place, len(data) + 1):
            return
        self._shortest[place] = len(data)
        path = self._directory / "faults" / hashlib.sha1(place.encode()).hexdigest()[:16]
        path.write_bytes(data)
        now = f"after {self.inputs} inputs and {time.process_time():.1f} s of the processor"
        first = self._first.setdefault(place, now)
        self._told[str(path)] = f"{what}, at first {first}\n{text[-4000:]}"
        (self._directory / "told").write_text(json.dumps(self._told))


if __name__ == "__main__":
    main(sys.argv[1:])
