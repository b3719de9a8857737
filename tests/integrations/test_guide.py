"""Run the guide of the tool whose package is installed; ``make integrations`` sets the tool."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.docs.pages import ROOT, run_page


def test_the_guide_runs_from_top_to_bottom(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    guide = ROOT / "docs" / "guides" / f"{os.environ['LAKEVILLA_TOOL']}.md"
    assert run_page(guide, tmp_path, Path(os.environ["DIST"]), {}) > 1
