"""File names made of names that people chose."""

import hashlib
from urllib.parse import quote

_DIGEST = 16


def file_name(name: str, longest: int = 200) -> str:
    """A file name for any name: two names never share one, however long they are."""
    quoted = quote(name, safe="")
    if quoted in (".", ".."):  # `quote` leaves dots alone
        quoted = quoted.replace(".", "%2E")
    if len(quoted) <= longest:
        return quoted
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST]
    return f"{quoted[: longest - _DIGEST - 1]}~{digest}"  # `quote` leaves ~ alone; only a cut name is this long
