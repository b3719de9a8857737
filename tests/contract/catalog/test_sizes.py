"""HEAD has the right size of each table after commits of all kinds and clients."""

from __future__ import annotations

import random
import shutil
from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import lakevilla as lv
from lakevilla.errors import LakeVillaError, UnsupportedFormat
from lakevilla.formats.sizes import UNKNOWN, Size, counted
from lakevilla.global_log.head import Head
from lakevilla.global_log.history import Timeline
from lakevilla.lake.past import past_at
from lakevilla.lake.table_log import open_tail
from lakevilla.lake.view import build_view
from lakevilla.store import codec
from tests.support.inside import inside
from tests.support.places import Place
from tests.support.search import how_many
from tests.support.stores import interrupted, is_entry

DRAWN = how_many(2, soak=50)
STEPS = 16


def head_of(lake: lv.Lake) -> Head:
    with lake.snapshot() as now:
        now.versions  # noqa: B018 - bound at its first use
    held = inside(lake).held
    assert held is not None
    return held.head


def known_size(lake: lv.Lake, table: str) -> Size:
    state = head_of(lake).tables[table]
    return UNKNOWN if state.size is None else state.size


def true(lake: lv.Lake, table: str) -> Size:
    """Return a table's size counted from the files of the state in HEAD."""
    context, head = inside(lake).context, head_of(lake)
    tail = inside(lake).run(open_tail(context, table))
    view = inside(lake).run(build_view(context, head, table, tail, accept_hidden=False))
    return counted(inside(lake).run(view.snapshot.files()))


def rows(*numbers: int) -> list[dict[str, int]]:
    return [{"id": number, "n": 0} for number in numbers]


def _write(lake: lv.Lake, place: Place, draw: random.Random) -> None:
    number = draw.randrange(8)
    features = draw.choice([lv.Feature.R | lv.Feature.I, lv.Feature.NONE])
    verb: Callable[[lv.Transaction], Any] = draw.choice(
        [
            lambda txn: txn.append("t", rows(number, number + 1)),
            lambda txn: txn.update("t", {"n": "n + 1"}, where=f"id % 4 = {number % 4}"),
            lambda txn: txn.delete("t", where=f"id = {number}"),
            lambda txn: txn.upsert("t", [{"id": number, "n": 7}], keys="id"),
            lambda txn: txn.overwrite("t", rows(*range(number))),
        ]
    )
    lake.run(verb, features=features)


def _group(lake: lv.Lake, place: Place, draw: random.Random) -> None:
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda n: lake.run(lambda txn: txn.append("t", rows(n))), range(3)))


def _others(lake: lv.Lake, place: Place, draw: random.Random) -> None:
    place.write("t", rows(draw.randrange(8)))
    if place.format == "delta" and draw.random() < 0.5:
        place.delta("t").delete(f"id = {draw.randrange(8)}")
    if draw.random() < 0.7:
        lake.run(lambda txn: txn.append("t", rows(1)))


def _unfit(lake: lv.Lake, place: Place, draw: random.Random) -> None:
    """Decide a commit whose files a foreign client rewrites before it is published."""
    if place.format == "iceberg":
        return
    with place.connect() as other:
        txn = other.transaction()
        txn.update("t", {"n": "n + 1"}, where="true")
        meanwhile = partial(place.delta("t").update, {"n": "n + 100"}, predicate="true")
        with interrupted(other, is_entry("t"), meanwhile), suppress(lv.ForeignConflict):
            txn.commit()
    lake.recover()


def _tidy(lake: lv.Lake, place: Place, draw: random.Random) -> None:
    if draw.random() < 0.5:
        lake.table("t").optimize()
    else:
        lake.table("t").vacuum(0, dry_run=False, enforce_retention_duration=False)


def _merge(lake: lv.Lake, place: Place, draw: random.Random) -> None:
    lake.branch("b")
    branch = lake.on("b")
    for _ in range(draw.randint(1, 3)):
        _write_on(branch, draw)
    assert known_size(branch, "t") in (true(branch, "t"), UNKNOWN)
    lake.merge("b", delete=True)


def _write_on(branch: lv.Lake, draw: random.Random) -> None:
    number = draw.randrange(8)
    branch.run(lambda txn: txn.upsert("t", rows(number, number + 8), keys="id"))


def _back(lake: lv.Lake, place: Place, draw: random.Random) -> None:
    version = draw.choice([entry.version for entry in lake.history(limit=5)])
    lake.rollback(version)


def _again(lake: lv.Lake, place: Place, draw: random.Random) -> None:
    lake.unregister("t")
    lake.register("t")


STEPS_DRAWN = (_write, _write, _write, _group, _others, _unfit, _tidy, _merge, _back, _again)


@pytest.mark.parametrize("seed", range(DRAWN))
def test_sizes_in_head_are_those_of_the_files_after_random_histories(
    shared_place: Place, seed: int
) -> None:
    draw = random.Random(seed)
    place = shared_place
    known = 0
    refused = Counter[str]()
    with place.connect() as lake:
        lake.create_table("t", rows(0, 1, 2))
        for number in range(STEPS):
            step = draw.choice(STEPS_DRAWN)
            try:
                step(lake, place, draw)
            except LakeVillaError as error:
                # A refused step changes nothing.
                refused[error.kind] += 1
                if lake.refs("branch"):
                    lake.delete_ref("b")
            found, expected = known_size(lake, "t"), true(lake, "t")
            for what in ("files", "rows", "bytes"):
                value = getattr(found, what)
                wrong = f"seed {seed}, step {number} {step.__name__}: {found} and not {expected}"
                assert value in (None, getattr(expected, what)), wrong
            known += found.is_exact
    assert known > STEPS // 2
    assert refused.total() < STEPS // 2, refused
    assert "corrupt_object" not in refused


def test_lakevilla_reports_the_size_after_each_commit(quick_place: Place) -> None:
    with quick_place.connect() as lake:
        lake.create_table("t", rows(0))
        lake.run(lambda txn: txn.append("t", rows(1)))
        lake.run(lambda txn: txn.append("t", rows(2)))
        assert known_size(lake, "t") == true(lake, "t") != UNKNOWN


def test_a_vacuum_counts_the_size_of_a_table_that_joined_with_a_checkpoint(
    local_place: Place,
) -> None:
    for number in range(3):
        local_place.write("t", rows(number))
    local_place.delta("t").create_checkpoint()
    with local_place.connect() as lake:
        lake.register("t")
        assert known_size(lake, "t") == UNKNOWN
        lake.run(lambda txn: txn.append("t", rows(4)))
        assert known_size(lake, "t") == UNKNOWN, "nobody has read the list of its files"
        lake.table("t").vacuum(dry_run=False)
        assert known_size(lake, "t") == true(lake, "t")
        lake.run(lambda txn: txn.delete("t", where="id = 1"))
        assert known_size(lake, "t") == true(lake, "t")
        assert known_size(lake, "t").rows == 3


def test_foreign_removals_without_statistics_may_leave_the_number_of_rows_unknown(
    local_place: Place,
) -> None:
    with local_place.connect() as lake:
        lake.create_table("t", rows(0, 1))
        local_place.delta("t").create_checkpoint()
    with local_place.connect() as lake:
        lake.run(lambda txn: txn.append("t", rows(2)))
        local_place.delta("t").delete("id = 0")
        lake.run(lambda txn: txn.append("t", rows(3)))
        found, expected = known_size(lake, "t"), true(lake, "t")
        assert (found.files, found.bytes) == (expected.files, expected.bytes)
        assert found.rows in (None, expected.rows)


def test_an_older_client_refuses_a_head_with_sizes(
    local_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    with local_place.connect() as lake:
        lake.create_table("t", rows(0))
    monkeypatch.setattr(Head, "FORMAT", codec.FORMAT)
    with pytest.raises(UnsupportedFormat, match="HEAD"), local_place.connect() as older:
        older.read("t")


def test_past_versions_report_their_own_sizes(quick_place: Place) -> None:
    with quick_place.connect() as lake:
        lake.create_table("t", rows(0))
        then = known_size(lake, "t")
        version = lake.history(limit=1)[0].version
        lake.run(lambda txn: txn.append("t", rows(1, 2)))
        lake.run(lambda txn: txn.delete("t", where="id = 0"))
        past = inside(lake).run(past_at(Timeline.of(head_of(lake)), version))
        assert past.head.tables["t"].size == then == Size(1, 1, then.bytes)


def test_a_dropped_table_has_no_size(quick_place: Place) -> None:
    with quick_place.connect() as lake:
        lake.create_table("t", pa.table({"id": [1]}))
        assert known_size(lake, "t").is_exact
        lake.drop_table("t")
        assert head_of(lake).tables["t"].size is None


def test_an_adopted_copy_of_a_lake_has_sizes_that_include_foreign_commits(
    local_place: Place, tmp_path: Path
) -> None:
    with local_place.connect() as lake:
        lake.create_table("t", rows(0, 1))
        lake.create_table("quiet", rows(5))
        lake.run(lambda txn: txn.append("t", rows(2)))
    copy = Place(str(tmp_path / "copy"))
    shutil.copytree(local_place.root, copy.root)
    copy.write("t", rows(3))
    copy.delta("t").delete("id = 0")
    with copy.connect() as lake:
        lake.doctor(adopt=True)
        for table in ("t", "quiet"):
            assert known_size(lake, table) == true(lake, table) != UNKNOWN
        lake.run(lambda txn: txn.append("t", rows(4)))
        assert known_size(lake, "t") == true(lake, "t")
