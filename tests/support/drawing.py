"""Read pictures of states in docs/images as the transitions that their arrows show."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from xml.etree import ElementTree

IMAGES = Path(__file__).parents[2] / "docs" / "images"
SVG = "{http://www.w3.org/2000/svg}"


def arrows_of(
    table: Mapping[str, Mapping[str, str]], initial: str, terminal: Collection[str]
) -> list[str]:
    """Return the transitions in a table of states, sorted: one line for each arrow of
    its picture.
    """
    moves = [f"{at} --> {to}: {event}" for at, row in table.items() for event, to in row.items()]
    ends = [f"{at} --> [*]" for at in table if at in terminal]
    return sorted([f"[*] --> {initial}", *moves, *ends])


def shown_in(picture: str) -> list[str]:
    """Return the transitions that a picture shows, in the form of ``arrows_of``."""
    root = ElementTree.parse(IMAGES / picture).getroot()
    lines = sorted(_lines(root))
    states = {text.text for text in root.iter(f"{SVG}text") if text.get("class") == "name"}
    named = {name for line in lines for name in line.partition(":")[0].split() if name.isalpha()}
    assert named == states, f"{picture} has boxes {states}, and arrows between {named}"
    return lines


def _lines(root: ElementTree.Element) -> Iterator[str]:
    for arrow in root.iter(f"{SVG}g"):
        words = [text.text or "" for text in arrow.iter(f"{SVG}text")]
        label = f": {' '.join(words)}" if words else ""
        for move in (arrow.get("data-moves") or "").split():
            yield f"{move.replace('-', ' --> ')}{label}"
