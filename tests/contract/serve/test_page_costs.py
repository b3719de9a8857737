"""A page costs few requests, however large the lake is."""

from __future__ import annotations

from pathlib import Path

import pytest

import lakevilla as lv
from tests.contract.serve.gateway import serving
from tests.contract.serve.pages import look
from tests.support.inside import inside
from tests.support.tables import accounts

#: The most requests of each page, once the gateway knows the lake: HEAD, which most read twice,
#: and what can have changed. Nothing but the entries of a log is read again for its versions.
WARM = {
    "/": 6,
    "/?until=40": 3,
    "/tables": 3,
    "/refs": 1,
    "/table?name=t%2F00": 2,
    "/table?name=t%2F00&part=files": 4,
    "/table?name=t%2F00&part=versions": 7,
    "/commit?version=40": 3,
    "/activity": 4,
    "/upkeep": 3,
}


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Path:
    root = tmp_path_factory.mktemp("costs") / "lake"
    with lv.connect(root) as lake:
        with lake.transaction() as txn:
            for number in range(60):
                txn.create_table(f"t/{number:02}", accounts(1))
        for number in range(60):
            lake.run(lambda txn, row=number: txn.append(f"t/{row:02}", accounts(1)))
        lake.branch("night")
        lake.on("night").run(lambda txn: txn.append("t/00", accounts(1)))
    return root


def test_a_warm_page_costs_few_requests(known: Path) -> None:
    with lv.connect(known) as lake, serving(lake) as gateway:
        for path, most in WARM.items():
            look(gateway, path)
            with inside(lake).requests.counting() as made:
                look(gateway, path)
            assert made.total <= most, (path, made)
            assert (made.put, made.delete) == (0, 0)


def test_a_cold_page_costs_what_is_on_it(known: Path) -> None:
    for path, most in (("/", 60), ("/tables", 8), ("/activity", 25), ("/refs", 8)):
        with lv.connect(known) as lake, serving(lake) as gateway:
            with inside(lake).requests.counting() as made:
                look(gateway, path)
            assert made.total <= most, (path, made)
