"""Each key is sent to its backend, and keys come back in the spelling of the request."""

from __future__ import annotations

from typing import Any

import pytest

from lakevilla.errors import InvalidOperation
from lakevilla.store.backends.routing import LakeStore
from lakevilla.store.base import ANY, ObjectInfo, Token
from lakevilla.store.location import Location, parse_location


class Recorder:
    """A backend that records paths and lists all of its keys, whatever the bounds of the LIST."""

    def __init__(self, location: Location) -> None:
        self.location = location
        self.paths: list[str] = []

    def put(self, key: str, body: bytes, condition: object) -> None:
        self.paths.append(key)

    def list(self, prefix: str, *bounds: str | None) -> Any:
        return [
            ObjectInfo(path, 1, Token("t"), 0.0)
            for path in self.paths
            if path.startswith(f"{prefix}/" if prefix else "")
        ]


def make(root: str) -> tuple[LakeStore, dict[str, Recorder]]:
    opened: dict[str, Recorder] = {}

    def open_backend(location: Location) -> Any:
        return opened.setdefault(location.uri, Recorder(location))

    return LakeStore(parse_location(root), open_backend, ["s3://other/any", "gs://lake"]), opened


@pytest.mark.parametrize(
    ("root", "key", "backend", "path"),
    [
        ("s3://lake/base", "t/a", "s3://lake", "base/t/a"),
        ("s3://lake/base", "s3://lake/x", "s3://lake", "x"),
        ("s3://lake/base", "s3a://other/t/a%20b", "s3://other", "t/a%20b"),
        ("s3://lake/base", "gs://lake/t", "gs://lake", "t"),
        ("/lake", "/data/t/a", "/", "data/t/a"),
        ("/lake", "file:///data/t/a", "/", "data/t/a"),
    ],
)
def test_a_key_is_sent_to_the_backend_of_its_store(
    root: str, key: str, backend: str, path: str
) -> None:
    store, opened = make(root)
    store.put(key, b"", ANY)
    assert opened[backend].paths == [path]


@pytest.mark.parametrize("root", ["s3://lake/base", "s3://lake"])
@pytest.mark.parametrize("prefix", ["", "t", "s3://lake", "s3a://other", "s3://other/t"])
def test_a_list_returns_keys_in_the_spelling_of_its_prefix(root: str, prefix: str) -> None:
    store, _ = make(root)
    keys = [f"{prefix}/{name}".lstrip("/") if not prefix else f"{prefix}/{name}" for name in "abc"]
    for key in keys:
        store.put(key, b"", ANY)
    assert [info.key for info in store.list(f"{prefix}/" if prefix else "")] == keys
    assert [info.key for info in store.list(prefix, start_after=keys[0])] == keys[1:]
    assert [info.key for info in store.list(prefix, until=keys[1])] == keys[:2]


@pytest.mark.parametrize("key", ["../x", "ftp://h/x", "s3://", "a//b", "s3://other/a/../b"])
def test_a_malformed_key_is_refused(key: str) -> None:
    store, _ = make("s3://lake/base")
    with pytest.raises(InvalidOperation):
        store.put(key, b"", ANY)


@pytest.mark.parametrize(
    ("root", "key", "message"),
    [
        ("s3://lake", "/data/t/a", "this machine's disk"),
        ("memory://lake", "file:///data/t/a", "this machine's disk"),
        ("s3://lake", "s3://third/t/a", "stores="),
        ("/lake", "s3://third/t/a", "stores="),
        ("s3://lake", "gs://other/t/a", "stores="),
    ],
)
def test_a_store_that_the_caller_has_not_named_is_not_opened(
    root: str, key: str, message: str
) -> None:
    store, opened = make(root)
    before = set(opened)
    with pytest.raises(InvalidOperation, match=message):
        store.put(key, b"", ANY)
    assert set(opened) == before


def test_a_store_is_opened_once_the_caller_has_named_a_location_in_it() -> None:
    store, opened = make("s3://lake")
    store.name("s3a://third/tables")
    store.put("s3://third/t/a", b"", ANY)
    assert opened["s3://third"].paths == ["t/a"]
    assert store.named == ("gs://lake", "s3://other", "s3://third")
    store.name("/data")
    with pytest.raises(InvalidOperation, match="this machine's disk"):
        store.put("/data/t/a", b"", ANY)
