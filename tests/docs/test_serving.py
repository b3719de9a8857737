"""The guide's unit, container and manifests start the gateway as it is."""

from __future__ import annotations

import configparser
import json
import re
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import typer
from typer.main import get_command

from lakevilla.cli.app import app
from lakevilla.serve.access import tokens_in
from lakevilla.serve.app import READY

GUIDE = (Path(__file__).parents[2] / "docs" / "guides" / "serve.md").read_text()


def block(language: str) -> str:
    (found,) = re.findall(rf"(?ms)^```{language}\n(.*?)^```$", GUIDE)
    return str(found)


def options(arguments: Sequence[str]) -> dict[str, Any]:
    """Return the options of ``lakevilla serve`` as the command line understands them."""
    group = get_command(app)
    serve = group.get_command(typer.Context(group), "serve")
    return dict(serve.make_context("serve", list(arguments)).params)


def test_the_command_line_refuses_what_it_does_not_have() -> None:
    with pytest.raises(Exception, match="--hots"):
        options(["s3://warehouse", "--hots", "x"])


def test_the_unit_of_systemd_starts_the_gateway() -> None:
    unit = configparser.ConfigParser()
    unit.optionxform = str  # type: ignore[assignment]
    unit.read_string(block("ini"))
    program, command, *arguments = shlex.split(unit["Service"]["ExecStart"])
    assert (Path(program).name, command) == ("lakevilla", "serve")
    found = options(arguments)
    assert {"token_file", "tls_cert", "tls_key", "host_name"} <= {
        one for one in found if found[one]
    }


def test_the_container_starts_the_gateway() -> None:
    lines = dict(line.split(" ", 1) for line in block("dockerfile").splitlines())
    assert json.loads(lines["ENTRYPOINT"]) == ["lakevilla", "serve"]
    found = options(json.loads(lines["CMD"]))
    assert found["token_file"], "an address beyond this machine needs tokens"
    assert int(lines["EXPOSE"]) == found["port"]
    assert lines["USER"] in lines["RUN"]


def test_the_manifests_start_gateways_that_are_ready() -> None:
    deployment, service = (msgspec.yaml.decode(one) for one in block("yaml").split("---\n"))
    assert (deployment["kind"], service["kind"]) == ("Deployment", "Service")
    pod = deployment["spec"]["template"]
    labels = pod["metadata"]["labels"]
    assert deployment["spec"]["selector"]["matchLabels"] == service["spec"]["selector"] == labels
    (container,) = pod["spec"]["containers"]
    found, (port,) = options(container["args"]), container["ports"]
    assert found["host"] == "0.0.0.0"
    assert service["metadata"]["name"] in found["host_name"]
    assert port["containerPort"] == found["port"]
    assert service["spec"]["ports"][0]["targetPort"] == port["name"]
    for probe in ("readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": READY, "port": port["name"]}
    (mount,), (volume,) = container["volumeMounts"], pod["spec"]["volumes"]
    assert mount["name"] == volume["name"]
    assert found["token_file"].parent == Path(mount["mountPath"])
    context = pod["spec"]["securityContext"]
    assert volume["secret"]["defaultMode"] == 0o440, "the file is root's, and of the pod's group"
    assert context["fsGroup"] == context["runAsGroup"]


def test_the_tokens_of_the_guide_have_the_rights_that_it_says(tmp_path: Path) -> None:
    (text,) = re.findall(r"(?ms)^### Tokens\n\n```\n(.*?)^```$", GUIDE)
    path = tmp_path / "tokens"
    path.write_text(text)
    path.chmod(0o600)
    tokens = tokens_in(path)
    assert tokens["kD93-fPqz"].may("main", writes=True)
    assert not tokens["Zq81-uRmx"].may("main", writes=True)
    assert tokens["p0Lk-77aB"].may("etl/a", writes=True)
    assert tokens["p0Lk-77aB"].may("monday", writes=False)
    assert not tokens["p0Lk-77aB"].may("main", writes=True)
