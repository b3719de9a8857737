"""A person sees what goes on in a lake: transactions, waits, upkeep, and what is wrong."""

from __future__ import annotations

import threading
from pathlib import Path

import lakevilla as lv
from tests.contract.serve.gateway import Gateway, serving
from tests.contract.serve.pages import Page, look
from tests.support.inside import inside
from tests.support.places import Place, decide_and_leave
from tests.support.tables import accounts

QUEUED = lv.Feature.R | lv.Feature.CT | lv.Feature.I


def test_transactions_that_wait_are_drawn_and_told(lake: lv.Lake, gateway: Gateway) -> None:
    first = lake.transaction(QUEUED)
    first.update("stock", {"balance": "balance + 1"}, where="id = 0")

    def wait() -> None:
        with lv.connect(lake.root) as other, other.transaction(QUEUED) as txn:
            txn.update("stock", {"balance": "balance + 1"}, where="id = 0")

    waiter = threading.Thread(target=wait)
    waiter.start()
    page = _until_somebody_waits(gateway)
    first.abort()
    waiter.join()
    rows = page.rows()
    assert [row[:3] for row in rows] == [["1", "running", ""], ["2", "waiting", "1"]]
    assert "stock" in rows[1][3]
    assert first.id in rows[0][7]
    (svg,) = page.all("svg")
    assert len(page.all("circle")) == 2
    assert page.all("desc")[0].text == "2 waits for 1."
    assert svg.attributes["role"] == "img"
    assert "Nobody is in a queue" in look(gateway, "/activity").text()


def _until_somebody_waits(gateway: Gateway) -> Page:
    pause = threading.Event()
    for _ in range(600):
        page = look(gateway, "/activity")
        if page.all("svg"):
            return page
        pause.wait(0.05)
    raise AssertionError("nobody waits")


def test_the_activity_is_loaded_again_if_a_person_wants_it(gateway: Gateway) -> None:
    page = look(gateway, "/activity")
    assert [row[0] for row in page.rows()] == ["2", "1"]
    assert not [one for one in page.all("meta") if "http-equiv" in one.attributes]
    for every, seconds in (("5", "5"), ("0", "2"), ("999999", "3600")):
        again = look(gateway, "/activity", every=every)
        (meta,) = [one for one in again.all("meta") if "http-equiv" in one.attributes]
        assert meta.attributes["content"] == seconds
        assert "Stop" in again.links()


def test_the_doctor_is_run_by_a_person_alone(tmp_path: Path) -> None:
    place = Place(str(tmp_path / "lake"))
    with place.connect() as lake:
        for name in ("bank", "other"):
            lake.create_table(name, accounts(3))
    decide_and_leave(place)
    with place.connect() as lake, serving(lake) as gateway:
        assert not look(gateway, "/upkeep").all("table")
        with inside(lake).requests.counting() as made:
            page = look(gateway, "/upkeep", run="doctor")
        assert (made.put, made.delete) == (0, 0)
        assert "Something needs care" in page.text()
        (row,) = [row for row in page.rows() if row[1] == "unpublished"]
        assert row[0] in ("warning", "error")
        assert "bank" in row[2]


def test_upkeep_that_was_done_is_told(lake: lv.Lake, gateway: Gateway) -> None:
    assert "No upkeep was done" in look(gateway, "/upkeep").text()
    lake.maintain()
    assert "last done" in look(gateway, "/upkeep").text()
