"""Pages of the gateway, read as a browser reads them: text, links, and what they lack."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any

import requests

from tests.contract.serve.gateway import Gateway

#: Elements that have no end.
_VOID = frozenset({"meta", "link", "input", "option", "br", "hr", "img"})
#: Elements of a drawing that is whole in one tag.
_DRAWN = frozenset({"path", "circle", "rect", "line"})


@dataclass
class Element:
    """An element, with the text inside it."""

    tag: str
    attributes: Mapping[str, str]
    parents: tuple[str, ...]
    text: str = ""


@dataclass
class Page:
    """An answer of the gateway, and its elements."""

    status: int
    headers: Mapping[str, str]
    html: str
    elements: list[Element] = field(default_factory=list)
    unclosed: list[str] = field(default_factory=list)

    def all(self, tag: str) -> list[Element]:
        return [one for one in self.elements if one.tag == tag]

    def text(self, tag: str = "main") -> str:
        """The text of the first such element, its white space folded."""
        return " ".join(self.all(tag)[0].text.split())

    def rows(self, number: int = 0) -> list[list[str]]:
        """Return the cells of a table's body as text."""
        found: list[list[list[str]]] = []
        for one in self.elements:
            if one.tag == "table":
                found.append([])
            elif one.tag == "tr" and "tbody" in one.parents:
                found[-1].append([])
            elif one.tag in ("td", "th") and "tbody" in one.parents:
                found[-1][-1].append(" ".join(one.text.split()))
        return found[number]

    def links(self) -> dict[str, str]:
        """Return the links by their text; of links with one text the first."""
        found: dict[str, str] = {}
        for one in self.all("a"):
            found.setdefault(" ".join(one.text.split()), one.attributes["href"])
        return found


class _Reader(HTMLParser):
    def __init__(self, page: Page) -> None:
        super().__init__()
        self.page, self.open = page, list[Element]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        found = Element(tag, given, tuple(one.tag for one in self.open))
        self.page.elements.append(found)
        if tag not in _VOID:
            self.open.append(found)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag in _DRAWN, f"<{tag}/> is no element that HTML closes so"
        self.handle_starttag(tag, attrs)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open[-1].tag != tag:
            self.page.unclosed.append(tag)
            return
        self.open.pop()
        if tag in ("div", "p", "li", "dd", "dt"):  # begins on a line of its own
            self.handle_data(" ")

    def handle_data(self, data: str) -> None:
        for one in self.open:
            one.text += data


def read(answer: requests.Response) -> Page:
    """Return the page in an answer."""
    answer.encoding = "utf-8"
    page = Page(answer.status_code, answer.headers, answer.text)
    reader = _Reader(page)
    reader.feed(answer.text)
    page.unclosed += [one.tag for one in reader.open]
    return page


def look(gateway: Gateway, path: str, *, sound: bool = True, **params: Any) -> Page:
    """Return a page of the gateway; ``sound``: it must have no fault."""
    answer = requests.get(f"{gateway.uri}{path}", params=params, timeout=30)
    page = read(answer)
    if sound:
        assert page.status == 200, page.text()
        assert faults(page) == []
    return page


def faults(page: Page) -> list[str]:
    """Return what a page lacks for those who don't see it, and what no page may have."""
    found = [f"<{tag}> is not closed where it should be" for tag in page.unclosed]
    tags = Counter(one.tag for one in page.elements)
    found += [f"{tags[tag]} <{tag}>" for tag in ("main", "h1", "header", "title") if not tags[tag]]
    if page.all("html")[0].attributes.get("lang") != "en":
        found.append("the page has no language")
    found += [f"<{tag}>" for tag in ("script", "style", "iframe", "object") if tags[tag]]
    found += _headings(page) + _names(page)
    for one in page.elements:
        found += [
            f"{name} of <{one.tag}>" for name in one.attributes if name.startswith(("on", "style"))
        ]
        for name in ("href", "src", "action"):
            to = one.attributes.get(name, "/")
            if not to.startswith(("/", "#", "data:,")) or to.startswith("//"):
                found.append(f"a link to {to}")
    return found


def _headings(page: Page) -> list[str]:
    levels = [int(one.tag[1]) for one in page.elements if one.tag in ("h1", "h2", "h3", "h4")]
    jumps = [b for a, b in zip([0, *levels], levels, strict=False) if b > a + 1]
    return [f"<h{level}> without one above it" for level in jumps]


def _names(page: Page) -> list[str]:
    found = []
    ids = Counter(one.attributes["id"] for one in page.elements if "id" in one.attributes)
    found += [f"{count} elements with id {name}" for name, count in ids.items() if count > 1]
    labelled = {one.attributes.get("for") for one in page.all("label")}
    for one in page.elements:
        given = one.attributes
        if one.tag == "th" and given.get("scope") not in ("col", "row"):
            found.append(f"th {one.text!r} without a scope")
        is_field = one.tag in ("input", "textarea", "select") and given.get("type") != "hidden"
        if is_field and given.get("id") not in labelled:
            found.append(f"<{one.tag}> {given.get('name')} without a label")
        if one.tag in ("a", "button") and not one.text.strip():
            found.append(f"<{one.tag}> without a text")
        if one.tag == "nav" and not given.get("aria-label"):
            found.append("<nav> without a name")
        if one.tag == "svg":
            named = set(given.get("aria-labelledby", "").split())
            if given.get("role") != "img" or len(named) != 2 or not named <= ids.keys():
                found.append("<svg> without title and desc")
    return found
