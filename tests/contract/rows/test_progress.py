"""Long verbs report their progress to listeners; short ones do not."""

from __future__ import annotations

import contextlib
import io
import os
import pty
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from rich.console import Console

import lakevilla as lv
from lakevilla.api.client import progress
from lakevilla.api.client.bars import Bars
from lakevilla.api.client.progress import Progress, words
from lakevilla.lake.context import Event
from lakevilla.meter import Meter, Tally, measured, note, running
from tests.support.inside import inside

SCHEMA = pa.schema([("id", pa.int64())])


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every verb count as long."""
    monkeypatch.setattr(progress, "AFTER_SECONDS", 0.0)
    monkeypatch.setattr(progress, "EACH_SECONDS", 0.005)


class Ear:
    """A listener that collects progress events, and can wait for one."""

    def __init__(self) -> None:
        self.events: list[Event] = []
        self._heard = threading.Condition()

    def __call__(self, event: Event) -> None:
        if event.kind == "progress":
            with self._heard:
                self.events.append(event)
                self._heard.notify_all()

    def wait_for(self, holds: Callable[[Event], bool]) -> None:
        with self._heard:
            assert self._heard.wait_for(lambda: any(map(holds, self.events)), timeout=30)

    def of(self, verb: str) -> list[Event]:
        return [event for event in self.events if event.detail["verb"] == verb]

    def last(self, verb: str) -> Event:
        return self.of(verb)[-1]


@pytest.fixture
def ear() -> Ear:
    return Ear()


@pytest.fixture
def lake(tmp_path: Path, ear: Ear) -> Iterator[lv.Lake]:
    with lv.connect(tmp_path, on_event=ear) as lake:
        yield lake


def batches(count: int, pause: Callable[[int], None] = lambda number: None) -> pa.RecordBatchReader:
    def made() -> Iterator[pa.RecordBatch]:
        for number in range(count):
            pause(number)
            yield pa.record_batch([pa.array([number] * 1000, pa.int64())], SCHEMA)

    return pa.RecordBatchReader.from_batches(SCHEMA, made())


def test_a_verb_reports_progress_while_it_runs_and_when_it_is_done(lake: lv.Lake, ear: Ear) -> None:
    lake.create_table("t", SCHEMA)

    def pause(number: int) -> None:
        if number == 2:  # the verb goes on only after its progress was reported
            ear.wait_for(lambda e: e.detail["verb"] == "append" and e.detail["state"] == "running")

    with lake.transaction() as txn:
        txn.append("t", batches(4, pause))
    states = [event.detail["state"] for event in ear.of("append")]
    assert states[-1] == "done"
    assert set(states[:-1]) == {"running"}
    last = ear.last("append")
    assert (last.detail["rows"], last.detail["files"], last.detail["table"]) == (4000, 1, "t")
    assert last.detail["bytes"] > 0
    assert last.txn_id == txn.id
    assert last.message.startswith("append t: 4,000 rows, 1 file, ")
    assert ear.last("commit").detail["requests"] > 0


def test_progress_events_count_files_while_a_verb_writes_them(
    tmp_path: Path, ear: Ear, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = lv.Settings(target_file_size_bytes=20_000, in_memory_file_limit_bytes=10_000)
    with lv.connect(tmp_path, on_event=ear, settings=settings) as lake:
        lake.create_table("t", SCHEMA)

        def pause(number: int) -> None:
            if number == 39:
                ear.wait_for(lambda e: e.detail["verb"] == "append" and e.detail["files"] > 0)

        with lake.transaction() as txn:
            txn.append("t", batches(40, pause))
    counts = [event.detail["files"] for event in ear.of("append")]
    assert counts == sorted(counts)
    assert counts[-1] > 1


def test_every_verb_that_can_take_long_reports_progress(lake: lv.Lake, ear: Ear) -> None:
    lake.create_table("t", batches(2))
    with lake.transaction() as txn:
        txn.update("t", {"id": "id + 1"}, where="true")
        txn.delete("t", "id = 1")
        txn.merge("t", {"id": [7]}, "source.id = target.id").when_not_matched_insert_all().execute()
        assert txn.read("t").num_rows == 1001
        txn.sql("SELECT count(*) AS n FROM t")
    lake.table("t").optimize()
    lake.table("t").vacuum(0, dry_run=False, enforce_retention_duration=False)
    lake.recover()
    lake.gc()
    lake.doctor(files=True)
    lake.drop_table("t", delete_data=True)
    expected = {
        "create_table", "update", "delete", "merge", "read", "sql", "commit", "optimize", "vacuum",
        "recover", "gc", "doctor", "drop_table",
    }  # fmt: skip
    assert expected <= {event.detail["verb"] for event in ear.events}
    assert ear.last("update").detail["rows"] == 2000
    assert ear.last("read").detail["rows"] == 1001
    assert ear.last("vacuum").detail["deleted"] > 0
    # Each verb has its own number; its last event, and no earlier one, is "done".
    for number in {event.detail["number"] for event in ear.events}:
        states = [e.detail["state"] for e in ear.events if e.detail["number"] == number]
        assert states.count("done") == 1
        assert states[-1] == "done"


def test_the_last_progress_event_of_a_failing_verb_is_failed(lake: lv.Lake, ear: Ear) -> None:
    lake.create_table("t", SCHEMA)
    with pytest.raises(lv.InvalidOperation), lake.transaction() as txn:
        txn.append("t", {"nonsense": [1]})
    assert ear.last("append").detail["state"] == "failed"


def test_a_short_verb_reports_no_progress(
    lake: lv.Lake, ear: Ear, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "AFTER_SECONDS", 3600.0)
    lake.create_table("t", batches(2))
    assert ear.events == []


def test_progress_is_not_measured_when_no_listener_is_set(tmp_path: Path) -> None:
    seen: list[Meter | None] = []
    with lv.connect(tmp_path) as lake:
        lake.create_table("t", batches(2, lambda number: seen.append(running())))
        assert inside(lake).client._progress is None
    assert seen == [None, None]


def test_a_listener_that_raises_harms_nothing(tmp_path: Path) -> None:
    def raises(event: Event) -> None:
        raise ZeroDivisionError

    with lv.connect(tmp_path, on_event=raises) as lake:
        lake.create_table("t", batches(2))
        assert lake.table("t").version == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_forked_child_reports_its_own_progress(lake: lv.Lake, ear: Ear) -> None:
    lake.create_table("t", SCHEMA)
    teller: Progress = inside(lake).client._progress
    teller._lock.acquire()  # as if another thread held it during the fork
    child = os.fork()
    if child == 0:
        with teller.of("verb"):
            pass
        os._exit(0 if ear.last("verb").detail["state"] == "done" else 3)
    teller._lock.release()
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_a_meter_counts_rows_of_all_threads_in_its_block() -> None:
    meter = Meter()
    with measured(meter):
        note(rows=1)
        threads = [threading.Thread(target=lambda: meter.add(rows=1)) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    note(rows=99)  # outside of any verb
    assert meter.done == Tally(rows=9)
    assert words(Tally(1, 2, 2048)) == "1 row, 2 files, 2.0 KiB"
    assert words(Tally(requests=3)) == "3 requests"
    assert words(Tally(deleted=1200)) == "1,200 deleted"


# -- the bar ---------------------------------------------------------------------------


def event(state: str, number: int = 1, rows: int = 5) -> Event:
    detail: dict[str, Any] = {"number": number, "state": state}
    return Event("progress", None, f"append t: {rows} rows in 3 s", detail)


def test_a_bar_is_shown_in_a_terminal_while_a_verb_runs() -> None:
    screen = io.StringIO()
    bars = Bars(Console(file=screen, force_terminal=True, width=80))
    bars(event("running"))
    bars(event("running", number=2))
    bars(event("running", rows=6))
    bars._screen._progress.refresh()  # type: ignore[union-attr]
    assert "append t: 6 rows in 3 s" in screen.getvalue()
    bars(event("done"))
    assert bars._screen is not None
    bars(event("done", number=2))
    assert bars._screen is None
    bars(event("done", number=3))  # a verb without a bar
    bars(Event("redo", None, "again"))


def test_no_progress_bar_is_shown_without_a_terminal() -> None:
    screen = io.StringIO()
    bars = Bars(Console(file=screen, force_terminal=False))
    bars(event("running"))
    bars(event("done"))
    assert screen.getvalue() == ""


SCRIPT = """
import os, sys, threading
import lakevilla as lv
from lakevilla.api.client import progress

progress.AFTER_SECONDS, progress.EACH_SECONDS = 0.0, 0.005
is_seen, written, told = threading.Event(), sys.stderr.write, 0

def write(text):  # what reaches the terminal
    if "append t" in text:
        is_seen.set()
    return written(text)

def heard(event):  # where nothing is to reach it
    global told
    told += event.kind == "progress" and "append t" in event.message
    if os.environ["TERM"] == "dumb" and told == 3:
        is_seen.set()

def rows():
    yield {"id": 1}
    assert is_seen.wait(60)
    print("halfway")
    yield {"id": 2}

sys.stderr.write = write
with lv.connect(sys.argv[1], progress=True, on_event=heard) as lake:
    lake.create_table("t", {"id": "bigint"})
    lake.run(lambda txn: txn.append("t", rows()))
    print(lake.snapshot().read("t").num_rows, "rows")
"""


@pytest.mark.parametrize(
    ("environment", "is_drawn", "is_coloured"),
    [
        ({"TERM": "xterm-256color"}, True, True),
        ({"TERM": "xterm-256color", "NO_COLOR": "1"}, True, False),
        ({"TERM": "xterm-256color", "COLUMNS": "20"}, True, False),
        ({"TERM": "dumb"}, False, False),
    ],
    ids=["colours", "NO_COLOR", "narrow", "dumb"],
)
@pytest.mark.night
def test_bars_are_written_to_the_terminal_and_results_to_stdout(
    tmp_path: Path, environment: dict[str, str], is_drawn: bool, is_coloured: bool
) -> None:
    terminal, theirs = pty.openpty()
    inherited = {k: v for k, v in os.environ.items() if k not in ("NO_COLOR", "COLUMNS", "TERM")}
    process = subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(tmp_path)],
        stdout=subprocess.PIPE,
        stderr=theirs,
        env=inherited | environment,
        text=True,
    )
    os.close(theirs)
    drawn = b""
    with contextlib.suppress(OSError):  # Linux raises it once the other end is closed
        while chunk := os.read(terminal, 65536):
            drawn += chunk
    os.close(terminal)
    results, _ = process.communicate(timeout=60)
    assert process.returncode == 0, drawn
    assert results == "halfway\n2 rows\n", "and nothing of it came out by stderr"
    assert (b"append t" in drawn) is is_drawn
    assert (b"\x1b[32m" in drawn) is is_coloured
    if is_drawn:
        assert drawn.rstrip(b"\r").endswith(b"\x1b[?25h"), "the cursor is there again"
        assert b"\n" not in drawn, "no line is left behind"
    else:
        assert drawn == b""


def test_bars_do_not_disturb_a_live_display_of_the_caller() -> None:
    console = Console(file=io.StringIO(), force_terminal=True)
    one, other = Bars(console), Bars(console)
    one(event("running"))
    other(event("running"))
    other(event("done"))
    one(event("done"))


def test_connect_with_progress_shows_bars(tmp_path: Path) -> None:
    with lv.connect(tmp_path, progress=True) as lake:
        assert any(isinstance(one, Bars) for one in inside(lake).client._listeners)
        lake.create_table("t", batches(2))
    with pytest.raises(lv.InvalidOperation, match="progress must be True or False"):
        lv.connect(tmp_path, progress="yes")  # type: ignore[arg-type]
