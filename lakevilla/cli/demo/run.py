"""``lakevilla demo``: the library's guarantees, shown on real tables in half a minute.

deltalake creates the tables. LakeVilla then ingests orders into three of them at a time, four
processes move money between two more, one of them is killed in the middle of a commit, another
process recovers, and two readers without LakeVilla check every sum.
"""

from __future__ import annotations

import math
import multiprocessing
import shlex
import shutil
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from multiprocessing.connection import Connection, wait
from multiprocessing.context import SpawnContext, SpawnProcess
from pathlib import Path
from typing import Any

from rich.markup import escape
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    SpinnerColumn,
    TextColumn,
    TimeElapsedColumn,
)

from lakevilla.api.connecting import connect
from lakevilla.api.lake import Lake
from lakevilla.api.transaction import Transaction
from lakevilla.cli.demo import bank
from lakevilla.cli.demo.checks import (
    TABLES,
    Check,
    bank_total,
    check_bank,
    check_orders,
    check_readable,
    deltalake_reader,
    duckdb_reader,
)
from lakevilla.cli.demo.tables import (
    ACCOUNTS,
    BANKS,
    OPENING_BALANCE,
    Batch,
    Held,
    create_bank,
    create_orders,
)
from lakevilla.cli.output import Output
from lakevilla.errors import InvalidOperation, LakeVillaError, TableNotFound
from lakevilla.results import Report
from lakevilla.values import plain

WORKERS = 4
TRANSFERS_PER_WORKER = 15
TOTAL = OPENING_BALANCE * ACCOUNTS * len(BANKS)

_PATIENCE_SECONDS = 120.0


def run(
    *,
    store: str | None,
    keep: Path | None,
    scale: float,
    batches: int,
    storage_options: Mapping[str, str],
    output: Output,
) -> bool:
    """Run the demo and print its results.

    Parameters
    ----------
    store : str or None
        A location on an object store for the lake; None for a directory.
    keep : Path or None
        A directory for the lake, left in place; None for a temporary one.
    scale : float
        TPC-H scale factor.
    batches : int
        Order batches to ingest.
    storage_options : Mapping
        Options of ``store``, in deltalake's form.
    output : Output
        The printer of the results.

    Returns
    -------
    bool
        True if every check held.
    """
    if batches < 1 or not 0 < scale < math.inf:
        raise InvalidOperation("the demo needs at least one batch and a scale above 0")
    if keep is not None and keep.exists() and not keep.is_dir():
        raise InvalidOperation(f"--keep {keep} is a file: name a new directory for the demo")
    if store is not None and keep is not None:
        raise InvalidOperation("the demo runs in a store or in a directory: pass one of the two")
    with _place(store, keep) as (root, scratch), _progress(output) as progress:
        _check_place(root, storage_options)
        shown = _Demo(root, dict(storage_options), scratch, progress).run(scale, batches)
    _print(shown, output)
    if not output.as_json:
        stays = store is not None or keep is not None
        for line in _next_steps(root if stays else None, bool(storage_options)).splitlines():
            output.line(line)
    return all(check.holds for check in shown.checks)


@dataclass(slots=True)
class Shown:
    """The results of the demo."""

    stages: dict[str, float] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    checks: list[Check] = field(default_factory=list)
    recovery: Report | None = None


class _Demo:
    def __init__(
        self, root: str, options: dict[str, str], scratch: Path, progress: Progress
    ) -> None:
        self._root = root
        self._options = options
        self._scratch = scratch
        self._progress = progress
        self._shown = Shown()
        self._context: SpawnContext = multiprocessing.get_context("spawn")

    def run(self, scale: float, batches: int) -> Shown:
        with self._stage("make tables with deltalake", 1) as advance:
            held = create_orders(
                self._root, self._scratch, scale=scale, batches=batches, options=self._options
            )
            create_bank(self._root, self._options)
            advance()
        with connect(self._root, storage_options=self._options or None) as lake:
            with self._stage("ingest orders, three tables a transaction", batches) as advance:
                for batch in held.batches():
                    with lake.transaction() as txn:
                        _ingest(txn, batch)
                    advance()
            self._transfers(lake)
        self._check(held)
        return self._shown

    def _transfers(self, lake: Lake) -> None:
        """Move money in four processes; one of them is killed in the middle of a commit."""
        workers = [self._start(number) for number in range(WORKERS)]
        seen: list[Decimal] = []
        try:
            stage = f"{WORKERS} processes move money between two tables"
            transfers = WORKERS * TRANSFERS_PER_WORKER
            with self._stage(stage, transfers) as advance, _watching(lake, seen):
                attempts = self._follow(workers, advance)
            self._shown.notes.append(
                f"{transfers} transfers in {attempts} attempts;"
                f" {len(seen)} reads of both banks meanwhile"
            )
            self._shown.checks.append(
                Check("sums of bank balances meanwhile", "LakeVilla", {TOTAL}, set(seen))
            )
            with self._stage("kill one in mid-commit, recover from another", 2) as advance:
                self._kill(workers[-1])
                advance()
                self._recover(lake)
                advance()
        finally:
            for worker in workers:
                worker.stop()

    def _start(self, number: int) -> _Worker:
        dies = number == WORKERS - 1
        body = bank.transfer_until_killed if dies else bank.transfer_many
        return _Worker(
            self._context, body, (self._root, self._options, number, TRANSFERS_PER_WORKER)
        )

    def _follow(self, workers: list[_Worker], advance: Any) -> int:
        """Wait for every transfer; return the number of their attempts."""
        attempts = 0
        left = dict.fromkeys(workers, TRANSFERS_PER_WORKER)
        while left:
            for worker in _ready(list(left)):
                attempts += worker.receive(bank.Transferred).attempts
                advance()
                left[worker] -= 1
                if not left[worker]:
                    del left[worker]
        return attempts

    def _kill(self, worker: _Worker) -> None:
        worker.pipe.send("go")
        stopped = worker.receive(bank.Stopped)
        worker.process.kill()
        worker.process.join()
        note = self._shown.notes.append
        note(
            f"process {worker.process.pid} killed (SIGKILL) after it stored"
            f" {_short(stopped.stored)} and before {_short(stopped.key)}"
        )

    def _recover(self, lake: Lake) -> None:
        """Show the half-published commit as readers of the logs see it; have another process finish
        it.
        """
        with deltalake_reader(self._root, self._options) as reader:
            torn = bank_total(reader)
        self._shown.notes.append(
            f"before recovery a reader of the log files sees {torn} in both banks,"
            f" one table ahead of the other; LakeVilla sees {_total(lake)}"
        )
        # The demo proves nothing if no commit was half published when the client was killed.
        self._shown.checks.append(
            Check(
                "half of a commit seen before recovery",
                "deltalake",
                True,
                torn in (TOTAL + bank.LAST_AMOUNT, TOTAL - bank.LAST_AMOUNT),
            )
        )
        self._shown.checks.append(
            Check("sum of bank balances before recovery", "LakeVilla", TOTAL, _total(lake))
        )
        helper = _Worker(self._context, bank.recover, (self._root, self._options))
        try:
            self._shown.recovery = helper.receive(Report)
        finally:
            helper.stop()
        for finding in self._shown.recovery.findings:
            self._shown.notes.append(f"recovery: {finding.message}")

    def _check(self, held: Held) -> None:
        with self._stage("check with deltalake and DuckDB", 2) as advance:
            for open_reader in (deltalake_reader, duckdb_reader):
                with open_reader(self._root, self._options) as reader:
                    self._shown.checks += check_orders(reader, held.expected())
                    self._shown.checks += check_bank(reader, TOTAL)
                advance()

    @contextmanager
    def _stage(self, name: str, steps: int) -> Iterator[Any]:
        task = self._progress.add_task(name, total=steps)
        started = time.monotonic()
        yield lambda: self._progress.advance(task)
        self._shown.stages[name] = time.monotonic() - started


class _Worker:
    """A process of the demo, and the pipe on which it reports."""

    def __init__(self, context: SpawnContext, body: Any, args: tuple[object, ...]) -> None:
        self.pipe, theirs = context.Pipe()
        self.process: SpawnProcess = context.Process(target=body, args=(*args, theirs), daemon=True)
        self.process.start()
        theirs.close()

    def receive(self, kind: type[Any]) -> Any:
        try:
            if not self.pipe.poll(_PATIENCE_SECONDS):
                raise LakeVillaError(
                    f"process {self.process.pid} of the demo has said nothing for"
                    f" {_PATIENCE_SECONDS:.0f} s: run the demo again"
                )
            message = self.pipe.recv()
        except EOFError:
            self.process.join()
            raise LakeVillaError(
                f"process {self.process.pid} of the demo ended with status"
                f" {self.process.exitcode}: see its message above"
            ) from None
        assert isinstance(message, kind), message
        return message

    def stop(self) -> None:
        if self.process.is_alive():
            self.process.join(1)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()
        self.pipe.close()


def _ingest(txn: Transaction, batch: Batch) -> None:
    """Ingest new orders, their lines and their customers' payments in one transaction."""
    txn.append("orders", batch.orders)
    txn.append("lineitem", batch.lines)
    txn.merge("customer", batch.payments, "target.c_custkey = source.customer").when_matched_update(
        {"c_acctbal": "target.c_acctbal - source.amount"}
    ).execute()


def _total(lake: Lake) -> Decimal:
    """Return the money in both banks, in one consistent state."""
    north, south = BANKS
    query = f"SELECT sum(balance) AS total FROM (FROM {north} UNION ALL FROM {south})"
    with lake.snapshot() as state:
        total: Decimal = state.sql(query).column("total")[0].as_py()
    return total


@contextmanager
def _watching(lake: Lake, seen: list[Decimal]) -> Iterator[None]:
    """Read both banks repeatedly, concurrently with the writers."""
    done = threading.Event()
    failures: list[BaseException] = []

    def watch() -> None:
        try:
            while not done.is_set():
                seen.append(_total(lake))
                done.wait(0.2)
        except BaseException as error:
            failures.append(error)

    thread = threading.Thread(target=watch, name="demo-watch")
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    if failures:
        raise failures[0]


def _ready(workers: list[_Worker]) -> list[_Worker]:
    ready = wait([worker.pipe for worker in workers], _PATIENCE_SECONDS)
    if not ready:
        raise LakeVillaError(
            f"the demo's processes have said nothing for {_PATIENCE_SECONDS:.0f} s:"
            " run the demo again"
        )
    pipes: list[Connection] = [pipe for pipe in ready if isinstance(pipe, Connection)]
    return [worker for worker in workers if worker.pipe in pipes]


@contextmanager
def _place(store: str | None, keep: Path | None) -> Iterator[tuple[str, Path]]:
    """Provide the lake's root, and a directory for generated files."""
    scratch = Path(tempfile.mkdtemp(prefix="lakevilla-demo-"))
    try:
        if store is not None:
            yield store.rstrip("/"), scratch
            return
        lake = scratch / "lake" if keep is None else keep.resolve()
        if lake.exists() and any(lake.iterdir()):
            raise InvalidOperation(f"{lake} is not empty: name a new directory for the demo")
        lake.mkdir(parents=True, exist_ok=True)
        yield str(lake), scratch
    finally:
        shutil.rmtree(scratch, ignore_errors=True)


def _check_place(root: str, options: Mapping[str, str]) -> None:
    """Refuse, at the start, a store that can't be used and a place that is not empty."""
    check_readable(root, options)
    with connect(root, storage_options=dict(options) or None) as lake:
        for name in TABLES:
            try:
                lake.table(name)
            except TableNotFound:
                continue
            raise InvalidOperation(
                f"{root} has a table {name} already: name a new prefix for the demo", table=name
            )


def _progress(output: Output) -> Progress:
    return Progress(
        SpinnerColumn(finished_text="[green]✓[/]"),
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        console=output.errors if output.as_json else output.console,
        disable=output.as_json,
    )


def _print(shown: Shown, output: Output) -> None:
    if output.as_json:
        output.value(
            {
                "ok": all(check.holds for check in shown.checks),
                "seconds": shown.stages,
                "notes": shown.notes,
                "checks": [{**plain(check), "holds": check.holds} for check in shown.checks],
                "recovery": shown.recovery,
            },
            "",
        )
        return
    for note in shown.notes:
        output.line(f"· {note}")
    output.table(
        ["check", "reader", "seen", ""],
        (
            (check.what, check.reader, _seen(check), "[green]✓[/]" if check.holds else "[red]✗[/]")
            for check in shown.checks
        ),
    )
    held = sum(check.holds for check in shown.checks)
    output.line(f"{held} of {len(shown.checks)} checks held, {sum(shown.stages.values()):.0f} s")


def _next_steps(root: str | None, options: bool) -> str:
    """Return suggestions for the next steps; without a root the lake was deleted."""
    if root is None:
        kept = "lakevilla demo --keep DIR      # the same, and keeps the lake"
        return f"next:\n  {kept}\n  lakevilla --help"
    at = shlex.quote(root) + (" --option ..." if options else "")
    return (
        "next:\n"
        f"  lakevilla tables {at}\n"
        f"  lakevilla log {at} --limit 5\n"
        f"  lakevilla sql {at} 'SELECT sum(balance) FROM bank_north'\n"
        f"  lakevilla changes {at} --since 1 --table bank_north --limit 5\n"
        f"  lakevilla doctor {at}"
    )


def _seen(check: Check) -> str:
    seen = escape(_show(check.seen))
    return seen if check.holds else f"{seen}, expected {escape(_show(check.expected))}"


def _show(value: object) -> str:
    if isinstance(value, set | tuple):
        return ", ".join(str(item) for item in sorted(value))
    return str(value)


def _short(key: str) -> str:
    """Return a log entry's key as the table and the version."""
    table, _, name = key.rpartition("/_delta_log/")
    return f"{table.rpartition('/')[2]} version {int(name.removesuffix('.json'))}"
