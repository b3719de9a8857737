"""A boto3 profile provides the credentials of the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from lakevilla.cli.app import app
from tests.fixtures.s3 import S3Server


def run(*arguments: str, status: int = 0) -> Any:
    result = CliRunner().invoke(app, [*arguments, "--json"])
    assert result.exit_code == status, result.output
    return json.loads(result.stdout or result.stderr)


def test_a_boto3_profile_provides_the_command_lines_credentials(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, s3_root: str, s3_server: S3Server
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    (tmp_path / "credentials").write_text(
        f"[etl]\naws_access_key_id = {s3_server.access_key}\n"
        f"aws_secret_access_key = {s3_server.secret_key}\n"
    )
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    at = [
        s3_root,
        *(
            f"--option={name}={value}"
            for name, value in s3_server.storage_options.items()
            if name not in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")
        ),
    ]
    run("create", *at, "t", "id:int", "--profile", "etl")
    assert [row["name"] for row in run("tables", *at, "--profile", "etl")] == ["t"]
    error = run("tables", *at, "--profile", "elt", status=2)["message"]
    assert "--profile 'elt'" in error
    assert "etl" in error.partition("there are")[2]
