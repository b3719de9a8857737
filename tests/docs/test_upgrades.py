"""The page on upgrades: formats as the code has them, and a client that refuses newer ones."""

from __future__ import annotations

import json
import re
from pathlib import Path

import msgspec
import pytest

import lakevilla as lv
from lakevilla.errors import UnsupportedFormat
from lakevilla.global_log.bases import Base
from lakevilla.global_log.commits import CommitObject
from lakevilla.global_log.head import Head, Page
from lakevilla.global_log.inbox.proposal import Proposal
from lakevilla.global_log.keys import KeyRecord
from lakevilla.global_log.leaves import Leaf, LeafMark
from lakevilla.global_log.namespaces import NamespaceFile
from lakevilla.global_log.repo import LakeFile
from lakevilla.maintenance.upkeep.lease import TaskRecord
from lakevilla.markers.marker import Marker
from lakevilla.settings import NEWEST_FORMAT, OLDEST_LIMIT
from lakevilla.store.codec import FORMAT
from lakevilla.store.formats import NEEDS
from lakevilla.sublogs.record import Sublog, TxnRecord

PAGE = (Path(__file__).parents[2] / "docs" / "upgrades.md").read_text()
OBJECTS: dict[str, type[msgspec.Struct]] = {
    "_lakevilla/HEAD.json": Head,
    "_lakevilla/commits/": CommitObject,
    "_lakevilla/inbox/": Proposal,
    "_lakevilla/keys/": KeyRecord,
    "_lakevilla/txns/<transaction>/": Sublog,
    "_lakevilla/txns/": TxnRecord,
    "<table>/_lakevilla/markers/": Marker,
    "<table>/_lakevilla/lake.json": LakeFile,
    "_lakevilla/pages/": Page,
    "_lakevilla/leaves/": Leaf,
    "_lakevilla/leaves/<number>-named.json": LeafMark,
    "_lakevilla/bases/": Base,
    "_lakevilla/namespaces/": NamespaceFile,
    "_lakevilla/maintenance/": TaskRecord,
}


def test_the_matrix_has_the_newest_format_of_each_object() -> None:
    rows = re.findall(r"(?m)^\| `([^`]+)`[^|]* \| (\d+) \|(.*)\|$", PAGE)
    assert {name: int(newest) for name, newest, _ in rows} == {
        name: getattr(kind, "FORMAT", FORMAT) for name, kind in OBJECTS.items()
    }
    for name, newest, needed in rows:
        told = [int(number) for number in re.findall(r"(?:^| )(\d+): ", needed)]
        assert told == sorted(told), name
        assert max(told, default=FORMAT) == int(newest), name


def test_the_page_says_which_formats_a_limit_includes() -> None:
    rows = re.findall(r"(?m)^\| (\d) \| (\d) \| (\d) \| (\d) \| (\d) \|$", PAGE)
    assert [tuple(map(int, row)) for row in rows] == [
        (limit, *(_newest(kind, limit) for kind in ("commits", "inbox", "keys", "txns")))
        for limit in range(OLDEST_LIMIT, NEWEST_FORMAT + 1)
    ]


def _newest(kind: str, limit: int) -> int:
    return max((of for of, need in NEEDS[kind].items() if need.lake <= limit), default=FORMAT)


def test_the_matrix_is_of_this_release() -> None:
    (head,) = re.findall(r"(?m)^\| object \| (.*) \| what needs which \|$", PAGE)
    assert head.split(" | ")[-1] == lv.__version__
    assert f"## {lv.__version__}" in (Path(__file__).parents[2] / "CHANGELOG.md").read_text()


def test_each_object_with_a_format_is_in_the_matrix() -> None:
    known = {kind.__module__ for kind in OBJECTS.values()}
    assert {kind for kind in _stored() if kind.__module__ in known} <= set(OBJECTS.values())


def _stored() -> set[type[msgspec.Struct]]:
    """Return the kinds of stored objects that are loaded: those that have a number and a nonce."""
    found: set[type[msgspec.Struct]] = set()
    waiting = [msgspec.Struct]
    while waiting:
        kinds = waiting.pop().__subclasses__()
        waiting += kinds
        found |= {kind for kind in kinds if {"format", "nonce"} <= set(kind.__struct_fields__)}
    return found


def test_a_client_refuses_a_newer_head_and_changes_nothing(tmp_path: Path) -> None:
    with lv.connect(tmp_path) as lake:
        lake.create_table("stock", [{"id": 1}])
    path = tmp_path / "_lakevilla" / "HEAD.json"
    newer = {**json.loads(path.read_text()), "format": Head.FORMAT + 1, "unknown": [1]}
    path.write_text(json.dumps(newer))
    before = {one: one.read_bytes() for one in tmp_path.rglob("*") if one.is_file()}
    with lv.connect(tmp_path) as lake:
        for work in (
            lambda: lake.read("stock"),
            lambda: lake.run(lambda txn: txn.append("stock", [{"id": 2}])),
            lake.maintain,
            lake.gc,
        ):
            with pytest.raises(UnsupportedFormat, match=r"HEAD\.json has format version 8"):
                work()
        (finding,) = lake.doctor().findings
        assert finding.kind == "unsupported_format"
    after = {one: one.read_bytes() for one in tmp_path.rglob("*") if one.is_file()}
    assert {one: body for one, body in after.items() if one in before} == before
    assert not any("_delta_log" in str(one) for one in after.keys() - before.keys())
