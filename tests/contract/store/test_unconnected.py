"""Servers that a client refuses to speak to, or does not find: the error says why."""

from __future__ import annotations

import http.server
import ssl
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import lakevilla as lv

_PEM = serialization.Encoding.PEM


class Authority:
    """An authority that signs certificates; ``SSL_CERT_FILE`` may name its own."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        built = self._built("an authority", self._key, timedelta(-9), timedelta(9))
        is_authority = x509.BasicConstraints(ca=True, path_length=None)
        own = built.add_extension(is_authority, critical=True).sign(self._key, hashes.SHA256())
        self.file = directory / "authority.pem"
        self.file.write_bytes(own.public_bytes(_PEM))

    def certificate(self, host: str, begins: timedelta, ends: timedelta) -> Path:
        """Return a file with a certificate of a host, and its key."""
        key = ec.generate_private_key(ec.SECP256R1())
        name = x509.SubjectAlternativeName([x509.DNSName(host)])
        built = self._built(host, key, begins, ends).add_extension(name, critical=False)
        signed = built.sign(self._key, hashes.SHA256())
        secret = key.private_bytes(
            _PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        path = self.directory / f"{host}.pem"
        path.write_bytes(signed.public_bytes(_PEM) + secret)
        return path

    def _built(
        self, name: str, key: ec.EllipticCurvePrivateKey, begins: timedelta, ends: timedelta
    ) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return (
            x509.CertificateBuilder()
            .subject_name(_named(name))
            .issuer_name(_named("an authority"))
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + begins)
            .not_valid_after(now + ends)
        )


def _named(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


class _Nothing(http.server.BaseHTTPRequestHandler):
    """A store without any bucket."""

    def do_GET(self) -> None:
        body = b"<Error><Code>NoSuchBucket</Code></Error>"
        self.send_response(404)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body if self.command == "GET" else b"")

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        pass


@contextmanager
def serving(certificate: Path) -> Iterator[str]:
    """Run a server with this certificate while the block lasts, and yield its endpoint."""
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Nothing)
    server.daemon_threads = True
    server.handle_error = lambda *_: None  # type: ignore[method-assign]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"https://localhost:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def connected(endpoint: str) -> lv.Lake:
    keys = {"AWS_ACCESS_KEY_ID": "x", "AWS_SECRET_ACCESS_KEY": "x", "AWS_REGION": "x"}
    settings = lv.Settings(retry_limit=3, retry_base_seconds=0.01)
    options = {**keys, "AWS_ENDPOINT_URL": endpoint, "AWS_ALLOW_HTTP": "true"}
    return lv.connect("s3://bucket/lake", storage_options=options, settings=settings)


@pytest.mark.parametrize(
    ("host", "begins", "ends", "trusted", "words"),
    [
        ("localhost", -5, -1, True, "certificate has expired: renew it .* clock; tried 3 times"),
        ("localhost", 3, 5, True, "certificate is not valid yet: correct this machine's clock"),
        ("elsewhere", -5, 5, True, "certificate is one of another host"),
        ("localhost", -5, 5, False, "certificate is not trusted here: let SSL_CERT_FILE"),
        ("localhost", -5, 5, True, "there is no such bucket"),
    ],
)
def test_a_certificate_that_is_refused_is_named_with_its_fault(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    host: str,
    begins: int,
    ends: int,
    trusted: bool,
    words: str,
) -> None:
    authority = Authority(tmp_path)
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.file if trusted else _other(tmp_path)))
    certificate = authority.certificate(host, timedelta(begins), timedelta(ends))
    with serving(certificate) as endpoint, connected(endpoint) as lake:
        with pytest.raises(lv.StoreError, match=words):
            lake.exists()


def _other(directory: Path) -> Path:
    (directory / "other").mkdir()
    return Authority(directory / "other").file


def test_a_host_without_an_address_is_reported_within_the_limit_of_tries() -> None:
    began = time.monotonic()
    with connected("http://no-such-host.invalid:9000") as lake:
        with pytest.raises(lv.StoreError, match="host has no address: check this machine's DNS"):
            lake.exists()
    assert time.monotonic() - began < 60
