"""``lake.verify`` and ``lakevilla verify`` name damaged objects, on main and in refs."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from typer.testing import CliRunner

import lakevilla as lv
from lakevilla.cli.app import app
from lakevilla.store.base import ANY
from lakevilla_testing.histories.plan import small_limits
from tests.contract.integrity.damage import DAMAGES, Objects, cut, filled, flipped
from tests.support.inside import inside
from tests.support.places import Place

BRANCHES = "_lakevilla/branches"
#: The directories of ``_lakevilla`` whose objects have a hash in their names.
NAMED = ("leaves", "pages", "bases", "commits")


@pytest.fixture(autouse=True)
def short() -> Iterator[None]:
    """Lower the limits, so that a lake of few commits has leaves and pages."""
    with small_limits(True):
        yield


def furnished(place: Place) -> lv.Lake:
    """Make a lake that has each kind of object, on main and on a branch."""
    lake = filled(place)
    lake.tag("closing")
    lake.branch("etl")
    etl = lake.on("etl")
    for number in range(8):
        etl.run(lambda txn, n=number: txn.append("t", [{"id": 200 + n, "text": "z"}]))
        lake.run(lambda txn, n=number: txn.append("u", [{"id": n}]))
    lake.merge("etl")
    etl.run(lambda txn: txn.append("t", [{"id": 300, "text": "z"}]))
    return lake


def found(report: lv.Report) -> list[lv.Finding]:
    return [finding for finding in report.findings if finding.severity != "note"]


def keys_of(report: lv.Report) -> set[str | None]:
    return {finding.key for finding in found(report)}


def kinds_of_objects(objects: Objects) -> dict[str, list[str]]:
    """Return the keys of all objects with a hash, by kind, on main and on branches; no garbage."""
    kinds = {kind: objects.keys(f"_lakevilla/{kind}", ".json") for kind in NAMED}
    for key in objects.keys(BRANCHES, ".json"):
        kind = key.split("/")[3]
        if kind in NAMED:
            kinds.setdefault(f"{kind} of a branch", []).append(key)
    kinds["data files"] = [*objects.keys("t"), *objects.keys("u")]
    return kinds


@pytest.mark.night
def test_verify_names_each_randomly_damaged_object(quick_place: Place) -> None:
    lake = furnished(quick_place)
    lake.gc()  # verify doesn't read objects to which nothing refers
    assert lake.verify().ok
    objects, draw = Objects(quick_place), random.Random(36)
    kinds = kinds_of_objects(objects)
    assert set(kinds) >= {*NAMED, "leaves of a branch", "pages of a branch", "commits of a branch"}
    named = {kind: [key for key in keys if is_named(lake, key)] for kind, keys in kinds.items()}
    assert all(named.values()), [kind for kind, keys in named.items() if not keys]
    for trial in range(40):  # the test runs on three places
        kind = list(named)[trial % len(named)]
        key = draw.choice(named[kind])
        damage = DAMAGES[trial // len(named) % len(DAMAGES)]
        others = [objects.body(other) for other in kinds[kind]]
        body = objects.body(key)
        if len(set(others)) == 1 and damage not in DAMAGES[:2]:
            damage = flipped
        with objects.holding(key, damage(draw, body, others)):
            report = lake.verify()
            assert key in keys_of(report), (trial, kind, key, report)
            assert not report.ok
    assert lake.verify().ok


def is_named(lake: lv.Lake, key: str) -> bool:
    """Return whether the lake refers to an object, so that ``verify`` reports it if missing."""
    objects = inside(lake).store
    body = objects.get(key).body  # type: ignore[union-attr]
    objects.delete(key)
    try:
        return key in keys_of(lake.verify())
    finally:
        objects.put(key, body, ANY)


def test_verify_reports_table_key_and_transaction_and_counts_files_without_a_hash(
    local_place: Place,
) -> None:
    lake = filled(local_place)
    write_deltalake(local_place.uri("t"), pa.table({"id": [7], "text": ["q"]}), mode="append")
    objects = Objects(local_place)
    key = next(key for key in objects.keys("t") if "/lv-" in key)
    with objects.holding(key, flipped(random.Random(1), objects.body(key), [])):
        finding, note = lake.verify().findings
    assert (finding.severity, finding.kind, finding.table, finding.key) == (
        "error",
        "damaged_file",
        "t",
        key,
    )
    assert finding.txn_id is not None
    assert finding.txn_id in key
    assert note.message.startswith("7 data files of 2 tables: 6 compared with the hash")
    assert "1 by size and footer; 1 have no known hash" in note.message


def test_the_verify_command_exits_with_1_and_prints_the_findings_as_json(
    local_place: Place,
) -> None:
    filled(local_place)
    run = CliRunner()
    well = run.invoke(app, ["verify", local_place.root])
    assert well.exit_code == 0, well.output
    objects = Objects(local_place)
    key = objects.keys("t")[0]
    objects.write(key, cut(random.Random(1), objects.body(key), []))
    answer = run.invoke(app, ["verify", local_place.root, "--json"])
    assert answer.exit_code == 1
    assert [one["key"] for one in json.loads(answer.output)["findings"]] == [key, None]
    assert run.invoke(app, ["verify", local_place.root, "--table", "u"]).exit_code == 0
    assert run.invoke(app, ["verify", local_place.root, "--at", "nosuch"]).exit_code == 2


def test_verify_can_be_limited_to_some_tables_and_to_a_single_state(quick_place: Place) -> None:
    lake = furnished(quick_place)
    objects = Objects(quick_place)
    key = next(key for key in objects.keys("t") if "/b/" in key)  # written on the branch
    with objects.holding(key, flipped(random.Random(1), objects.body(key), [])):
        assert lake.verify(["u"]).ok
        assert lake.verify(at="closing").ok
        assert lake.verify(at=1).ok
        assert keys_of(lake.verify(["t"])) == keys_of(lake.verify(at="etl")) == {key}
    with pytest.raises(lv.RefNotFound):
        lake.verify(at="nosuch")
    with pytest.raises(lv.InvalidOperation, match="no table name of the lake matches 'x'"):
        lake.verify(["x"])


@pytest.mark.parametrize("sample", [0, -1, 1.1, True, "all", None, float("nan")])
def test_verify_refuses_a_sample_that_is_no_share_of_the_files(
    local_place: Place, sample: Any
) -> None:
    with pytest.raises(lv.InvalidOperation, match="sample must be a share of the files"):
        filled(local_place).verify(sample=sample)


def test_verify_with_a_sample_reads_some_files_and_queries_the_size_of_all(
    local_place: Place,
) -> None:
    lake = local_place.connect()
    lake.create_table("t", pa.schema([("id", pa.int64())]))
    with lake.transaction() as txn:
        for number in range(60):
            txn.append("t", [{"id": number}])
    objects = Objects(local_place)
    keys = objects.keys("t")
    for key in keys:
        objects.write(key, flipped(random.Random(1), objects.body(key), []))
    some = keys_of(lake.verify(sample=0.5))
    assert 10 < len(some) < 50
    assert keys_of(lake.verify(sample=0.5)) == some, "the same ones all day"
    assert keys_of(lake.verify()) == set(keys)
    for key in keys:
        objects.write(key, objects.body(key)[:-1])
    assert keys_of(lake.verify(sample=0.01)) == set(keys)


def test_verify_reports_a_lake_that_does_not_exist_as_empty(tmp_path: Path) -> None:
    report = lv.connect(str(tmp_path / "nothing")).verify()
    assert report.ok
    assert [finding.kind for finding in report.findings] == ["empty"]


def test_verify_is_refused_on_a_branch_or_a_tag(local_place: Place) -> None:
    lake = furnished(local_place)
    for name in ("etl", "closing"):
        with pytest.raises(lv.InvalidOperation, match="verify"):
            lake.on(name).verify()


# -- what docs/integrity.md says of objects without a hash: each line of its list ---------------


def json_of(objects: Objects, key: str, change: Callable[[Any], object]) -> bytes:
    """Return the JSON of an object after a change to its content: well-formed, but wrong."""
    document = json.loads(objects.body(key))
    change(document)
    return json.dumps(document).encode()


def test_verify_finds_a_truncated_head_but_not_a_well_formed_wrong_one(
    local_place: Place,
) -> None:
    filled(local_place)
    objects = Objects(local_place)
    head = "_lakevilla/HEAD.json"
    with objects.holding(head, objects.body(head)[:-5]):
        assert keys_of(local_place.connect().verify()) == {head}

    def other(document: Any) -> None:
        document["commits"][0]["timestamp_ms"] += 1

    with objects.holding(head, json_of(objects, head, other)):
        assert local_place.connect().verify().ok


def test_a_head_that_was_set_back_is_found_by_doctor_and_by_clients_that_saw_a_newer_one(
    local_place: Place,
) -> None:
    lake = filled(local_place)
    objects = Objects(local_place)
    head = "_lakevilla/HEAD.json"
    before = objects.body(head)
    lake.run(lambda txn: txn.append("t", [{"id": 1, "text": "a"}]))
    with objects.holding(head, before):
        assert not lake.verify().ok
        fresh = local_place.connect()
        assert any("was set back" in one.message for one in fresh.doctor().findings)


def test_verify_finds_a_branch_whose_head_is_truncated(quick_place: Place) -> None:
    furnished(quick_place)
    objects = Objects(quick_place)
    (head,) = objects.keys(BRANCHES, "HEAD.json")
    with objects.holding(head, objects.body(head)[:-5]):
        (finding,) = found(quick_place.connect().verify())
    assert "branch 'etl' can't be read" in finding.message


def entries(place: Place) -> list[str]:
    return Objects(place).keys("t/_delta_log", ".json")


def with_line(body: bytes, action: str, change: Callable[[Any], object]) -> bytes:
    """Return a log entry after a change to one of its actions."""
    lines = [json.loads(line) for line in body.splitlines()]
    for line in lines:
        if action in line:
            change(line[action])
    return "\n".join(json.dumps(line) for line in lines).encode()


CHANGES: dict[str, tuple[bool, Callable[[Any], object]]] = {
    "a path": (True, lambda add: add.update(path=add["path"].replace("lv-", "lw-"))),
    "a size": (True, lambda add: add.update(size=add["size"] + 1)),
    "the hash itself": (True, lambda add: add["tags"].update({"lakevilla.blake3": "0" * 32})),
    "a minimum": (False, lambda add: add.update(stats=add["stats"].replace("100", "101"))),
}


@pytest.mark.parametrize("what", CHANGES)
def test_verify_finds_a_changed_log_entry_if_its_files_contradict_it(
    local_place: Place, what: str
) -> None:
    filled(local_place)
    objects = Objects(local_place)
    is_found, change = CHANGES[what]
    entry = entries(local_place)[1]
    body = with_line(objects.body(entry), "add", change)
    with objects.holding(entry, body):
        assert bool(found(local_place.connect().verify())) == is_found


def test_verify_finds_a_truncated_log_entry_or_checkpoint(local_place: Place) -> None:
    filled(local_place)
    objects = Objects(local_place)
    entry = entries(local_place)[1]
    with objects.holding(entry, objects.body(entry)[:-30]):
        assert {one.table for one in found(local_place.connect().verify())} == {"t"}
    DeltaTable(local_place.uri("t")).create_checkpoint()
    for older in entries(local_place):
        objects.store.delete(older)
    (checkpoint,) = objects.keys("t/_delta_log", ".checkpoint.parquet")
    with objects.holding(checkpoint, objects.body(checkpoint)[:-30]):
        assert {one.table for one in found(local_place.connect().verify())} == {"t"}


def test_verify_finds_truncation_but_no_flipped_bit_in_files_of_other_clients(
    shared_place: Place,
) -> None:
    rows = pa.table({"id": list(range(1000)), "text": ["x"] * 1000})
    shared_place.write("t", rows)
    lake = shared_place.connect()
    lake.register("t")
    objects = Objects(shared_place)
    (key,) = objects.keys("t")
    body = objects.body(key)
    with objects.holding(key, body[:-1]):
        assert keys_of(lake.verify()) == {key}
    with objects.holding(key, body[:-20] + b"\xff" * 12 + body[-8:]):
        assert keys_of(lake.verify()) == {key}
    middle = body[:60] + bytes([body[60] ^ 1]) + body[61:]
    with objects.holding(key, middle):
        report = lake.verify()
    assert report.ok
    assert "1 have no known hash" in report.findings[-1].message


def test_verify_reports_files_of_a_ref_that_other_clients_deleted_with_the_ref(
    local_place: Place,
) -> None:
    lake = filled(local_place)
    lake.tag("closing")
    lake.run(lambda txn: txn.overwrite("t", [{"id": 1, "text": "a"}]))
    vacuumed = DeltaTable(local_place.uri("t")).vacuum(
        0, dry_run=False, enforce_retention_duration=False
    )
    assert len(vacuumed) == 5
    (finding,) = found(lake.verify())
    assert (finding.severity, finding.kind, finding.table) == ("warning", "ref_lost", "t")
    assert "in tag 'closing' any more: data file t/" in finding.message


def test_verify_checks_the_stored_state_of_a_kept_tag_and_its_copied_files(
    local_place: Place,
) -> None:
    lake = filled(local_place)
    lake.tag("closing")
    lake.run(lambda txn: txn.overwrite("t", [{"id": 1, "text": "a"}]))
    lake.keep("closing")
    assert not found(lake.verify())
    objects = Objects(local_place)
    (state,) = objects.keys(f"{BRANCHES}", ".parquet")
    copies = [key for key in objects.keys("t") if "/_lakevilla/b/" in key]
    assert len(copies) == 5
    for key in (state, *copies):
        with objects.holding(key, flipped(random.Random(1), objects.body(key), [])):
            assert key in keys_of(lake.verify())
    with (
        objects.holding(copies[0], flipped(random.Random(1), objects.body(copies[0]), [])),
        pytest.raises(lv.CorruptObject, match="has the blake3"),
    ):
        lake.on("closing").read("t", verify="on")
