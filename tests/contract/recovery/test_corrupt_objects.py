"""An object that is broken or of a newer release raises a LakeVilla error with its key."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import lakevilla as lv
from lakevilla.global_log import leaves
from tests.support.inside import inside
from tests.support.places import Place
from tests.support.search import how_many
from tests.support.stores import interrupted, is_entry, unpublished
from tests.support.tables import contents


class Stop(Exception):
    """The client dies."""


@pytest.fixture(scope="module")
def spoiled(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, bytes]]:
    """Return a lake with a page, a pending commit, a saved transaction and an idempotency key."""
    root = tmp_path_factory.mktemp("spoiled") / "lake"
    place = Place(str(root))
    place.write("t", [{"id": 1, "v": 1}])
    place.write("u", [{"id": 1}])
    with place.connect() as lake:
        # Commits without a commit object fill a page.
        for number in range(130):
            lake.register({f"other name {number}": f"{root}/t"})
        for number in range(2, 5):
            with lake.transaction(idempotency_key=("loader", number)) as txn:
                txn.append("t", {"id": [number], "v": [1]})
        lake.run(lambda txn: txn.append("u", {"id": [2]}))
    place.delta("u").create_checkpoint()
    with place.connect() as lake:
        saved = lake.transaction()
        saved.read("t", where="id = 1")
        saved.update("t", {"v": "v + 1"}, "id = 1")
        saved.save()

    def die() -> None:
        raise Stop

    # A decided commit without a log entry.
    dying = place.connect()
    with pytest.raises(Stop), interrupted(dying, is_entry("u"), die):
        dying.run(lambda txn: txn.append("u", {"id": [3]}))
    return saved.id, contents(root)


KINDS = {
    "head": r"_lakevilla/HEAD\.json",
    "commit": r"_lakevilla/commits/.*",
    "page": r"_lakevilla/pages/.*",
    "record": r"_lakevilla/txns/[^/]*\.json",
    "sublog": r"_lakevilla/txns/.*/.*",
    "key": r"_lakevilla/keys/.*",
    "lake": r"t/_lakevilla/lake\.json",
    "entry": r"t/_delta_log/\d{20}\.json",
    "checkpoint": r"u/_delta_log/.*\.parquet",
    "last-checkpoint": r"u/_delta_log/_last_checkpoint",
    "data": r"t/.*\.parquet",
}


def keys_of(kind: str, objects: dict[str, bytes]) -> list[str]:
    found = [key for key in objects if re.fullmatch(KINDS[kind], key)]
    assert found, f"no object of kind {kind}"
    return found


def exercise(place: Place, saved: str) -> list[BaseException]:
    """Run all verbs that read objects of a lake, and return the errors that they raised."""
    raised: list[BaseException] = []

    def attempt(call: Callable[[lv.Lake], object]) -> None:
        # A new client for each call: no object comes from a cache.
        with place.connect(settings=lv.Settings(retry_limit=2, lease_seconds=0.5)) as lake:
            try:
                call(lake)
            except BaseException as error:
                raised.append(error)

    attempt(lambda lake: lake.snapshot().read("t"))
    attempt(lambda lake: lake.snapshot().read("u"))
    attempt(lambda lake: lake.tables())
    attempt(lambda lake: lake.outcome(f"{saved[:24]}{0:012}"))
    attempt(lambda lake: lake.resume(saved))
    attempt(lambda lake: lake.recover())
    attempt(lambda lake: lake.doctor())
    attempt(lambda lake: lake.run(lambda txn: txn.append("t", {"id": [0], "v": [0]})))
    attempt(
        lambda lake: lake.run(
            lambda txn: txn.append("t", {"id": [0], "v": [0]}), idempotency_key=("loader", 500)
        )
    )
    attempt(lambda lake: lake.gc())
    return raised


def lay_out(root: Path, objects: dict[str, bytes]) -> Place:
    for key, body in objects.items():
        path = root / key
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(body)
    return Place(str(root))


def moved(objects: dict[str, bytes], root: Path) -> dict[str, bytes]:
    """Return the lake's objects with another root in them, as if it had been created there."""
    old = json.loads(objects["_lakevilla/HEAD.json"])["root"].encode()
    new = str(root).encode()
    small = {key for key in objects if key.endswith(".json")}
    return {key: body.replace(old, new) if key in small else body for key, body in objects.items()}


def spoil(body: bytes, how: str) -> bytes:
    match how:
        case "empty":
            return b""
        case "truncated":
            return body[: len(body) // 2]
        case "no-json":
            return b"\x00\xff not json at all"
        case "another-type":
            return b"[1, 2, 3]"
        case "null":
            return b"null"
        case "nested":
            return b"[" * 100_000
        case _:
            raise AssertionError(how)


def only_ours(raised: list[BaseException], kind: str) -> None:
    for error in raised:
        assert isinstance(error, lv.LakeVillaError), (kind, type(error), error)


def test_an_undamaged_lake_raises_no_error(
    spoiled: tuple[str, dict[str, bytes]], tmp_path: Path
) -> None:
    saved, objects = spoiled
    place = lay_out(tmp_path / "lake", moved(objects, tmp_path / "lake"))
    assert exercise(place, saved) == []


@pytest.mark.parametrize("how", ["empty", "truncated", "no-json", "another-type", "nested"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_broken_object_is_reported_by_its_key(
    spoiled: tuple[str, dict[str, bytes]], tmp_path: Path, kind: str, how: str
) -> None:
    saved, objects = spoiled
    objects = moved(objects, tmp_path / "lake")
    keys = keys_of(kind, objects)
    place = lay_out(tmp_path / "lake", objects | {key: spoil(objects[key], how) for key in keys})
    raised = exercise(place, saved)
    only_ours(raised, kind)
    corrupt = [error for error in raised if isinstance(error, lv.CorruptObject)]
    if kind in ("last-checkpoint", "lake"):
        return  # a hint, and a claim that no client reads while HEAD has the table
    assert corrupt, f"nobody noticed: {raised}"
    # The engine reports the full path of a data file.
    assert any(str(error.key).removeprefix(f"{place.root}/") in keys for error in corrupt)
    for error in corrupt:
        assert error.key is not None
        assert error.key in str(error)
        assert error.kind == "corrupt_object"


@pytest.mark.parametrize("kind", ["head", "commit", "page", "record", "sublog", "key"])
def test_an_object_of_a_newer_release_asks_for_an_upgrade(
    spoiled: tuple[str, dict[str, bytes]], tmp_path: Path, kind: str
) -> None:
    saved, objects = spoiled
    objects = moved(objects, tmp_path / "lake")
    keys = keys_of(kind, objects)

    def newer(body: bytes) -> bytes:
        # A newer release may change all fields, so only the format number counts.
        return json.dumps({"format": 99, "tables": 7}).encode()

    place = lay_out(tmp_path / "lake", objects | {key: newer(objects[key]) for key in keys})
    raised = exercise(place, saved)
    only_ours(raised, kind)
    told = [error for error in raised if isinstance(error, lv.UnsupportedFormat)]
    assert told
    assert any(error.key in keys and "upgrade" in str(error) for error in told)
    assert {error.kind for error in told} == {"unsupported_format"}


def test_a_broken_claim_is_reported_when_a_lake_claims_the_table(tmp_path: Path) -> None:
    place = Place(str(tmp_path / "lake"))
    place.write("t", [{"id": 1}])
    for body, error in ((b"{", lv.CorruptObject), (b'{"format":99}', lv.UnsupportedFormat)):
        lay_out(tmp_path / "lake", {"t/_lakevilla/lake.json": body})
        before = contents(tmp_path / "lake" / "t")
        with place.connect() as lake, pytest.raises(error, match=r"t/_lakevilla/lake\.json"):
            lake.run(lambda txn: txn.append("t", {"id": [2]}))
        with place.connect() as lake, pytest.raises(error, match=r"t/_lakevilla/lake\.json"):
            lake.register("t")
        assert contents(tmp_path / "lake" / "t") == before


@pytest.mark.parametrize("kind", ["commit", "page", "sublog", "data"])
def test_a_missing_object_is_reported_by_its_key(
    spoiled: tuple[str, dict[str, bytes]], tmp_path: Path, kind: str
) -> None:
    saved, objects = spoiled
    objects = moved(objects, tmp_path / "lake")
    keys = keys_of(kind, objects)
    place = lay_out(tmp_path / "lake", {k: v for k, v in objects.items() if k not in keys})
    raised = exercise(place, saved)
    only_ours(raised, kind)
    if kind == "data":
        # The data file may have been vacuumed, or be unreachable for now.
        assert any(
            isinstance(error, lv.StoreError) and "vacuumed" in str(error) for error in raised
        )
        return
    corrupt = [error for error in raised if isinstance(error, lv.CorruptObject)]
    assert any(error.key in keys for error in corrupt), raised


def of_another(key: str, objects: dict[str, bytes]) -> bytes:
    """Return the body of another commit object."""
    return next(
        body
        for other, body in objects.items()
        if other != key and other.startswith("_lakevilla/commits/")
    )


@pytest.mark.parametrize(
    "change",
    [
        lambda key, objects: objects[key].replace(b"numRecords", b"numrecords"),
        lambda key, objects: objects[key] + b" ",
        of_another,
    ],
    ids=["rows", "space", "another"],
)
def test_a_commit_object_whose_bytes_do_not_match_the_hash_in_its_name_is_not_published(
    spoiled: tuple[str, dict[str, bytes]],
    tmp_path: Path,
    change: Callable[[str, dict[str, bytes]], bytes],
) -> None:
    _, objects = spoiled
    root = tmp_path / "lake"
    objects = moved(objects, root)
    head = json.loads(objects["_lakevilla/HEAD.json"])
    (pending,) = head["tables"]["u"]["pending"]
    key = f"_lakevilla/commits/{pending['txn']}-{pending['hash']}.json"
    changed = change(key, objects)
    assert changed != objects[key]
    place = lay_out(root, {**objects, key: changed})
    before = contents(root / "u")
    calls: list[Callable[[lv.Lake], object]] = [
        lambda lake: lake.run(lambda txn: txn.append("u", {"id": [9]})),
        lambda lake: lake.snapshot().read("u"),
    ]
    for call in calls:
        with place.connect() as lake, pytest.raises(lv.CorruptObject) as caught:
            call(lake)
        assert caught.value.key == key
        assert key in str(caught.value)
        assert "restore it from a copy" in str(caught.value)
    assert contents(root / "u") == before


@pytest.mark.parametrize(
    "state",
    [b'{"table_id":"\xff","published":0}', b'{"table_id":1,"published":0}', b'"state"', b"[]"],
    ids=["no utf-8", "number", "text", "list"],
)
def test_a_saved_transaction_with_an_invalid_table_state_is_reported_by_its_key(
    spoiled: tuple[str, dict[str, bytes]], tmp_path: Path, state: bytes
) -> None:
    saved, objects = spoiled
    objects = moved(objects, tmp_path / "lake")
    (key,) = keys_of("sublog", objects)
    text = objects[key].decode("ascii")
    start = text.index('"state":') + len('"state":')
    _, end = json.JSONDecoder().raw_decode(text, start)
    body = objects[key][:start] + state + objects[key][end:]
    with (
        lay_out(tmp_path / "lake", {**objects, key: body}).connect() as lake,
        pytest.raises(lv.CorruptObject, match="sublog") as caught,
    ):
        lake.resume(saved)
    assert caught.value.key == key


PAGE_BEFORE = {"hash": "00", "first_sequence": 0, "first_timestamp_ms": 0, "last_timestamp_ms": 0}


def test_a_page_with_other_commits_than_head_names_is_refused(
    spoiled: tuple[str, dict[str, bytes]], tmp_path: Path
) -> None:
    saved, objects = spoiled
    objects = moved(objects, tmp_path / "lake")
    (key,) = keys_of("page", objects)
    page = json.loads(objects[key])
    for other in (
        {**page, "nonce": "another"},
        {**page, "commits": page["commits"][1:]},
        {**page, "commits": page["commits"][::-1]},
        {**page, "commits": [{**page["commits"][0], "txn": saved}, *page["commits"][1:]]},
        {**page, "previous": {**PAGE_BEFORE, "last_sequence": page["commits"][0]["sequence"] - 1}},
    ):
        body = json.dumps(other, separators=(",", ":")).encode()
        place = lay_out(tmp_path / "lake", {**objects, key: body})
        with (
            place.connect() as lake,
            pytest.raises(lv.CorruptObject, match="that HEAD names") as caught,
        ):
            lake.outcome("01900000-0000-7000-8000-000000000000")
        assert caught.value.key == key
    for cut in (b"", objects[key][:1], objects[key][: len(objects[key]) // 2], objects[key][:-1]):
        place = lay_out(tmp_path / "lake", {**objects, key: cut})
        with place.connect() as lake, pytest.raises(lv.CorruptObject, match="page") as caught:
            lake.outcome("01900000-0000-7000-8000-000000000000")
        assert caught.value.key == key


def test_a_page_with_the_content_of_another_page_is_refused(
    tmp_path: Path, page_length: int
) -> None:
    place = Place(str(tmp_path / "lake"))
    place.write("t", [{"id": 1}])
    with place.connect() as lake:
        for number in range(3 * page_length + 2):
            lake.register({f"other name {number}": place.uri("t")})
    older, newer = sorted((tmp_path / "lake" / "_lakevilla" / "pages").iterdir())
    body = older.read_bytes()
    for page, other in ((older, newer.read_bytes()), (newer, body)):
        kept = page.read_bytes()
        page.write_bytes(other)
        with place.connect() as lake, pytest.raises(lv.CorruptObject, match="is not the page") as e:
            lake.history()
        assert e.value.key == page.relative_to(place.root).as_posix()
        page.write_bytes(kept)
    with place.connect() as lake:
        assert len(lake.history()) == 3 * page_length + 2


def test_the_doctor_reports_a_broken_head_instead_of_raising(
    spoiled: tuple[str, dict[str, bytes]], tmp_path: Path
) -> None:
    _, objects = spoiled
    place = lay_out(tmp_path / "lake", {**objects, "_lakevilla/HEAD.json": b"{"})
    with place.connect() as lake:
        report = lake.doctor()
    assert not report.ok
    assert [finding.kind for finding in report.findings] == ["corrupt_object"]
    assert "_lakevilla/HEAD.json" in report.findings[0].message


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(min_value=-(2**70), max_value=2**70)
    | st.floats(allow_nan=False)
    | st.text(max_size=8),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=6,
)


def paths_in(value: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    return [at, *(path for key, item in inner for path in paths_in(item, (*at, key)))]


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    if not path:
        return new
    copy = value.copy()
    copy[path[0]] = replaced(value[path[0]], path[1:], new)
    return copy


@pytest.mark.timeout(900)
@pytest.mark.parametrize("kind", ["head", "commit", "page", "record", "sublog", "key", "entry"])
@given(data=st.data())
@settings(
    max_examples=how_many(5, whole=650),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_a_random_change_of_one_value_raises_only_errors_of_lakevilla(
    spoiled: tuple[str, dict[str, bytes]],
    tmp_path_factory: pytest.TempPathFactory,
    kind: str,
    data: st.DataObject,
) -> None:
    saved, objects = spoiled
    root = tmp_path_factory.mktemp("fuzzed") / "lake"
    objects = moved(objects, root)
    key = data.draw(st.sampled_from(keys_of(kind, objects)))
    lines = objects[key].splitlines()
    at = data.draw(st.integers(0, len(lines) - 1))
    value = json.loads(lines[at])
    path = data.draw(st.sampled_from(paths_in(value)))
    lines[at] = json.dumps(replaced(value, path, data.draw(json_values))).encode()
    place = lay_out(root, {**objects, key: b"\n".join(lines)})
    only_ours(exercise(place, saved), kind)


OLD = lv.Settings(max_age_seconds=0, outcome_retention_seconds=0)


@pytest.mark.parametrize("how", ["empty", "another-type", "newer"])
def test_gc_and_doctor_report_an_unreadable_key_and_go_on(
    spoiled: tuple[str, dict[str, bytes]], tmp_path: Path, how: str
) -> None:
    saved, objects = spoiled
    root = tmp_path / "lake"
    objects = moved(objects, root)
    (key,) = keys_of("key", objects)
    broken = b'{"format": 99}' if how == "newer" else spoil(objects[key], how)
    place = lay_out(root, {**objects, key: broken})
    with place.connect(settings=OLD) as lake:
        told = lake.doctor()
        assert not told.ok
        assert [f.key for f in told.findings if f.key and f.severity == "error"] == [key]
        for dry_run in (True, False):
            report = lake.gc(dry_run=dry_run)
            assert not report.ok
            (finding,) = [one for one in report.findings if one.severity != "note"]
            assert finding.key == key
            assert key in finding.message
            assert "upgrade" in finding.message or "delete it only if" in finding.message
    left = contents(root)
    assert left[key] == broken
    assert f"_lakevilla/txns/{saved}.json" not in left  # the rest was done


@pytest.mark.parametrize("how", ["missing", "truncated"])
def test_gc_deletes_no_history_while_a_page_of_it_cannot_be_read(
    spoiled: tuple[str, dict[str, bytes]], tmp_path: Path, how: str
) -> None:
    saved, objects = spoiled
    root = tmp_path / "lake"
    objects = moved(objects, root)
    (key,) = keys_of("page", objects)
    rest = {k: body for k, body in objects.items() if k != key}
    place = lay_out(root, rest if how == "missing" else {**rest, key: spoil(objects[key], how)})
    before = contents(root)
    with place.connect(settings=OLD) as lake:
        for dry_run in (True, False):
            report = lake.gc(dry_run=dry_run)
            (finding,) = [one for one in report.findings if one.severity == "error"]
            assert key in finding.message
            assert "history was skipped" in finding.message
    after = contents(root)
    for kind in ("page", "commit"):
        assert {k for k in before if re.fullmatch(KINDS[kind], k)} <= after.keys()
    old, new = (json.loads(some["_lakevilla/HEAD.json"]) for some in (before, after))
    assert new["floor"] > old.get("floor", "")
    assert new.get("history_start", 0) == old.get("history_start", 0)
    assert f"_lakevilla/txns/{saved}.json" not in after  # the rest was done
    # With the page from a copy, gc finishes what it left.
    lay_out(root, {key: objects[key]})
    with place.connect(settings=OLD) as lake:
        assert lake.gc().ok
        assert all(one.severity != "error" for one in lake.doctor().findings)
    assert key not in contents(root)


@pytest.mark.parametrize("kind", ["pending", "published"])
def test_a_missing_commit_object_is_reported_and_does_not_stop_gc(
    spoiled: tuple[str, dict[str, bytes]], tmp_path: Path, kind: str
) -> None:
    _, objects = spoiled
    root = tmp_path / "lake"
    objects = moved(objects, root)
    head = json.loads(objects["_lakevilla/HEAD.json"])
    (pending,) = head["tables"]["u"]["pending"]
    awaited = f"_lakevilla/commits/{pending['txn']}-{pending['hash']}.json"
    key = awaited
    if kind == "published":
        key = next(one for one in keys_of("commit", objects) if one != awaited)
    place = lay_out(root, {one: body for one, body in objects.items() if one != key})
    with place.connect() as lake:
        report = lake.doctor()
        assert not report.ok
        told = [finding for finding in report.findings if key in finding.message]
        assert [finding.severity for finding in told] == ["error"]
        assert lake.gc().ok == (kind == "published")


@pytest.mark.parametrize(
    ("body", "told"),
    [
        (None, "is missing, so another lake may take table t"),
        (b"{", "or delete it, and `lakevilla recover` writes it again"),
        (
            b'{"format":1,"nonce":"n","lake_id":"theirs","root":"/elsewhere"}',
            "table t is claimed by the lake at /elsewhere",
        ),
    ],
    ids=["missing", "broken", "another's"],
)
def test_doctor_reports_a_table_whose_claim_is_missing_or_wrong(
    spoiled: tuple[str, dict[str, bytes]], tmp_path: Path, body: bytes | None, told: str
) -> None:
    _, objects = spoiled
    root = tmp_path / "lake"
    objects = moved(objects, root)
    key = "t/_lakevilla/lake.json"
    rest = {one: whole for one, whole in objects.items() if one != key}
    place = lay_out(root, rest if body is None else {**rest, key: body})
    with place.connect() as lake:
        report = lake.doctor()
        assert not report.ok
        (finding,) = [one for one in report.findings if one.key == key]
        assert (finding.key, finding.table) == (key, "t")
        assert told in finding.message
        # Unregistering the table never removes another lake's claim.
        lake.unregister("t")
        left = contents(root).get(key)
        if body == b"{":
            assert left is not None
            assert b'"lake_id":""' in left
        else:
            assert left == body


@pytest.mark.parametrize("map_name", ["tables", "names", "refs"])
def test_recover_reports_a_missing_leaf_and_recovers_the_tables_of_other_leaves(
    local_place: Place, monkeypatch: pytest.MonkeyPatch, map_name: str
) -> None:
    monkeypatch.setattr(leaves, "INLINE_BYTES", 400)
    monkeypatch.setattr(leaves, "LEAF_BYTES", 400)
    with local_place.connect() as lake:
        for number in range(9):
            lake.create_table(f"t{number}", [{"id": 1}])
            lake.register(f"a_name_that_is_as_long_as_names_often_are_{number}", f"t{number}")
            lake.tag(f"tag_{number}")
        with unpublished(lake):
            lake.run(lambda txn: txn.append("t0", [{"id": 2}]), wait="decided")
            held = inside(lake).held
            assert held is not None
            refs = getattr(held.head, map_name).refs
            assert len(refs) > 1
            Path(local_place.root, refs[-1].key).unlink()
            report = local_place.connect().recover()
    assert not report.ok
    assert [one.key for one in report.findings if one.severity == "error"] == [refs[-1].key]
    assert [one.table for one in report.findings if one.kind == "published"] == ["t0"]
    assert local_place.delta("t0").to_pyarrow_table().num_rows == 2
