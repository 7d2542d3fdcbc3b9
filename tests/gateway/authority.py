"""A certificate authority of the tests' own."""

from __future__ import annotations

import ipaddress
import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

PEM = serialization.Encoding.PEM


class Authority:
    """Issues certificates for names; its own is what clients trust."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "Tests")])
        self._certificate = (
            self._builder(self._name, self._key.public_key())
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .sign(self._key, hashes.SHA256())
        )

    def issue(self, folder: Path, *names: str, stem: str = "server") -> tuple[Path, Path]:
        """Write a chain and its key for the names (hosts or IP addresses); return their paths."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, names[0])])
        certificate = (
            self._builder(subject, key.public_key())
            .add_extension(x509.SubjectAlternativeName([_general_name(name) for name in names]), critical=False)
            .sign(self._key, hashes.SHA256())
        )
        chain, secret = folder / f"{stem}.pem", folder / f"{stem}.key"
        chain.write_bytes(certificate.public_bytes(PEM))
        plain = serialization.NoEncryption()
        secret.write_bytes(key.private_bytes(PEM, serialization.PrivateFormat.PKCS8, plain))
        return chain, secret

    def bundle(self, folder: Path) -> Path:
        """Write the authority's own certificate; return its path."""
        path = folder / "authority.pem"
        path.write_bytes(self._certificate.public_bytes(PEM))
        return path

    def client_context(self) -> ssl.SSLContext:
        """Return a context that trusts this authority and nobody else."""
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.load_verify_locations(cadata=self._certificate.public_bytes(PEM).decode())
        return context

    def _builder(self, subject: x509.Name, key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = datetime.now(UTC)
        return x509.CertificateBuilder(
            self._name, subject, key, x509.random_serial_number(), now - timedelta(hours=1), now + timedelta(hours=1)
        )


def _general_name(name: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(name))
    except ValueError:
        return x509.DNSName(name)
