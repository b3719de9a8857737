"""A batch of the sink is compared with its plan in the checkpoint (note 48).

One process calls the parts as Spark does; the tests write the checkpoint.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import lakevilla as lv
from lakevilla.api.spark.source.writing import work
from lakevilla.engines.spark.planned import digest_of_plan, reader_below
from lakevilla.store.base import ANY, GetOutcome
from lakevilla.store.effects import Program, delete, put
from tests.contract.spark.test_writing_by_parts import SCHEMA, Job, ids, parquet
from tests.contract.spark.test_writing_by_parts import lake as lake
from tests.contract.spark.test_writing_by_parts import place as place
from tests.support.inside import inside
from tests.support.places import Place, make_place

FIRST = "5c2fd5ad-8d7c-4cb5-a60b-66cbc87ed27c"


@dataclass
class Checkpoint:
    """A checkpoint's directory, and the location that the user gave for it."""

    place: Place
    directory: Path
    location: str

    def plan(self, batch: int, offsets: str) -> None:
        self.directory.joinpath("offsets").mkdir(exist_ok=True)
        (self.directory / "offsets" / str(batch)).write_text(f"v1\n{{}}\n{offsets}")

    def deliver(self, batch: int, *them: tuple[object, ...]) -> None:
        options = {"queryId": "q", "checkpointLocation": self.location}
        job = Job(self.place, streaming=True, options=options)
        work.commit_batch([job.task(*them)], batch)


@pytest.fixture
def checkpoint(place: Place, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Checkpoint:
    monkeypatch.setattr(work, "checkpoint_of_task", lambda: FIRST)
    directory = tmp_path / "check %20point"
    directory.mkdir()
    (directory / "metadata").write_text(json.dumps({"id": FIRST}))
    return Checkpoint(place, directory, str(directory))


def refused() -> Any:
    return pytest.raises(lv.InvalidOperation, match="batch 0 of other rows: checkpoint 5c2fd5ad")


@pytest.mark.parametrize(
    "spelled", ["{}", "file:{}", "file://{}", "file://localhost{}", "relative"]
)
def test_a_batch_that_was_planned_again_is_refused_and_leaves_no_file(
    checkpoint: Checkpoint, lake: lv.Lake, spelled: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoint.location = spelled.format(checkpoint.directory)
    if spelled == "relative":
        monkeypatch.chdir(checkpoint.directory.parent)
        checkpoint.location = checkpoint.directory.name
    checkpoint.plan(0, "5")
    checkpoint.deliver(0, (2, "b"))
    before = parquet(checkpoint.place)
    checkpoint.plan(0, "7")
    with refused():
        checkpoint.deliver(0, (2, "b"), (3, "c"))
    assert parquet(checkpoint.place) == before
    checkpoint.plan(0, "5")
    checkpoint.deliver(0, (2, "b"))  # the same plan again
    checkpoint.plan(1, "7")
    checkpoint.deliver(1, (3, "c"))
    assert ids(lake) == [1, 2, 3]


@pytest.mark.parametrize("what", ["not there", "another's", "no JSON", "of HDFS", "a file"])
def test_a_batch_that_was_planned_again_counts_as_repetition_if_its_checkpoint_is_not_found(
    checkpoint: Checkpoint, lake: lv.Lake, what: str
) -> None:
    """Without the checkpoint, the sink skips a batch with a number that is committed."""
    metadata = checkpoint.directory / "metadata"
    if what == "not there":
        metadata.unlink()
    elif what == "another's":
        metadata.write_text(json.dumps({"id": "6c2fd5ad-8d7c-4cb5-a60b-66cbc87ed27c"}))
    elif what == "no JSON":
        metadata.write_text("{")
    elif what == "of HDFS":
        checkpoint.location = f"hdfs://there{checkpoint.directory}"
    else:
        checkpoint.location = f"{metadata}/below"
    checkpoint.plan(0, "5")
    checkpoint.deliver(0, (2, "b"))
    checkpoint.plan(0, "7")
    checkpoint.deliver(0, (3, "c"))
    assert ids(lake) == [1, 2]


def test_a_batch_without_a_plan_in_its_checkpoint_is_refused(
    checkpoint: Checkpoint, lake: lv.Lake
) -> None:
    with pytest.raises(lv.InvalidOperation, match="has not written down in its checkpoint"):
        checkpoint.deliver(0, (2, "b"))
    assert len(parquet(checkpoint.place)) == 1
    checkpoint.plan(0, "5")
    checkpoint.deliver(0, (2, "b"))
    assert ids(lake) == [1, 2]


@pytest.mark.parametrize("unreadable", ["metadata", "offsets/0"])
def test_a_batch_fails_while_its_checkpoint_cannot_be_read(
    checkpoint: Checkpoint, lake: lv.Lake, unreadable: str
) -> None:
    checkpoint.plan(0, "5")
    checkpoint.deliver(0, (2, "b"))
    checkpoint.plan(0, "7")
    kept = (checkpoint.directory / unreadable).rename(checkpoint.directory / "kept")
    (checkpoint.directory / unreadable).mkdir()
    with pytest.raises(lv.StoreError, match=r"of stream 'q' can't be read, so .* if batch 0 is"):
        checkpoint.deliver(0, (2, "b"), (3, "c"))
    assert len(parquet(checkpoint.place)) == 2  # the files of the batch were deleted
    (checkpoint.directory / unreadable).rmdir()
    kept.rename(checkpoint.directory / unreadable)
    with refused():
        checkpoint.deliver(0, (2, "b"), (3, "c"))
    assert ids(lake) == [1, 2]


@pytest.mark.parametrize("location", ["s3://its/own", "s3://lakes/checkpoint"])
@pytest.mark.parametrize("permanent", [True, False])
def test_an_unreadable_checkpoint_is_ignored_only_if_another_bucket_denies_access(
    location: str, permanent: bool
) -> None:
    """Other errors fail the batch: the checkpoint may be readable at the next attempt."""

    def run(program: Program[GetOutcome]) -> GetOutcome:
        raise lv.StoreError("403", permanent=permanent)

    read = reader_below(location, "s3://lakes/lake", run)
    if permanent and location == "s3://its/own":
        assert digest_of_plan(read, FIRST, "q", 0) == ""
        return
    with pytest.raises(lv.StoreError, match=r"if batch 0 is a repetition .*: 403"):
        digest_of_plan(read, FIRST, "q", 0)


def test_a_checkpoint_in_the_lakes_store_is_read(request: pytest.FixtureRequest) -> None:
    place = make_place("remote", request)
    directory = f"{place.root}/check%20point".replace("s3://", "s3a://")
    with place.connect() as lake:
        lake.create_table("t", SCHEMA)
        run = inside(lake).run

        def digest(offsets: str | None, location: str = directory) -> str:
            if offsets is not None:
                run(put(f"{directory}/offsets/0", offsets.encode(), ANY))
            return digest_of_plan(reader_below(location, place.root, run), FIRST, "q", 0)

        assert digest("5") == ""  # the checkpoint has no metadata yet
        run(put(f"{directory}/metadata", json.dumps({"id": FIRST}).encode(), ANY))
        assert len({digest("5"), digest("7"), digest("5"), digest(None)}) == 2
        assert digest("5", "gs://another/provider") == ""
        run(delete(f"{directory}/offsets/0"))
        with pytest.raises(lv.InvalidOperation, match="has not written down"):
            digest(None)


def test_the_sink_refuses_an_epoch_of_a_continuous_query() -> None:
    """Spark commits the epoch before its tasks have read a row, so their messages are None."""
    with pytest.raises(lv.InvalidOperation, match=r"epoch 3 has ended before .* trigger"):
        work.commit_batch([None], 3)
