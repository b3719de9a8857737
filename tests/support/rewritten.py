"""Share among the workers of a run pytest's rewriting of a test module when it is first read.

pytest rewrites the assertions of a module, and stores the result next to it for later runs: a
quarter of a minute of processor time for all modules. Workers read the modules in the same order
and at the same time, so in a fresh clone each worker would rewrite all of them. Therefore every
other worker first imports them from the last to the first: from the middle on, it finds the results
of the workers that began at the other end.
"""

from __future__ import annotations

from contextlib import suppress
from importlib import import_module
from pathlib import Path

import pytest


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> None:
    """Import the modules of the run's folders backwards, in every other worker."""
    worker = getattr(session.config, "workerinput", {}).get("workerid", "gw0")
    if int(worker.removeprefix("gw")) % 2 == 1:
        for path in reversed(modules_below(session.config)):
            # pytest imports it again, and reports why it can't, or skips it.
            with suppress(Exception, pytest.skip.Exception):
                import_module(
                    ".".join(path.relative_to(session.config.rootpath).with_suffix("").parts)
                )


def modules_below(config: pytest.Config) -> list[Path]:
    """Return the test modules of the folders that a run is given, in pytest's order."""
    folders = {(config.invocation_params.dir / one).resolve() for one in config.args}
    found = {path for folder in folders if folder.is_dir() for path in folder.rglob("test_*.py")}
    return sorted(path for path in found if path.is_relative_to(config.rootpath))
