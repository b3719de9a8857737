"""With a token a browser signs in once; nobody else sees a page, and nobody sees the token."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
from collections.abc import Iterator

import pytest
import requests

import lakevilla as lv
from lakevilla.clock import SystemClock
from lakevilla.serve.access import Grant, Rights
from lakevilla.serve.page.signing_in import SECONDS
from tests.contract.serve.gateway import Gateway, serving
from tests.contract.serve.pages import faults, look, read
from tests.support.inside import inside

TOKEN = "secret-token-of-the-gateway"


@pytest.fixture
def closed(lake: lv.Lake) -> Iterator[Gateway]:
    with serving(lake, token=TOKEN) as gateway:
        yield gateway


def _signed_in(gateway: Gateway, **fields: str) -> requests.Session:
    browser = requests.Session()
    form = {"token": TOKEN, "to": "/tables", **fields}
    browser.post(f"{gateway.uri}/sign-in", form, timeout=30)
    return browser


def test_a_stranger_sees_a_form_and_nothing_of_the_lake(lake: lv.Lake, closed: Gateway) -> None:
    for path in ("/", "/tables", "/table?name=stock", "/commit?version=1", "/refs", "/?on=x"):
        page = look(closed, path, sound=False)
        assert page.status == 401
        assert faults(page) == []
        assert page.text("h1") == "Sign in"
        assert lake.root not in page.html
        assert "orders" not in page.html
    assert lake.root not in look(closed, "/nothing", sound=False).html


def test_a_browser_signs_in_once_and_returns_to_its_page(closed: Gateway) -> None:
    browser = requests.Session()
    form = read(browser.get(f"{closed.uri}/table?name=sales%2Forders", timeout=30))
    (to,) = [one.attributes["value"] for one in form.all("input") if one.attributes["name"] == "to"]
    answer = browser.post(f"{closed.uri}/sign-in", {"token": TOKEN, "to": to}, timeout=30)
    assert read(answer).text("h1") == "sales/orders"
    assert TOKEN not in answer.url
    assert read(browser.get(f"{closed.uri}/tables", timeout=30)).status == 200
    assert TOKEN not in answer.text


def test_a_token_for_some_states_alone_sees_no_page(lake: lv.Lake) -> None:
    """A page may show any state."""
    rights = Rights((Grant(writes=True, states=("etl", "main")),))
    with serving(lake, tokens={TOKEN: rights}) as gateway:
        browser = _signed_in(gateway)
        bearer = {"Authorization": f"Bearer {TOKEN}"}
        for path in ("/", "/tables", "/table?name=stock", "/query?sql=SELECT+1"):
            for page in (
                requests.get(gateway.uri + path, headers=bearer, timeout=30),
                browser.get(gateway.uri + path, timeout=30),
            ):
                assert page.status_code in (401, 403)
                assert "orders" not in page.text


def test_the_cookie_is_for_pages_alone_and_has_no_token(closed: Gateway) -> None:
    answer = requests.post(
        f"{closed.uri}/sign-in", {"token": TOKEN}, allow_redirects=False, timeout=30
    )
    cookie = answer.headers["Set-Cookie"]
    assert answer.status_code == 303
    assert "HttpOnly" in cookie
    assert "samesite=strict" in cookie.lower()
    assert "secure" not in cookie.lower()
    assert TOKEN not in cookie
    over_tls = requests.post(
        f"{closed.uri}/sign-in",
        {"token": TOKEN},
        headers={"X-Forwarded-Proto": "https"},
        allow_redirects=False,
        timeout=30,
    )
    assert "secure" in over_tls.headers["Set-Cookie"].lower()
    # A page elsewhere could have a browser send it along, and change the lake.
    browser = _signed_in(closed)
    assert browser.get(f"{closed.uri}/v1/namespaces", timeout=30).status_code == 401


def test_a_wrong_token_opens_nothing(closed: Gateway) -> None:
    for given in ("", "secret", TOKEN + "x", TOKEN[:-1], "\x00", "é"):
        browser = _signed_in(closed, token=given)
        assert not browser.cookies
        assert browser.get(f"{closed.uri}/", timeout=30).status_code == 401
    again = requests.get(f"{closed.uri}/sign-in", timeout=30)
    assert (again.status_code, again.url) == (401, f"{closed.uri}/")


def test_a_cookie_that_another_token_has_signed_opens_nothing(
    lake: lv.Lake, closed: Gateway
) -> None:
    with serving(lake, token="another") as other:
        browser = _signed_in(other, token="another")
        (cookie,) = browser.cookies
        assert browser.get(f"{other.uri}/", timeout=30).status_code == 200
    for value in (cookie.value, "9" * 12 + "." + "0" * 64, "", "x", "9" * 5000):
        cookies = {cookie.name: value or ""}
        assert requests.get(f"{closed.uri}/", cookies=cookies, timeout=30).status_code == 401


def test_each_gateway_with_the_token_knows_the_browser(lake: lv.Lake, closed: Gateway) -> None:
    browser = _signed_in(closed)
    with serving(lake, token=TOKEN) as other:
        assert browser.get(f"{other.uri}/tables", timeout=30).status_code == 200


def test_a_browser_is_signed_out_after_a_time_and_when_it_wants(
    lake: lv.Lake, closed: Gateway
) -> None:
    browser = _signed_in(closed)
    (cookie,) = browser.cookies
    page = read(browser.get(f"{closed.uri}/", timeout=30))
    assert [one.attributes["action"] for one in page.all("form")] == ["/sign-out"]
    browser.post(f"{closed.uri}/sign-out", timeout=30)
    assert not browser.cookies
    assert browser.get(f"{closed.uri}/", timeout=30).status_code == 401

    class Later(SystemClock):
        def now(self) -> float:
            return super().now() + SECONDS + 1

    inside(lake).clock = Later()
    with serving(lake, token=TOKEN) as later:
        cookies = {cookie.name: cookie.value or ""}
        assert requests.get(f"{later.uri}/", cookies=cookies, timeout=30).status_code == 401


@pytest.mark.parametrize(
    "to", ["//evil.example", "https://evil.example", "/\\evil.example", "javascript:x", "/a\r\nb"]
)
def test_a_browser_that_signs_in_is_sent_to_no_other_place(closed: Gateway, to: str) -> None:
    form = {"token": TOKEN, "to": to}
    answer = requests.post(f"{closed.uri}/sign-in", form, allow_redirects=False, timeout=30)
    assert answer.headers["Location"] == "/"


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
def test_a_form_of_a_page_elsewhere_signs_nobody_in_or_out(
    closed: Gateway, headers: dict[str, str]
) -> None:
    for path in ("/sign-in", "/sign-out"):
        answer = requests.post(f"{closed.uri}{path}", {"token": TOKEN}, headers=headers, timeout=30)
        assert answer.status_code == 403
        assert "Set-Cookie" not in answer.headers


def test_a_form_that_is_too_large_is_not_read_to_its_end(closed: Gateway) -> None:
    answer = requests.post(f"{closed.uri}/sign-in", {"token": "x" * 100_000}, timeout=30)
    assert answer.status_code == 413
    assert requests.post(f"{closed.uri}/sign-in", b"\xff\xfe", timeout=30).status_code == 400


def test_the_token_is_in_no_log(closed: Gateway, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        browser = _signed_in(closed)
        browser.get(f"{closed.uri}/tables", timeout=30)
        browser.get(f"{closed.uri}/table?name=nothing", timeout=30)
        _signed_in(closed, token="wrong-token")
    assert TOKEN not in caplog.text
    assert "wrong-token" not in caplog.text


def test_a_page_elsewhere_can_link_to_a_page_and_not_use_it(gateway: Gateway) -> None:
    site = {"Sec-Fetch-Site": "cross-site"}
    for mode, status in (("navigate", 200), ("no-cors", 403), ("cors", 403)):
        headers = {**site, "Sec-Fetch-Mode": mode}
        answer = requests.get(f"{gateway.uri}/tables", headers=headers, timeout=30)
        assert answer.status_code == status


def test_the_command_shows_the_lake_and_opens_no_browser_if_told_so(lake: lv.Lake) -> None:
    command = [sys.executable, "-m", "lakevilla.cli", "ui", lake.root, "--no-browser"]
    environment = {**os.environ, "PYTHONUNBUFFERED": "1", "BROWSER": "false"}
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as process:
        assert process.stdout is not None
        found = re.search(r"http://127\.0\.0\.1:\d+", process.stdout.readline())
        assert found is not None
        gateway = Gateway(found[0])
        assert len(look(gateway, "/tables").rows()) == 2
        body = {"namespace": ["a"]}
        assert gateway.refused("/namespaces", method="POST", json=body)[0] == 403
        process.terminate()
        assert process.wait(30) in (0, -15, 143)


def test_a_browser_is_asked_for_a_token_whatever_its_parameters_are_called(
    closed: Gateway,
) -> None:
    answer = requests.get(f"{closed.uri}/tables?path=x&self=y&params=z", timeout=30)
    assert answer.status_code == 401
    assert "path=x" in answer.text
