"""A store with simulated latency: as slow as its profile, and no slower for parallel requests."""

from __future__ import annotations

import time

import pytest

from lakevilla.clock import SystemClock
from lakevilla.ids import Ids
from lakevilla.settings import Settings
from lakevilla.store.backends.object_store import open_store
from lakevilla.store.base import ANY
from lakevilla.store.effects import DeleteObject, Effect, Get, List, Put, Stat, parallel
from lakevilla.store.runner import Runner
from lakevilla_testing.world.latency import EXPRESS, PROFILES, S3, LatencyProfile, LatencyStore


def test_latency_profiles_are_those_of_the_benchmarks() -> None:
    assert set(PROFILES) == {"zero", "s3", "express"}
    assert (S3.get, S3.head, S3.put, S3.list, S3.delete) == (0.027, 0.027, 0.060, 0.040, 0.030)
    assert (EXPRESS.get, EXPRESS.put, EXPRESS.list, EXPRESS.delete) == (0.005, 0.008, 0.008, 0.005)


EFFECTS: list[tuple[Effect, str]] = [
    (Get("k"), "get"),
    (Stat("k"), "head"),
    (Put("k", b"1", ANY), "put"),
    (List(""), "list"),
    (DeleteObject("k"), "delete"),
]


@pytest.mark.parametrize(("effect", "verb"), EFFECTS)
def test_each_request_takes_the_latency_of_its_verb_and_parallel_requests_share_it(
    effect: Effect, verb: str
) -> None:
    store = LatencyStore(open_store("memory://"), S3)
    runner = Runner(store, Ids(SystemClock()), Settings())
    seconds = getattr(S3, verb)
    runner.run(parallel([effect] * 16))  # to start the threads
    started = time.perf_counter()
    runner.run(parallel([effect] * 16))
    took = time.perf_counter() - started
    assert seconds <= took < 8 * seconds


def test_files_are_read_directly_only_without_latency(tmp_path: object) -> None:
    local = open_store(str(tmp_path))
    assert LatencyStore(local, PROFILES["zero"]).local_path("k") == local.local_path("k")
    slow = LatencyProfile("slow", 0.001, 0.001, 0.001, 0.001, 0.001)
    assert LatencyStore(local, slow).local_path("k") is None
