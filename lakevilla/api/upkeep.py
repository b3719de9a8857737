"""The upkeep of a lake, and checks of its objects and files."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from lakevilla.api.applying.merge_branch import StateLike, state_name
from lakevilla.api.arguments import check_flag, check_names, check_number, check_patterns
from lakevilla.api.client.catalogs import catalog_names, named_report
from lakevilla.api.client.client import LakeClient
from lakevilla.api.refs import check_ref
from lakevilla.branches.keep import keep
from lakevilla.engines.deletes import read_deletes
from lakevilla.errors import InvalidOperation
from lakevilla.gauges import LakeMetrics
from lakevilla.maintenance import doctor, metrics, recovery
from lakevilla.maintenance import rebuild_head as rebuilding
from lakevilla.maintenance.backup.restore import refuse_half_restored
from lakevilla.maintenance.gc import gc
from lakevilla.maintenance.upkeep import maintain as maintaining
from lakevilla.maintenance.upkeep.tasks import TASKS
from lakevilla.maintenance.verify import verify
from lakevilla.meter import Meter, measured
from lakevilla.results import Finding, Report
from lakevilla.settings import MOST_SECONDS, shown
from lakevilla.store.cached import fresh

__all__ = [
    "ALL_TASKS",
    "UPKEEP_ELSEWHERE",
    "collect_garbage",
    "diagnose",
    "exists",
    "keep_ref",
    "maintain",
    "measure",
    "recover",
    "verify_lake",
]

#: All tasks, in the order in which they are done.
ALL_TASKS = tuple(TASKS)

#: Names under which users may look for ``maintain``.
UPKEEP_ELSEWHERE = dict.fromkeys(
    ("maintenance", "compact", "housekeeping"), "lake.maintain() keeps the lake in shape"
)


def exists(client: LakeClient) -> bool:
    """Return whether anything was ever committed to the lake; see ``Lake.exists``."""
    return client.run(client.context.existing()) is not None


def maintain(
    client: LakeClient,
    tasks: Sequence[str] | None,
    budget_seconds: float | None,
    stops: Callable[[], bool],
) -> Report:
    """Maintain the lake until ``stops`` returns True; it is called between two pieces of work.

    If ``tasks`` is None, do all tasks. See ``Lake.maintain``.
    """
    client = client.main("maintain")
    chosen = _tasks(ALL_TASKS if tasks is None else tasks)
    budget = _budget(budget_seconds)
    if not exists(client):
        return _no_lake(client)
    client.ensure_safe_store()
    work = partial(maintaining.maintain, client.context, chosen, owner=client.owner)
    with client.measured("maintain"):
        report = client.run(work(budget_seconds=budget, stops=stops))
    client.checkpoint_soon()
    return named_report(report, catalog_names(client.context))


def keep_ref(client: LakeClient, name: str) -> Report:
    """Protect a ref's files from other clients' clean-up; see ``Lake.keep``."""
    client = client.main("keep")
    check_ref("keep", name)
    with client.measured("keep"):
        report = client.run_safely(keep(client.context, name, client.owner))
    return named_report(report, catalog_names(client.context))


def recover(
    client: LakeClient,
    *,
    rebuild_head: bool,
    confirm_head: bool,
    reset_head: int | None,
    force: bool,
) -> Report:
    """Finish the work of dead clients, or replace HEAD by another one; see ``Lake.recover``."""
    _check_recovery(rebuild_head, confirm_head, reset_head, force)
    client.main("recover")
    if rebuild_head or reset_head is not None:
        context = client.context
        client.ensure_safe_store()
        context.held = None
        work = (
            rebuilding.rebuild_head(context, force=force)
            if reset_head is None
            else rebuilding.reset_head(context, reset_head)
        )
        with client.measured("recover"):
            return client.run(work)
    if not exists(client):
        return _no_lake(client)
    client.ensure_safe_store()
    if confirm_head:
        client.run(refuse_half_restored())
        return client.run(rebuilding.confirm_head(client.context))
    with client.measured("recover"):
        report = client.run(recovery.recover(client.context, client.owner))
    client.checkpoint_soon()
    return named_report(report, catalog_names(client.context))


def collect_garbage(client: LakeClient, dry_run: bool) -> Report:
    """Delete objects that no transaction needs any more; see ``Lake.gc``."""
    dry_run = check_flag("dry_run", dry_run)
    client.main("gc")
    if not exists(client):
        return _no_lake(client)
    if not dry_run:
        client.ensure_safe_store()
    with client.measured("gc"):
        return client.run(gc.gc(client.context, dry_run=dry_run))


def diagnose(client: LakeClient, *, adopt: bool, files: bool) -> Report:
    """Report what is wrong, pending or left over; see ``Lake.doctor``."""
    client.main("doctor")
    if check_flag("adopt", adopt):
        client.ensure_safe_store()
        client.run(recovery.adopt_lake(client.context))
    read = read_deletes if files else None
    with client.measured("doctor"):
        report = client.run(fresh(doctor.doctor(client.context, files=read)))
    return named_report(report, catalog_names(client.context))


def measure(client: LakeClient, tables: int) -> LakeMetrics:
    """Return numbers about the lake; see ``Lake.metrics``."""
    client = client.main("metrics")
    most = check_number("tables", tables)
    meter = Meter()
    with measured(meter):
        return client.run(metrics.measure(client.context, most, meter))


def verify_lake(
    client: LakeClient, tables: Sequence[str] | None, *, at: StateLike | None, sample: float
) -> Report:
    """Compare the lake's objects with their known hashes and sizes; see ``Lake.verify``."""
    client.main("verify")
    patterns = check_patterns("tables", tables)
    share = _share(sample)
    state = None if at is None else state_name(client, "at", at)
    with client.measured("verify"):
        looking = verify.verify(client.context, patterns, state, share, read_deletes)
        report = client.run(fresh(looking))
    return named_report(report, catalog_names(client.context))


def _no_lake(client: LakeClient) -> Report:
    """Return the report on an empty root; write nothing there, as the root may be misspelt."""
    message = f"{client.root} has no lake yet: the first transaction that writes makes one"
    return Report(True, (Finding("note", "empty", message),))


def _share(sample: object) -> float:
    is_number = isinstance(sample, int | float) and not isinstance(sample, bool)
    if not is_number or not 0 < sample <= 1:  # type: ignore[operator]
        raise InvalidOperation(
            f"sample must be a share of the files, above 0 and at most 1, not {shown(sample)}"
        )
    return float(sample)  # type: ignore[arg-type]


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
            "call it the replacement, and the error for a number that is not kept lists those "
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
