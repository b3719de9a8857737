"""Repeat one input: ``python -m lakevilla_testing.fuzzing lake 0a1b2c``.

The first argument is what an input is for, the second its bytes in hexadecimal digits. The input of
a target is in a file: ``python -m lakevilla_testing.fuzzing target "parser HEAD" FILE``.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from pathlib import Path

from lakevilla_testing.fuzzing import objects, parsers, texts
from lakevilla_testing.fuzzing.faults import Fault
from lakevilla_testing.fuzzing.targets import targets


def _lake(data: bytes) -> tuple[object, list[Fault]]:
    one = objects.input_of(data)
    return one, objects.judge(one)


def _parser(data: bytes) -> tuple[object, list[Fault]]:
    given = parsers.input_of(data)
    return given, parsers.judge(given)


def _text(data: bytes) -> tuple[object, list[Fault]]:
    given = texts.input_of(data)
    return given, texts.judge(given)


_KINDS: dict[str, Callable[[bytes], tuple[object, list[Fault]]]] = {
    "lake": _lake,
    "parser": _parser,
    "text": _text,
}


def main() -> None:
    parser = argparse.ArgumentParser()
    kinds = parser.add_subparsers(dest="kind", required=True)
    for kind in sorted(_KINDS):
        kinds.add_parser(kind).add_argument("input", type=bytes.fromhex)
    target = kinds.add_parser("target")
    target.add_argument("target")
    target.add_argument("file", type=Path)
    given = parser.parse_args()
    if given.kind == "target":
        shown: object = given.file
        faults = targets()[given.target].judge(given.file.read_bytes())
    else:
        shown, faults = _KINDS[given.kind](given.input)
    print(shown)
    for fault in faults:
        print(f"{fault.what} by {fault.verb}\n{fault.text}")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
