"""An S3 server on loopback."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager


class ServerNotStarted(RuntimeError):
    """There is no server to run on, and what to do about it."""

    def __init__(self, why: str) -> None:
        super().__init__(
            f"the S3 server on loopback (ministack) did not start: {why}. Run `python -m "
            "ministack` to see what it says, or choose --profile local, or --store"
        )


@contextmanager
def ministack() -> Iterator[str]:
    """Run a server while the block lasts; its endpoint."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "ministack"],
        env={
            **{key: value for key, value in os.environ.items() if not key.startswith("AWS_")},
            "GATEWAY_PORT": str(port),
            "BIND_HOST": "127.0.0.1",
            "SERVICES": "s3",
            "SFTP_ENABLED": "0",
        },
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        # Ctrl-C is for the benchmark, which closes its lakes first and then ends the server.
        start_new_session=True,
    )
    endpoint = f"http://127.0.0.1:{port}"
    try:
        for _ in range(300):
            # Another server may have taken the port: never talk to that one.
            if server.poll() is not None:
                raise ServerNotStarted(f"it ended with status {server.returncode}")
            request = urllib.request.Request(f"{endpoint}/lake", method="PUT")
            try:
                urllib.request.urlopen(request, timeout=2).close()
                break
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        else:
            raise ServerNotStarted("it did not answer within 30 seconds")
        yield endpoint
    finally:
        server.terminate()
        server.wait(20)
