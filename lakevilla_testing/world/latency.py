"""A store that answers as slowly as a real one, for benchmarks and round-trip tests."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

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
    WrappedStore,
)


@dataclass(frozen=True, slots=True)
class LatencyProfile:
    """Seconds that each verb takes at least, and the share of it that jitter may add."""

    name: str
    get: float
    head: float
    put: float
    list: float
    delete: float
    jitter: float = 0.1


ZERO = LatencyProfile("zero", 0.0, 0.0, 0.0, 0.0, 0.0)
#: Same region, small objects.
S3 = LatencyProfile("s3", get=0.027, head=0.027, put=0.060, list=0.040, delete=0.030)
#: S3 Express One Zone.
EXPRESS = LatencyProfile("express", get=0.005, head=0.005, put=0.008, list=0.008, delete=0.005)

PROFILES = {profile.name: profile for profile in (ZERO, S3, EXPRESS)}


class LatencyStore(WrappedStore):
    """A store that waits before each request to ``store``; any number may wait at the same time.

    Parameters
    ----------
    store : Store
        Does the work.
    profile : LatencyProfile
        The latencies.
    seed : int
        For the jitter.
    """

    def __init__(self, store: Store, profile: LatencyProfile, seed: int = 0) -> None:
        super().__init__(store)
        self._profile = profile
        self._random = random.Random(seed)

    def get(
        self, key: str, known: Token | None = None, byte_range: tuple[int, int] | None = None
    ) -> GetOutcome | Failure:
        self._wait(self._profile.get)
        return super().get(key, known, byte_range)

    def put(self, key: str, body: bytes, condition: Condition) -> Stored | Refused | Failure:
        self._wait(self._profile.put)
        return super().put(key, body, condition)

    def put_file(self, key: str, path: str) -> Stored | Failure:
        self._wait(self._profile.put)
        return super().put_file(key, path)

    def copy_object(self, source: str, key: str) -> Stored | Missing | Failure:
        self._wait(self._profile.put)
        return super().copy_object(source, key)

    def head(self, key: str) -> ObjectInfo | Missing | Failure:
        self._wait(self._profile.head)
        return super().head(key)

    def list(
        self, prefix: str, start_after: str | None = None, until: str | None = None
    ) -> list[ObjectInfo] | Failure:
        self._wait(self._profile.list)
        return super().list(prefix, start_after, until)

    def list_names(self, prefix: str) -> tuple[str, ...] | Failure:
        self._wait(self._profile.list)
        return super().list_names(prefix)

    def delete(self, key: str) -> Failure | None:
        self._wait(self._profile.delete)
        return super().delete(key)

    def local_path(self, key: str) -> str | None:
        # A direct read of the file would bypass this store and its latency.
        return super().local_path(key) if self._profile.get == 0 else None

    def _wait(self, seconds: float) -> None:
        if seconds > 0:
            time.sleep(seconds * (1.0 + self._profile.jitter * self._random.random()))
