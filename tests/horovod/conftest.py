from importlib.util import find_spec

import pytest


@pytest.fixture(autouse=True, scope="session")
def installed():
    """Fails, rather than skips, where these tests cannot run."""
    gone = [name for name in ("torch", "horovod") if find_spec(name) is None]
    if gone:
        pytest.fail(
            f"{' and '.join(gone)} not installed: `make horovod`, or leave these tests out (-m 'not horovod')"
        )
