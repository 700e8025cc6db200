"""Certificates that tests make: an authority, what it issues, and the files of both."""

import datetime as dt
import ipaddress

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

DAY = dt.timedelta(days=1)


class Pair:
    """A certificate and its key, both as PEM."""

    def __init__(self, certificate, key):
        self.certificate = certificate.public_bytes(serialization.Encoding.PEM)
        self.key = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )

    def write(self, folder, stem="tls"):
        """Write both into a folder. Returns the paths of certificate and key."""
        paths = folder / f"{stem}.crt", folder / f"{stem}.key"
        paths[0].write_bytes(self.certificate)
        paths[1].write_bytes(self.key)
        paths[1].chmod(0o600)
        return paths


class Authority(Pair):
    """Issues certificates that last from yesterday for `days` days."""

    def __init__(self, name="test authority"):
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _named(name)
        super().__init__(self._sign(self._name, self._key, 30, is_authority=True), self._key)

    def locked_key(self):
        """Its key behind a passphrase."""
        lock = serialization.BestAvailableEncryption(b"passphrase")
        return self._key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, lock)

    def issue(self, name="localhost", *, hosts=("localhost", "127.0.0.1"), days=30, key=None):
        """Issue a certificate for a common name and its hosts: names and addresses."""
        key = key or ec.generate_private_key(ec.SECP256R1())
        return Pair(self._sign(_named(name), key, days, hosts), key)

    def _sign(self, subject, key, days, hosts=(), *, is_authority=False):
        now = dt.datetime.now(dt.UTC)
        end = now + days * DAY
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(min(now, end) - DAY)
            .not_valid_after(end)
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        )
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False
            )
        return builder.sign(self._key, hashes.SHA256())


def _named(name):
    return x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])


def _host(host):
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
