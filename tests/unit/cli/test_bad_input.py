"""Wrong input to a command: status 2, one line on stderr, and no change to the lake."""

from __future__ import annotations

import io
import os
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

import lakevilla as lv
from lakevilla.cli.app import app, main
from tests.support.tables import contents

#: Commands with ``ROOT`` for a lake of one table and ``DIR`` for the directory above it, and the
#: error of each; an argument with spaces follows a bar.
MISTAKES = [
    ("tables DIR/nowhere", "there is no directory DIR/nowhere: check the root; `mkdir`"),
    ("sql DIR/nowhere|SELECT 1", "there is no directory DIR/nowhere"),
    ("sql DIR/file.csv|SELECT 1", "the root DIR/file.csv is a file, and a lake is a directory"),
    ("create DIR/file.csv t a:int", "DIR/file.csv is a file"),
    ("register DIR/file.csv t", "DIR/file.csv is a file"),
    ("doctor ftp://host/lake", "unknown scheme 'ftp'"),
    ("tables s3://", "names no bucket; write s3://bucket/path"),
    ("tables ROOT -o AWS_REGION", "'AWS_REGION' has no value: write KEY=VALUE"),
    ("tables ROOT -o catalog.prod=1", "'catalog.prod' is not understood: write catalog.NAME.PROP"),
    ("tables s3://b/l -o AWS_ENDPOINT_URL=http://h:1", "pass AWS_ALLOW_HTTP='true' by --option"),
    ("tables s3://b/l -o AWS_ENDPOINT_URL=h:1", "write a URL with its scheme, such as https://"),
    ("tables s3://b/l -o NOPE=1", "'nope' is not known; correct its name, or for a profile or an"),
    ("schema ROOT ordres", "did you mean orders?"),
    ("schema ROOT ordres", "`lakevilla tables` lists the lake's tables, and those that are not in"),
    ("changes ROOT --since 0 --table ordres", "table ordres does not exist; did you mean orders?"),
    ("discover ROOT --json-lines", "there is no command discover: `lakevilla tables` shows"),
    ("list ROOT", "there is no command list: `lakevilla tables` lists the tables"),
    ("schema ROOT nothing", "`lakevilla tables` lists"),
    ("create ROOT t a", "column 'a' is not understood: write NAME:TYPE"),
    ("create ROOT t a:nonsense", "column 'a' has the type 'nonsense', which is unknown"),
    ("create ROOT t a:int --partition-by b", "partition column 'b' is not in the schema"),
    ("create ROOT t --from DIR/file.csv", "DIR/file.csv is not a csv file"),
    ("create ROOT t --from DIR/file.txt", "the name must end in .parquet"),
    ("create ROOT orders a:int", "table orders exists already"),
    ("drop ROOT nothing --delete-data", "table nothing does not exist"),
    ("drop ROOT orders --delete-data", "not confirmed, nothing is deleted: answer y or pass --yes"),
    ("register ROOT t DIR/nowhere", "DIR/nowhere"),
    ("sql ROOT|SELECT nothing FROM orders", '"nothing" not found in FROM clause; candidate'),
    ("sql ROOT|SELECT FROM WHERE x", "at line 1, column 17, near 'WHERE'"),
    ("sql ROOT|SELECT * FROM missing", "table missing does not exist; `lakevilla tables` lists"),
    ("sql ROOT|DELETE FROM orders", "DELETE writes: add --write, or write in `lakevilla shell`"),
    (
        "sql ROOT|SELECT 1|--timestamp|soon",
        "'soon' is not a time: write it as 2026-01-31T12:00:00Z",
    ),
    ("sql ROOT|SELECT 1|--version|9", "the lake has no global version 9; its newest is 1"),
    ("changes ROOT --since 9", "--since 9 is in the future: the newest global version is 1"),
    ("log ROOT --table nothing", "table nothing does not exist"),
    ("snapshot ROOT --version 9", "no global version 9"),
    ("outcome ROOT", "outcome takes a transaction's id, or --key and the key"),
    (
        "outcome ROOT nothing",
        "not a transaction id: 'nothing'; one is a UUIDv7 in canonical form, ",
    ),
    ("abort ROOT nothing", "`lakevilla txns`"),
    ("guard ROOT nothing", "table nothing does not exist"),
    ("unguard ROOT nothing", "table nothing does not exist"),
    ("optimize ROOT orders --where nothing=1", "there is no column nothing"),
    ("optimize ROOT orders --target-size 0", "must be a whole number of bytes, more than 0"),
    ("optimize ROOT orders --z-order nothing", "there is no column nothing"),
    ("vacuum ROOT orders --retention-hours nan", "must be a number, 0 or more and at most"),
    ("vacuum ROOT nothing", "table nothing does not exist"),
    ("recover ROOT --rebuild-head", "there is nothing to rebuild"),
    ("demo --scale nan", "at least one batch and a scale above 0"),
    ("demo --keep DIR/file.csv", "--keep DIR/file.csv is a file: name a new directory"),
    ("demo --keep ROOT", "is not empty: name a new directory"),
]


@pytest.fixture(scope="module")  # each test shows that its command has changed nothing in it
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("mistakes")
    (made / "file.csv").write_text("a,b\n1,2\n3\n")
    (made / "file.txt").write_text("x")
    with lv.connect(made / "lake") as lake:
        lake.create_table("orders", [{"id": 1}])
    return made


@pytest.mark.parametrize(("command", "expected"), MISTAKES, ids=[each for each, _ in MISTAKES])
def test_wrong_input_is_reported_in_one_line(directory: Path, command: str, expected: str) -> None:
    def placed(text: str) -> str:
        return text.replace("ROOT", "DIR/lake").replace("DIR", str(directory))

    before = contents(str(directory))
    words, *queries = command.split("|")
    arguments = [placed(each) for each in (*words.split(), *queries)]
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2, done.output
    assert done.stdout.strip() == ""
    assert placed(expected) in done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    assert "Traceback" not in done.stderr
    for inner in (
        "_lakevilla/probe",
        "storage_options",
        "boto3_session",
        "create_table`",
        "views=",
    ):
        assert inner not in done.stderr
    assert contents(str(directory)) == before


@pytest.mark.parametrize("encoding", ["ascii", "utf-8"])
def test_a_value_that_the_terminal_cannot_show_is_escaped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, encoding: str
) -> None:
    with lv.connect(tmp_path) as lake:
        lake.create_table("t", [{"a": "né"}])
    streams = {name: io.TextIOWrapper(io.BytesIO(), encoding) for name in ("stdout", "stderr")}
    for name, stream in streams.items():
        monkeypatch.setattr(sys, name, stream)
    monkeypatch.setattr(sys, "argv", ["lakevilla", "sql", str(tmp_path), "SELECT a FROM t"])
    monkeypatch.setattr(app, "registered_commands", app.registered_commands)
    with pytest.raises(SystemExit) as ended:
        main()
    written = {}
    for name, stream in streams.items():
        stream.flush()
        written[name] = stream.buffer.getvalue()  # type: ignore[attr-defined]
    assert (ended.value.code, written["stderr"]) == (0, b"")
    assert ("né".encode() if encoding == "utf-8" else b"n\\xe9") in written["stdout"]


@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_full_disk_is_reported_in_one_line(tmp_path: Path, unbuffered: str) -> None:
    with open("/dev/full", "wb") as full:
        done = subprocess.run(
            [sys.executable, "-m", "lakevilla.cli", "tables", str(tmp_path)],
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            env={**os.environ, "PYTHONUNBUFFERED": unbuffered},
        )
    assert done.returncode == 2
    assert done.stderr == "the command ended: [Errno 28] No space left on device\n"
