"""A testbed's own certificate authority, a certificate for each host, and tokens."""

import datetime
import hashlib
import ipaddress
import os
import secrets
from collections.abc import Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from cluster_exp.domain.errors import InputError
from cluster_exp.runtime.security.access import Role

_DAYS = 825
_BACKDATED = datetime.timedelta(hours=1)  # for clocks that go behind
_TOKEN_BYTES = 32


def write_certificates(out: Path, hosts: Sequence[str], now: datetime.datetime) -> None:
    """Writes `HOST/{ca,cert,key}.pem` for each host, `ca/` and `tokens/{master,worker,submit,observe,admin}`.

    The worker's token file holds only the digest of the token that the master presents: a worker cannot order others.

    Raises:
        InputError: `out` exists, or a host is no name or IP address.
    """
    for host in hosts:
        _alternative(host)
    if len(set(hosts)) < len(hosts):
        raise InputError(f"{','.join(hosts)!r} names a host twice", where="--hosts")
    try:
        out.mkdir(mode=0o700, parents=True)
    except FileExistsError:
        raise InputError(f"{str(out)!r} exists; allowed: a new directory", where="--out") from None
    ca_key = ec.generate_private_key(ec.SECP256R1())
    ca = _certificate("cluster-exp testbed CA", ca_key, None, ca_key, now)
    _write(out / "ca" / "ca.pem", ca.public_bytes(serialization.Encoding.PEM))
    _write(out / "ca" / "ca-key.pem", _pem(ca_key))
    for host in hosts:
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = _certificate(host, key, ca, ca_key, now)
        _write(out / host / "ca.pem", ca.public_bytes(serialization.Encoding.PEM))
        _write(out / host / "cert.pem", certificate.public_bytes(serialization.Encoding.PEM))
        _write(out / host / "key.pem", _pem(key))
    _write_tokens(out / "tokens")


def _write_tokens(folder: Path) -> None:
    tokens = {role: secrets.token_urlsafe(_TOKEN_BYTES) for role in Role}
    digests = {role: f"sha256:{hashlib.sha256(token.encode()).hexdigest()}" for role, token in tokens.items()}
    both = {role: (f"{role.value} {tokens[role]}\n", f"{role.value} {digests[role]}\n") for role in Role}
    master = {Role.ADMIN}  # it presents this one to workers
    _write(folder / "master", "".join(both[role][role not in master] for role in Role).encode())
    worker = both[Role.WORKER][0] + both[Role.ADMIN][1] + both[Role.OBSERVE][1]
    _write(folder / "worker", worker.encode())
    for role in (Role.SUBMIT, Role.OBSERVE, Role.ADMIN):
        _write(folder / role.value, both[role][0].encode())


def _certificate(
    name: str,
    key: ec.EllipticCurvePrivateKey,
    issuer: x509.Certificate | None,
    issuer_key: ec.EllipticCurvePrivateKey,
    now: datetime.datetime,
) -> x509.Certificate:
    """A host's certificate, or without `issuer` the authority's own."""
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer.subject if issuer else subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _BACKDATED)
        .not_valid_after(now + datetime.timedelta(days=_DAYS))
        .add_extension(x509.BasicConstraints(ca=issuer is None, path_length=None if issuer else 0), critical=True)
    )
    if issuer is not None:
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.SubjectAlternativeName([_alternative(name)]), critical=False)
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
    return builder.sign(issuer_key, hashes.SHA256())


def _alternative(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        pass
    labels = host.split(".")
    fits = all(part and part.isascii() and part.replace("-", "").isalnum() and len(part) < 64 for part in labels)
    if not fits or len(host) > 253 or host in ("ca", "tokens"):
        raise InputError(f"{host!r:.80} given; allowed: names of hosts or IP addresses", where="--hosts")
    return x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )


def _write(path: Path, content: bytes) -> None:
    """Writes a new file that only its owner can read."""
    path.parent.mkdir(mode=0o700, exist_ok=True)
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
        file.write(content)
