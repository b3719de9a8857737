"""``python -m lakevilla_testing``: run histories of the real protocol, show one again, or write
them for other checkers.

It also lists the bugs that are planted to see that tests find them.
"""

from __future__ import annotations

import argparse
import multiprocessing
import sys
import traceback
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import get_args

from lakevilla_testing.histories.campaign import figures, replay
from lakevilla_testing.histories.drawn import KINDS
from lakevilla_testing.histories.plan import LakeFormat, Plan
from lakevilla_testing.outside.files import Format, Kind, write_all
from lakevilla_testing.planted.every import PLANTED, planted_by_environment
from lakevilla_testing.planted.found import FOUND


def main(arguments: Sequence[str] | None = None) -> int:
    """Return exit status 0 if every history was right, 1 if one was not."""
    parser = argparse.ArgumentParser(prog="python -m lakevilla_testing", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    again = commands.add_parser("replay", help="show one history, a request a line")
    again.add_argument("seed", type=int)
    many = commands.add_parser("run", help="run many histories and count what happened")
    many.add_argument("--seeds", default="0..1000", metavar="A..B", help="from A up to B - 1")
    many.add_argument("--processes", type=int, default=1)
    commands.add_parser("planted", help="list the planted bugs, each with what finds it")
    for command in (again, many):
        command.add_argument("--formats", choices=get_args(LakeFormat), default="delta")
        command.add_argument("--kind", choices=KINDS, default="all", help="what the plan is of")
    files = commands.add_parser("histories", help="write histories for Elle, or for Porcupine")
    files.add_argument("directory", type=Path)
    files.add_argument("--format", choices=get_args(Format), required=True)
    files.add_argument("--kind", choices=get_args(Kind), default="lists")
    files.add_argument("--seeds", default="0..100", metavar="A..B", help="from A up to B - 1")
    given = parser.parse_args(arguments)
    if given.command == "planted":
        return _list_planted()
    with planted_by_environment():
        return _run_or_replay(parser, given)


def _run_or_replay(parser: argparse.ArgumentParser, given: argparse.Namespace) -> int:
    if given.command == "replay":
        return _replay(given.seed, KINDS[given.kind](given.seed, given.formats))
    first, _, end = given.seeds.partition("..")
    if not (first.isdecimal() and end.isdecimal() and int(first) < int(end)):
        parser.error(f"--seeds takes two numbers, such as 0..1000, not {given.seeds!r}")
    seeds = range(int(first), int(end))
    if given.command == "histories":
        return _histories(given.kind, given.format, seeds, given.directory)
    return _run(seeds, max(1, given.processes), given.formats, given.kind)


def _list_planted() -> int:
    for name, bug in sorted(PLANTED.items()):
        histories = f"histories from seed {bug.first_seed}"
        print(f"{name:44} {bug.found_by or (histories if bug.for_histories else 'its own test')}")
        if name in FOUND:
            print(f"{'':44} by a layer of the campaign: {FOUND[name]}")
    print(f"{len(PLANTED)} planted bugs, {len(FOUND)} of them measured with a layer")
    return 0


def _replay(seed: int, plan: Plan) -> int:
    outcome, trace, error = replay(seed, plan=plan, hashing=True)
    print(outcome.plan)
    for line in trace:
        print(line)
    print(f"trace {outcome.trace_hash}")
    if error is None:
        print("every invariant holds")
        return 0
    traceback.print_exception(error)
    return 1


def _histories(kind: Kind, form: Format, seeds: range, directory: Path) -> int:
    for level, count in sorted(write_all(kind, form, seeds, directory).items()):
        print(f"{count:9}  {level}")
    return 0


def _run(seeds: range, processes: int, formats: LakeFormat, kind: str) -> int:
    totals: dict[str, Counter[str]] = defaultdict(Counter)
    failed: list[int] = []
    requests = 0
    with multiprocessing.get_context("spawn").Pool(processes) as pool:
        for seed, counts, count, error in pool.imap_unordered(
            partial(figures, formats=formats, kind=kind), seeds, 8
        ):
            for kind, counted in counts.items():
                totals[kind] += counted
            requests += count
            if error is not None:
                failed.append(seed)
                print(f"seed {seed}: {error}", flush=True)
    print(f"{len(seeds)} histories, {requests} requests, {len(failed)} failed")
    for kind, total in totals.items():
        print(f"{kind}:")
        for name, count in sorted(total.items()):
            print(f"{count:9}  {name}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
