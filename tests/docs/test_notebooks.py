"""Run the notebooks of docs/ from their first cell to their last; they are stored
without outputs.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import nbformat
import pytest

ROOT = Path(__file__).parents[2]
NOTEBOOKS = sorted((ROOT / "docs/notebooks").glob("*.ipynb"))
#: Warnings of a kernel that are not caused by a notebook.
QUIET = pytest.mark.filterwarnings("ignore:.*:DeprecationWarning", "ignore::ResourceWarning")


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[nbformat.NotebookNode], None]:
    """Run a notebook in a new directory."""
    from nbclient import NotebookClient

    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    # The user's own Jupyter configuration has no effect, and no file is left in it.
    for name in ("JUPYTER_CONFIG_DIR", "JUPYTER_RUNTIME_DIR", "IPYTHONDIR"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    resources = {"metadata": {"path": str(tmp_path)}}

    def execute(notebook: nbformat.NotebookNode) -> None:
        NotebookClient(notebook, timeout=120, resources=resources).execute()

    return execute


@QUIET
@pytest.mark.cases(1)
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_runs(path: Path, run: Callable[[nbformat.NotebookNode], None]) -> None:
    notebook = nbformat.read(path, as_version=4)
    run(notebook)
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    assert code
    assert all(cell.execution_count for cell in code)


#: The messages that a front end gets, and a verb that lasts until the front end has the third line.
SHOWS_PROGRESS = """
import threading
import lakevilla as lv
from lakevilla.api.client import progress

progress.AFTER_SECONDS, progress.EACH_SECONDS = 0.0, 0.01
sent, enough = [], threading.Event()
publisher = get_ipython().display_pub
publish = publisher.publish

def record(data, *args, **kwargs):
    sent.append((data["text/plain"], kwargs.get("update", False)))
    if len(sent) == 3:
        enough.set()
    return publish(data, *args, **kwargs)

publisher.publish = record

def rows():
    assert enough.wait(60)
    yield {"id": 1}

with lv.connect("lake", progress=True) as lake, lake.transaction() as txn:
    txn.create_table("t", {"id": "bigint"})
    sent.clear(), enough.clear()
    txn.append("t", rows())
    publisher.publish = publish
assert all(text.startswith("append t: ") for text, _ in sent[:3]), sent
assert [update for _, update in sent[:3]] == [False, True, True], sent
assert sent[-1] == ("", True), sent
"""


@QUIET
def test_progress_is_shown_below_a_cell_and_removed_at_the_end(
    run: Callable[[nbformat.NotebookNode], None],
) -> None:
    notebook = nbformat.v4.new_notebook()
    notebook.cells = [nbformat.v4.new_code_cell(SHOWS_PROGRESS)]
    run(notebook)
    shown = [output.data["text/plain"] for output in notebook.cells[0].outputs]
    assert set(shown) == {""}, "neither a line nor a warning is left"


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_stored_without_outputs(path: Path) -> None:
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    for cell in notebook.cells:
        assert not cell.get("outputs")
        assert not cell.get("execution_count")
    assert path.stat().st_size < 20_000
