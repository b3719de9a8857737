"""The page on reliability counts the faults that it lists, and names each layer of the campaign."""

from __future__ import annotations

import re
from pathlib import Path

from tests.prove.layers import LAYERS

PAGE = (Path(__file__).parents[2] / "docs" / "reliability.md").read_text()
ROW = re.compile(r"^\| \[[^]]+\]\(#([\w-]+)\) \| (\d+) \|", re.MULTILINE)


def test_the_page_counts_the_faults_of_each_kind() -> None:
    sections = {
        re.sub(r"[^\w]+", "-", title.lower()): text
        for title, text in re.findall(r"^### (.+)$((?:\n(?!###? ).*)*)", PAGE, re.MULTILINE)
    }
    counted = {anchor: int(count) for anchor, count in ROW.findall(PAGE)}
    listed = {kind: len(re.findall(r"^- ", sections[kind], re.MULTILINE)) for kind in counted}
    assert len(counted) == 6
    assert counted == listed


def test_the_page_has_a_line_for_each_layer_of_the_campaign() -> None:
    campaign = PAGE.partition("## The campaign")[2].partition("\n## ")[0]
    told = re.findall(r"^\| `(\w+)` \|", campaign, re.MULTILINE)
    assert sorted(told) == sorted(layer.name for layer in LAYERS)
    promises = PAGE.partition("## How each promise is tested")[2].partition("\n## ")[0]
    assert {name for name in told if f"`{name}`" not in promises} == set()
