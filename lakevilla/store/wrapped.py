"""What stores that stand before another one have in common."""

from __future__ import annotations

from lakevilla.store.base import (
    Condition,
    Failure,
    GetOutcome,
    Missing,
    ObjectInfo,
    Refused,
    Store,
    Stored,
    Token,
)


class WrappedStore:
    """A store that passes every request on; the base of those that do more."""

    def __init__(self, inner: Store) -> None:
        self.inner = inner

    def get(
        self, key: str, known: Token | None = None, byte_range: tuple[int, int] | None = None
    ) -> GetOutcome | Failure:
        return self.inner.get(key, known, byte_range)

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        return self.inner.put(key, body, condition)

    def put_file(self, key: str, path: str) -> Stored | Failure:
        return self.inner.put_file(key, path)

    def copy_object(self, source: str, key: str) -> Stored | Missing | Failure:
        return self.inner.copy_object(source, key)

    def head(self, key: str) -> ObjectInfo | Missing | Failure:
        return self.inner.head(key)

    def list(self, prefix: str, start_after: str | None = None) -> list[ObjectInfo] | Failure:
        return self.inner.list(prefix, start_after)

    def list_names(self, prefix: str) -> tuple[str, ...] | Failure:
        return self.inner.list_names(prefix)

    def delete(self, key: str) -> Failure | None:
        return self.inner.delete(key)

    def local_path(self, key: str) -> str | None:
        return self.inner.local_path(key)
