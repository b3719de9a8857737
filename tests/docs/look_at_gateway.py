"""Check the gateway's pages of a small lake, in two widths, light and dark.

    python tests/docs/look_at_gateway.py [--shots DIRECTORY]

A headless Chromium follows the links of a gateway that serves a lake made for this, and finds the
faults that ``look.py`` finds in the documentation; also a first Tab that does not show where it
leads. With ``--shots`` it leaves a picture of each page.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from queue import Queue
from typing import Any
from urllib.parse import quote, urldefrag, urljoin

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT)]

import lakevilla as lv  # noqa: E402
from lakevilla.serve.server import server_of  # noqa: E402
from tests.docs.look import NAMES, WIDTHS, visit  # noqa: E402

HOSTILE = "<script>alert(1)<"
#: Pages to which no link leads, or one of which the others would take the place.
STARTS = (
    "",
    "compare?a=main&b=night&table=stock&keys=sku",
    "query?sql=SELECT+*+FROM+stock+ORDER+BY+qty",
    "upkeep?run=doctor",
    "tables?on=night",
    # Long and hostile names, long values, and many columns.
    "commit?version=4",
    "commit?version=5",
    f"table?name={quote(HOSTILE, safe='')}",
)
#: So many pages of each kind are looked at in each width and scheme.
MOST = 2
QUEUED = lv.Feature.R | lv.Feature.CT | lv.Feature.I


def main(shots: Path | None) -> int:
    """Look at the pages; return 1 if there is a fault."""
    browser = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, NAMES)), None)
    if browser is None:
        print(f"this needs Chromium, and none of {', '.join(NAMES)} is on PATH: see look.py")
        return 1
    with tempfile.TemporaryDirectory() as directory, served(Path(directory) / "lake") as uri:
        found = list(look(browser, f"{uri}/", shots))
    for one in found:
        print(one)
    print(f"the gateway's pages at {len(WIDTHS)} widths, light and dark: {len(found)} to mend")
    return 1 if found else 0


@contextmanager
def served(root: Path) -> Iterator[str]:
    """Serve a lake with branches, merges, foreign commits, hostile names, and a queue."""
    uris: Queue[str] = Queue()
    with lv.connect(root) as lake, lv.connect(root) as other:
        fill(lake)
        first = lake.transaction(QUEUED)
        first.update("stock", {"qty": "qty + 1"}, where="sku = 'tea'")
        waiter = threading.Thread(target=wait, args=(other,))
        waiter.start()
        server = server_of(lake, port=0, read_only=True, when_started=uris.put)
        thread = threading.Thread(target=server.run)
        thread.start()
        try:
            yield uris.get(timeout=30)
        finally:
            first.abort()
            server.should_exit = True
            thread.join()
            waiter.join()


def fill(lake: lv.Lake) -> None:
    lake.create_table("stock", [{"sku": "tea", "qty": 5}, {"sku": "jam", "qty": 2}])
    orders = [{"id": 1, "sku": "tea", "region": "Asia"}]
    lake.create_table("sales/orders", orders, partition_by=["region"])
    lake.create_table("sales/items", [{"sku": "tea", "price": 3.5}], format="iceberg")
    lake.create_table(f"long/{'name-' * 30}", {"x" * 150: ["y" * 3000], "\u202ez": ["\u202ez"]})
    lake.create_table(HOSTILE, {f"c{at}": ["<b>"] for at in range(80)})
    lake.tag("closing")
    lake.branch("night")
    lake.on("night").run(lambda txn: txn.append("stock", [{"sku": "rice", "qty": 50}]))
    lake.run(lambda txn: txn.append("sales/items", [{"sku": "jam", "price": 2.0}]))
    lake.merge("night")
    lake.branch("a/branch-with-a-long-name")
    lake.on("night").run(lambda txn: txn.update("stock", {"qty": "7"}, where="sku = 'tea'"))
    with lake.transaction(metadata={"why": "count " * 40}) as txn:
        txn.update("stock", {"qty": "9"}, where="sku = 'tea'")
        txn.append("sales/orders", [{"id": 2, "sku": "jam", "region": "Europe"}])
    for number in range(32):
        lake.run(lambda txn, row=number: txn.append("stock", [{"sku": f"s{row}", "qty": row}]))
    lake.on("night").run(lambda txn: txn.delete("stock", where="sku = 'rice'"))


def wait(lake: lv.Lake) -> None:
    with lake.transaction(QUEUED) as txn:
        txn.update("stock", {"qty": "qty + 1"}, where="sku = 'jam'")


def look(browser: str, root: str, shots: Path | None) -> Iterator[str]:
    """Return the faults of the pages to which links lead."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        for name, (width, height) in WIDTHS.items():
            for scheme in ("light", "dark"):
                context = chromium.new_context(
                    viewport={"width": width, "height": height}, color_scheme=scheme
                )
                about = f"{name}, {scheme}"
                for page, faults in reached(context, root):
                    yield from (f"{page} ({about}): {one}" for one in faults)
                    if shots is not None:
                        show(context, root, page, shots / f"{name}-{scheme}")
                if not shows_focus(context, root):
                    yield f"({about}): the first Tab shows no link"
                context.close()
        chromium.close()


def reached(context: Any, root: str) -> Iterator[tuple[str, list[str]]]:
    """Return the pages to which links lead, each with its faults."""
    waiting, seen = list(STARTS), Counter[str]()
    while waiting:
        page = waiting.pop(0)
        found, faults = visit(context, root, page)
        links = {urldefrag(link)[0] for link in found["links"]}
        faults += [f"link to {link}" for link in links if not link.startswith(root)]
        yield page, faults
        for link in sorted(link.removeprefix(root) for link in links if link.startswith(root)):
            kind = link.partition("?")[0] + "".join(re.findall("part=[a-z]+", link))
            if link not in STARTS and seen[kind] < MOST and link not in waiting:
                seen[kind] += 1
                waiting.append(link)


def show(context: Any, root: str, page: str, directory: Path) -> None:
    directory.mkdir(parents=True, exist_ok=True)
    tab = context.new_page()
    tab.goto(urljoin(root, page))
    tab.screenshot(path=directory / f"{quote(page, safe='')[:80] or 'history'}.png")
    tab.close()


def shows_focus(context: Any, root: str) -> bool:
    """Return whether the first Tab leads to a link that is seen then."""
    tab = context.new_page()
    tab.goto(root)
    tab.keyboard.press("Tab")
    found = tab.evaluate(
        """() => { const at = document.activeElement, box = at.getBoundingClientRect();
        return at.className === "skip" && box.left >= 0 && box.top >= 0; }"""
    )
    tab.close()
    return bool(found)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--shots", type=Path)
    sys.exit(main(parser.parse_args().shots))
