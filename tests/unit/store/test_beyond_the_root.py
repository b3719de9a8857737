"""The runner refuses requests for files outside the lake, whatever program makes them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

import lakevilla as lv
from lakevilla.clock import SystemClock
from lakevilla.errors import InvalidOperation
from lakevilla.ids import Ids
from lakevilla.settings import Settings
from lakevilla.store.backends.object_store import open_store
from lakevilla.store.backends.reach import Reach
from lakevilla.store.base import ANY, Found, Missing
from lakevilla.store.data_files import DataFiles
from lakevilla.store.effects import (
    CopyObject,
    Effect,
    Get,
    List,
    ListNames,
    Program,
    Put,
    Stat,
    get,
    parallel,
)
from lakevilla.store.runner import Requests, Runner
from tests.support.inside import inside


def runner_at(root: Path | str, *allowed: str, durable: bool = True) -> Runner:
    settings = Settings(durable_files=durable)
    store = open_store(str(root), settings=settings)
    reach = Reach(str(root), allowed)
    return Runner(store, Ids(SystemClock()), settings, reach=reach)


@pytest.fixture
def secret(tmp_path: Path) -> str:
    (tmp_path / "secret").write_bytes(b"secret")
    return str(tmp_path / "secret")


def alone(effect: Effect) -> Program[object]:
    return (yield effect)


def in_parallel(effect: Effect) -> Program[object]:
    found = yield from parallel([Get("there"), effect])
    return found[1]


def nested(effect: Effect) -> Program[object]:
    found = yield from parallel([in_parallel(effect), alone(Get("there"))])
    return found[0]


Asks = Callable[[Effect], Program[object]]


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("asks", [alone, in_parallel, nested])
def test_reading_or_copying_an_object_outside_the_lake_is_refused(
    tmp_path: Path, secret: str, asks: Asks, durable: bool
) -> None:
    runner = runner_at(tmp_path / "lake", durable=durable)
    for effect in (Get(secret), Get(f"file://{secret}"), CopyObject("mine", secret)):
        with pytest.raises(InvalidOperation, match="files_outside"):
            runner.run(asks(effect))
    assert isinstance(runner.run(get("mine")), Missing)

    allowed = runner_at(tmp_path / "lake", secret, durable=durable)
    assert isinstance(allowed.run(asks(Get(secret))), Found)


def test_passing_a_path_outside_the_lake_to_an_engine_is_refused(
    tmp_path: Path, secret: str
) -> None:
    data = DataFiles(runner_at(tmp_path / "lake"))

    for ask in (data.local_path, data.open_input):
        with pytest.raises(InvalidOperation, match="files_outside"):
            ask(secret)
    with pytest.raises(InvalidOperation, match="table orders names"):
        data.admit(["a", secret], "orders")


@pytest.mark.parametrize(
    "effect",
    [
        Get("/etc/hostname"),
        Stat("file:///etc/hostname"),
        List("/etc"),
        ListNames("file:///etc"),
        Put("/tmp/made-by-a-store", b"1", ANY),
        CopyObject("/tmp/made-by-a-store", "a"),
    ],
)
@pytest.mark.parametrize("asks", [alone, in_parallel])
def test_a_lake_on_an_object_store_opens_no_local_file(effect: Effect, asks: Asks) -> None:
    runner = runner_at("s3://no-such-bucket/lake")
    asked = alone(effect) if asks is alone else parallel([effect])

    with (
        runner.requests.counting() as counted,
        pytest.raises(InvalidOperation, match="no such file"),
    ):
        runner.run(asked)
    assert counted == Requests()


def test_a_request_to_another_store_is_refused(tmp_path: Path) -> None:
    runner = runner_at("s3://no-such-bucket/lake")

    with runner.requests.counting() as counted, pytest.raises(InvalidOperation):
        runner.run(alone(Stat("s3://bucket-of-others/a")))
    assert counted == Requests()


def test_a_program_can_catch_the_refusal_of_a_request(tmp_path: Path, secret: str) -> None:
    def program() -> Program[str]:
        try:
            yield from get(secret)
        except InvalidOperation as error:
            return error.message
        return ""

    assert secret in runner_at(tmp_path / "lake").run(program())


def test_a_location_outside_the_lake_is_searched_for_only_once(tmp_path: Path, secret: str) -> None:
    runner = runner_at(tmp_path / "lake")
    asked: list[str] = []

    def search(key: str) -> Program[None]:
        asked.append(key)
        yield from get("HEAD")
        runner.reach.admit(str(tmp_path))  # type: ignore[union-attr]

    runner.search = search

    assert isinstance(runner.run(in_parallel(Get(secret))), Found)
    assert isinstance(runner.run(get(secret)), Found)
    assert asked == [secret]


def test_tables_below_the_root_need_no_search(tmp_path: Path) -> None:
    with lv.connect(tmp_path / "lake") as lake:
        lake.create_table("t", [{"a": 1}])
        searched: list[str] = []

        def search(key: str) -> Program[None]:
            searched.append(key)
            yield from ()

        inside(lake).client.runner.search = search
        lake.read("t")
        lake.table("t").optimize()
    assert searched == []
