"""Certificates for tests: an authority, and what it issues for 127.0.0.1."""

from __future__ import annotations

import datetime
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """An authority whose certificate is the file ``path``, in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("authority")
        self.path = folder / "authority.pem"
        made = _builder(self._name, self._name, self._key.public_key())
        signed = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self.path.write_bytes(_pem(signed.sign(self._key, hashes.SHA256())))

    def issue(self, name: str) -> tuple[Path, Path]:
        """The file of a new certificate with its key, and one of the key alone."""
        key = ec.generate_private_key(ec.SECP256R1())
        place = x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))])
        made = _builder(_name(name), self._name, key.public_key()).add_extension(place, critical=False)
        certificate, secret = self._folder / f"{name}.pem", self._folder / f"{name}.key"
        form = serialization.PrivateFormat.PKCS8
        secret.write_bytes(key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption()))
        certificate.write_bytes(_pem(made.sign(self._key, hashes.SHA256())) + secret.read_bytes())
        return certificate, secret


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.datetime.now(datetime.UTC)
    day = datetime.timedelta(days=1)
    made = x509.CertificateBuilder(issuer, subject, key, x509.random_serial_number())
    return made.not_valid_before(now - day).not_valid_after(now + day)


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
