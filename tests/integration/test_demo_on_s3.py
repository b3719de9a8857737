"""The demo on a real S3 server."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fixtures.s3 import S3Server


@pytest.mark.integration
def test_the_demo_holds_on_s3(s3_server: S3Server, s3_root: str) -> None:
    options = [f"--option={key}={value}" for key, value in s3_server.storage_options.items()]
    demo = [str(Path(sys.executable).with_name("lakevilla")), "demo", "--store", s3_root]
    done = subprocess.run(
        [*demo, "--scale", "0.01", "--batches", "6", "--json", *options],
        capture_output=True,
        text=True,
        timeout=250,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    shown = json.loads(done.stdout)
    assert shown["ok"]
    assert shown["recovery"]["findings"]
    assert s3_server.secret_key not in done.stdout + done.stderr
    for root, told in ((s3_root, "already"), ("s3://no-such-bucket/demo", "NoSuchBucket")):
        refused = subprocess.run(
            [*demo[:-1], root, *options], capture_output=True, text=True, timeout=60
        )
        assert refused.returncode == 2
        assert told in refused.stderr
        assert "Traceback" not in refused.stderr
