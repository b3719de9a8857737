"""Check each page of the built site, in the widths of a phone and of a desktop screen.

    python tests/docs/look.py .cache/site

A headless Chromium opens each page at two widths. Faults are links and anchors that lead nowhere,
pictures that don't load, requests of a page to other hosts, errors of its scripts, and elements
wider than the screen. The command exits with 1 if it has found any. It runs the Chromium that is
installed (Debian: chromium), or the one that CHROMIUM names.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag, urljoin, urlsplit

WIDTHS = {"phone": (375, 812), "desk": (1440, 900)}
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")

#: The links, the anchors, the pictures that did not load, and the elements wider than the page or
#: its text. An element that scrolls by itself (a table, a block of code) may be wider.
LOOK = """() => {
    const wide = document.documentElement.clientWidth;
    const scrolls = (node) => {
        for (let at = node; at && at !== document.body; at = at.parentElement) {
            const style = getComputedStyle(at);
            if (["auto", "scroll", "hidden", "clip"].includes(style.overflowX)) return true;
        }
        return false;
    };
    const article = document.querySelector("article") || document.body;
    const out = [...article.querySelectorAll("*")].filter((node) => {
        const box = node.getBoundingClientRect();
        return box.width > 0 && box.right > wide + 1 && !scrolls(node);
    });
    return {
        links: [...document.querySelectorAll("a[href]")].map((a) => a.href),
        anchors: [...document.querySelectorAll("[id]")].map((node) => node.id),
        pictures: [...document.images].filter((i) => !i.complete || !i.naturalWidth)
            .map((i) => i.src),
        overflow: document.documentElement.scrollWidth > wide + 1
            ? [`the page is ${document.documentElement.scrollWidth} wide`] : [],
        sticking: out.slice(0, 3).map((n) => `${n.tagName.toLowerCase()}: ${n.textContent.trim()
            .slice(0, 60)}`),
        text: article.innerText.trim().length,
    };
}"""


def main(site: Path) -> int:
    """Check the site; return the number of faults."""
    browser = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if browser is None:
        print(f"make docs-check needs Chromium, and none of {', '.join(NAMES)} is on PATH: install")
        print("it (Debian: apt-get install chromium), or let CHROMIUM name the program")
        return 1
    pages = sorted(site.rglob("*.html"))
    if not pages:
        print(f"{site} has no page: run `make docs` first")
        return 1
    with served(site) as root:
        found = list(look(browser, root, [page.relative_to(site).as_posix() for page in pages]))
    for one in found:
        print(one)
    print(f"{len(pages)} pages at {len(WIDTHS)} widths: {len(found)} to mend")
    return 1 if found else 0


@contextmanager
def served(site: Path) -> Iterator[str]:
    """Serve the site on loopback until the block ends."""
    handler = partial(Quiet, directory=str(site))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


class Quiet(SimpleHTTPRequestHandler):
    """Serve files without logging."""

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing."""


def look(browser: str, root: str, pages: list[str]) -> Iterator[str]:
    """Return the faults of the pages below ``root``."""
    from playwright.sync_api import sync_playwright

    anchors: dict[str, set[str]] = {}
    links: dict[str, set[str]] = {}
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        for name, (width, height) in WIDTHS.items():
            context = chromium.new_context(viewport={"width": width, "height": height})
            for page in pages:
                seen, faults = visit(context, root, page)
                yield from (f"{page} ({name}): {one}" for one in faults)
                anchors[page] = set(seen["anchors"])
                links[page] = set(seen["links"])
            context.close()
        chromium.close()
    for page in pages:
        for link in sorted(links[page]):
            wrong = broken(link, root, anchors)
            if wrong and not page.startswith("404"):
                yield f"{page}: {wrong}"


def visit(context: Any, root: str, page: str) -> tuple[dict[str, Any], list[str]]:
    """Return a page as the browser shows it, and its own faults."""
    faults: list[str] = []

    def asked(request: Any) -> None:
        if not request.url.startswith((root, "data:", "blob:")):
            faults.append(f"asks another host: {request.url}")

    def answered(response: Any) -> None:
        if response.status >= 400:
            faults.append(f"{response.status} {response.url}")

    tab = context.new_page()
    tab.on("request", asked)
    tab.on("response", answered)
    tab.on("requestfailed", lambda request: faults.append(f"can't load {request.url}"))
    tab.on("pageerror", lambda error: faults.append(f"its script fails: {error}"))
    tab.goto(urljoin(root, page), wait_until="load")
    tab.wait_for_timeout(50)
    seen: dict[str, Any] = tab.evaluate(LOOK)
    tab.close()
    if seen["text"] < 20 and not page.startswith("404"):
        faults.append("it is empty")
    faults += [f"picture does not load: {src}" for src in seen["pictures"]]
    faults += seen["overflow"]
    faults += [f"sticks out: {one}" for one in seen["sticking"]]
    return seen, faults


def broken(link: str, root: str, anchors: dict[str, set[str]]) -> str | None:
    """Return the fault of a link, if any; links to other hosts are not followed."""
    if not link.startswith(root):
        return None if urlsplit(link).scheme in ("https", "mailto") else f"odd link: {link}"
    target, anchor = urldefrag(link)
    page = unquote(target.removeprefix(root)) or "index.html"
    if page not in anchors:
        return f"link to nothing: {page}"
    if anchor and unquote(anchor) not in anchors[page]:
        return f"link to no anchor: {page}#{anchor}"
    return None


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1] if len(sys.argv) > 1 else ".cache/site")))
