"""The policies of the guide to S3, on a server that enforces them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError

import lakevilla as lv
from tests.fixtures.s3 import S3Server

pytestmark = pytest.mark.integration
GUIDE = Path(__file__).parents[2] / "docs" / "guides" / "s3.md"
QUICK = lv.Settings(retry_limit=2, retry_base_seconds=0.001)
ALL = lv.Feature.R | lv.Feature.I | lv.Feature.CT
ROW = [{"a": 2}]
Verb = Callable[[lv.Lake], Any]

READS: dict[str, Verb] = {
    "read": lambda lake: lake.read("t"),
    "sql": lambda lake: lake.sql("SELECT sum(t.a + i.a) FROM t, i"),
    "past": lambda lake: lake.table("t").read(version=0),
    "branch": lambda lake: lake.on("kept").read("i"),
    "tag": lambda lake: lake.on("v1").read("t"),
    "tables": lambda lake: lake.tables(),
    "history": lambda lake: lake.history(),
    "metrics": lambda lake: lake.metrics(),
    "doctor": lambda lake: lake.doctor(),
    "verify": lambda lake: lake.verify(),
}
WRITES: dict[str, Verb] = {
    "append": lambda lake: lake.run(lambda txn: (txn.append("t", ROW), txn.append("i", ROW))),
    "log entry": lambda lake: lake.run(lambda txn: txn.append("t", ROW), features=lv.Feature.R),
    "queue": lambda lake: lake.run(
        lambda txn: txn.update("t", {"a": "a + 1"}, where="true"), features=ALL
    ),
    "key": lambda lake: lake.run(lambda txn: txn.append("t", ROW), idempotency_key="k"),
    "delete": lambda lake: lake.run(lambda txn: txn.delete("i", where="a = 2")),
    "optimize": lambda lake: lake.table("t").optimize(),
    "create": lambda lake: lake.create_table("made", ROW),
    "drop": lambda lake: lake.drop_table("made"),
    "new branch": lambda lake: lake.branch("b"),
    "commit on a branch": lambda lake: lake.on("b").run(lambda txn: txn.append("t", ROW)),
    "merge": lambda lake: lake.merge("b"),
    "new tag": lambda lake: lake.tag("v2"),
    "save": lambda lake: saved(lake),
    "abort": lambda lake: aborted(lake),
    "recover": lambda lake: lake.recover(),
}
CLEANS: dict[str, Verb] = {
    "vacuum": lambda lake: lake.table("t").vacuum(0, False, enforce_retention_duration=False),
    "gc": lambda lake: lake.gc(),
    "maintain": lambda lake: lake.maintain(),
    "drop with data": lambda lake: dropped(lake),
}


def dropped(lake: lv.Lake) -> None:
    for ref in lake.refs():  # they keep its data
        if ref.name in ("b", "v2"):
            lake.delete_ref(ref.name)
    lake.drop_table("unneeded", delete_data=True)


def saved(lake: lv.Lake) -> None:
    txn = lake.transaction(features=ALL)
    txn.append("t", ROW)
    txn.save()
    txn.commit()


def aborted(lake: lv.Lake) -> None:
    txn = lake.transaction(features=ALL)
    txn.update("t", {"a": "a + 1"}, where="true")
    txn.abort()


class Roles:
    """A lake, and its clients with the rights of the guide's policies."""

    def __init__(self, server: S3Server) -> None:
        self._server = server
        self.root = server.new_root()
        self._policies = dict(
            re.findall(r"\*\*A (\w+)\*\* .*?```json\n(.*?)```", GUIDE.read_text(), re.DOTALL)
        )
        self.options: dict[str, dict[str, str]] = {}

    def connect(self, role: str) -> lv.Lake:
        if role not in self.options:
            self.options[role] = self._options(role)
        return lv.connect(self.root, storage_options=self.options[role], settings=QUICK)

    def _options(self, role: str) -> dict[str, str]:
        """Return options with credentials that a session policy limits."""
        bucket, _, lake = self.root.removeprefix("s3://").partition("/")
        policy = self._policies[role].replace("warehouse/lake", f"{bucket}/{lake}")
        policy = policy.replace("warehouse", bucket)
        policy = policy.replace('"lake"', f'"{lake}"').replace('"lake/', f'"{lake}/')
        asked = boto3.client(
            "sts",
            endpoint_url=self._server.endpoint,
            region_name="us-east-1",
            aws_access_key_id=self._server.access_key,
            aws_secret_access_key=self._server.secret_key,
        )
        given = asked.assume_role(
            RoleArn="arn:aws:iam::000000000000:role/lake",
            RoleSessionName="lake",
            Policy=json.dumps(json.loads(policy)),
        )["Credentials"]
        return self._server.storage_options | {
            "AWS_ACCESS_KEY_ID": given["AccessKeyId"],
            "AWS_SECRET_ACCESS_KEY": given["SecretAccessKey"],
            "AWS_SESSION_TOKEN": given["SessionToken"],
        }


@pytest.fixture
def roles(s3_server: S3Server) -> Roles:
    found = Roles(s3_server)
    options = s3_server.storage_options
    with lv.connect(found.root, storage_options=options, settings=QUICK) as lake:
        lake.create_table("t", [{"a": 1}])
        lake.create_table("i", [{"a": 1}], format="iceberg")
        lake.branch("kept")
        lake.tag("v1")
        lake.create_table("unneeded", [{"a": 1}])
    try:
        with found.connect("reader") as lake, pytest.raises(lv.StoreError, match="403"):
            lake.create_table("refused", [{"a": 1}])
    except (ClientError, pytest.fail.Exception):
        pytest.skip("this server has no session policies, or enforces none")
    return found


def refusals(lake: lv.Lake, verbs: dict[str, Verb]) -> dict[str, str]:
    """Return the verbs that are refused, each with its error."""
    found = {}
    for name, verb in verbs.items():
        try:
            verb(lake)
        except lv.StoreError as error:
            # A refusal is told at once, and not after many attempts.
            found[name] = error.message if error.permanent else f"tried again: {error.message}"
    return found


def test_a_reader_reads_all_and_changes_nothing(roles: Roles) -> None:
    with roles.connect("reader") as lake:
        assert refusals(lake, READS) == {}
        writes = {
            name: verb for name, verb in WRITES.items() if name in ("append", "create", "new tag")
        }
        refused = refusals(lake, {**writes, **CLEANS})
    assert refused.keys() == {*writes, *CLEANS}
    assert {name for name, why in refused.items() if "s3:PutObject there" not in why} == set()


def test_a_reader_sees_nothing_beyond_the_lake(roles: Roles) -> None:
    with roles.connect("reader") as lake:
        for place in (f"{roles.root}-other/t", "s3://another-bucket/t"):
            with pytest.raises(lv.StoreError, match=r"they may do s3:\w+ there"):
                lake.read(place)


def test_a_writer_commits_and_deletes_no_data(roles: Roles) -> None:
    with roles.connect("writer") as lake:
        assert refusals(lake, READS) == {}
        assert refusals(lake, WRITES) == {}
        refused = refusals(lake, CLEANS)
    assert refused.keys() >= {"vacuum", "drop with data"}
    assert {name for name, why in refused.items() if "s3:DeleteObject there" not in why} == set()


def test_a_maintainer_cleans_up(roles: Roles) -> None:
    with roles.connect("maintainer") as lake:
        assert refusals(lake, {**WRITES, **CLEANS, **READS}) == {}
