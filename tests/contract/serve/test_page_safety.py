"""A page shows what others have written, and never runs it; no page changes the lake."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import requests

import lakevilla as lv
from lakevilla.errors import StoreError
from tests.contract.serve.gateway import Gateway, serving
from tests.contract.serve.pages import Page, look, read
from tests.support.inside import inside
from tests.support.places import Place, decide_and_leave
from tests.support.tables import accounts, contents

HOSTILE = (
    "<script>alert(1)</script>",
    "\"'><img src=x onerror=alert(1)>",
    "{{ 7 * 7 }}{% include 'base.html' %}",
    "javascript:alert(1)",
    "a\u202eevil\u2066b",
    "&lt;b&gt;",
    "x" * 5000,
)
#: The pages of a lake, with what each needs.
PAGES = (
    "/",
    "/tables",
    "/refs",
    "/table?name=bank",
    "/table?name=bank&part=files",
    "/table?name=bank&part=versions",
    "/table?name=bank&part=statistics",
    "/commit?version=2",
    "/compare?a=v1&b=main&table=bank",
    "/compare?a=main&b=night&table=bank&keys=id",
    "/query?sql=SELECT+*+FROM+bank",
    "/activity",
    "/upkeep",
)


@pytest.fixture
def hostile(tmp_path: Path) -> Iterator[Gateway]:
    """A lake in which names, values, messages and metadata are hostile."""
    with lv.connect(tmp_path / "lake") as lake, serving(lake) as gateway:
        names = [text.replace("/", "_").replace("%", "")[:100] for text in HOSTILE]
        for name in names:
            columns = {f"{name[:60]}{at}": [text] for at, text in enumerate(HOSTILE)}
            lake.create_table(f"t{name}", columns)
        with lake.transaction(metadata={"note": HOSTILE[0]}) as txn:
            txn.append(f"t{names[0]}", {f"{names[0][:60]}{at}": ["<b>"] for at in range(7)})
        lake.tag("monday", metadata={"note": HOSTILE[1]})
        yield gateway


def _reached(gateway: Gateway, start: str, most: int) -> list[tuple[str, Page]]:
    """Return the pages that links lead to."""
    found: dict[str, Page] = {}
    waiting = [start]
    while waiting and len(found) < most:
        path = waiting.pop(0)
        if path in found:
            continue
        found[path] = look(gateway, path)
        waiting += [
            one.attributes["href"]
            for one in found[path].all("a")
            if one.attributes["href"].startswith("/")
        ]
    return list(found.items())


def test_hostile_names_and_values_are_text_on_each_page(hostile: Gateway) -> None:
    for path, page in _reached(hostile, "/tables", 60):
        assert not page.all("b"), path
        assert not page.all("img"), path
        # What a person sends again is as it was; all else has no characters that steer.
        fields = r"<textarea.*?</textarea>|value=\"[^\"]*\""
        assert "\u202e" not in re.sub(fields, "", page.html, flags=re.DOTALL)
        assert len(page.html) < 200_000
    assert "t{{ 7 * 7 }}" in look(hostile, "/tables").text()


def test_a_page_may_load_nothing_and_run_nothing(gateway: Gateway) -> None:
    for path in PAGES[:3]:
        headers = look(gateway, path).headers
        policy = headers["Content-Security-Policy"]
        assert policy.startswith("default-src 'none'; style-src 'self'; img-src 'self' data:;")
        assert "unsafe" not in policy
        assert "script" not in policy
        assert headers["X-Content-Type-Options"] == "nosniff"
        assert headers["Referrer-Policy"] == "same-origin"
        assert headers["Cache-Control"] == "no-store"
        assert "Access-Control-Allow-Origin" not in headers
    style = requests.get(f"{gateway.uri}/page.css", timeout=30)
    assert style.headers["Content-Type"].startswith("text/css")
    assert "url(" not in style.text
    assert "@import" not in style.text


def test_a_page_writes_nothing_where_a_commit_waits_to_be_published(tmp_path: Path) -> None:
    place = Place(str(tmp_path / "lake"))
    with place.connect() as lake:
        for name in ("bank", "other"):
            lake.create_table(name, accounts(3))
        lake.branch("night")
        lake.on("night").run(lambda txn: txn.append("bank", accounts(1)))
    decide_and_leave(place)
    before = contents(tmp_path / "lake")
    with place.connect() as lake, serving(lake) as gateway:
        with inside(lake).requests.counting() as made:
            for path in PAGES:
                look(gateway, path)
                of_branch = path.replace("version=2", "version=3")
                look(gateway, of_branch + ("&" if "?" in path else "?") + "on=night")
        assert (made.put, made.delete) == (0, 0)
        assert look(gateway, "/tables").rows()[1][1] == "4"  # what waits is shown
    assert contents(tmp_path / "lake") == before


def test_each_page_is_there_in_each_kind_of_state(lake: lv.Lake, gateway: Gateway) -> None:
    lake.tag("monday")
    lake.branch("night")
    lake.clone("stock", "copy")
    for state in ("monday", "night", "v2"):
        for path in PAGES:
            if not path.startswith("/commit"):
                called = path.replace("bank", "stock")
                look(gateway, called + ("&" if "?" in path else "?") + f"on={state}")
    assert look(gateway, "/", sound=False, on="copy").status in (400, 404)
    assert look(gateway, "/table", name="copy").rows()


def test_pages_are_asked_for_and_never_sent_to(gateway: Gateway) -> None:
    for path in ("/", "/tables", "/table", "/refs", "/page.css"):
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            answer = requests.request(method, f"{gateway.uri}{path}", timeout=30)
            assert answer.status_code in (404, 405)


def test_a_page_for_another_host_is_refused(gateway: Gateway) -> None:
    answer = requests.get(gateway.uri, headers={"Host": "evil.example"}, timeout=30)
    assert answer.status_code == 421
    assert "--host-name" in read(answer).text()


@pytest.mark.parametrize(
    ("path", "status", "said"),
    [
        ("/table?name=nothing", 404, "nothing"),
        ("/table", 400, "name is missing"),
        ("/table?name=..%2F..%2Fetc", 400, ".."),
        ("/table?name=s3%3A%2F%2Felsewhere%2Ft", 404, "s3://elsewhere"),
        ("/table?name=%2Fetc", 404, "/etc"),
        ("/?on=none", 404, "none"),
        ("/?on=v99", 404, "99"),
        ("/tables?on=v99999999999999999999", 404, "v9999"),
        ("/?until=x", 400, "whole number"),
        ("/?until=-1", 400, "whole number"),
        ("/table?name=stock&from=1e9", 400, "whole number"),
        ("/tables?after=%00", 400, "after"),
        (f"/tables?prefix={'x' * 30_000}", 400, "characters"),
        ("/nothing", 404, "/nothing"),
        ("/%3Cscript%3E", 404, "script"),
    ],
)
def test_a_wrong_request_gets_a_page_that_says_why(
    gateway: Gateway, path: str, status: int, said: str
) -> None:
    page = look(gateway, path, sound=False)
    assert page.status == status
    assert said in page.text()
    assert "Traceback" not in page.html
    assert not page.all("script")


def test_an_error_of_the_gateway_is_a_page_without_a_stack(lake: lv.Lake, gateway: Gateway) -> None:
    class Broken:
        def __getattr__(self, name: str) -> object:
            raise ZeroDivisionError("secret")

    class Failing:
        def __getattr__(self, name: str) -> object:
            raise StoreError("the store does not answer")

    store = inside(lake).store
    for broken, status in ((Broken(), 500), (Failing(), 503)):
        inside(lake).store = broken
        try:
            page = look(gateway, "/tables", sound=False)
        finally:
            inside(lake).store = store
        assert page.status == status
        assert "secret" not in page.html
        assert "Traceback" not in page.html
