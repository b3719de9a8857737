"""Every kind of session does the same: Connect without py4j, a cluster without a shared disk."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

import lakevilla as lv
from tests.fixtures.s3 import S3Server

pytestmark = [
    pytest.mark.xdist_group("spark"),  # one session at a time
]

EXPECTED = {"updated": 25, "deleted": 4, "upserted": 14, "paid": 23}
STOCK = [["0", "75"], ["1", "75"], ["2", "76"], ["3", "76"], ["4", "0"], ["5", "0"]]
LOG = [["0", "batch"], ["1", "batch"], ["108", "more"], ["109", "more"], ["2", "batch"]]


def check(told: dict[str, Any]) -> None:
    assert {name: told[name] for name in EXPECTED} == EXPECTED
    assert told["versions"] == {"orders": 1, "stock": 1, "log": 1}
    assert told["reads"]["stock"] == STOCK
    assert told["reads"]["log"] == LOG
    assert told["reads"]["own"] == 2
    copied = {"copied": 5, "source": 5, "before": 0}
    assert told["streamed"] == copied | {"by_source": 6, "by_stream": 6}
    orders = {int(row[0]): row[2] for row in told["reads"]["orders"]}
    assert orders == {
        key: "more" if key >= 90 else "paid" if key % 4 == 1 else "new" for key in range(110)
    }
    assert told["embedded"] == {"orders": 110, "stock": 6, "log": 5}


def spark_home(directory: Path) -> Path:
    """Spark as it is installed, with a place of its own for what its workers leave."""
    import pyspark

    directory.mkdir()
    for entry in Path(pyspark.__file__).parent.iterdir():
        (directory / entry.name).symlink_to(entry)
    return directory


def test_spark_connect_and_no_command_to_a_jvm(driven: Any, tmp_path: Path) -> None:
    told, _ = driven("pipeline.py", "connect", str(tmp_path / "lake"), str(tmp_path / "checkpoint"))
    assert told["session"] == "pyspark.sql.connect.session"
    assert told["interrupted"] == "yes"
    check(told)


def test_a_new_checkpoint_is_known_on_spark_connect(driven: Any, tmp_path: Path) -> None:
    found, _ = driven("new_checkpoint.py", str(tmp_path / "lake"), str(tmp_path / "checkpoint"))
    assert found["outcomes"].pop("copy") == ["done", "done", "refused", "refused"]
    assert list(found["outcomes"].values()) in ([], [["done", "refused"]])
    assert found["rows"] == 5
    keys = [json.loads(x.read_bytes()) for x in tmp_path.glob("lake/_lakevilla/keys/*.json")]
    # So a gap would be seen: Spark has called the functions itself.
    assert {record["due"] - record["version"] for record in keys} <= {0, 1}


def test_a_cluster_on_s3_whose_tasks_fail_once_and_no_secret_in_its_logs(
    driven: Any, s3_server: S3Server, s3_root: str, tmp_path: Path
) -> None:
    secret = "K7-secret-of-the-lake"
    options = {**s3_server.storage_options, "AWS_SECRET_ACCESS_KEY": secret}
    if "LAKEVILLA_S3_ENDPOINT" in os.environ:  # a server that looks at signatures
        options, secret = s3_server.storage_options, s3_server.secret_key
    told, output = driven(
        "pipeline.py",
        "cluster",
        s3_root,
        str(tmp_path / "checkpoint"),
        LAKE_OPTIONS=json.dumps(options),
        SPARK_HOME=str(spark_home(tmp_path / "spark")),
    )
    check(told)
    # The first attempts had failed, after files of theirs were stored.
    assert told["retried"] == 12
    assert secret not in output
    logs = [path for path in (tmp_path / "spark" / "work").rglob("*") if path.is_file()]
    assert any("stderr" in path.name for path in logs)
    assert all(secret.encode() not in path.read_bytes() for path in logs)
    # What those attempts had written goes with gc, and nothing else does.
    settings = lv.Settings(max_age_seconds=0)
    with lv.connect(s3_root, storage_options=options, settings=settings) as cleaner:
        gone = [finding.key or "" for finding in cleaner.gc().findings]
        assert any(key.startswith("retried/") for key in gone)
        assert cleaner.snapshot().read("retried").num_rows == 120
        assert cleaner.doctor().ok


def test_sessions_that_can_not_serve_a_lake_say_why(driven: Any, tmp_path: Path) -> None:
    told, _ = driven("bad_sessions.py", str(tmp_path), timeout=200)
    assert "the Python of Spark's workers" in told["lacks_write"]
    assert "can't import it" in told["lacks_write"]
    assert "PYSPARK_PYTHON" in told["lacks_write"]
    assert "append t" in told["lacks_write"]
    assert "can't import it" in told["lacks_read"]
    assert "Traceback" not in told["lacks_write"]
    for how in ("stopped_read", "stopped_write", "stopped_connect"):
        assert "Spark session was stopped" in told[how]
