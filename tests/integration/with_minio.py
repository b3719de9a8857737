"""Run a command with an S3 server on loopback: ``with_minio.py -- COMMAND ...``.

``LAKEVILLA_S3_ENDPOINT`` names a server that is already there. Without it MinIO
is built with Go (once, into ``.cache``), started on a free port with an empty
directory, and stopped when the command ends.
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CACHE = Path(__file__).parents[2] / ".cache"
BINARY = CACHE / "bin" / "minio"
SOURCE = "github.com/minio/minio@latest"
START_SECONDS = 60.0
USER, PASSWORD = "lakevilla", "lakevilla-on-loopback"


def main(arguments: list[str]) -> int:
    """Exit status of the command."""
    command = arguments[1:] if arguments[:1] == ["--"] else arguments
    if not command:
        print(__doc__, file=sys.stderr)
        return 2
    if os.environ.get("LAKEVILLA_S3_ENDPOINT"):
        return subprocess.run(command).returncode
    # Ended from outside, it still stops the server and removes its data.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    CACHE.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="minio-", dir=CACHE) as data:
        return run_with_server(program(), Path(data), command)


def run_with_server(binary: Path, data: Path, command: list[str]) -> int:
    """Start the server, run the command, stop the server."""
    with serving(binary, data) as endpoint:
        return subprocess.run(
            command,
            env={
                **os.environ,
                "LAKEVILLA_S3_ENDPOINT": endpoint,
                "LAKEVILLA_S3_ACCESS_KEY": USER,
                "LAKEVILLA_S3_SECRET_KEY": PASSWORD,
            },
        ).returncode


@contextmanager
def serving(binary: Path, data: Path) -> Iterator[str]:
    """The endpoint of a server that runs as long as the block does."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    endpoint = f"http://127.0.0.1:{port}"
    server = subprocess.Popen(
        [str(binary), "server", "--quiet", "--address", f"127.0.0.1:{port}", str(data)],
        env={
            **os.environ,
            "MINIO_ROOT_USER": USER,
            "MINIO_ROOT_PASSWORD": PASSWORD,
            "MINIO_BROWSER": "off",
            "MINIO_UPDATE": "off",
        },
    )
    try:
        wait_until_alive(endpoint, server)
        yield endpoint
    finally:
        server.terminate()
        server.wait(30)


def built() -> Path | None:
    """The server's program, if it is there."""
    installed = shutil.which("minio")
    if installed:
        return Path(installed)
    return BINARY if BINARY.exists() else None


def program() -> Path:
    """The server's program, built if need be."""
    binary = built()
    if binary is None:
        if shutil.which("go") is None:
            sys.exit("MinIO is built with Go: install it, or set LAKEVILLA_S3_ENDPOINT")
        print("building MinIO, some minutes the first time", flush=True)
        # The sources and objects take gigabytes, and are of no use afterwards.
        with tempfile.TemporaryDirectory(prefix="go-", dir=CACHE) as work:
            subprocess.run(
                ["go", "install", SOURCE],
                check=True,
                env={
                    **os.environ,
                    "GOPATH": f"{work}/path",
                    "GOCACHE": f"{work}/build",
                    "GOBIN": str(BINARY.parent),
                    # Else the module cache is read-only and cannot be removed.
                    "GOFLAGS": "-modcacherw",
                },
            )
        binary = BINARY
    return binary


def wait_until_alive(endpoint: str, server: subprocess.Popen[bytes]) -> None:
    """Until the server answers its health check."""
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        if server.poll() is not None:
            sys.exit(f"MinIO ended with status {server.returncode} before it was up")
        try:
            with urllib.request.urlopen(f"{endpoint}/minio/health/live", timeout=2):
                return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    sys.exit(f"MinIO did not answer within {START_SECONDS:.0f} s")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
