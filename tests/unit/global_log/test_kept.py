"""Fields of newer clients: ignored, kept, or refused by name (note 87)."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import lakevilla as lv
from lakevilla.global_log.commits import CommitObject, read_commit, seal
from lakevilla.global_log.head import (
    FORMAT_WITH_KEPT,
    BranchEpoch,
    Head,
    TableMap,
    TableState,
    empty_head,
    first_head,
    successor,
    with_refs,
)
from lakevilla.global_log.refs import BaseRef, RefEntry, RefMap
from lakevilla.store.codec import decode, encode

TXN = "01a1fd3e-938f-7a0d-bcd3-691a01e45256"
KEPT: dict[str, Any] = {"colour": {"red": [1, 2.5, None, "x"]}, "rank": 10**25}
BASE = BaseRef(1, "0a", 1, 1)
TAG = RefEntry("1-a", "tag", BASE, 1, "me", kept=KEPT)
OWN = TableState("id-1", 3, kept=KEPT)
NEWER = TableState("id-2", 3, needs=("teleport",))


def newer_head(**fields: Any) -> Head:
    head = empty_head("lake-id", "root", "nonce", FORMAT_WITH_KEPT)
    tables = TableMap({"own": OWN, "newer": NEWER})
    refs = RefMap({"v1": TAG})
    return msgspec.structs.replace(head, tables=tables, refs=refs, kept=KEPT, **fields)


def again(head: Head) -> Head:
    return decode("HEAD", encode(head), Head)


def with_unknown(body: bytes, **fields: object) -> bytes:
    return msgspec.json.encode({**msgspec.json.decode(body), **fields})


def test_unknown_fields_outside_of_kept_are_ignored() -> None:
    found = decode("HEAD", with_unknown(encode(newer_head()), hint=[1]), Head)
    assert found == again(newer_head())


def test_a_head_that_is_read_and_replaced_keeps_what_it_does_not_know() -> None:
    after = again(successor(again(newer_head()), nonce="other", now_ms=1))
    assert (after.kept, after.tables["own"].kept, after.refs["v1"].kept) == (KEPT, KEPT, KEPT)
    assert after.tables["newer"].needs == ("teleport",)
    assert after.format == FORMAT_WITH_KEPT


def test_a_commit_to_a_table_keeps_what_is_kept_of_the_table() -> None:
    changed = TableState("id-1", 4, guarded=True)
    after = successor(newer_head(), nonce="other", now_ms=1, tables={"own": changed})
    assert after.tables["own"].kept == KEPT
    assert after.tables["own"].published == 4


def test_another_table_at_the_place_begins_without_it() -> None:
    other = TableState("id-9", 0)
    after = successor(newer_head(), nonce="other", now_ms=1, tables={"own": other})
    assert after.tables["own"].kept == {}


def test_a_moved_ref_keeps_it() -> None:
    moved = msgspec.structs.replace(TAG, protected=True)
    assert with_refs(newer_head(), {"v1": moved}).refs["v1"].kept == KEPT


def test_a_table_that_needs_something_unknown_is_not_changed_and_others_are() -> None:
    head = newer_head()
    for state in (TableState("id-2", 4), TableState("id-2", 3, dropped=True), NEWER):
        with pytest.raises(lv.UnsupportedFormat, match="table newer needs 'teleport'"):
            successor(head, nonce="other", now_ms=1, tables={"newer": state})
    successor(head, nonce="other", now_ms=1, tables={"own": TableState("id-1", 4)})


def test_a_head_that_needs_something_unknown_is_refused_by_name() -> None:
    body = encode(newer_head(needs=("teleport", "x")))
    with pytest.raises(lv.UnsupportedFormat, match="HEAD needs 'teleport', 'x'") as raised:
        decode("HEAD", body, Head)
    assert raised.value.key == "HEAD"


def test_a_commit_that_needs_something_unknown_is_refused_and_one_with_more_fields_is_not() -> None:
    commit = CommitObject(1, "nonce", TXN, {})
    unknown = with_unknown(encode(commit), hint={"a": 1})
    assert decode("commit", unknown, CommitObject) == commit
    digest, body = seal(msgspec.structs.replace(commit, format=5, needs=("teleport",)))
    with pytest.raises(lv.UnsupportedFormat, match="needs 'teleport'"):
        read_commit(f"_lakevilla/commits/{TXN}-{digest}.json", body)


def test_the_first_head_of_an_epoch_has_the_format_of_what_it_names() -> None:
    now = empty_head("lake-id", "root", "nonce", 2)
    epoch = BranchEpoch("e", "etl", "1-a", BASE)
    plain = first_head(now, epoch, TableMap(), now.names, "n")
    assert plain.format < FORMAT_WITH_KEPT
    restored = msgspec.structs.replace(epoch, earlier=("d",))
    assert first_head(now, restored, TableMap(), now.names, "n").format == FORMAT_WITH_KEPT
    with_state = first_head(now, epoch, TableMap({"t": OWN}), now.names, "n")
    assert with_state.format == FORMAT_WITH_KEPT
    newer = first_head(newer_head(needs=("x",)), epoch, TableMap({"t": NEWER}), now.names, "n")
    assert (newer.format, newer.needs) == (FORMAT_WITH_KEPT, ("x",))
    assert first_head(now, epoch, TableMap(), now.names, "n", kept=KEPT).kept == KEPT
