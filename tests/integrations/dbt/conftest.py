"""dbt projects over a lake of their own; ``--suite whole`` runs all of dbt's adapter tests."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from dbt.cli.main import dbtRunner, dbtRunnerResult
from dbt.tests.fixtures.project import *  # noqa: F403 (the fixtures of dbt's adapter tests)

import lakevilla as lv

os.environ["DBT_SEND_ANONYMOUS_USAGE_STATS"] = "false"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--suite", choices=("basic", "whole"), default="basic")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    whole = config.getoption("--suite") == "whole"
    left_out = [item for item in items if not whole and not is_basic(item)]
    config.hook.pytest_deselected(items=left_out)
    items[:] = [item for item in items if item not in set(left_out)]
    for item in items:
        item.add_marker(pytest.mark.filterwarnings("ignore"))  # of dbt and its dependencies


def is_basic(item: pytest.Item) -> bool:
    """Return whether a test is ours, or in the folder ``basic`` of dbt's adapter tests."""
    directory = getattr(item.cls, "directory", None)
    return directory is None or directory.name == "basic"


@pytest.fixture(scope="class")
def dbt_profile_target(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Return the target that dbt's adapter tests run on."""
    return {
        "type": "lakevilla",
        "root": str(tmp_path_factory.mktemp("lake")),
        "threads": 4,
    }


@pytest.fixture(scope="class")
def profile_user() -> None:
    """Return no user: a lake has none."""


@pytest.fixture(scope="class")
def logs_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Return the directory of dbt's logs, which is not the repository."""
    with pytest.MonkeyPatch.context() as patch:
        logs = str(tmp_path_factory.mktemp("logs"))
        patch.setenv("DBT_LOG_PATH", logs)
        yield logs


@dataclass
class Project:
    """A dbt project, and the lake that it builds."""

    directory: Path
    root: str
    said: list[str] = field(default_factory=list)

    def write(self, files: Mapping[str, str]) -> None:
        for name, text in files.items():
            path = self.directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)

    def configure(self, **options: object) -> None:
        """Write ``dbt_project.yml``, with these options."""
        project = {"name": "shop", "profile": "shop", "models": {"+materialized": "table"}}
        self.write({"dbt_project.yml": yaml.safe_dump({**project, **options})})

    def target(self, **options: object) -> None:
        """Write the profile, with these options of the target."""
        target = {"type": "lakevilla", "root": self.root, "schema": "shop", "threads": 2}
        profile = {"shop": {"target": "dev", "outputs": {"dev": {**target, **options}}}}
        self.write({"profiles.yml": yaml.safe_dump(profile)})

    @property
    def places(self) -> list[str]:
        return ["--project-dir", str(self.directory), "--profiles-dir", str(self.directory)]

    def dbt(self, command: str, *arguments: str) -> dbtRunnerResult:
        """Run a command of dbt in this process, and keep its messages."""
        self.said.clear()
        runner = dbtRunner(callbacks=[lambda event: self.said.append(event.info.msg)])
        return runner.invoke([*command.split(), *self.places, *arguments])

    def build(self, *arguments: str) -> None:
        """Run ``dbt build``, which has to succeed."""
        done = self.dbt("build", *arguments)
        assert done.success, done.exception or [
            (one.node.name, one.status, one.message) for one in done.result
        ]

    @property
    def lake(self) -> lv.Lake:
        return lv.connect(self.root)

    def rows(self, query: str) -> list[tuple[object, ...]]:
        """Return the rows that a query finds in the lake itself."""
        return [tuple(row.values()) for row in self.lake.sql(query).to_pylist()]


@pytest.fixture
def shop(tmp_path: Path) -> Project:
    """Return a project with one seed and one model, which its tests extend."""
    made = Project(tmp_path / "shop", str(tmp_path / "lake"))
    made.write(
        {
            "seeds/orders.csv": "id,sku,qty,day\n1,tea,2,2024-02-28\n2,jam,1,2024-02-29\n",
            "models/stock.sql": "select sku, sum(qty) as qty from {{ ref('orders') }} group by sku",
        }
    )
    made.configure()
    made.target()
    return made
