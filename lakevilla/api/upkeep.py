"""The upkeep of a lake, as one verb that a scheduler calls."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from lakevilla.api.arguments import check_flag, check_names
from lakevilla.api.client.catalogs import catalog_names, named_report
from lakevilla.api.client.client import LakeClient
from lakevilla.api.refs import check_ref
from lakevilla.branches.keep import keep
from lakevilla.errors import InvalidOperation
from lakevilla.maintenance import rebuild_head as rebuilding
from lakevilla.maintenance import recovery
from lakevilla.maintenance.gc import gc
from lakevilla.maintenance.upkeep.maintain import maintain
from lakevilla.maintenance.upkeep.tasks import TASKS
from lakevilla.results import Finding, Report
from lakevilla.settings import MOST_SECONDS, shown

__all__ = ["UPKEEP_ELSEWHERE", "Upkeep"]

#: All tasks, in the order in which they are done.
ALL_TASKS = tuple(TASKS)

#: Other names of the verb here.
UPKEEP_ELSEWHERE = dict.fromkeys(
    ("maintenance", "compact", "housekeeping"), "lake.maintain() keeps the lake in shape"
)


class Upkeep:
    """The upkeep of a lake."""

    _client: LakeClient
    exists: Callable[[], bool]

    def maintain(
        self,
        tasks: Sequence[str] = ALL_TASKS,
        *,
        budget_seconds: float | None = None,
    ) -> Report:
        """Do the upkeep of a lake that is due: call it every few minutes, from anywhere.

        What is not due costs two requests. One maintainer at a time works on a task; two would do
        no harm. The report has one note for each task, and the errors.

        - ``recover``: as ``recover``.
        - ``keep``: as ``keep``, of tags that are older than three days, once a day.
        - ``checkpoint``: write the checkpoints of Delta tables that are overdue.
        - ``optimize``: as ``Table.optimize``, of tables that have many small files.
        - ``vacuum``: as ``Table.vacuum``, with each table's own retention, once a day.
        - ``gc``: as ``gc``, once a day.

        Properties of a table determine what is done to it: ``lakevilla.optimize`` (true),
        ``lakevilla.optimize.small_files`` (50), ``lakevilla.optimize.days`` (unset) and
        ``lakevilla.vacuum`` (true).

        Parameters
        ----------
        tasks : sequence of str
            The tasks to do, in this order.
        budget_seconds : float, optional
            Begin no more work after this time. The next call continues there.

        Raises
        ------
        InvalidOperation
            There is no such task.

        Examples
        --------
        >>> report = lake.maintain(["recover", "optimize"])
        >>> report.ok, [finding.kind for finding in report.findings]
        (True, ['recover', 'optimize'])
        """
        return self._maintain(tasks, budget_seconds, lambda: False)

    def keep(self, name: str) -> Report:
        """Keep a tag or a branch from the clean-up of other clients; make a clone's tables whole.

        Other clients know of neither tags nor branches. A clone whose tables are whole may end.

        The files that its tables have removed since are copied by the store, and the state of these
        tables is stored separately from their logs. The ref reads as before, after VACUUM with any
        retention and after clean-up of the logs. Files that the tables remove later are not copied
        yet: call it again, or let ``maintain`` do it, which keeps refs that are older than three
        days.

        A branch goes on as after a ``rebase`` onto the state on which it is already based: its
        earlier versions can't be read any more, and transactions that are open on it conflict.

        In a clone, each table that was written to gets files of its own, copied by the store: then
        nothing of it needs what the clone keeps, and ``delete_ref`` ends the clone.

        Parameters
        ----------
        name : str
            A tag, a branch or a clone.

        Raises
        ------
        RefNotFound
        InvalidOperation
            Idempotency keys wait on the branch to be merged.

        Examples
        --------
        >>> _ = lake.tag("closing")
        >>> _ = lake.run(lambda txn: txn.delete("stock", where="true"))
        >>> [(one.kind, one.table) for one in lake.keep("closing").findings]
        [('kept', 'stock')]
        """
        client = self._client.main("keep")
        check_ref("keep", name)
        with client.measured("keep"):
            report = client.run_safely(keep(client.context, name, client.owner))
        return named_report(report, catalog_names(client.context))

    def recover(
        self,
        *,
        rebuild_head: bool = False,
        confirm_head: bool = False,
        reset_head: int | None = None,
        force: bool = False,
    ) -> Report:
        """Finish the work of dead clients: publish what is decided, and give up their places.

        It waits only if the owners of places in a queue may be dead, and at most
        ``lease_seconds``.

        Parameters
        ----------
        rebuild_head : bool
            Instead, rebuild a lost or damaged HEAD.json from the logs of the tables and
            everything else that is left. The report lists what could not be found out. Until
            ``confirm_head``, ``gc`` and ``vacuum`` delete nothing.
        confirm_head : bool
            Instead, confirm that a person has read that report, or that HEAD is right where ``gc``
            can't determine that. A HEAD that is known to be an older one is not confirmed.
        reset_head : int, optional
            Instead, go on from an older HEAD: the number (its replacement) of one that is kept, or
            of the present one. The content of the tables stays, as with ``rebuild_head``; names,
            tags, branches and protection are those of that HEAD.
        force : bool
            With ``rebuild_head``: also where HEAD can be read, because it is an older copy.

        Raises
        ------
        CorruptObject
            HEAD or an object that it needs is lost, or HEAD is an older copy.
        InvalidOperation
            With ``rebuild_head``: HEAD is intact, or there is no lake.
        VersionNotFound
            With ``reset_head``: that HEAD is not kept; the message lists those that are.
        """
        _check_recovery(rebuild_head, confirm_head, reset_head, force)
        self._client.main("recover")
        if rebuild_head or reset_head is not None:
            context = self._client.context
            self._client.ensure_safe_store()
            context.held = None
            work = (
                rebuilding.rebuild_head(context, force=force)
                if reset_head is None
                else rebuilding.reset_head(context, reset_head)
            )
            with self._client.measured("recover"):
                return self._client.run(work)
        if not self.exists():
            return self._no_lake()
        self._client.ensure_safe_store()
        if confirm_head:
            return self._client.run(rebuilding.confirm_head(self._client.context))
        with self._client.measured("recover"):
            report = self._client.run(recovery.recover(self._client.context, self._client.owner))
        self._client.checkpoint_soon()
        return named_report(report, catalog_names(self._client.context))

    def gc(self, dry_run: bool = False) -> Report:
        """Delete objects that no transaction needs any more; with ``dry_run`` only report them.

        Transactions older than ``max_age_seconds`` are fenced: they can't commit afterwards.

        Parameters
        ----------
        dry_run : bool
            Only report what would be deleted.
        """
        dry_run = check_flag("dry_run", dry_run)
        self._client.main("gc")
        if not self.exists():
            return self._no_lake()
        if not dry_run:
            self._client.ensure_safe_store()
        with self._client.measured("gc"):
            return self._client.run(gc.gc(self._client.context, dry_run=dry_run))

    def _no_lake(self) -> Report:
        """Return the report on an empty root. Nothing is written there: it may be misspelt."""
        message = (
            f"{self._client.root} has no lake yet: the first transaction that writes makes one"
        )
        return Report(True, (Finding("note", "empty", message),))

    def _maintain(
        self, tasks: Sequence[str] | None, budget_seconds: float | None, stops: Callable[[], bool]
    ) -> Report:
        """Maintain the lake; ``stops`` is called between two pieces of work.

        None stands for all tasks.
        """
        client = self._client.main("maintain")
        chosen = _tasks(ALL_TASKS if tasks is None else tasks)
        budget = _budget(budget_seconds)
        if not self.exists():
            return self._no_lake()
        client.ensure_safe_store()
        work = partial(maintain, client.context, chosen, owner=client.owner)
        with client.measured("maintain"):
            report = client.run(work(budget_seconds=budget, stops=stops))
        client.checkpoint_soon()
        return named_report(report, catalog_names(client.context))


def _check_recovery(
    rebuild_head: object, confirm_head: object, reset_head: object, force: object
) -> None:
    is_reset = reset_head is not None
    if check_flag("confirm_head", confirm_head) and (rebuild_head or is_reset):
        raise InvalidOperation(
            "recover: read the report of the new HEAD first, then call it again with confirm_head"
        )
    if check_flag("rebuild_head", rebuild_head) and is_reset:
        raise InvalidOperation("recover: choose either rebuild_head or reset_head, not both")
    if check_flag("force", force) and not rebuild_head:
        raise InvalidOperation("recover: force goes with rebuild_head only: leave it out")
    is_number = isinstance(reset_head, int) and not isinstance(reset_head, bool)
    if is_reset and not (is_number and 0 <= reset_head < 10**20):  # type: ignore[operator]
        raise InvalidOperation(
            f"recover: reset_head must be the number of a HEAD, not {shown(reset_head)}: messages "
            "name it as the replacement, and any number that is not kept is answered with those "
            "that are"
        )


def _tasks(tasks: object) -> list[str]:
    chosen = list(dict.fromkeys(check_names("tasks", tasks)))
    unknown = [task for task in chosen if task not in TASKS]
    if unknown or not chosen:
        what = f"there is no task {unknown[0]!r}" if unknown else "no task is named"
        raise InvalidOperation(f"maintain: {what}: choose from {', '.join(TASKS)}")
    return chosen


def _budget(seconds: object) -> float | None:
    if seconds is None:
        return None
    is_number = isinstance(seconds, int | float) and not isinstance(seconds, bool)
    if not is_number or not 0 <= seconds <= MOST_SECONDS:  # type: ignore[operator]
        raise InvalidOperation(
            f"budget_seconds must be a number of seconds from 0 to {MOST_SECONDS:.12g}, not "
            f"{shown(seconds)}"
        )
    return float(seconds)  # type: ignore[arg-type]
