"""Check that the commands that pages give for their figures can be run, and links of
the lab book.
"""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from bench.harness.parameters import settled
from bench.registry import MODULES, benchmark
from tests.unit.test_citations import leads_somewhere

ROOT = Path(__file__).parents[2]
PAGES = (
    "docs/performance.md",
    "docs/benchmarks.md",
    "docs/guides/hot-rows.md",
    "docs/guides/operators.md",
    "bench/results/README.md",
)
LAB_BOOK = sorted((ROOT / "bench/results").glob("*.md"))

COMMAND = re.compile(r"`(?:\$ )?lakevilla bench run ([^`]+)`")
LINK = re.compile(r"\]\(([^)\s]+)\)")


def commands() -> list[str]:
    texts = [(ROOT / page).read_text() for page in PAGES]
    # In a table, a bar has a backslash before it.
    return sorted({found.replace("\\|", "|") for text in texts for found in COMMAND.findall(text)})


@pytest.mark.parametrize("command", commands())
def test_the_command_of_a_figure_names_a_workload_and_its_parameters(command: str) -> None:
    words = shlex.split(command)
    given = dict(words[i + 1].split("=", 1) for i, word in enumerate(words) if word == "-p")
    others = [word for i, word in enumerate(words) if word[0] != "-" and words[i - 1][:1] != "-"]
    assert others
    for name in others:
        known = [one.name for one in benchmark(name).parameters]
        mine = {key: value for key, value in given.items() if key in known}
        assert mine == given
        assert settled(benchmark(name).parameters, mine, quick=False)


def test_the_benchmarks_page_names_the_checks_of_each_workload() -> None:
    _, _, part = (ROOT / "docs/benchmarks.md").read_text().partition("## What a workload checks")
    rows = re.findall(r"(?m)^\| ((?:`\w+`(?:, )?)+) \|", part)
    listed = [name for row in rows for name in re.findall(r"`(\w+)`", row)]
    assert len(listed) == len(set(listed))
    assert set(listed) <= set(MODULES)


@pytest.mark.parametrize("page", LAB_BOOK, ids=lambda page: page.name)
def test_links_of_the_lab_book_lead_to_existing_files(page: Path) -> None:
    links = LINK.findall(page.read_text())
    assert not [link for link in links if not leads_somewhere(page, link)]
