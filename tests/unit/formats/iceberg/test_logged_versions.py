"""The versions before a state, found through the metadata logs of its metadata files."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

import pytest

from lakevilla.errors import VersionNotFound
from lakevilla.formats.iceberg import log as past_versions
from lakevilla.formats.iceberg.log import Logged
from lakevilla.formats.iceberg.metadata.definition import IcebergDefinition
from lakevilla.formats.iceberg.metadata.file import Cache, Metadata, next_metadata
from lakevilla.formats.iceberg.snapshot import IcebergSnapshot
from lakevilla.store.effects import Program
from tests.support.by_hand import outcome
from tests.unit.formats.iceberg.test_metadata import DEFINITION

LOGGED = {**DEFINITION, "properties": {"write.metadata.previous-versions-max": "3"}}


class History:
    """A table whose metadata files each name the three before them; ``read`` has the files
    requested.

    Version n has snapshot 100 + n, unless it is in ``without``, and is of second n.
    """

    def __init__(self, count: int, without: Collection[int] = ()) -> None:
        self.files: dict[int, Metadata] = {}
        self.read: list[int] = []
        before: Metadata | None = None
        for version in range(count):
            number = None if version in without else 100 + version
            before = self.files[version] = self.next(before, version, number, version)

    def next(
        self, before: Metadata | None, version: int, snapshot: int | None, seconds: int
    ) -> Metadata:
        return next_metadata(
            before,
            f"t/metadata/v{version + 1}.metadata.json",
            "t",
            f"/lake/t/metadata/v{version}.metadata.json",
            definition=LOGGED,
            snapshot=None if snapshot is None else {"snapshot-id": snapshot, "schema-id": 0},
            applications={},
            commit=None,
            now_ms=1000 * seconds,
        )

    def newest(self) -> IcebergSnapshot:
        return self.state(max(self.files))

    def state(self, version: int) -> IcebergSnapshot:
        document = self.files[version]
        definition = IcebergDefinition("t", "t", document.definition)
        return IcebergSnapshot(version, definition, document, Cache(1))

    def reader(self, one: Logged) -> Program[Metadata | None]:
        yield from ()
        self.read.append(one.version)
        return self.files.get(one.version)

    def expire(self, *versions: int) -> None:
        """Remove the snapshots of these versions from the newest file."""
        last = max(self.files)
        document = self.files[last]
        expired = {100 + version for version in versions}
        kept = [raw for number, raw in document.snapshots.items() if number not in expired]
        self.files[last] = document.replaced({"snapshots": kept})

    def kept(self, limit: int | None = None) -> list[int]:
        found = outcome(past_versions.kept_versions(self.newest(), self.reader, limit))
        assert all(one.snapshot_id == 100 + one.version for one in found)
        assert all(one.timestamp_ms == 1000 * one.version for one in found)
        return [one.version for one in found]

    def ends(self) -> tuple[int, int]:
        found = outcome(past_versions.kept_range(self.newest(), self.reader))
        assert found is not None
        return found[0].version, found[1].version

    def by(self, seconds: float) -> int | None:
        asked = int(seconds * 1000)
        return outcome(past_versions.version_by(self.newest(), self.reader, asked))

    def check(self, version: int) -> Any:
        return outcome(past_versions.check_kept(self.newest(), self.reader, self.state(version)))


def test_metadata_logs_are_followed_from_file_to_file() -> None:
    history = History(12)
    assert history.kept() == list(range(11, -1, -1))
    history.read.clear()
    assert history.kept(3) == [11, 10, 9]
    assert history.read == [10, 9]
    assert history.ends() == (0, 11)


def test_a_search_by_time_or_number_reads_no_more_files_than_needed() -> None:
    history = History(12)
    assert (history.by(99), history.by(9.5), history.by(8)) == (11, 9, 8)
    for version in (8, 6, 2, 0):
        history.check(version)
    assert history.read == [], "their snapshots show that they are of this line"
    assert (history.by(0), history.by(-1)) == (0, None)


def test_a_version_without_a_snapshot_of_its_own_is_looked_for_in_the_logs() -> None:
    history = History(12, without={6})
    history.check(8)
    assert history.read == []
    history.check(6)
    assert history.read == [8]


def test_the_kept_versions_end_where_a_metadata_file_is_missing() -> None:
    history = History(12)
    for version in (1, 3, 4, 5):
        del history.files[version]
    assert history.kept() == [11, 10, 9, 8, 7, 6]
    assert history.ends() == (6, 11)
    assert history.by(1) is None


@pytest.mark.parametrize(
    ("snapshot", "seconds"),
    [(999, 11), (111, 11), (111, 12), (None, 11)],
    ids=["lost", "committed again", "committed again later", "properties"],
)
def test_a_file_that_a_suspended_client_stored_under_a_free_number_is_no_version(
    snapshot: int | None, seconds: int
) -> None:
    history = History(12)
    for version in (1, 3, 4, 5):
        del history.files[version]
    history.files[1] = history.next(history.files[0], 1, snapshot, seconds)
    with pytest.raises(VersionNotFound, match="no later one names"):
        history.check(1)


def test_versions_with_expired_snapshots_do_not_count_as_kept() -> None:
    history = History(12)
    history.expire(*range(7))
    assert history.kept() == [11, 10, 9, 8, 7]
    assert history.ends() == (7, 11)
    with pytest.raises(VersionNotFound, match="its snapshot 105 was expired"):
        history.check(5)
    history.check(7)
