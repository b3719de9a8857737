"""Collect the tests of one tool, with its package: ``make integrations TOOL=dlt`` runs them."""

from __future__ import annotations

import os
from pathlib import Path

HERE = Path(__file__).parent
TOOL = os.environ.get("LAKEVILLA_TOOL")
collect_ignore = [str(one) for one in HERE.iterdir() if one.is_dir() and one.name != TOOL]
if TOOL is None:
    collect_ignore.append(str(HERE / "test_guide.py"))
