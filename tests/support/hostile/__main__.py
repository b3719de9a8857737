"""``python -m tests.support.hostile SEED`` repeats one run of the search, and shows it."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from tests.support.hostile.search import attack

with tempfile.TemporaryDirectory(prefix="hostile-") as directory:
    outcome = attack(int(sys.argv[1]), Path(directory))
print(outcome.what, *outcome.verbs, *outcome.problems, sep="\n")
sys.exit(1 if outcome.problems else 0)
