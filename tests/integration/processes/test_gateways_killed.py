"""Gateways are killed or stand still in the middle of commits, and their clients ask the others.

What a client was told is true for good: what is acknowledged is there once, in both tables; what is
refused is in none; and one request is never told the one and the other.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import lakevilla as lv
from tests.fixtures.servers import SERVERS, Servers
from tests.integration.processes.gateways import DONE, REFUSED, SCHEMA, TABLES, Crowd
from tests.support.places import Place
from tests.support.search import SOAK, first_seed, how_many

SECONDS = how_many(5, whole=20, soak=1800)

pytestmark = pytest.mark.timeout(0 if SOAK else 300)


@pytest.fixture(params=["local", *SERVERS[:1]])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "local":
        found = Place(str(tmp_path / "lake"))
    else:
        servers: Servers = request.getfixturevalue("servers")
        server = servers[request.param]
        found = Place(server.new_root(), server.storage_options)
    with found.connect() as lake:
        for name in TABLES:
            lake.create_table(name, SCHEMA, format="iceberg")
    return found


@pytest.mark.night
@pytest.mark.parametrize("foreign", [True, False], ids=["foreign", "alone"])
def test_clients_of_killed_gateways_were_told_what_is_true_for_good(
    foreign: bool, place: Place
) -> None:
    crowd = Crowd(place.root, place.storage_options, first_seed())
    try:
        crowd.run(SECONDS, foreign=foreign and not place.storage_options)
        told = crowd.ledger
        assert not told.errors
        assert crowd.kills
        assert any(DONE[1] in one for one in told.statuses.values())
        with place.connect() as lake:
            check(crowd, lake)
        seen = [
            crowd.catalog(0).load_table(tuple(name.split("/"))).scan().to_arrow() for name in TABLES
        ]
        with place.connect() as lake:
            rows = [lake.read(name) for name in TABLES]
        assert [sorted(one["id"].to_pylist()) for one in seen] == [
            sorted(one["id"].to_pylist()) for one in rows
        ]
    finally:
        crowd.close()


def check(crowd: Crowd, lake: lv.Lake) -> None:
    told = crowd.ledger
    lake.recover()
    first, second = (sorted(lake.read(name)["id"].to_pylist()) for name in TABLES)
    there = [set(first), set(second)]
    assert (len(first), len(second)) == (len(there[0]), len(there[1])), "a row is there twice"
    for rows in there:
        assert not told.acknowledged - rows, "an acknowledged row is lost"
    assert not told.of_others - there[0], "a row of a foreign client is lost"
    for row, statuses in told.statuses.items():
        done = any(one in DONE for one in statuses)
        refused = any(one in REFUSED for one in statuses)
        assert not (done and refused), f"row {row} was told {statuses}"
        if refused:
            assert row not in there[0] | there[1], f"row {row} was told {statuses}, and is there"
    assert told.of_others or there[0] == there[1], "half a commit, and no one else has written"
    assert lake.doctor().ok, lake.doctor()
    lake.gc()
    assert lake.verify().ok
    assert sorted(lake.read(TABLES[0])["id"].to_pylist()) == first
