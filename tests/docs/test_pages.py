"""Run the examples of README and docs/ as they are written, page by page."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import boto3
import pytest

from tests.docs.pages import LANGUAGES, ROOT, SITE, needs, run_page
from tests.fixtures import azure, gcs
from tests.fixtures.s3 import S3Server
from tests.integrations.__main__ import TOOLS

BLOCK = re.compile(r"^```(\w*)$(?:.*?)^```$", re.MULTILINE | re.DOTALL)

#: Blocks in these languages are only shown, or read by tests/docs/test_serving.py.
SHOWN = {"", "dockerfile", "ini", "json", "yaml"}


def blocks(page: Path) -> list[str]:
    return BLOCK.findall(page.read_text())


#: Design notes quote code and are not run; tests/interop/test_examples.py also pastes README into
#: an interpreter.
RUN = [
    page
    for page in SITE
    if "design" not in page.parts and set(blocks(page)) & {"python", "sql", "console"}
]


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a directory with the wheel of this checkout."""
    directory = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(directory)]
    done = subprocess.run(build, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return directory


def run(page: Path, directory: Path, dist: Path, **given: object) -> None:
    assert run_page(page, directory, dist, given) > 0, f"{page} has blocks, and none was run"


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", [p for p in RUN if needs(p) is None], ids=named)
def test_a_page_runs_from_top_to_bottom(
    page: Path, dist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run(page, tmp_path, dist)


@pytest.mark.night
@pytest.mark.parametrize("page", [p for p in RUN if needs(p) == "s3"], ids=named)
def test_a_page_about_buckets_runs_on_a_bucket(
    page: Path,
    dist: Path,
    tmp_path: Path,
    s3_server: S3Server,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in s3_server.storage_options.items():
        monkeypatch.setenv(name, value)
    # boto3's default session caches the keys that it has found, which were those of another server.
    monkeypatch.setattr(boto3, "DEFAULT_SESSION", None)
    run(page, tmp_path, dist)


@pytest.mark.night
@pytest.mark.parametrize("server", list(azure.servers()), indirect=True)
def test_the_page_about_azure_runs_on_its_emulator(
    server: azure.AzureServer, dist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AZURITE_BLOB_STORAGE_URL", server.endpoint)
    azure.create_container(server, "warehouse")
    (page,) = (page for page in RUN if needs(page) == "azure")
    run(page, tmp_path, dist)


@pytest.mark.night
@pytest.mark.parametrize("server", list(gcs.servers()), indirect=True)
def test_the_page_about_gcs_runs_on_its_server(
    server: gcs.GcsServer, dist: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, value in server.storage_options.items():
        monkeypatch.setenv(name.upper(), value)
    (page,) = (page for page in RUN if needs(page) == "gcs")
    run(page, tmp_path, dist)


@pytest.mark.parametrize("page", [p for p in RUN if needs(p) == "spark"], ids=named)
def test_a_page_about_spark_runs_in_a_spark_session(
    page: Path,
    dist: Path,
    tmp_path: Path,
    spark: object,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    run(page, tmp_path, dist, spark=spark)


def test_every_block_is_in_a_language_that_is_run_or_marked_as_not_run() -> None:
    for page in SITE:
        if "design" in page.parts:
            continue
        unknown = set(blocks(page)) - {*LANGUAGES, *SHOWN, "json"}
        assert not unknown, f"{named(page)} has blocks in {unknown}, which nothing runs"


def test_each_tool_of_the_integrations_has_a_guide_and_each_such_guide_its_tool() -> None:
    assert {page.stem for page in RUN if needs(page) == "integration"} == TOOLS.keys()


def test_skipped_examples_of_the_pages_give_their_reason() -> None:
    for page in SITE:
        for found in re.findall(r"<!-- skip: (.*?)-->", page.read_text()):
            assert re.match(r'(next|start) "\w.+"|end', found), f"{named(page)}: {found}"


@pytest.mark.parametrize(
    "wrong",
    [
        "```python\nassert 1 == 2\n```",
        "```python\nprint(1)\n```\n\n```text\n2\n```",
        "```console\n$ echo 1\n2\n```",
        "```console\n$ lakevilla nonsense\n```",
        "```console\n$ pip install 'lakevilla[nonsense]'\n```",
        "```console\n$ make nonsense\n```",
    ],
)
def test_a_page_with_a_wrong_output_fails(wrong: str, tmp_path: Path, dist: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(wrong)
    with pytest.raises(AssertionError):
        run_page(page, tmp_path, dist, {})
