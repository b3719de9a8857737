"""The colours of the pages can be read by those who see little: WCAG 2.2, level AA."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import lakevilla.serve.page as page

STYLE = (Path(page.__file__).parent / "page.css").read_text()
TRACKS = [f"t{number}" for number in range(6)]
#: Text, and what is behind it.
TEXT = [
    *[(text, behind) for text in ("fg", "dim", "link") for behind in ("bg", "soft")],
    *[(text, "bg") for text in ("bad", "warn", "good")],
    *[("on", track) for track in TRACKS],
    ("bg", "fg"),  # a tag
]
#: Lines and borders without which something is not seen.
SHAPES = [("edge", "bg"), ("edge", "soft"), ("focus", "bg"), *[(track, "bg") for track in TRACKS]]


def _schemes() -> dict[str, dict[str, str]]:
    light, dark = re.findall(r":root \{(.*?)\}", STYLE, re.DOTALL)
    found = {"light": dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", light))}
    found["dark"] = found["light"] | dict(re.findall(r"--(\w+): (#[0-9a-f]{6});", dark))
    return found


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        one / 12.92 if one <= 0.04045 else ((one + 0.055) / 1.055) ** 2.4 for one in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def _contrast(a: str, b: str) -> float:
    dark, light = sorted((_luminance(a), _luminance(b)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_and_shapes_have_the_contrast_that_wcag_asks_for(scheme: str) -> None:
    colours = _schemes()[scheme]
    for pairs, least in ((TEXT, 4.5), (SHAPES, 3.0)):
        for front, behind in pairs:
            found = _contrast(colours[front], colours[behind])
            assert found >= least, f"{front} on {behind}: {found:.2f}"


def test_each_colour_of_the_style_is_one_of_those_that_were_compared() -> None:
    rules = re.sub(r":root \{.*?\}", "", STYLE, flags=re.DOTALL)
    assert not re.findall(r"#[0-9a-fA-F]{3,8}\b|rgba?\(|hsla?\(", rules)
    fronts = {front for front, _ in TEXT + SHAPES}
    used = set(re.findall(r"(?<![-\w])color: var\(--(\w+)\)", rules))
    assert used <= {front for front, _ in TEXT}
    lines = set(re.findall(r"(?:outline|stroke|fill|border): [^;]*var\(--(\w+)\)", rules))
    # The lines between rows are no more than ornament; a fill may be what is behind a text.
    assert lines <= fronts | {"line", "soft", "bg"}
    assert set(re.findall(r"var\(--(\w+)\)", rules)) <= _schemes()["light"].keys()
