"""What MkDocs does beside: pages that lie outside of docs/, and links between them.

README and other pages at the root, the lab book of bench/results, and the programs of examples/ are
pages of the site, too. In the repository a link goes to the file; on the site it goes to the file's
page. A picture is a link.
"""

from __future__ import annotations

import json
import posixpath
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).parents[1]

#: The pages that are made of files outside of docs/, by the file.
OUTSIDE = {
    "README.md": "readme.md",
    "CHANGELOG.md": "changelog.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "tests/README.md": "tests.md",
    "examples": "examples.md",
}
#: The lab book is on the site for the links to it: not in the navigation, and not searched.
LAB_BOOK = {
    f"bench/results/{path.name}": f"measured/{path.name.replace('README', 'index')}"
    for path in sorted((ROOT / "bench/results").glob("*.md"))
}
OUTSIDE |= LAB_BOOK
UNSEARCHED = "---\nsearch:\n  exclude: true\n---\n"

LINK = re.compile(r"\[(?P<text>[^\]]*)\]\((?P<target>[^)#\s]+)(?P<anchor>#[^)\s]*)?\)")
FENCE = re.compile(r"(^```.*?^```$)", re.DOTALL | re.MULTILINE)


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Name each note of docs/design in the navigation."""
    notes = sorted(path.name for path in (ROOT / "docs/design").glob("*.md"))
    _fill(config.nav, {"design/": [f"design/{note}" for note in notes]})
    return config


def _fill(nav: list[Any], folders: dict[str, list[str]]) -> None:
    for entry in nav:
        if isinstance(entry, dict):
            for title, below in entry.items():
                if isinstance(below, list):
                    _fill(below, folders)
                elif below in folders:
                    entry[title] = folders[below]


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that are made of other files."""
    made = {page: (ROOT / file).read_text() for file, page in OUTSIDE.items() if file != "examples"}
    made["examples.md"] = examples()
    for notebook in sorted((ROOT / "docs/notebooks").glob("*.ipynb")):
        made[f"notebooks/{notebook.stem}.md"] = notebook_page(notebook)
    for name in LAB_BOOK.values():
        made[name] = UNSEARCHED + made[name]
    for name, text in made.items():
        files.append(File.generated(config, name, content=text))
    return files


def on_page_markdown(markdown: str, page: Page, **_: object) -> str:
    """Let links go to pages, wherever the file of a page lies."""
    source = page.file.src_uri
    file = {page: file for file, page in OUTSIDE.items()}.get(source, f"docs/{source}")
    folder = posixpath.dirname(file)

    def moved(link: re.Match[str]) -> str:
        if "://" in link["target"] or link["target"].startswith("mailto:"):
            return link[0]
        target = posixpath.normpath(posixpath.join(folder, link["target"]))
        return f"[{link['text']}]({relative(target, source)}{link['anchor'] or ''})"

    parts = FENCE.split(markdown)
    return "".join(part if part.startswith("```") else LINK.sub(moved, part) for part in parts)


def relative(target: str, source: str) -> str:
    """A link from a page to what lies at a path of the repository."""
    if target == "docs/design":
        target = "design/0000-design.md"
    elif target.startswith("docs/"):
        target = target.removeprefix("docs/")
        if target.endswith(".ipynb"):
            target = target.removesuffix(".ipynb") + ".md"
    elif target.startswith("examples/"):
        target = "examples.md"
    elif target in OUTSIDE:
        target = OUTSIDE[target]
    else:  # not on the site: left as it is, so that a strict build refuses it
        return posixpath.relpath(target, posixpath.join("docs", posixpath.dirname(source)))
    return posixpath.relpath(target, posixpath.dirname(source) or ".")


def examples() -> str:
    """The programs of examples/, one after the other."""
    needs = "Each of these programs runs by itself; those about buckets need an S3 server."
    parts = [f"# Examples\n\n{needs}\n"]
    for path in sorted((ROOT / "examples").glob("*.py")):
        parts.append(f"## {path.name}\n\n```python\n{path.read_text().rstrip()}\n```\n")
    return "\n".join(parts)


def notebook_page(path: Path) -> str:
    """A notebook without outputs, as a page."""
    parts = []
    for cell in json.loads(path.read_text())["cells"]:
        text = "".join(cell["source"])
        parts.append(f"```python\n{text}\n```" if cell["cell_type"] == "code" else text)
    return "\n\n".join(parts) + "\n"
