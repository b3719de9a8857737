"""Proposals as objects of the store: their names, and the objects that are ignored."""

from __future__ import annotations

import msgspec
import pytest

import lakevilla as lv
from lakevilla.global_log.head import Touch
from lakevilla.global_log.inbox import proposal as proposals
from lakevilla.global_log.inbox.proposal import (
    INBOX_PREFIX,
    MOST_COMMITS,
    Claim,
    Proposal,
    ProposedCommit,
    format_of,
    number_of,
    read_proposal,
    seal_proposal,
)
from lakevilla.global_log.inbox.reliance import Reliance
from lakevilla.store.codec import decode


class _EarlierProposal(msgspec.Struct):
    """A proposal as read by a client that is older than reliance on rows."""

    format: int


CLAIM = Claim("id", "delta", 3, 17, Touch(published=3, adds=True))
COMMIT = ProposedCommit("t", "d", msgspec.Raw(b'{"format":1,"x":[1, 2]}'), {"a": CLAIM})
ONE = Proposal(1, "nonce", "lake", 41, 17, (COMMIT,))


def test_a_proposal_is_read_as_written_with_the_bytes_of_its_commit_objects() -> None:
    key, body = seal_proposal(ONE)
    found = read_proposal(key, body)
    assert found == ONE
    assert bytes(found.commits[0].commit) == bytes(COMMIT.commit)


def test_proposal_names_sort_by_the_number_of_their_head() -> None:
    keys = [seal_proposal(msgspec.structs.replace(ONE, replacement=n))[0] for n in (9, 10, 100)]
    assert keys == sorted(keys)
    assert [number_of(key) for key in keys] == [9, 10, 100]


@pytest.mark.parametrize(
    "name", ["x.json", "1-a.json", "0" * 20 + ".json", "0" * 20 + "-a.txt", "0" * 20 + "-a/b.json"]
)
def test_other_objects_in_the_inbox_are_not_taken_for_proposals(name: str) -> None:
    assert number_of(f"{INBOX_PREFIX}/{name}") is None


def test_a_flipped_bit_in_a_proposal_is_noticed() -> None:
    key, body = seal_proposal(ONE)
    for place in range(0, len(body), 7):
        damaged = body[:place] + bytes([body[place] ^ 1]) + body[place + 1 :]
        with pytest.raises((lv.CorruptObject, lv.UnsupportedFormat)):
            read_proposal(key, damaged)


def test_a_proposal_stored_under_another_head_number_is_refused() -> None:
    key, body = seal_proposal(ONE)
    with pytest.raises(lv.CorruptObject, match="hash"):
        read_proposal(key.replace("41-", "42-"), body)


def test_a_proposal_of_a_newer_format_is_refused_with_its_version() -> None:
    key, body = seal_proposal(msgspec.structs.replace(ONE, format=4))
    with pytest.raises(lv.UnsupportedFormat, match="format version 4"):
        read_proposal(key, body)


def test_a_proposal_that_relies_on_rows_has_a_format_that_older_clients_refuse() -> None:
    relying = msgspec.structs.replace(COMMIT, relies={"b": Reliance("id", b"", b"")})
    assert format_of([COMMIT]) == 1
    assert format_of([COMMIT, relying]) == 2
    one = msgspec.structs.replace(ONE, format=2, commits=(COMMIT, relying))
    key, body = seal_proposal(one)
    assert read_proposal(key, body) == one
    with pytest.raises(lv.UnsupportedFormat, match="upgrade"):
        decode(key, body, _EarlierProposal)


def test_a_proposal_of_too_many_bytes_or_too_many_or_no_commits_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    many = msgspec.structs.replace(ONE, commits=(COMMIT,) * (MOST_COMMITS + 1))
    with pytest.raises(lv.CorruptObject, match="33 commits"):
        read_proposal(*seal_proposal(many))
    with pytest.raises(lv.CorruptObject, match="0 commits"):
        read_proposal(*seal_proposal(msgspec.structs.replace(ONE, commits=())))
    monkeypatch.setattr(proposals, "MOST_BYTES", 10)
    with pytest.raises(lv.CorruptObject, match="more than any"):
        read_proposal(*seal_proposal(ONE))


def test_a_commit_object_that_does_not_match_its_digest_is_refused() -> None:
    with pytest.raises(lv.LakeVillaError):
        COMMIT.commit_object()
