"""Lakes with a name on this machine: ``lakevilla config``, and commands that take the name."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import lakevilla as lv
from lakevilla.cli.app import app
from lakevilla.cli.lakes import directory


@pytest.fixture(autouse=True)
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Give the test a directory of settings of its own."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert directory().is_relative_to(tmp_path)
    return directory()


@pytest.fixture
def root(tmp_path: Path) -> str:
    root = tmp_path / "warehouse"
    with lv.connect(root) as lake:
        lake.create_table("stock", [{"sku": "tea", "qty": 5}])
    return str(root)


def invoke(*words: str, status: int = 0) -> Any:
    result = CliRunner().invoke(app, list(words))
    assert result.exit_code == status, result.output
    return result


def test_a_lake_is_named_listed_used_and_its_name_deleted(root: str) -> None:
    assert "no lake has a name yet" in invoke("config").stdout
    invoke("config", "prod", root)
    assert json.loads(invoke("config", "--json").stdout) == [
        {"name": "prod", "root": root, "profile": None, "options": None}
    ]
    assert "stock" in invoke("tables", "prod", "--json").stdout
    invoke("config", "prod", "--delete")
    assert json.loads(invoke("config", "--json").stdout) == []
    assert (Path(root) / "stock").is_dir()


def test_the_name_of_a_lake_that_is_misspelt_is_met_with_the_one_that_was_meant(root: str) -> None:
    said = invoke("tables", "prdo", status=2).stderr
    assert "lakevilla config" not in said
    invoke("config", "prod", root)
    said = " ".join(invoke("tables", "prdo", status=2).stderr.split())
    assert "did you mean the lake prod? check the root, or its name, which `lakevilla conf" in said
    assert "or its name" in invoke("tables", "other", status=2).stderr
    assert "the lake prod" not in invoke("tables", "./prdo", status=2).stderr


def test_a_named_lake_connects_with_its_options_and_those_of_the_command_win(
    root: str, settings: Path
) -> None:
    invoke("config", "prod", root, "-o", "sql_uris=false")
    file = settings / "prod.json"
    file.write_text(file.read_text().replace("false", "perhaps"))
    assert "sql_uris is true or false" in invoke("tables", "prod", status=2).stderr
    invoke("tables", "prod", "-o", "sql_uris=true")


def test_a_command_keeps_to_the_limit_of_formats_of_a_rolling_upgrade(root: str) -> None:
    invoke("sql", root, "CREATE TABLE t AS SELECT 1 AS x", "--write")
    view = ("CREATE VIEW v AS SELECT x FROM t", "--write")
    said = " ".join(invoke("sql", root, *view, "-o", "format_limit=2", status=2).stderr.split())
    assert "because of a view of SQL" in said
    assert "it takes --option format_limit=6 or more" in said
    invoke("config", "upgraded", root, "-o", "format_limit=6")
    invoke("sql", "upgraded", *view)


@pytest.mark.parametrize(
    ("words", "hint"),
    [
        (["-o", "AWS_REGON=eu-central-1"], "did you mean aws_region?"),
        (["-o", "sql_uris=perhaps"], "sql_uris is true or false"),
        (["-o", "format_limit=six"], "format_limit is a whole number, not 'six'"),
        (["-o", "format_limit=1"], "format_limit must be"),
        (["-o", "catalog.prod=http://localhost"], "catalog.NAME.PROPERTY=VALUE"),
        (["-o", "stores=archive"], "stores must be a tuple of URIs"),
        (["--profile", "nosuch"], "is in neither ~/.aws/config"),
    ],
)
def test_a_lake_with_a_misspelt_option_gets_no_name(
    words: list[str], hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable in ("AWS_PROFILE", "AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"):
        monkeypatch.delenv(variable, raising=False)
    said = " ".join(invoke("config", "prod", "s3://warehouse", *words, status=2).stderr.split())
    assert hint in said
    assert json.loads(invoke("config", "--json").stdout) == []


def test_no_command_shows_the_value_of_a_stored_option(root: str, settings: Path) -> None:
    secret = "AKIA-never-shown"
    said = invoke("config", "prod", root, "-o", f"AWS_SECRET_ACCESS_KEY={secret}").output
    for words in (["config"], ["config", "prod"], ["config", "--json"]):
        said += invoke(*words).output
    assert "AWS_SECRET_ACCESS_KEY" in said
    assert secret not in said
    (file,) = settings.iterdir()
    assert secret in file.read_text()


def test_only_the_owner_may_read_a_named_lake(root: str, settings: Path) -> None:
    invoke("config", "prod", root)
    (file,) = settings.iterdir()
    assert (file.stat().st_mode & 0o777, settings.stat().st_mode & 0o777) == (0o600, 0o700)
    for rights in (0o640, 0o602):
        file.chmod(rights)
        assert f"`chmod 600 {file}`" in invoke("tables", "prod", status=2).stderr


def test_a_root_that_is_a_name_and_a_directory_is_refused(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    invoke("config", "prod", root)
    (tmp_path / "prod").mkdir()
    refused = invoke("drop", "prod", "stock", status=2).stderr
    assert "write ./prod for the directory" in refused
    assert root in refused
    assert "no tables yet" in invoke("tables", "./prod").stdout


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "is damaged: delete it"),
        ('{"root": 1, "options": {}, "profile": null}', "is damaged: delete it"),
        ('{"root": "/a", "options": {}, "profile": null, "vault": 1}', "has vault, which this"),
    ],
)
def test_a_file_that_is_damaged_or_newer_is_refused_and_can_be_deleted(
    root: str, settings: Path, text: str, said: str
) -> None:
    invoke("config", "prod", root)
    (settings / "prod.json").write_text(text)
    assert said in invoke("tables", "prod", status=2).stderr
    invoke("config", "prod", "--delete")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["config", "none"], "no lake has the name none (there are: none)"),
        (["config", "none", "--delete"], "no lake has the name none"),
        (["config", "a/b", "/lake"], "a lake can't have the name 'a/b'"),
        (["config", "a", "ftp://host"], "unknown scheme 'ftp'"),
        (["config", "a", "s3://key:word@bucket"], "has a password in it"),
        (["config", "a", "-o", "k=v"], "config takes NAME and ROOT"),
        (["config", "--delete"], "takes the name of a lake"),
    ],
)
def test_config_refuses_what_it_cannot_store(words: list[str], said: str, settings: Path) -> None:
    assert said in invoke(*words, status=2).stderr
    assert not settings.exists()


def test_a_relative_root_is_stored_whole(
    root: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    invoke("config", "prod", "warehouse")
    monkeypatch.chdir("/")
    assert "stock" in invoke("tables", "prod").stdout
