"""Run a page of the documentation from its top to its end, as a reader would.

Blocks of ``python``, ``sql`` and ``console`` share one namespace and one directory. A ``text``
block is the output of the block before it. A comment that readers don't see, ``<!-- invisible-code:
python ... -->``, sets up what the page assumes; a block that can't be run is marked ``<!-- skip:
next "the reason" -->``. A directory replaces the bucket ``s3://warehouse``, except on pages with
``<!-- needs: s3 -->``.
"""

from __future__ import annotations

import contextlib
import doctest
import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from unittest import SkipTest

from sybil import Document, Example
from sybil.evaluators.python import PythonEvaluator
from sybil.parsers.markdown import CodeBlockParser, SkipParser

ROOT = Path(__file__).parents[2]
SITE = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
INSTALL = Path(__file__).with_name("install.py")
LANGUAGES = ("python", "sql", "console", "text")

NEEDS = re.compile(r"<!-- needs: (\w+) -->")
COMMAND = re.compile(r"^\$ (.*(?:\\\n.*)*)\n?", re.MULTILINE)
_PRINTED = "__printed__"
_RUN = PythonEvaluator()


def needs(page: Path) -> str | None:
    """Return what a page needs: ``spark``, ``s3``, ``azure``, ``gcs``, or nothing."""
    found = NEEDS.search(page.read_text())
    return found[1] if found else None


def run_page(page: Path, directory: Path, dist: Path, given: dict[str, object]) -> int:
    """Run all blocks of a page; return the number of blocks that were run."""
    text = page.read_text()
    if needs(page) != "s3":
        text = text.replace("s3://warehouse", str(directory / "warehouse"))
    shell = Shell(directory, dist)
    document = Document(text, str(page))
    document.namespace.update(given)
    parsers = [
        CodeBlockParser("python", _python),
        CodeBlockParser("sql", _sql),
        CodeBlockParser("console", shell.evaluate),
        CodeBlockParser("text", _text),
        SkipParser(),
    ]
    for parser in parsers:
        for region in parser(document):
            document.add(region)
    ran = 0
    for example in document.examples():
        with contextlib.suppress(SkipTest):
            example.evaluate()
            ran += 1
    return ran


def _python(example: Example) -> None:
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        _RUN(example)
    example.namespace[_PRINTED] = printed.getvalue()


def _sql(example: Example) -> None:
    """Run SQL as a reader pastes it into ``txn.sql``, one statement after the other."""
    with example.namespace["lake"].transaction() as txn:
        for statement in filter(None, map(str.strip, example.parsed.split(";"))):
            txn.sql(statement)


def _text(example: Example) -> None:
    _agree(example.parsed, example.namespace[_PRINTED], example)


def _agree(shown: str, printed: str, example: Example) -> None:
    same = doctest.OutputChecker().check_output(
        shown.rstrip() + "\n",
        printed.rstrip() + "\n",
        doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE,
    )
    where = f"{example.path}, line {example.line}"
    assert same, f"{where}: the page shows\n{shown}\nand what is printed is\n{printed}"


class Shell:
    """Run commands in one directory, as in a reader's terminal.

    ``pip`` installs only from the wheel in ``dist``, without dependencies, and into a directory
    that nobody uses; ``make`` only prints what it would do.
    """

    def __init__(self, directory: Path, dist: Path) -> None:
        self.directory = directory
        self.programs = directory / ".programs"
        self.programs.mkdir(exist_ok=True)
        for name, command in {
            "lakevilla": 'PYTHONPATH="$LAKEVILLA" exec "$PYTHON" -m lakevilla.cli "$@"',
            "python": 'PYTHONPATH="$LAKEVILLA" exec "$PYTHON" "$@"',
            "make": 'exec /usr/bin/env -i PATH="$REST" make -n -C "$LAKEVILLA" "$@"',
            "pip": f'exec "$PYTHON" {shlex.quote(str(INSTALL))} "$@"',
        }.items():
            script = self.programs / name
            script.write_text(f"#!/bin/sh\n{command}\n")
            script.chmod(0o755)
        self.environment = {
            **os.environ,
            # Programs of packages, as dbt, stand beside the interpreter.
            "PATH": f"{self.programs}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "REST": os.environ["PATH"],
            "PYTHON": sys.executable,
            "LAKEVILLA": str(ROOT),
            "DIST": str(dist),
            "COLUMNS": "100",
            "TERM": "dumb",
            "XDG_CONFIG_HOME": str(directory / "settings"),  # named lakes are the page's own
        }

    def evaluate(self, example: Example) -> None:
        """Run the commands of a block, and compare what each prints with the output in
        the block.
        """
        pieces = COMMAND.split(example.parsed)
        assert not pieces[0].strip(), f"{example.path}: a console block begins with `$ `"
        for command, shown in zip(pieces[1::2], pieces[2::2], strict=True):
            done = subprocess.run(
                ["bash", "-c", command],
                cwd=self.directory,
                env=self.environment,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            where = f"{example.path}, line {example.line}: {command}"
            assert done.returncode == 0, f"{where}\n{done.stdout}{done.stderr}"
            if shown.strip():
                _agree(shown, done.stdout, example)
