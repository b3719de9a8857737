"""What a client stores, writes on its machine and prints holds none of its secrets."""

from __future__ import annotations

import html
import tempfile
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import lakevilla as lv
from lakevilla.cli.app import app
from tests.support.planted_secrets import MARK, MARKS, Shown, listening

ALL = lv.Feature.R | lv.Feature.I | lv.Feature.CT
#: Options of stores in which tables of a lake may lie.
OPTIONS = {
    "AWS_ACCESS_KEY_ID": MARK,
    "AWS_SECRET_ACCESS_KEY": MARK,
    "AWS_SESSION_TOKEN": MARK,
    "AZURE_STORAGE_ACCOUNT_NAME": "account",
    "AZURE_STORAGE_ACCOUNT_KEY": MARKS[1],
    "GOOGLE_BEARER_TOKEN": MARK,
}
CATALOGS = {"prod": {"type": "rest", "uri": f"https://me:{MARK}@127.0.0.1:9", "token": MARK}}


def work(lake: lv.Lake, shown: Shown) -> None:
    """Do what stores each kind of object; add what is answered."""
    for name, kind in (("t", "delta"), ("i", "iceberg")):
        lake.create_table(name, [{"a": 1}], format=kind)
        lake.run(lambda txn, name=name: txn.append(name, [{"a": 2}]), idempotency_key=f"k{name}")
        lake.run(lambda txn, name=name: txn.update(name, {"a": "a + 1"}, where="a = 2"))
    lake.run(lambda txn: txn.append("t", [{"a": 3}]), features=ALL)
    with lake.transaction(features=ALL) as txn:
        txn.append("t", [{"a": 4}])
        txn.save()
        shown.add("transaction", repr(txn))
    lake.branch("b")
    lake.on("b").run(lambda txn: txn.append("t", [{"a": 5}]))
    lake.merge("b")
    lake.tag("v1")
    lake.clone("t", "copy")
    lake.table("t").optimize()
    with lake.session() as session:
        for sql in ("EXPLAIN SELECT * FROM t, i", "EXPLAIN DELETE FROM t WHERE a = 1"):
            shown.add(sql, repr(session.sql(sql)))
    for answer in (lake.doctor(), lake.metrics(), lake.history(), lake.tables(), lake.refs()):
        shown.add("answer", f"{answer!r} {answer}")
    shown.add("notebook", html.unescape(str(getattr(lake.table("t"), "_repr_html_", str)())))
    lake.maintain()
    lake.gc()
    with pytest.raises(lv.LakeVillaError) as refused:
        lake.read("prod.ns.t")
    shown.add_error(refused.value)


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "temporary"
    directory.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(directory))
    return directory


def test_no_object_file_message_or_answer_holds_a_secret(tmp_path: Path, temporary: Path) -> None:
    shown = Shown()
    settings = lv.Settings(retry_limit=1, retry_base_seconds=0.001)
    given: dict[str, Any] = {"storage_options": OPTIONS, "catalogs": CATALOGS}

    def heard(event: object) -> None:
        shown.add("event", repr(event))

    with (
        listening(shown),
        lv.connect(tmp_path / "lake", settings=settings, on_event=heard, **given) as lake,
    ):
        work(lake, shown)
        shown.add("lake", f"{lake!r} {lake} {vars(lake)}")
        files = [one for one in temporary.rglob("*") if one.is_file()]
    stored = [one for one in (tmp_path / "lake").rglob("*") if one.is_file()]
    for path in (*stored, *files):
        shown.add(f"file {path}", path.read_bytes().decode("latin-1"))
    assert len(stored) > 30
    assert any(where == "event" for where, _ in shown.texts)
    assert shown.leaks() == []


@pytest.mark.parametrize("more", [[], ["--json"]])
def test_the_command_line_prints_no_option(tmp_path: Path, more: list[str]) -> None:
    root = str(tmp_path / "lake")
    with lv.connect(root) as lake:
        lake.create_table("t", [{"a": 1}])
    options = [part for name, value in OPTIONS.items() for part in ("-o", f"{name}={value}")]
    for command in (["tables", root], ["doctor", root], ["history", root], ["read", root, "none"]):
        result = CliRunner().invoke(app, [*command, *options, *more])
        printed = f"{result.output} {result.stderr} {result.exception!r}"
        assert not any(mark in printed for mark in MARKS)
