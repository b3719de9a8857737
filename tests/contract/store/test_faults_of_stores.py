"""A store that breaks while a client works: nothing is lost, torn, or done twice.

Each history is drawn by its seed (`tests/support/store_faults`): steps of one client, a fault, its
place among the requests or system calls, and its length. `make prove` draws more of them, in the
layer ``store_faults``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from lakevilla.store.backends import local
from lakevilla.store.base import Condition, Failure
from tests.fixtures.s3 import S3Server
from tests.fixtures.servers import S3_SERVERS, Servers
from tests.support import small_disk
from tests.support.search import first_seed, how_many
from tests.support.store_faults.disk import DISK_FAULTS, DiskPlan
from tests.support.store_faults.drawing import TO_THE_END, on_disk, on_server, on_small_disk
from tests.support.store_faults.histories import Place, run
from tests.support.store_faults.programs import BY_NAME
from tests.support.store_faults.proxy import FaultyProxy


@pytest.fixture(scope="module")
def server(servers: Servers) -> S3Server:
    return servers.s3(S3_SERVERS[0])


@pytest.fixture
def proxy(server: S3Server) -> Iterator[FaultyProxy]:
    proxy = FaultyProxy(server.endpoint)
    yield proxy
    proxy.close()


def test_a_drawn_history_on_a_disk_whose_calls_fail_keeps_what_was_acknowledged(
    tmp_path: Path,
) -> None:
    for seed in range(first_seed(), first_seed() + how_many(3, whole=25, soak=20_000)):
        drawn = on_disk(seed, tmp_path)
        assert drawn.history.wrong == [], str(drawn)


@pytest.mark.parametrize("name", ["read-only", "broken when synced"])
def test_a_data_file_that_the_disk_neither_keeps_nor_deletes_is_refused_by_name(
    tmp_path: Path, name: str
) -> None:
    fault = next(one for one in DISK_FAULTS if one.name == name)
    plan = DiskPlan(fault, str(tmp_path), 0, TO_THE_END)
    history = run(Place(str(tmp_path / "lake"), "delta"), [BY_NAME["large append"]], plan.breaking)
    assert history.wrong == []
    assert "could not be written: the " in str(history.done[0].error)


@pytest.mark.skipif(small_disk.refusal() is not None, reason=str(small_disk.refusal()))
def test_a_drawn_history_on_a_full_disk_keeps_what_was_acknowledged(tmp_path: Path) -> None:
    for seed in range(first_seed(), first_seed() + how_many(2, whole=12, soak=5_000)):
        drawn = on_small_disk(seed, tmp_path)
        assert drawn.history.wrong == [], str(drawn)


def test_a_drawn_history_through_a_faulty_connection_keeps_what_was_acknowledged(
    server: S3Server, proxy: FaultyProxy
) -> None:
    for seed in range(first_seed(), first_seed() + how_many(1, whole=12, soak=5_000)):
        drawn = on_server(seed, server, proxy)
        assert drawn.history.wrong == [], str(drawn)


def test_a_history_finds_a_store_that_calls_a_replaced_object_unchanged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Plant a fault: a failure after the new name was given counts as one before it."""
    put = local.LocalStore.put

    def definite(self: local.LocalStore, key: str, body: bytes, condition: Condition) -> object:
        outcome = put(self, key, body, condition)
        is_failure = isinstance(outcome, Failure)
        return Failure(outcome.reason, ambiguous=False, permanent=True) if is_failure else outcome

    monkeypatch.setattr(local.LocalStore, "put", definite)
    fault = next(one for one in DISK_FAULTS if one.name == "broken when synced")
    # The eighth sync is that of HEAD's new name.
    plan = DiskPlan(fault, str(tmp_path), 7, 1)
    history = run(Place(str(tmp_path / "lake"), "delta"), [BY_NAME["transfer"]], plan.breaking)
    assert "rows are" in " ".join(history.wrong)
