"""The verbs of the store interface, on every backend."""

from __future__ import annotations

import concurrent.futures
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from lakevilla.errors import InvalidOperation
from lakevilla.store.backends import object_store
from lakevilla.store.backends.routing import LakeStore
from lakevilla.store.base import (
    ABSENT,
    ANY,
    Found,
    Match,
    Missing,
    ObjectInfo,
    Refused,
    Stored,
    Token,
    Unchanged,
)
from lakevilla.store.readback import same_object
from tests.contract.store.conftest import capabilities

STRANGE_KEYS = [
    "with space/and more.json",
    "percent%20literal/a%2Fb",
    "pct%",
    "ünï/日本語/é",
    "hash#12/x#3",
    "plus+and&equals=1/col=a b",
    "question?mark",
    "colon:semi;comma,",
    "quote'\"back`tick",
    "brackets[1]{2}(3)|^~*<>$!@",
    "back\\slash",
    "dots/at.the/end.",
    "dots/at the./end",
    "_hidden/.dot",
]
#: Those that Azure keeps, or may keep, under another name.
CHANGED = STRANGE_KEYS[-4:-1]


def kept(store: LakeStore) -> list[str]:
    """Return the strange keys that a store keeps as they are."""
    literal = capabilities(store).literal_names
    return [key for key in STRANGE_KEYS if literal or key not in CHANGED]


def stored(outcome: object) -> Token:
    assert isinstance(outcome, Stored), outcome
    return outcome.token


def body_of(store: LakeStore, key: str) -> bytes:
    found = store.get(key)
    assert isinstance(found, Found), found
    return found.body


def test_a_get_returns_the_body_and_the_token_of_its_write(store: LakeStore) -> None:
    token = stored(store.put("a/b", b"hello", ABSENT))
    found = store.get("a/b")
    assert isinstance(found, Found)
    assert (found.body, found.size) == (b"hello", 5)
    assert same_object(found.token, token)
    info = store.head("a/b")
    assert isinstance(info, ObjectInfo)
    assert (info.key, info.size) == ("a/b", 5)
    assert same_object(info.token, token)
    assert abs(info.modified_seconds - time.time()) < 60


def test_every_verb_reports_an_absent_key_as_missing(store: LakeStore) -> None:
    stored(store.put("file", b"x", ABSENT))
    for key in ("nothing", "no/such/directory", "file/below"):
        assert store.get(key) == Missing()
        assert store.get(key, byte_range=(0, 4)) == Missing()
        assert store.get(key, byte_range=(-4, 0)) == Missing()
        assert store.head(key) == Missing()
        assert store.delete(key) is None
    assert store.list("nothing") == []


def test_a_directory_is_not_reported_as_an_object(store: LakeStore) -> None:
    stored(store.put("dir/file", b"x", ABSENT))
    assert store.get("dir") == Missing()
    assert store.head("dir") == Missing()
    assert store.delete("dir") is None
    assert body_of(store, "dir/file") == b"x"


def test_a_second_create_is_refused_and_changes_nothing(store: LakeStore) -> None:
    stored(store.put("k", b"first", ABSENT))
    assert store.put("k", b"second", ABSENT) == Refused()
    assert body_of(store, "k") == b"first"


def test_a_put_with_a_match_replaces_only_the_state_with_that_token(store: LakeStore) -> None:
    first = stored(store.put("k", b"1", ABSENT))
    second = stored(store.put("k", b"2", Match(first)))
    assert not same_object(first, second)
    assert store.put("k", b"3", Match(first)) == Refused()
    assert body_of(store, "k") == b"2"
    found = store.get("k")
    assert isinstance(found, Found)
    stored(store.put("k", b"3", Match(found.token)))
    assert body_of(store, "k") == b"3"


def test_a_put_with_a_match_on_an_absent_key_is_refused(store: LakeStore) -> None:
    token = stored(store.put("k", b"1", ABSENT))
    assert store.put("other", b"2", Match(token)) == Refused()
    assert store.put("no/directory/yet", b"2", Match(token)) == Refused()
    assert store.delete("k") is None
    assert store.put("k", b"2", Match(token)) == Refused()
    assert store.get("k") == Missing()
    assert store.get("other") == Missing()


def test_a_token_is_never_used_again_for_another_state(store: LakeStore) -> None:
    token = stored(store.put("k", b"0000", ABSENT))
    seen = [token]
    for number in range(1, 200):
        token = stored(store.put("k", f"{number:04}".encode(), Match(token)))
        assert not any(same_object(token, earlier) for earlier in seen)
        seen.append(token)


def test_an_unconditional_put_replaces_any_object(store: LakeStore) -> None:
    stored(store.put("k", b"1", ANY))
    stored(store.put("k", b"22", ANY))
    assert body_of(store, "k") == b"22"


def test_a_get_with_the_current_token_transfers_no_body(store: LakeStore) -> None:
    token = stored(store.put("k", b"1", ABSENT))
    assert store.get("k", known=token) == Unchanged()
    stored(store.put("k", b"2", Match(token)))
    found = store.get("k", known=token)
    assert isinstance(found, Found)
    assert found.body == b"2"


def test_byte_ranges_behave_like_slices(store: LakeStore) -> None:
    body = bytes(range(100))
    stored(store.put("k", body, ABSENT))
    for byte_range, expected in [
        ((0, 10), body[0:10]),
        ((90, 100), body[90:100]),
        ((90, 1000), body[90:]),
        ((-10, 0), body[-10:]),
        ((-1000, 0), body),
        ((100, 110), b""),
        ((5, 5), b""),
    ]:
        found = store.get("k", byte_range=byte_range)
        assert isinstance(found, Found), byte_range
        assert (found.body, found.size) == (expected, 100), byte_range


def test_an_empty_object_can_be_stored_and_read(store: LakeStore) -> None:
    stored(store.put("k", b"", ABSENT))
    for byte_range in (None, (0, 10), (-10, 0)):
        found = store.get("k", byte_range=byte_range)
        assert isinstance(found, Found), byte_range
        assert (found.body, found.size) == (b"", 0)


def test_a_list_is_recursive_and_returns_only_keys_below_its_directory(store: LakeStore) -> None:
    for key in ("t/a", "t/b/c", "t/b/d/e", "t2/x", "u"):
        stored(store.put(key, key.encode(), ABSENT))
    listed = store.list("t")
    assert isinstance(listed, list)
    assert sorted(info.key for info in listed) == ["t/a", "t/b/c", "t/b/d/e"]
    assert {info.key: info.size for info in listed} == {"t/a": 3, "t/b/c": 5, "t/b/d/e": 7}
    everything = store.list("")
    assert isinstance(everything, list)
    assert len(everything) == 5


def test_a_list_returns_the_same_tokens_as_a_get(store: LakeStore) -> None:
    token = stored(store.put("t/a", b"1", ABSENT))
    listed = store.list("t")
    assert isinstance(listed, list)
    assert listed[0].token.e_tag == token.e_tag


def test_start_after_omits_the_named_key_and_all_keys_before_it(store: LakeStore) -> None:
    for number in range(12):
        stored(store.put(f"log/{number:020}.json", b"{}", ABSENT))
    listed = store.list("log", start_after=f"log/{8:020}.json")
    assert isinstance(listed, list)
    assert sorted(info.key for info in listed) == [f"log/{n:020}.json" for n in (9, 10, 11)]


def test_until_omits_all_keys_after_it(store: LakeStore) -> None:
    for number in range(12):
        stored(store.put(f"log/{number:020}.json", b"{}", ABSENT))
    bounds = f"log/{2:020}.json", f"log/{5:020}.json"
    listed = store.list("log", *bounds)
    assert isinstance(listed, list)
    assert sorted(info.key for info in listed) == [f"log/{n:020}.json" for n in (3, 4, 5)]


def test_a_list_of_more_objects_than_a_page_returns_all(store: LakeStore) -> None:
    keys = [f"many/{number:05}" for number in range(1050)]
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        for outcome in pool.map(lambda key: store.put(key, b"x", ANY), keys):
            stored(outcome)
    for until, expected in ((None, keys), (keys[10], keys[:11]), (keys[1010], keys[:1011])):
        listed = store.list("many", until=until)
        assert isinstance(listed, list)
        assert sorted(info.key for info in listed) == expected


@pytest.mark.parametrize("key", STRANGE_KEYS)
def test_a_key_with_unusual_characters_works_with_every_verb_or_is_refused(
    store: LakeStore, key: str
) -> None:
    if key not in kept(store):
        return refused(store, key)
    token = stored(store.put(key, b"1", ABSENT))
    assert body_of(store, key) == b"1"
    stored(store.put(key, b"2", Match(token)))
    info = store.head(key)
    assert isinstance(info, ObjectInfo)
    assert info.key == key
    listed = store.list(key.rpartition("/")[0])
    assert isinstance(listed, list)
    assert [info.key for info in listed] == [key]
    assert store.delete(key) is None
    assert store.get(key) == Missing()


def refused(store: LakeStore, key: str) -> None:
    """Check that a store that would keep a key under another name refuses to store it.

    What other clients have stored is read, unless the key certainly names another object.
    """
    store.put("k", b"1", ANY)
    writes: list[Callable[[], object]] = [
        lambda: store.put(key, b"x", ANY),
        lambda: store.put_file(key, __file__),
        lambda: store.copy_object("k", key),
    ]
    reads: list[Callable[[], object]] = [
        lambda: store.copy_object(key, "k2"),
        lambda: store.get(key),
        lambda: store.get(key, byte_range=(-2, 0)),
        lambda: store.head(key),
        lambda: store.list(key),
        lambda: store.list_names(key),
        lambda: store.delete(key),
    ]
    for verb in writes:
        with pytest.raises(InvalidOperation, match="name the table or the file without it"):
            verb()
    for verb in reads:
        if "\\" in key:
            with pytest.raises(InvalidOperation, match="Azure takes for a slash"):
                verb()
        else:
            assert verb() in (Missing(), [], (), None)


@pytest.mark.parametrize("key", ["../out", "a/../b", "a/./b", "a//b", "a/", "nul\x00", "nl\n"])
def test_a_key_that_is_not_a_plain_path_is_refused(store: LakeStore, key: str) -> None:
    with pytest.raises(InvalidOperation):
        store.get(key)
    with pytest.raises(InvalidOperation):
        store.put(key, b"x", ANY)


def test_a_deleted_object_is_gone_and_may_be_created_again(store: LakeStore) -> None:
    stored(store.put("k", b"1", ABSENT))
    assert store.delete("k") is None
    assert store.delete("k") is None
    assert store.get("k") == Missing()
    stored(store.put("k", b"2", ABSENT))


def test_an_uploaded_local_file_is_kept(store: LakeStore, tmp_path: Path) -> None:
    body = bytes(i % 251 for i in range(1000)) * 20_000  # 20 MB are uploaded in several parts
    source = tmp_path / "source.parquet"
    source.write_bytes(body)
    stored(store.put_file("t/part=a b/x.parquet", str(source)))
    assert body_of(store, "t/part=a b/x.parquet") == body
    assert source.read_bytes() == body
    source.write_bytes(b"short")
    stored(store.put_file("t/part=a b/x.parquet", str(source)))
    assert body_of(store, "t/part=a b/x.parquet") == b"short"


def test_an_object_is_copied_by_the_store(store: LakeStore) -> None:
    body = b"0123456789abcdef" * 100_000
    for source in ("t/part=a b/x.parquet", *kept(store)):
        stored(store.put(source, body, ANY))
        outcome = store.copy_object(source, f"copies/{source}")
        assert isinstance(outcome, Stored), (source, outcome)
        assert body_of(store, f"copies/{source}") == body
    stored(store.put("t/part=a b/x.parquet", b"other", ANY))
    assert body_of(store, "copies/t/part=a b/x.parquet") == body  # the copy is an object of its own
    assert isinstance(store.copy_object("t/part=a b/x.parquet", "copies/hash#12/x#3"), Stored)
    # The copy replaces an object at its key.
    assert body_of(store, "copies/hash#12/x#3") == b"other"
    stored(store.put("t/empty", b"", ANY))
    assert isinstance(store.copy_object("t/empty", "copies/empty"), Stored)
    assert body_of(store, "copies/empty") == b""
    assert store.copy_object("t/nowhere", "copies/nowhere") == Missing()
    assert store.get("copies/nowhere") == Missing()


def test_a_copy_of_an_object_in_several_parts_is_whole(
    store: LakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(object_store, "_COPIED_PART_BYTES", 5 * 1024**2)
    body = bytes(range(256)) * 48 * 1024  # in three parts, where the client copies
    stored(store.put("t/large", body, ANY))
    assert isinstance(store.copy_object("t/large", "copies/large"), Stored)
    assert body_of(store, "copies/large") == body


def test_an_upload_of_a_missing_local_file_names_it(store: LakeStore, tmp_path: Path) -> None:
    with pytest.raises(InvalidOperation, match=r"nowhere\.parquet"):
        store.put_file("x", str(tmp_path / "nowhere.parquet"))


def test_a_large_body_put_unconditionally_is_stored_as_a_whole(store: LakeStore) -> None:
    body = b"0123456789abcdef" * (40 * 1024 * 1024 // 16)
    stored(store.put("large", body, ANY))
    found = store.get("large", byte_range=(-16, 0))
    assert isinstance(found, Found)
    assert (found.body, found.size) == (b"0123456789abcdef", len(body))


def test_exactly_one_of_several_threads_that_create_the_same_key_succeeds(store: LakeStore) -> None:
    with concurrent.futures.ThreadPoolExecutor(16) as pool:
        for number in range(20):
            outcomes = list(
                pool.map(
                    lambda who, n=number: store.put(f"race/{n}", f"{who}".encode(), ABSENT),
                    range(16),
                )
            )
            assert sum(isinstance(outcome, Stored) for outcome in outcomes) == 1


def test_the_names_in_a_directory_are_those_of_its_direct_children(store: LakeStore) -> None:
    for key in (
        "d/a.json",
        "d/sub/b",
        "d/sub/deep/c",
        "d/sub 2/x=1/y",
        "d.json",
        "dd/e",
        *(f"d/odd/{key}" for key in kept(store)),
    ):
        stored(store.put(key, b"x", ABSENT))
    assert sorted(named(store, "d")) == ["a.json", "odd/", "sub 2/", "sub/"]
    assert sorted(named(store, "d/sub")) == ["b", "deep/"]
    assert {"d/", "d.json", "dd/"} <= set(named(store, ""))
    assert set(named(store, "d/odd")) == {
        f"{key.partition('/')[0]}/" if "/" in key else key for key in kept(store)
    }
    assert named(store, "nothing/here") == named(store, "d/a.json") == ()


def named(store: LakeStore, prefix: str) -> tuple[str, ...]:
    outcome = store.list_names(prefix)
    assert isinstance(outcome, tuple), outcome
    return outcome
