"""What protects a run that others than this machine can reach: TLS on both sides, and tokens with roles."""

import enum
import hashlib
import hmac
import ipaddress
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from cluster_exp.domain.errors import InputError

TLS_FILES = ("ca.pem", "cert.pem", "key.pem")
MAX_FILE_BYTES = 65_536
LEAST_TOKEN = 32  # characters
_DIGEST = "sha256:"


class Role(enum.Enum):
    """What the holder of a token may ask for (`roles.ALLOWED`)."""

    SUBMIT = "submit"
    OBSERVE = "observe"
    ADMIN = "admin"
    WORKER = "worker"


@dataclass(frozen=True, slots=True)
class Access:
    """One side's keys and tokens. Its secrets are in no repr."""

    tls_dir: Path
    token_file: Path
    ca: bytes = field(repr=False)
    cert: bytes = field(repr=False)
    key: bytes = field(repr=False)
    secrets: Mapping[Role, str] = field(repr=False)  # tokens that this side may present
    digests: Mapping[bytes, Role] = field(repr=False)  # SHA-256 of the tokens that this side takes

    def token(self, role: Role) -> str:
        """The token to present as `role`. Raises InputError when the token file has none."""
        if role not in self.secrets:
            raise InputError(f"has no token of the role {role.value}", where=str(self.token_file))
        return self.secrets[role]

    def role_of(self, token: str) -> Role | None:
        """The role of a token that was presented, or None."""
        given = hashlib.sha256(token.encode(errors="replace")).digest()
        found = None
        for digest, role in self.digests.items():  # all of them: the time taken tells nothing
            if hmac.compare_digest(given, digest):
                found = role
        return found


def load_access(tls_dir: Path | None, token_file: Path | None) -> Access | None:
    """Reads keys and tokens; None when neither is named.

    Raises:
        InputError: only one of them is named, a file is missing, unusable, or its secrets can be read by others.
    """
    if tls_dir is None and token_file is None:
        return None
    if tls_dir is None or token_file is None:
        missing = "--tls" if tls_dir is None else "--token-file"
        raise InputError("is missing; TLS and a token file go together", where=missing)
    ca, cert, key = (_read(tls_dir / name, private=name == "key.pem") for name in TLS_FILES)
    secrets, digests = _parse(token_file)
    return Access(tls_dir, token_file, ca, cert, key, secrets, digests)


def is_loopback(address: str) -> bool:
    """Whether only this machine can reach `host:port`. A name other than localhost counts as outside."""
    host = address.rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def check_address(option: str, address: str, access: Access | None) -> None:
    """Raises InputError for an address beyond this machine without TLS and tokens, and for a wildcard."""
    if is_loopback(address):
        return
    if access is None:
        raise InputError(
            f"{address!r} can be reached from outside; without --tls and --token-file only loopback"
            " (127.0.0.1:PORT) is allowed",
            where=option,
        )
    host = address.rpartition(":")[0].strip("[]")
    if host in ("", "0.0.0.0", "::"):
        raise InputError(f"{address!r} given; allowed: an address that the certificate names", where=option)


def _read(path: Path, *, private: bool) -> bytes:
    try:
        with path.open("rb") as file:
            found = os.fstat(file.fileno()).st_mode
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InputError(f"cannot be read: {error.strerror}", where=str(path)) from None
    if private and found & (stat.S_IRWXG | stat.S_IRWXO):
        raise InputError(f"has mode {stat.S_IMODE(found):04o}; allowed: 0600, it holds secrets", where=str(path))
    if not content or len(content) > MAX_FILE_BYTES:
        raise InputError(f"is empty or longer than {MAX_FILE_BYTES} bytes", where=str(path))
    return content


def _parse(path: Path) -> tuple[dict[Role, str], dict[bytes, Role]]:
    """Tokens by role, and roles by digest. No message repeats a line: it may be a secret."""
    secrets: dict[Role, str] = {}
    digests: dict[bytes, Role] = {}
    for number, line in enumerate(_read(path, private=True).decode(errors="replace").splitlines(), 1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        where = f"{path}:{number}"
        if len(words) != 2 or words[0] not in {role.value for role in Role}:
            raise InputError("allowed: a role (submit, observe, admin, worker), a space, a token", where=where)
        role, token = Role(words[0]), words[1]
        if token.startswith(_DIGEST):
            try:
                digest = bytes.fromhex(token.removeprefix(_DIGEST))
            except ValueError:
                digest = b""
            if len(digest) != hashlib.sha256().digest_size:
                raise InputError(f"allowed after {_DIGEST}: 64 hexadecimal digits", where=where)
        else:
            if len(token) < LEAST_TOKEN or not token.isascii():
                raise InputError(f"the token is too short; allowed: {LEAST_TOKEN} ASCII characters", where=where)
            secrets[role] = token
            digest = hashlib.sha256(token.encode()).digest()
        if digests.setdefault(digest, role) is not role:
            raise InputError("the token has another role already", where=where)
    if not digests:
        raise InputError("holds no token", where=str(path))
    return secrets, digests
