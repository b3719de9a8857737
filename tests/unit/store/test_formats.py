"""What needs which format: the table agrees with the code, and holds a client back."""

from __future__ import annotations

import msgspec
import pytest

from lakevilla.errors import InvalidOperation
from lakevilla.global_log.commits import CommitObject
from lakevilla.global_log.head import Head
from lakevilla.global_log.inbox.proposal import Proposal
from lakevilla.global_log.keys import KeyRecord
from lakevilla.settings import NEWEST_FORMAT, OLDEST_LIMIT, Settings
from lakevilla.store.codec import FORMAT
from lakevilla.store.formats import NEEDS, check_written, kind_of
from lakevilla.sublogs.record import Sublog

KINDS: dict[str, type[msgspec.Struct]] = {
    "HEAD": Head,
    "commits": CommitObject,
    "inbox": Proposal,
    "keys": KeyRecord,
    "txns": Sublog,
}
TXN = "01a1fd3e-938f-7a0d-bcd3-691a01e45256"
EPOCH = "00000000000000000007-0123456789abcdef"


def test_the_table_has_the_newest_format_of_each_kind() -> None:
    assert {name: max(needs) for name, needs in NEEDS.items()} == {
        name: getattr(kind, "FORMAT", FORMAT) for name, kind in KINDS.items()
    }


def test_the_formats_of_lakes_are_those_of_head() -> None:
    assert all(number == need.lake for number, need in NEEDS["HEAD"].items())
    assert (min(NEEDS["HEAD"]), max(NEEDS["HEAD"])) == (OLDEST_LIMIT, NEWEST_FORMAT)
    assert {need.lake for needs in NEEDS.values() for need in needs.values()} == set(NEEDS["HEAD"])


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("_lakevilla/HEAD.json", "HEAD"),
        ("_lakevilla/heads/00000000000000000007.json", "HEAD"),
        (f"_lakevilla/branches/{EPOCH}/HEAD.json", "HEAD"),
        (f"_lakevilla/commits/{TXN}-0a.json", "commits"),
        (f"_lakevilla/branches/{EPOCH}/commits/{TXN}-0a.json", "commits"),
        ("_lakevilla/inbox/00000000000000000007-0a.json", "inbox"),
        ("_lakevilla/keys/0a.json", "keys"),
        ("_lakevilla/keys/0a/00000000000000000001.json", "keys"),
        (f"_lakevilla/txns/{TXN}.json", "txns"),
        (f"_lakevilla/txns/{TXN}/0a.json", "txns"),
        ("_lakevilla/pages/00000000000000000007-0a.json", ""),
        ("t/_lakevilla/lake.json", ""),
        ("t/_delta_log/00000000000000000001.json", ""),
        ("t/part-0.parquet", ""),
    ],
)  # fmt: skip
def test_a_key_names_the_kind_of_its_object(key: str, kind: str) -> None:
    assert kind_of(key) == kind


@pytest.mark.parametrize(
    ("key", "kind", "number"),
    [(key, kind, number) for key, kind in (
        ("_lakevilla/HEAD.json", "HEAD"),
        (f"_lakevilla/commits/{TXN}-0a.json", "commits"),
        ("_lakevilla/inbox/00000000000000000007-0a.json", "inbox"),
        ("_lakevilla/keys/0a.json", "keys"),
        (f"_lakevilla/txns/{TXN}/0a.json", "txns"),
    ) for number in NEEDS[kind]],
)  # fmt: skip
def test_an_object_is_stored_from_the_format_of_the_lake_on_that_its_readers_need(
    key: str, kind: str, number: int
) -> None:
    need = NEEDS[kind][number]
    body = b'{"format":%d,"nonce":"x"}' % number
    for limit in range(OLDEST_LIMIT, NEWEST_FORMAT + 1):
        newest = max(one.lake for of, one in NEEDS[kind].items() if of <= number)
        if limit >= newest:
            check_written(key, body, limit)
            continue
        with pytest.raises(InvalidOperation) as raised:
            check_written(key, body, limit)
        for told in (key, need.what, f"clients of format {limit}", f"format_limit={newest}"):
            assert told in raised.value.message


def test_a_limit_allows_what_clients_of_it_read() -> None:
    assert Settings().allows(NEWEST_FORMAT)
    assert [n for n in range(1, 8) if Settings(format_limit=4).allows(n)] == [1, 2, 3, 4]


@pytest.mark.parametrize("limit", [1, -1, NEWEST_FORMAT + 1, 2.5, True, "0.1.0"])
def test_a_limit_that_no_client_has_is_refused(limit: object) -> None:
    with pytest.raises(InvalidOperation, match="format_limit must be a whole number, 0 or 2"):
        Settings(format_limit=limit)  # type: ignore[arg-type]
