"""Repeat one input: ``python -m lakevilla_testing.fuzzing lake 0a1b2c``.

The first argument is what an input is for, the second its bytes in hexadecimal digits.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable

from lakevilla_testing.fuzzing import objects, parsers, texts
from lakevilla_testing.fuzzing.faults import Fault


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
    parser.add_argument("kind", choices=sorted(_KINDS))
    parser.add_argument("input", type=bytes.fromhex)
    given = parser.parse_args()
    shown, faults = _KINDS[given.kind](given.input)
    print(shown)
    for fault in faults:
        print(f"{fault.what} by {fault.verb}\n{fault.text}")
    sys.exit(1 if faults else 0)


if __name__ == "__main__":
    main()
