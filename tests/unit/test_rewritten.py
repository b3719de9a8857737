"""Every other worker of a run imports the test modules from the last to the first."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support import rewritten

ORDER: list[str] = []


@pytest.fixture
def modules(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Four test modules, one of which cannot be imported and one of which is skipped."""
    bodies = {
        "a": "",
        "b": "raise ValueError",
        "c": "import pytest; pytest.skip('x', True)",
        "d": "",
    }
    note = "from tests.unit.test_rewritten import ORDER; ORDER.append(__name__[-1])\n"
    for name, body in bodies.items():
        folder = tmp_path / f"{name}_{tmp_path.name}"  # imported modules stay imported
        folder.mkdir()
        (folder / f"test_{name}.py").write_text(note + body)
    (tmp_path / "helper.py").write_text("raise ValueError")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(sys.modules[__name__], "ORDER", [])
    return tmp_path


def session(root: Path, worker: str | None, *args: str) -> Any:
    config = SimpleNamespace(
        rootpath=root, args=args or (str(root),), invocation_params=SimpleNamespace(dir=root)
    )
    if worker is not None:
        config.workerinput = {"workerid": worker}
    return SimpleNamespace(config=config)


def test_a_worker_with_an_odd_number_imports_test_modules_backwards(modules: Path) -> None:
    rewritten.pytest_collection(session(modules, "gw1"))
    assert ORDER == ["d", "c", "b", "a"]


@pytest.mark.parametrize("worker", [None, "gw0", "gw2"])
def test_other_processes_import_no_test_module_before_they_collect(
    modules: Path, worker: str | None
) -> None:
    rewritten.pytest_collection(session(modules, worker))
    assert ORDER == []


def test_a_run_of_some_test_modules_imports_no_others(modules: Path) -> None:
    rewritten.pytest_collection(session(modules, "gw1", f"d_{modules.name}", "helper.py"))
    assert ORDER == ["d"]
