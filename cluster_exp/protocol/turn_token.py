"""Who may take turns on another node's turn server: a token for each launch. No I/O.

A worker draws a key when it starts and tells it to the master alone. The master derives the token of a launch from
the key of the worker that arbitrates, and sends it to the launch's workers with the order to start.
"""

import hashlib
import hmac

DIGITS = 64  # hexadecimal, of a key and of a token: 256 bits


def turn_token(key: str, job_id: str, generation: int) -> str:
    """The token of one launch (HMAC-SHA-256). Raises ValueError for a key that is not hexadecimal."""
    return hmac.new(bytes.fromhex(key), f"{generation}:{job_id}".encode(), hashlib.sha256).hexdigest()


def opens(key: str, job_id: str, generation: int, token: str) -> bool:
    """Whether this is the launch's token; the time taken tells nothing."""
    return hmac.compare_digest(turn_token(key, job_id, generation).encode(), token.encode())
