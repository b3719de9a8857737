"""A write by the data source in its parts: planned, written by tasks, committed.

Spark calls the parts in separate processes; here one process calls them, so that
each part can be left out, repeated, or late.
"""

from __future__ import annotations

import pickle
import shutil
import socket
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.api.execution.executor import Executor
from lakevilla.api.spark.source.writing import work
from lakevilla.engines.spark.rows import spark_schema
from lakevilla.maintenance.gc.listing import TIME_NAME
from lakevilla.settings import Settings
from tests.support.places import Place
from tests.support.tables import in_order

SCHEMA = pa.schema([("id", pa.int64()), ("v", pa.string())])
Rows = list[tuple[object, ...]]


def batch(schema: pa.Schema, rows: Rows) -> pa.RecordBatch:
    columns = list(zip(*rows, strict=True)) if rows else [[] for _ in schema]
    arrays = [pa.array(column, f.type) for column, f in zip(columns, schema, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=schema)


@dataclass
class Job:
    """A write whose parts the test calls as Spark does."""

    place: Place
    table: str = "t"
    overwrite: bool = False
    streaming: bool = False
    schema: pa.Schema = SCHEMA
    options: dict[str, str] = field(default_factory=dict)
    state: bytes = b""

    def __post_init__(self) -> None:
        if self.state:
            return
        options = {"lake": self.place.root, "path": self.table, **self.options}
        self.state = work.plan(
            pickle.dumps({}),
            options,
            spark_schema(self.schema),
            overwrite=self.overwrite,
            streaming=self.streaming,
        )

    def task(self, *rows: tuple[object, ...]) -> bytes:
        """Run one attempt of one task, and return its message."""
        return work.written(self.state, iter([batch(self.schema, list(rows))]))

    def commit(self, *messages: bytes | None) -> None:
        work.commit(self.state, messages)

    def abort(self, *messages: bytes | None) -> None:
        work.abort(self.state, messages)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(str(tmp_path / "lake"))


@pytest.fixture
def lake(place: Place) -> Any:
    with place.connect() as lake:
        lake.create_table("t", pa.table({"id": [1], "v": ["a"]}, SCHEMA))
        yield lake


def ids(lake: lv.Lake, table: str = "t") -> list[int]:
    return sorted(row["id"] for row in in_order(lake.snapshot().read(table)))


def add(lake: lv.Lake, number: int) -> None:
    lake.run(lambda txn: txn.append("t", [{"id": number, "v": "other"}]))


def clean_up(place: Place) -> None:
    """Run gc with ``max_age_seconds=0``, so that all open transactions count as dead."""
    with place.connect(settings=Settings(max_age_seconds=0)) as lake:
        lake.gc()


def job_file(message: bytes) -> str:
    """Return the name of the one file that a task's message names."""
    (written,) = pickle.loads(message).report.rewrite.written
    return Path(written.file.path).name


def parquet(place: Place) -> set[str]:
    return {path.name for path in Path(place.root).rglob("*.parquet")}


# -- attempts, and commits or aborts that are repeated or missing -------------------------


def test_gc_deletes_files_of_an_attempt_that_spark_did_not_accept(
    place: Place, lake: lv.Lake
) -> None:
    job = Job(place)
    job.task((2, "lost"))  # an attempt whose executor died, or the slower of two copies
    job.commit(job.task((2, "b")), None)
    assert ids(lake) == [1, 2]
    assert len(parquet(place)) == 3
    clean_up(place)
    assert len(parquet(place)) == 2
    assert ids(lake) == [1, 2]


def test_an_aborted_write_leaves_no_file_after_gc(place: Place, lake: lv.Lake) -> None:
    before = parquet(place)
    job = Job(place)
    message = job.task((2, "b"))
    job.task((3, "lost"))
    job.abort(message, None)
    assert len(parquet(place) - before) == 1  # of the attempt without a message
    with pytest.raises(lv.TransactionAborted):
        job.commit(message)
    clean_up(place)
    assert parquet(place) == before
    assert ids(lake) == [1]


def test_an_abort_after_a_commit_whose_answer_was_lost_deletes_nothing(
    place: Place, lake: lv.Lake
) -> None:
    job = Job(place)
    message = job.task((2, "b"))
    job.commit(message)
    job.abort(message)
    clean_up(place)
    assert ids(lake) == [1, 2]


@pytest.mark.parametrize("then", ["rebased", "merged and made again"])
@pytest.mark.parametrize("again", ["abort", "commit"])
def test_a_repeated_commit_or_abort_in_a_later_epoch_of_the_branch_deletes_no_committed_file(
    place: Place, lake: lv.Lake, then: str, again: str
) -> None:
    """Spark got no answer and repeats commit or abort when the epoch does not know the id."""
    lake.branch("etl")
    job = Job(place, options={"ref": "etl"})
    message = job.task((2, "b"))
    job.commit(message)
    add(lake, 50)
    if then == "rebased":
        lake.rebase("etl")
    else:
        lake.merge("etl", delete=True)
        lake.branch("etl")
    before = parquet(place)
    with suppress(lv.LakeVillaError):
        job.abort(message) if again == "abort" else job.commit(message)
    assert before <= parquet(place)
    with place.connect() as other:
        assert ids(other.on("etl")) == [1, 2, 50]
        assert ids(other) == ([1, 50] if then == "rebased" else [1, 2, 50])


@pytest.mark.parametrize("lands", [True, False])
def test_a_commit_whose_answer_was_lost_is_found_or_aborted(
    place: Place, lake: lv.Lake, monkeypatch: pytest.MonkeyPatch, lands: bool
) -> None:
    job = Job(place)
    message = job.task((2, "b"))
    commit = Executor.commit

    def unheard(self: Executor) -> None:
        if lands:
            commit(self)
        raise lv.CommitOutcomeUnknown("no answer", txn_id=self.id)

    monkeypatch.setattr(Executor, "commit", unheard)
    if lands:
        job.commit(message)
    else:
        with pytest.raises(lv.CommitOutcomeUnknown):
            job.commit(message)
        job.abort(message)  # Spark aborts after such an error
    clean_up(place)
    assert ids(lake) == [1, 2] if lands else [1]


def test_gc_deletes_files_of_a_write_whose_driver_died_before_the_commit(
    place: Place, lake: lv.Lake
) -> None:
    before = parquet(place)
    Job(place).task((2, "b"))
    clean_up(place)
    assert parquet(place) == before


def test_a_commit_after_gc_has_fenced_the_write_is_refused(place: Place, lake: lv.Lake) -> None:
    job = Job(place)
    message = job.task((2, "b"))
    add(lake, 5)
    clean_up(place)
    with pytest.raises(lv.TransactionAborted, match="run it again"):
        job.commit(message)
    assert ids(lake) == [1, 5]


def test_an_error_of_a_task_is_raised_at_the_commit_and_leaves_no_file(
    place: Place, lake: lv.Lake
) -> None:
    lake.run(lambda txn: txn.alter("t", add_constraints={"small": "id < 10"}))
    before = parquet(place)
    job = Job(place)
    good, bad = job.task((2, "b")), job.task((20, "x"))
    with pytest.raises(lv.InvalidOperation, match="small"):
        job.commit(good, bad)
    assert parquet(place) == before
    assert ids(lake) == [1]


# -- changes by other transactions between the plan and the commit ------------------------


def test_an_append_keeps_rows_that_other_transactions_committed_meanwhile(
    place: Place, lake: lv.Lake
) -> None:
    job = Job(place)
    message = job.task((2, "b"))
    add(lake, 5)
    job.commit(message)
    assert ids(lake) == [1, 2, 5]


def test_rows_that_break_a_constraint_added_meanwhile_are_refused(
    place: Place, lake: lv.Lake
) -> None:
    job = Job(place)
    message = job.task((20, "x"))
    before = parquet(place) - {job_file(message)}
    lake.run(lambda txn: txn.alter("t", add_constraints={"small": "id < 10"}))
    with pytest.raises(lv.LakeVillaError):
        job.commit(message)
    assert parquet(place) == before
    assert ids(lake) == [1]


def test_a_write_to_a_table_that_was_recreated_meanwhile_conflicts(
    place: Place, lake: lv.Lake
) -> None:
    job = Job(place)
    message = job.task((2, "b"))
    with place.connect(settings=Settings(reuse_after_seconds=0)) as other:
        other.drop_table("t", delete_data=True)
        other.create_table("t", pa.table({"id": [9], "v": ["z"]}, SCHEMA))
    with pytest.raises(lv.ConflictError):
        job.commit(message)
    assert ids(lake) == [9]


def test_the_second_of_two_writes_that_create_the_same_table_fails(
    place: Place, lake: lv.Lake
) -> None:
    first, second = Job(place, "new"), Job(place, "new")
    messages = [job.task((number, "x")) for number, job in enumerate((first, second))]
    first.commit(messages[0])
    with pytest.raises((lv.ConflictError, lv.TableExists)):
        second.commit(messages[1])
    assert ids(lake, "new") == [0]


def test_of_two_writes_that_create_a_missing_table_only_one_takes_effect(
    place: Place, lake: lv.Lake
) -> None:
    jobs = [Job(place, "new", options={"ifExists": "ignore"}) for _ in range(2)]
    messages = [job.task((number, "x")) for number, job in enumerate(jobs)]
    before = len(parquet(place))
    for job, message in zip(jobs, messages, strict=True):
        job.commit(message)
    assert ids(lake, "new") == [0]
    assert len(parquet(place)) == before - 1


def test_a_write_fails_if_another_client_created_and_dropped_its_new_table_meanwhile(
    place: Place, lake: lv.Lake
) -> None:
    """Otherwise the job would succeed, though neither the table nor its rows exist."""
    job = Job(place, "new", options={"ifExists": "ignore"})
    message = job.task((2, "b"))
    lake.create_table("new", [{"id": 1}])
    lake.drop_table("new")
    with pytest.raises((lv.ConflictError, lv.TableExists)):
        job.commit(message)
    assert [table.name for table in lake.tables()] == ["t"]


def test_an_overwrite_without_rows_empties_the_table(place: Place, lake: lv.Lake) -> None:
    Job(place, overwrite=True).commit()
    assert ids(lake) == []


def test_an_overwrite_replaces_rows_that_other_clients_added_meanwhile(
    place: Place, lake: lv.Lake
) -> None:
    job = Job(place, overwrite=True)
    message = job.task((2, "b"))
    add(lake, 5)
    job.commit(message)
    assert ids(lake) == [2]


@pytest.mark.parametrize("when", ["before the plan", "after the plan"])
def test_an_overwrite_with_read_version_conflicts_with_later_changes_to_the_table(
    place: Place, lake: lv.Lake, when: str
) -> None:
    read = str(lake.snapshot().version)
    if when == "before the plan":
        add(lake, 5)
        with pytest.raises(lv.ConflictError, match="read it again"):
            Job(place, overwrite=True, options={"readVersion": read})
    else:
        job = Job(place, overwrite=True, options={"readVersion": read})
        message = job.task((2, "b"))
        add(lake, 5)
        with pytest.raises(lv.ConflictError):
            job.commit(message)
    assert ids(lake) == [1, 5]


def test_an_overwrite_with_read_version_ignores_changes_to_other_tables(
    place: Place, lake: lv.Lake
) -> None:
    read = str(lake.snapshot().version)
    lake.create_table("u", SCHEMA)
    job = Job(place, overwrite=True, options={"readVersion": read})
    job.commit(job.task((2, "b")))
    assert ids(lake) == [2]


# -- a root that is a different directory on another machine ------------------------------


def elsewhere(job: Job, root: Path) -> Job:
    """Return the job as on a machine where the root is a different directory."""
    plan = pickle.loads(job.state)
    address = replace(plan.access.place, root=str(root))
    task = replace(plan.task, place=address)
    plan = replace(plan, access=replace(plan.access, place=address), task=task)
    return replace(job, state=pickle.dumps(plan))


def test_a_worker_without_the_lakes_directory_names_it_and_writes_nothing(
    place: Place, lake: lv.Lake, tmp_path: Path
) -> None:
    job = Job(place)
    root = tmp_path / "not-mounted"
    message = elsewhere(job, root).task((2, "b"))
    with pytest.raises(lv.InvalidOperation, match="can't reach the lake") as raised:
        job.commit(message)
    assert socket.gethostname() in str(raised.value)
    assert str(root) in str(raised.value)
    assert not root.exists()
    assert ids(lake) == [1]


def test_files_on_a_workers_local_disk_are_not_committed(
    place: Place, lake: lv.Lake, tmp_path: Path
) -> None:
    root = tmp_path / "same-name-another-disk"
    shutil.copytree(place.root, root)
    job = Job(place)
    message = elsewhere(job, root).task((2, "b"))
    with pytest.raises(lv.InvalidOperation, match="the driver does not find it") as raised:
        job.commit(message)
    assert job_file(message) in str(raised.value)
    assert socket.gethostname() in str(raised.value)
    assert ids(lake) == [1]


# -- options: replaced rows, new columns, new tables --------------------------------------


def test_replace_where_refuses_new_rows_that_do_not_match_the_predicate(
    place: Place, lake: lv.Lake
) -> None:
    add(lake, 5)
    job = Job(place, overwrite=True, options={"replaceWhere": "id < 4"})
    job.commit(job.task((2, "b")))
    assert ids(lake) == [2, 5]
    job = Job(place, overwrite=True, options={"replaceWhere": "id < 4"})
    message = job.task((7, "g"))
    with pytest.raises(lv.InvalidOperation, match="where of the overwrite"):
        job.commit(message)
    assert ids(lake) == [2, 5]


def test_a_dynamic_overwrite_replaces_only_partitions_of_the_new_rows(
    place: Place, lake: lv.Lake
) -> None:
    lake.create_table("p", pa.table({"id": [1, 2], "v": ["a", "b"]}, SCHEMA), partition_by=["v"])
    job = Job(place, "p", overwrite=True, options={"partitionOverwriteMode": "dynamic"})
    job.commit(job.task((3, "b")), job.task((4, "c")))
    assert ids(lake, "p") == [1, 3, 4]


@pytest.mark.parametrize("mode", ["merge", "overwrite"])
def test_new_columns_are_added_only_if_an_option_requests_it(
    place: Place, lake: lv.Lake, mode: str
) -> None:
    wider = SCHEMA.append(pa.field("w", pa.float64()))
    with pytest.raises(lv.InvalidOperation, match=r"no column 'w'.*mergeSchema"):
        Job(place, schema=wider)
    replaces = mode == "overwrite"
    option = "overwriteSchema" if replaces else "mergeSchema"
    schema = pa.schema([wider.field("id"), wider.field("w")]) if replaces else wider
    row = (2, 0.5) if replaces else (2, "b", 0.5)
    job = Job(place, schema=schema, overwrite=replaces, options={option: "true"})
    job.commit(job.task(row))
    assert lake.snapshot().read("t").column_names == schema.names
    assert ids(lake) == [2] if replaces else [1, 2]


def test_columns_missing_in_the_frame_become_null(place: Place, lake: lv.Lake) -> None:
    job = Job(place, schema=pa.schema([("id", pa.int64())]))
    job.commit(job.task((2,)))
    assert in_order(lake.snapshot().read("t"))[-1] == {"id": 2, "v": None}


@pytest.mark.parametrize("choice", ["append", "error", "ignore"])
def test_the_option_if_exists_decides_on_a_write_to_an_existing_table(
    place: Place, lake: lv.Lake, choice: str
) -> None:
    options = {"ifExists": choice}
    if choice == "error":
        with pytest.raises(lv.TableExists, match="option ifExists is error"):
            Job(place, options=options)
        assert ids(lake) == [1]
        return
    job = Job(place, options=options)
    job.commit(job.task((2, "b")))
    assert ids(lake) == ([1] if choice == "ignore" else [1, 2])


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_new_table_has_the_format_and_partitions_of_the_options(
    place: Place, lake: lv.Lake, kind: str
) -> None:
    options = {"tableFormat": kind, "partitionBy": "v", "metadata": '{"job": "nightly"}'}
    job = Job(place, "sales/new", options=options)
    job.commit(job.task((1, "a"), (2, "b")))
    assert ids(lake, "sales/new") == [1, 2]
    assert lake.table("sales/new").format == kind
    assert lake.history()[0].metadata["job"] == "nightly"


def test_an_idempotency_key_commits_once(place: Place, lake: lv.Lake) -> None:
    for number in (2, 3):
        job = Job(place, options={"idempotencyKey": "nightly"})
        job.commit(job.task((number, "x")))
    assert ids(lake) == [1, 2]


def test_a_version_of_an_application_commits_once(place: Place, lake: lv.Lake) -> None:
    for number, version in ((2, "0"), (3, "0"), (4, "1")):
        job = Job(place, options={"txnAppId": "etl", "txnVersion": version})
        job.commit(job.task((number, "x")))
    assert ids(lake) == [1, 2, 4]


def test_two_concurrent_writes_with_one_key_commit_once(place: Place, lake: lv.Lake) -> None:
    jobs = [Job(place, options={"idempotencyKey": "nightly"}) for _ in range(2)]
    messages = [job.task((number, "x")) for number, job in enumerate(jobs, 2)]
    before = len(parquet(place))
    for job, message in zip(jobs, messages, strict=True):
        job.commit(message)
    assert ids(lake) == [1, 2]
    assert len(parquet(place)) == before - 1


def test_a_write_to_a_branch_does_not_change_the_lake(place: Place, lake: lv.Lake) -> None:
    lake.branch("etl")
    job = Job(place, options={"ref": "etl"})
    job.commit(job.task((2, "b")))
    assert ids(lake) == [1]
    assert ids(lake.on("etl")) == [1, 2]


def test_a_write_to_a_branch_that_was_recreated_meanwhile_conflicts(
    place: Place, lake: lv.Lake
) -> None:
    lake.branch("etl")
    job = Job(place, options={"ref": "etl"})
    message = job.task((2, "b"))
    lake.delete_ref("etl")
    lake.branch("etl")
    with pytest.raises(lv.ConflictError, match="merged or created again"):
        job.commit(message)
    assert ids(lake.on("etl")) == [1]


# -- streams -----------------------------------------------------------------------------


def stream(place: Place, table: str = "t", **options: str) -> Job:
    return Job(place, table, streaming=True, options={"queryId": "q", **options})


def deliver(place: Place, number: int, *rows: tuple[object, ...], of: str = "") -> None:
    """Write and commit a batch of checkpoint ``of``; Spark passes the checkpoint to each task."""
    message = replace(pickle.loads(stream(place).task(*rows)), checkpoint=of)
    work.commit_batch([pickle.dumps(message)], number)


def test_a_repeated_batch_takes_effect_once(place: Place, lake: lv.Lake) -> None:
    deliver(place, 0, (2, "b"))
    before = parquet(place)
    deliver(place, 0, (2, "b"))  # the driver was killed before it got the answer
    deliver(place, 1, (3, "c"))
    assert ids(lake) == [1, 2, 3]
    assert len(parquet(place) - before) == 1


def test_a_batch_whose_driver_died_before_its_commit_is_committed_when_repeated(
    place: Place, lake: lv.Lake
) -> None:
    stream(place).task((2, "lost"))
    deliver(place, 0, (2, "b"))
    clean_up(place)
    assert ids(lake) == [1, 2]
    assert len(parquet(place)) == 2


def test_an_earlier_batch_number_of_another_checkpoint_is_refused_and_not_skipped(
    place: Place, lake: lv.Lake
) -> None:
    deliver(place, 0, (2, "b"))
    deliver(place, 1, (3, "c"))
    with pytest.raises(lv.InvalidOperation, match="needs a query_id of its own"):
        deliver(place, 0, (4, "d"))
    assert ids(lake) == [1, 2, 3]


def test_a_batch_with_the_last_number_of_another_checkpoint_is_refused_and_not_skipped(
    place: Place, lake: lv.Lake
) -> None:
    deliver(place, 0, (2, "b"), of="first")
    before = parquet(place)
    for _ in range(2):
        with pytest.raises(lv.InvalidOperation, match="batch 0 of checkpoint second"):
            deliver(place, 0, (3, "c"), of="second")
    deliver(place, 0, (2, "b"), of="first")
    assert parquet(place) == before
    assert ids(lake) == [1, 2]


def test_a_batch_is_refused_if_the_lake_lacks_the_batches_before_it(
    place: Place, lake: lv.Lake
) -> None:
    deliver(place, 0, (2, "b"), of="first")
    deliver(place, 1, of="first")
    deliver(place, 2, (3, "c"), of="first")
    before = parquet(place)
    with pytest.raises(lv.InvalidOperation, match="ends with its batch 2: batch 3 of"):
        deliver(place, 4, (4, "d"), of="first")
    assert parquet(place) == before
    deliver(place, 3, of="first")
    deliver(place, 4, (4, "d"), of="first")
    assert ids(lake) == [1, 2, 3, 4]


def test_a_batch_without_tasks_or_rows_makes_no_commit(place: Place, lake: lv.Lake) -> None:
    before = lake.snapshot().version
    work.commit_batch([], 0)
    work.abort_batch([None])
    deliver(place, 1)
    assert lake.snapshot().version == before


def test_a_failed_batch_leaves_nothing_and_can_be_repeated(place: Place, lake: lv.Lake) -> None:
    before = parquet(place)
    message = stream(place).task((2, "b"))
    work.abort_batch([message, None])
    assert parquet(place) == before
    deliver(place, 0, (2, "b"))
    assert ids(lake) == [1, 2]


def test_foreach_batch_and_the_sink_share_the_batch_numbers_of_a_query_id(
    place: Place, lake: lv.Lake
) -> None:
    lake.run(lambda txn: txn.append("t", [{"id": 2, "v": "b"}]), idempotency_key=("q", 0))
    deliver(place, 0, (2, "again"))
    assert ids(lake) == [1, 2]


def notes(place: Place) -> list[str]:
    """Return the tables for which a transaction has stored a note that it creates them."""
    found = Path(place.root, "_lakevilla", "txns").rglob("*")
    return [path.name for path in found if path.is_file() and path.name != TIME_NAME]


@pytest.mark.parametrize("how", ["its driver died", "it was given up", "somebody aborted it"])
def test_gc_deletes_files_of_a_table_whose_creation_was_never_committed(
    place: Place, lake: lv.Lake, how: str
) -> None:
    before = parquet(place)
    job = Job(place, "sales/new")
    message = job.task((1, "a"))
    job.task((1, "a copy"))
    if how == "it was given up":
        job.abort(message)
    elif how == "somebody aborted it":
        lake.abort(pickle.loads(job.state).transaction.txn)
    job.task((1, "late"))  # an attempt that runs on after the abort
    clean_up(place)
    assert parquet(place) == before
    clean_up(place)  # gc deletes the note once it finds no more files
    assert notes(place) == []


def test_gc_keeps_files_of_another_lake_in_the_directory_of_an_uncommitted_table(
    place: Place, lake: lv.Lake
) -> None:
    Job(place, "new").task((1, "a"))
    (own,) = Path(place.root, "new").glob("*.parquet")
    other = own.with_name("lv-h-00000000-0000-7000-8000-000000000000-00.parquet")
    shutil.copy(own, other)  # of a transaction that another lake's HEAD may have committed
    clean_up(place)
    assert not own.exists()
    assert other.exists()


def test_the_note_of_a_table_is_deleted_when_its_creation_is_committed(
    place: Place, lake: lv.Lake
) -> None:
    job = Job(place, "new")
    assert notes(place) == ["new"]
    job.commit(job.task((1, "a")))
    assert notes(place) == []
    assert ids(lake, "new") == [1]


def test_the_loser_of_two_writes_that_create_one_table_leaves_nothing_after_gc(
    place: Place, lake: lv.Lake
) -> None:
    first, second = Job(place, "new"), Job(place, "new")
    second.task((2, "b"))
    first.commit(first.task((1, "a")))
    clean_up(place)
    assert ids(lake, "new") == [1]
    assert len(list(Path(place.root, "new").glob("*.parquet"))) == 1
    assert notes(place) == []
