"""``lakevilla metrics``: Prometheus text, JSON, and a file for node_exporter."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest
from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner, Result

import lakevilla as lv
from lakevilla.cli.app import app
from lakevilla.gauges import GAUGES


def invoke(*arguments: str, status: int = 0) -> Result:
    result = CliRunner().invoke(app, ["metrics", *arguments])
    assert result.exit_code == status, result.output
    return result


def values(text: str, name: str) -> list[float]:
    families = text_string_to_metric_families(text)
    return [one.value for family in families if family.name == name for one in family.samples]


@pytest.fixture
def root(tmp_path: Path) -> str:
    with lv.connect(tmp_path / "lake") as lake:
        lake.create_table("stock", [{"id": 1}])
        return lake.root


def test_metrics_prints_text_that_prometheus_parses(root: str) -> None:
    text = invoke(root).stdout
    families = list(text_string_to_metric_families(text))
    assert {family.type for family in families} == {"gauge"}
    assert {family.name for family in families} <= GAUGES.keys()
    assert all(one.labels["lake"] == root for family in families for one in family.samples)
    assert values(text, "lakevilla_tables") == [1]


def test_metrics_prints_one_json_value(root: str) -> None:
    found = json.loads(invoke(root, "--format", "json").stdout)
    assert found["lake"] == root
    assert found["metrics"]["lakevilla_table_rows"] == {"stock": 1}
    assert json.loads(invoke(root, "--json").stdout)["metrics"].keys() == found["metrics"].keys()


def test_metrics_replaces_a_textfile_that_others_may_read(root: str, tmp_path: Path) -> None:
    file = tmp_path / "lake.prom"
    file.write_text("old")
    assert invoke(root, "--textfile", str(file)).stdout == ""
    assert values(file.read_text(), "lakevilla_up") == [1]
    assert stat.S_IMODE(file.stat().st_mode) & 0o004
    assert sorted(one.name for one in tmp_path.iterdir()) == ["lake", "lake.prom"]


def test_metrics_of_a_lost_head_say_that_the_lake_is_down(root: str, tmp_path: Path) -> None:
    Path(root, "_lakevilla/HEAD.json").write_bytes(b"damaged")
    file = tmp_path / "lake.prom"
    failed = invoke(root, "--textfile", str(file), status=2)
    assert "HEAD.json" in failed.stderr
    assert values(file.read_text(), "lakevilla_up") == [0]
    assert values(invoke(root, status=2).stdout, "lakevilla_up") == [0]


def test_metrics_of_a_directory_that_is_not_there_name_the_same_lake(tmp_path: Path) -> None:
    text = invoke(f"{tmp_path}/none/../none/", status=2).stdout
    (family,) = text_string_to_metric_families(text)
    assert family.samples[0].labels == {"lake": f"{tmp_path}/none"}


def test_metrics_refuses_a_textfile_that_node_exporter_would_not_read(
    root: str, tmp_path: Path
) -> None:
    for file, hint in {"lake.txt": "end in .prom", "none/lake.prom": "make its directory"}.items():
        said = invoke(root, "--textfile", str(tmp_path / file), status=2).stderr
        assert hint in said.replace("\n", " ")
    said = invoke(root, "--textfile", "lake.prom", "--json", status=2).stderr
    assert "leave out" in said
    assert not (tmp_path / "lake.txt").exists()


@pytest.mark.parametrize("root", ["s3://key:secret@bucket/lake", "s3:/key:secret@bucket"])
def test_metrics_shows_no_credentials_of_a_root_that_is_refused(root: str) -> None:
    refused = invoke(root, status=2)
    assert refused.stdout == ""
    assert "secret" not in refused.stderr
