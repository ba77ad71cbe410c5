"""From a backend's name to a communicator; a package is imported only when its backend is named."""

import os

from cluster_exp.domain.errors import InputError
from cluster_exp.runtime.trainer.comm.base import (
    DEFAULT_TIMEOUT_S,
    Alone,
    BackendMissingError,
    Communicator,
    check_backend,
)

_WHERE = "CLUSTER_EXP_COMM"
_INSTALL = {"horovod": "`make horovod` builds and installs it", "torch": "`pip install torch` installs it"}


def connect(backend: str | None = None) -> Communicator:
    """Meets the job's other ranks, waiting for them up to the time limit.

    Args:
        backend: one of `BACKENDS`; None = as CLUSTER_EXP_COMM says, `none` where that is not set.

    Raises:
        InputError: no such backend; the environment does not say which rank this is; `none` for a job of several.
        BackendMissingError: its package is not installed, or does not fit the torch that is.
        CommunicationError: another rank did not come.
    """
    where = "connect()" if backend else _WHERE
    name = check_backend(backend or os.environ.get(_WHERE) or "none", where)
    if name == "none":
        world = os.environ.get("CLUSTER_EXP_WORLD", "1")
        if world != "1":
            raise InputError(f"backend 'none' for a job of {world} ranks; allowed: horovod, torch", where=where)
        return Alone()
    timeout_s = _timeout_s()
    try:
        if name == "horovod":
            from cluster_exp.runtime.trainer.comm.horovod_backend import HorovodCommunicator

            return HorovodCommunicator(timeout_s)
        from cluster_exp.runtime.trainer.comm.torch_backend import TorchCommunicator

        return TorchCommunicator(timeout_s)
    except ImportError as error:
        raise missing(name, error) from error


def missing(backend: str, error: ImportError) -> BackendMissingError:
    """What to say when a backend's package cannot be imported."""
    package = (error.name or "").partition(".")[0] if isinstance(error, ModuleNotFoundError) else ""
    if package in _INSTALL:
        why = f"needs {package}, which is not installed: {_INSTALL[package]}"
    else:
        first_line = (str(error).splitlines() or [type(error).__name__])[0]
        why = f"cannot be imported ({first_line}): {_INSTALL[backend]} anew"
    return BackendMissingError(f"backend {backend!r} {why}")


def _timeout_s() -> float:
    name = "CLUSTER_EXP_COMM_TIMEOUT_S"
    given = os.environ.get(name, str(DEFAULT_TIMEOUT_S))
    try:
        timeout_s = float(given)
    except ValueError:
        timeout_s = 0.0
    if not 0 < timeout_s < float("inf"):
        raise InputError(f"{given!r} is no time limit; allowed: a number of seconds above 0", where=name)
    return timeout_s
