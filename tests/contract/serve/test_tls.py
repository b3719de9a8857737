"""The gateway serves https by the files of a certificate and its key."""

from __future__ import annotations

import datetime
import ipaddress
from pathlib import Path

import pytest
import requests
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

import lakevilla as lv
from lakevilla.serve.server import server_of
from tests.contract.serve.gateway import serving


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Return a certificate of this machine's address, signed by its own key, and the key."""
    key, name = ec.generate_private_key(ec.SECP256R1()), "127.0.0.1"
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - datetime.timedelta(days=1))
        .not_valid_after(now + datetime.timedelta(days=1))
        .add_extension(
            x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(name))]), False
        )
        .sign(key, hashes.SHA256())
    )
    encoding, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    certificate, private = tmp_path / "cert.pem", tmp_path / "key.pem"
    certificate.write_bytes(made.public_bytes(encoding))
    private.write_bytes(key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, plain))
    return certificate, private


def test_a_client_that_trusts_the_certificate_is_answered(
    lake: lv.Lake, files: tuple[Path, Path]
) -> None:
    with serving(lake, tls=files) as gateway:
        assert gateway.uri.startswith("https://127.0.0.1:")
        url = f"{gateway.uri}/v1/namespaces/root/tables/stock"
        assert requests.get(url, verify=str(files[0]), timeout=30).ok
        with pytest.raises(requests.exceptions.SSLError):
            requests.get(url, timeout=30)
        with pytest.raises(requests.exceptions.ConnectionError):
            requests.get(url.replace("https", "http"), timeout=30)


def test_wrong_files_are_refused_before_it_serves(
    lake: lv.Lake, files: tuple[Path, Path], tmp_path: Path
) -> None:
    certificate, key = files
    (tmp_path / "other").write_text("no key")
    for wrong in ((certificate, tmp_path / "other"), (tmp_path / "nix", key), (key, certificate)):
        with pytest.raises(lv.InvalidOperation, match="TLS by"):
            server_of(lake, port=0, tls=wrong)
