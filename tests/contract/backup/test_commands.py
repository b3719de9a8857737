"""`lakevilla backup` and `lakevilla restore-lake`."""

from __future__ import annotations

import json

from typer.testing import CliRunner

import lakevilla as lv
from lakevilla.cli.app import app
from tests.support.backups import beside, fill, sell, shown
from tests.support.places import Place


def test_the_commands_back_up_a_lake_and_make_it_again(local_place: Place) -> None:
    with local_place.connect() as lake:
        fill(lake)
        before = shown(lake)
    target, root = beside(local_place.root, "copy"), beside(local_place.root, "restored")
    run = CliRunner().invoke
    made = run(app, ["backup", local_place.root, target, "--json"])
    assert made.exit_code == 0, made.output
    assert json.loads(made.stdout)["tables"] == 2
    with local_place.connect() as lake:
        sell(lake, "jam")
    again = run(app, ["backup", local_place.root, target, "--verify", "hashes"])
    assert "2 of 6 files were copied" in again.stdout
    name = json.loads(made.stdout)["name"]
    restored = run(app, ["restore-lake", root, target, "--name", name])
    assert restored.exit_code == 0, restored.output
    assert "--confirm-head" in restored.stdout
    with lv.connect(root) as lake:
        assert shown(lake) == before
    refused = run(app, ["restore-lake", local_place.root, target])
    assert refused.exit_code == 2
    assert "is not empty" in refused.stderr
    in_place = run(app, ["restore-lake", local_place.root, target, "--in-place", "--name", name])
    assert in_place.exit_code == 0, in_place.output
    with local_place.connect() as lake:
        assert shown(lake) == before
