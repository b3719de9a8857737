"""Run README and examples/ as they are written."""

from __future__ import annotations

import code
import os
import re
import secrets
import subprocess
import sys
import traceback
from pathlib import Path

import boto3
import pyarrow as pa
import pytest
from deltalake import write_deltalake

import lakevilla as lv
from tests.fixtures.s3 import S3Server

ROOT = Path(__file__).parents[2]

EXPECTED = {
    "order_and_stock.py": (
        "not enough jam\n"
        "[{'sku': 'jam', 'quantity': 1}, {'sku': 'tea', 'quantity': 3}]\n"
        "[{'orders': 2}]\n"
    ),
    "bank_transfer.py": "[{'total': 2000}]\n",
    "cross_format.py": (
        "the shop has no 9 of jam\n"
        "[{'goods': 20}]\n"
        "deltalake [('jam', 5), ('tea', 3)]\n"
        "pyiceberg [('jam', 5), ('tea', 7)]\n"
    ),
    "write_audit_publish.py": (
        "[{'sku': 'jam', 'quantity': 2}, {'sku': 'rum', 'quantity': 1}, "
        "{'sku': 'tea', 'quantity': 5}]\n"
        "2 checks failed\n"
        "[{'articles': 3}]\n"
        "[{'sku': 'oil'}]\n"
    ),
    "beside_deltalake.py": (
        "[{'id': 1, 'kind': 'made by deltalake'}, {'id': 2, 'kind': 'deltalake again'},"
        " {'id': 3, 'kind': 'LakeVilla'}]\n"
        "['events', 'totals']\n"
        "deltalake sees 3 events\n"
    ),
}

ON_S3 = ["bucket_by_boto3.py", "bucket_by_minio.py"]


def test_every_example_is_tested() -> None:
    on_spark = {"pyspark_pipeline.py"}  # tests/interop/spark/test_pipeline_example.py
    examples = {path.name for path in (ROOT / "examples").glob("*.py")}
    assert examples == set(EXPECTED) | set(ON_S3) | on_spark


def run(name: str, *arguments: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(ROOT / "examples" / name), *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        cwd=ROOT,
        env=os.environ | environment,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", EXPECTED)
def test_an_example_prints_the_output_that_it_documents(name: str) -> None:
    assert run(name) == EXPECTED[name]


@pytest.mark.night
@pytest.mark.parametrize("name", ON_S3)
def test_an_example_makes_the_bucket_that_it_documents_and_other_clients_find_it(
    name: str, s3_server: S3Server
) -> None:
    bucket = f"made-{secrets.token_hex(4)}"
    reached = s3_server.storage_options
    del reached["AWS_ALLOW_HTTP"]  # left to the example
    for count in (1, 2):  # existing objects stay
        assert run(name, bucket, **reached) == f"[{{'deliveries': {count}}}]\n"
    client = boto3.client(
        "s3",
        endpoint_url=s3_server.endpoint,
        region_name="us-east-1",
        aws_access_key_id=s3_server.access_key,
        aws_secret_access_key=s3_server.secret_key,
    )
    assert client.get_bucket_versioning(Bucket=bucket)["Status"] == "Enabled"
    (rule,) = client.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]
    assert rule["NoncurrentVersionExpiration"] == {"NoncurrentDays": 30}
    assert "Expiration" not in rule
    keys = [each["Key"] for each in client.list_objects_v2(Bucket=bucket)["Contents"]]
    assert "lake/_lakevilla/HEAD.json" in keys
    client.close()


def block_of_the_readme() -> str:
    (block,) = re.findall(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    return block


def paste(block: str) -> None:
    """Paste a block into a user's interpreter, line by line."""
    told: list[str] = []
    session = code.InteractiveConsole()
    session.showtraceback = lambda: told.append(traceback.format_exc())  # type: ignore[method-assign]
    session.showsyntaxerror = lambda *_, **__: told.append(traceback.format_exc())  # type: ignore[method-assign]
    for line in [*block.splitlines(), ""]:
        session.push(line)
        assert not told, f"{block}\n{told[0]}"


def checked(root: Path) -> None:
    with lv.connect(str(root)) as lake, lake.snapshot() as state:
        assert state.read("stock").to_pylist() == [{"sku": "tea", "qty": 3}]
        assert state.read("orders").to_pylist() == [{"sku": "tea", "qty": 2}]


def test_the_readme_runs_as_pasted_in_an_empty_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    paste(block_of_the_readme())
    checked(tmp_path / "warehouse")


def test_the_readme_runs_on_existing_tables_of_other_clients(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The tables join the lake at their first commit."""
    monkeypatch.chdir(tmp_path)
    stock = pa.Table.from_pylist([{"sku": "tea", "qty": 5}])
    write_deltalake(str(tmp_path / "warehouse" / "stock"), stock)
    write_deltalake(str(tmp_path / "warehouse" / "orders"), stock.slice(0, 0))
    lines = block_of_the_readme().splitlines(keepends=True)
    kept = [line for line in lines if "create_table" not in line]
    assert len(lines) - len(kept) == 2
    paste("".join(kept))
    checked(tmp_path / "warehouse")
