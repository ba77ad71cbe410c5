"""Parts of file names from names that users choose."""

import hashlib
from urllib.parse import quote

_DIGEST_DIGITS = 16


def file_part(name: str, most: int) -> str:
    """`name` as a part of a file's name: no slash, at most `most` characters (32 or more).

    One that has to be cut ends in a digest of the whole, so that two names never share a file.
    """
    quoted = quote(name, safe="")
    if len(quoted) <= most:
        return quoted
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_DIGITS]
    return f"{quoted[: most - _DIGEST_DIGITS - 1]}+{digest}"  # quoting leaves no plus
