"""One invocation of dbt and its lake: the branch of the run, and the merge at its end.

docs/design/0079-branches-of-dbt-runs.md has the argument.
"""

from __future__ import annotations

import sys
import threading
from dataclasses import dataclass, field
from typing import Any

from dbt.adapters.events.logging import AdapterLogger
from dbt.adapters.lakevilla.credentials import RUN, LakeVillaCredentials
from dbt_common.events.event_manager_client import get_event_manager
from dbt_common.exceptions import DbtRuntimeError
from dbt_common.invocation import get_invocation_id

import lakevilla as lv
from lakevilla.errors import LakeVillaError, MergeConflict, RefExists

logger = AdapterLogger("LakeVilla")

#: Commands that build nothing, and so have no branch. Any other that builds without the events
#: of a run ends with an error.
_READING = frozenset(
    {"clean", "compile", "debug", "deps", "docs", "freshness", "generate", "init", "list", "ls"}
    | {"parse", "run-operation", "serve", "show", "source", "test"}
)
#: The key of a branch's metadata that says that a run of dbt made it.
_MADE_BY = "dbt_invocation_id"
_PASSED = frozenset({"no-op", "pass", "reused", "success", "warn"})


@dataclass
class Verdict:
    """The events of a run as far as they decide whether its branch is merged."""

    expected: int | None = None
    finished: dict[str, str] = field(default_factory=dict)
    hooks: list[str] = field(default_factory=list)

    def note(self, event: Any) -> None:
        """Note an event of dbt: how many nodes it runs, and how a node or a hook has ended."""
        match event.info.name:
            case "ConcurrencyLine":
                self.expected = event.data.node_count
            case "NodeFinished" if event.data.node_info.materialized != "ephemeral":
                node, status = event.data.node_info.unique_id, event.data.run_result.status
                if self.finished.get(node, status) in _PASSED:  # of many batches, the worst counts
                    self.finished[node] = status
                else:
                    self.finished.setdefault(node, status)
            case "LogHookEndLine":
                self.hooks.append(event.data.status)

    @property
    def failures(self) -> list[str]:
        """The nodes that did not pass, by name, and whether a hook failed."""
        failed = sorted(name for name, status in self.finished.items() if status not in _PASSED)
        hooks = sum(status not in _PASSED for status in self.hooks)
        return failed + [f"{hooks} hooks"] * bool(hooks)

    @property
    def is_complete(self) -> bool:
        """True if dbt has said of each node of the run how it ended."""
        return self.expected is not None and len(self.finished) >= self.expected


class Run:
    """The lake of one invocation, which all threads share."""

    def __init__(self, credentials: LakeVillaCredentials, command: str) -> None:
        self._credentials = credentials
        self._command = command
        self._lock = threading.Lock()
        self._main: lv.Lake[Any] | None = None
        self._branch: str | None = None
        self._verdict = Verdict()
        # Whoever calls dbt in an `except` block handles this one, which ends no run.
        self._handled = sys.exc_info()[1]
        if self._has_branch:
            # From here on: dbt says how many nodes it runs before it opens a connection.
            get_event_manager().add_callback(self._verdict.note)

    @property
    def _has_branch(self) -> bool:
        return bool(self._credentials.lakevilla_branch) and self._command not in _READING

    def lake(self) -> lv.Lake[Any]:
        """Return the lake that the threads read and write: itself, or a branch."""
        with self._lock:
            if self._main is None:
                self._main = self._begin()
            name = self._branch or self._credentials.branch
            return self._main if name is None else self._main.on(name)

    def end(self) -> None:
        """Merge the branch if everything passed, and close the lake.

        Raises
        ------
        DbtRuntimeError
            The branch was not merged though everything passed.
        """
        with self._lock:
            main, branch = self._main, self._branch
            self._main = self._branch = None
            if main is None:
                return
            try:
                if branch is not None:
                    self._end_branch(main, branch)
            finally:
                main.close()

    def _connect(self) -> lv.Lake[Any]:
        settings = self._credentials.settings
        return lv.connect(
            self._credentials.root,
            storage_options=self._credentials.storage_options,
            settings=None if settings is None else lv.Settings(**settings),
        )

    def _begin(self) -> lv.Lake[Any]:
        """Open the lake, and make the run's branch: else no thread gets the lake."""
        if self._credentials.lakevilla_branch and self._command == "retry":
            raise DbtRuntimeError(
                "dbt retry would go on without what the run before has built, which is on the "
                "branch of that run: use dbt build"
            )
        main = self._connect()
        try:
            if self._has_branch:
                self._begin_branch(main)
        except BaseException:
            main.close()
            raise
        return main

    def _begin_branch(self, main: lv.Lake[Any]) -> None:
        given, invocation = self._credentials.lakevilla_branch, get_invocation_id()
        name = f"dbt-{invocation}" if given == RUN or given is None else given
        for ref in main.refs("branch"):
            if _MADE_BY in ref.metadata and ref.name != name:
                logger.warning(left_over(ref, self._credentials.root))
        try:
            main.branch(name, metadata={_MADE_BY: invocation})
        except RefExists as error:
            raise DbtRuntimeError(
                f"branch {name} is there already: another run is working on it, or has left it. "
                f"{_ways_out(name, self._credentials.root)}; or write lakevilla_branch: {RUN}, "
                "which gives each run a branch with a name of its own"
            ) from error
        logger.info(f"this run works on branch {name}, and merges it if everything passes")
        self._branch = name

    def _end_branch(self, main: lv.Lake[Any], name: str) -> None:
        unchanged = f"branch {name} is not merged, and the lake is unchanged"
        ways = _ways_out(name, self._credentials.root)
        # dbt calls this in a `finally` block: an exception there is what has ended the run. What is
        # left is told as an error, since `dbt --quiet` shows no warnings.
        ended_by = sys.exc_info()[1]
        if ended_by is not None and ended_by is not self._handled:
            why = str(ended_by).strip() or type(ended_by).__name__
            return logger.error(f"{unchanged}, since the run ended early ({why}). {ways}")
        if failures := self._verdict.failures:
            shown = ", ".join(failures[:5])
            return logger.error(f"{unchanged}: {len(failures)} did not pass ({shown}). {ways}")
        if not self._verdict.is_complete:
            raise DbtRuntimeError(
                f"{unchanged}: dbt has told of {len(self._verdict.finished)} of "
                f"{self._verdict.expected} nodes how they ended. {ways}"
            )
        try:
            done = main.merge(name, delete=True, metadata={_MADE_BY: get_invocation_id()})
        except MergeConflict as error:
            root = self._credentials.root
            raise DbtRuntimeError(
                f"everything passed, but {unchanged}: others have changed what this run has built, "
                f"{', '.join(error.tables)}, since it began. Run dbt build again, which begins "
                f"from the lake as it is now. `lakevilla diff {root} main {name}` shows the "
                f"branch, `lakevilla branch {root} {name} --delete` ends it"
            ) from error
        except LakeVillaError as error:
            raise DbtRuntimeError(
                f"everything passed, but the merge of branch {name} failed: {error}. "
                f"`lakevilla refs {self._credentials.root}` shows whether it was merged. {ways}"
            ) from error
        version = "it changes nothing" if done.version is None else f"version {done.version}"
        return logger.info(f"branch {name} was merged into the lake: {version}")


def left_over(ref: lv.Ref, root: str) -> str:
    """Return a warning about a branch of another run."""
    when = ref.created.strftime("%Y-%m-%d %H:%M UTC")
    if ref.merged == ref.version:
        return (
            f"branch {ref.name} of {when} was merged, and not yet deleted: "
            f"`lakevilla branch {root} {ref.name} --delete`, unless its run is still going on"
        )
    return (
        f"branch {ref.name} is of a run that began at {when}, and failed, was killed, or is still "
        f"going on; the lake has nothing of it. {_ways_out(ref.name, root)}"
    )


def _ways_out(name: str, root: str) -> str:
    return (
        f"`lakevilla diff {root} main {name}` shows it, `lakevilla merge {root} {name} --delete` "
        f"publishes it, `lakevilla branch {root} {name} --delete` ends it"
    )
