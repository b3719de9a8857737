"""The program that checks histories with Porcupine, built with Go below ``.cache``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from lakevilla_testing.outside.porcupine import SOURCE

PROGRAM = Path(__file__).parents[2] / ".cache" / "porcupine" / "porcupine-lists"
MISSING = "Go is missing"


def build() -> Path | None:
    """Return the program, built anew if its source has changed; None where Go is missing."""
    newest = max(path.stat().st_mtime for path in SOURCE.iterdir())
    if PROGRAM.exists() and PROGRAM.stat().st_mtime >= newest:
        return PROGRAM
    if shutil.which("go") is None:
        return None
    PROGRAM.parent.mkdir(parents=True, exist_ok=True)
    part = PROGRAM.with_name(f"{PROGRAM.name}.{os.getpid()}")
    subprocess.run(["go", "build", "-o", str(part), "."], cwd=SOURCE, check=True)
    part.replace(PROGRAM)
    return PROGRAM


def main(directories: list[str]) -> int:
    """Check the histories in directories; return 1 if one is illegal, as the program does."""
    program = build()
    if program is None:
        print(MISSING)
        return 0
    files = sorted(str(path) for one in directories for path in Path(one).rglob("*.jsonl"))
    if not files:
        print(program)
        return 0
    return subprocess.run([str(program), "-pages", directories[0], *files]).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
