"""Copies of bases in HEAD's leaves: they save requests, and nothing depends on them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest

import lakevilla as lv
from lakevilla.global_log import bases
from lakevilla.global_log.commits import digest_of
from lakevilla.global_log.head import Head
from tests.support.inside import inside
from tests.support.places import Place
from tests.support.refs.shop import clean_up
from tests.support.tables import accounts
from tests.support.traces import steps


@pytest.fixture
def lake(local_place: Place, monkeypatch: pytest.MonkeyPatch) -> Iterator[lv.Lake]:
    monkeypatch.setattr(bases, "COPIED_TOGETHER", 3)
    with local_place.connect() as lake:
        lake.create_table("t", accounts(1))
        yield lake


def tagged(lake: lv.Lake, *numbers: int) -> None:
    """Make tags of states that need different files."""
    for number in numbers:
        lake.tag(f"v{number}")
        lake.run(lambda txn: txn.update("t", {"balance": "balance + 1"}, where="true"))


def shown(place: Place, *numbers: int) -> list[int]:
    with place.connect() as lake:
        found = [lake.on(f"v{number}").read("t")["balance"].to_pylist() for number in numbers]
    return [balance for (balance,) in found]


def head_of(lake: lv.Lake) -> Head:
    head = inside(lake).client.head()
    assert head is not None
    return head


def copied(lake: lv.Lake) -> set[str]:
    """Return the names of the refs of whose bases HEAD has copies."""
    head = head_of(lake)
    inside(lake).client.run(bases.load_copies(head))
    names = set(head.copies.cached())
    return {name for name, entry in head.refs.items() if entry.base.name in names}


def lost(lake: lv.Lake) -> list[tuple[str, str | None]]:
    report = lake.verify()
    assert report.ok
    return [(one.severity, one.key) for one in report.findings if one.kind == "corrupt_object"]


def leaves_of_copies(lake: lv.Lake) -> list[Path]:
    return [Path(lake.root, ref.key) for ref in head_of(lake).copies.refs]


def test_bases_are_copied_together_by_the_client_that_makes_the_last_of_them(
    lake: lv.Lake,
) -> None:
    tagged(lake, 0, 1)
    assert copied(lake) == set()
    tagged(lake, 2)
    assert copied(lake) == {"v0", "v1", "v2"}
    tagged(lake, 3, 4)
    assert copied(lake) == {"v0", "v1", "v2"}
    lake.branch("b")
    assert copied(lake) == {"v0", "v1", "v2", "v3", "v4", "b"}


def test_a_vacuum_keeps_the_files_of_refs_with_and_without_a_copy(
    lake: lv.Lake, local_place: Place
) -> None:
    tagged(lake, 0, 1, 2, 3)
    before = shown(local_place, 0, 1, 2, 3)
    assert copied(lake) == {"v0", "v1", "v2"}
    with local_place.connect() as other:
        clean_up(other)
    assert shown(local_place, 0, 1, 2, 3) == before
    for name in ("v3", "v1"):
        lake.delete_ref(name)
        clean_up(lake)
    assert copied(lake) == {"v0", "v2"}
    assert shown(local_place, 0, 2) == [before[0], before[2]]


def test_a_vacuum_reads_no_base_that_has_a_copy(lake: lv.Lake, local_place: Place) -> None:
    tagged(lake, 0, 1, 2, 3)
    with local_place.connect() as other:
        read = [key for one in steps(other, lambda: other.table("t").vacuum()) for _, key in one]
    assert sum("_lakevilla/bases/" in key for key in read) == 1


@pytest.mark.parametrize("how", ["missing", "cut", "another base"])
def test_lost_copies_cost_requests_alone_until_bases_are_copied_again(
    lake: lv.Lake, local_place: Place, how: str
) -> None:
    tagged(lake, 0, 1, 2, 3)
    before = shown(local_place, 0, 1, 2, 3)
    (path,) = leaves_of_copies(lake)
    if how == "missing":
        path.unlink()
    elif how == "cut":
        path.write_bytes(path.read_bytes()[:-20])
    else:
        path.write_bytes(path.read_bytes().replace(b'"name":"v0"', b'"name":"v7"'))
    with local_place.connect() as other:
        clean_up(other)
        assert other.doctor().ok
        assert lost(other) == [("note", str(path.relative_to(lake.root)))]
        assert shown(local_place, 0, 1, 2, 3) == before
        tagged(other, 4, 5)
        assert copied(other) == {f"v{number}" for number in range(6)}
        assert lost(other) == []
    assert shown(local_place, 0, 1, 2, 3) == before


def test_gc_copies_the_bases_that_merges_have_made(lake: lv.Lake) -> None:
    for number in range(3):
        lake.branch(f"b{number}")
        lake.on(f"b{number}").run(lambda txn: txn.append("t", accounts(1)))
    for number in range(3):
        lake.merge(f"b{number}")
    merged = {entry.synced for entry in head_of(lake).refs.values()}
    assert None not in merged
    lake.gc()
    copies = set(head_of(lake).copies)
    assert {ref.name for ref in merged if ref is not None} <= copies


def test_a_copy_of_another_base_or_of_a_newer_format_is_not_used(lake: lv.Lake) -> None:
    tagged(lake, 0, 1, 2)
    head = head_of(lake)
    inside(lake).client.run(bases.load_copies(head))
    copies = head.copies.cached()
    first, second = (head.refs[name].base for name in ("v0", "v1"))
    assert bases.copied_base(copies, first) is not None
    wrong = {**copies, first.name: copies[second.name]}
    assert bases.copied_base(wrong, first) is None
    assert bases.copied_base({}, first) is None
    newer = bytes(copies[first.name]).replace(b'"format":1', b'"format":99')
    ref = msgspec.structs.replace(first, hash=digest_of(newer))
    assert bases.copied_base({ref.name: msgspec.Raw(newer)}, ref) is None


def test_a_large_base_is_read_by_itself(
    lake: lv.Lake, local_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    tagged(lake, 0)
    with monkeypatch.context() as limits:
        limits.setattr(bases, "COPY_BYTES", 10)
        tagged(lake, 1, 2, 3)
    assert copied(lake) == set()
    size = max(path.stat().st_size for path in Path(lake.root, "_lakevilla/bases").iterdir())
    lake.tag("wide", metadata={"x": "y"})
    assert copied(lake) == {"v0", "v1", "v2", "v3", "wide"}
    monkeypatch.setattr(bases, "COPY_BYTES", size)
    clean_up(lake)
    assert len(shown(local_place, 0, 1, 2, 3)) == 4


def test_copies_of_deleted_refs_are_removed_once_they_are_more_than_the_others(
    lake: lv.Lake,
) -> None:
    tagged(lake, 0, 1, 2, 3, 4, 5)
    for number in range(5):
        lake.delete_ref(f"v{number}")
    assert len(head_of(lake).copies) == 6
    tagged(lake, 6, 7, 8)
    head = head_of(lake)
    names = {entry.base.name for entry in head.refs.values()}
    assert set(head.copies) == names
    assert len(names) == 4


def test_head_names_a_limited_number_of_leaves_of_copies(
    lake: lv.Lake, local_place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bases, "MOST_LEAVES", 1)
    tagged(lake, *range(7))
    assert copied(lake) == {"v0", "v1", "v2"}
    lake.delete_ref("v1")
    clean_up(lake)
    assert copied(lake) == {"v0", "v2"}
    assert len(shown(local_place, 0, 2, 3, 4, 5, 6)) == 6


def test_doctor_reports_a_missing_or_short_base_that_has_a_copy(lake: lv.Lake) -> None:
    tagged(lake, 0, 1, 2)
    assert lake.doctor().ok
    missing, short = (Path(lake.root, head_of(lake).refs[name].base.key) for name in ("v0", "v1"))
    missing.unlink()
    short.write_bytes(short.read_bytes()[:-1])
    report = lake.doctor()
    keys = {key for one in report.findings if (key := one.key) is not None}
    assert {str(missing.relative_to(lake.root)), str(short.relative_to(lake.root))} <= keys
    assert not report.ok


def test_gc_deletes_the_leaves_of_copies_that_head_names_no_more(lake: lv.Lake) -> None:
    tagged(lake, 0, 1, 2)
    (old,) = leaves_of_copies(lake)
    tagged(lake, 3, 4, 5)
    (new,) = leaves_of_copies(lake)
    assert old.exists()
    for _ in range(3):
        clean_up(lake)
    assert new.exists()
    assert copied(lake) == {f"v{number}" for number in range(6)}


def test_a_rebuild_of_a_lost_head_reads_leaves_of_copies_as_sound(
    lake: lv.Lake, local_place: Place
) -> None:
    tagged(lake, 0, 1, 2, 3)
    before = shown(local_place, 0, 1, 2, 3)
    Path(lake.root, "_lakevilla/HEAD.json").unlink()
    with local_place.connect() as other:
        report = other.recover(rebuild_head=True)
        assert not any("leaves/" in str(one) for one in report.findings)
    assert shown(local_place, 0, 1, 2, 3) == before
