"""The backend `horovod`: Gloo between CPUs, NCCL between GPUs where Horovod was built with it."""

import http.client
import os
import time
from urllib.error import HTTPError
from urllib.request import ProxyHandler, Request, build_opener

import horovod.torch as hvd
import torch

from cluster_exp.runtime.trainer.comm.base import CommunicationError
from cluster_exp.runtime.trainer.comm.fused import FusedCommunicator, first_words

_direct = build_opener(ProxyHandler({}))  # whatever proxies the environment names
_SUMMED = frozenset({torch.float16, torch.float32, torch.float64})
_SCOPE = "present"  # keys of the rendezvous: one for each rank that came
_FIRST_PAUSE_S = 50e-6
_LONGEST_PAUSE_S = 1e-3  # as long as Horovod's own cycle
_LOOK_AGAIN_S = 0.02


class HorovodCommunicator(FusedCommunicator):
    """A rank as Horovod's environment variables (HOROVOD_RANK and others) say."""

    backend = "horovod"

    def __init__(self, timeout_s: float) -> None:
        """Meets the other ranks, waiting `timeout_s` seconds at most, here and in every later call.

        Raises:
            CommunicationError: another rank did not come.
        """
        self._timeout_s = timeout_s
        try:
            _await_all_ranks(timeout_s)
            hvd.init()
        except (RuntimeError, ValueError, OSError, http.client.HTTPException) as error:
            raise CommunicationError(f"the ranks did not meet over horovod: {first_words(error)}") from error
        super().__init__(hvd.rank(), hvd.size(), hvd.local_rank())
        self._on_gpu = bool(hvd.nccl_built())

    def _sum(self, flat: torch.Tensor) -> None:
        wire = self._wire(flat, flat.dtype if flat.dtype in _SUMMED else torch.float32)
        self._wait(hvd.allreduce_async_(wire, name=f"sum.{wire.dtype}", op=hvd.Sum))
        self._back(wire, flat)

    def _copy_from(self, flat: torch.Tensor, root: int) -> None:
        wire = self._wire(flat, flat.dtype)
        self._wait(hvd.broadcast_async_(wire, root, name="copy"))
        self._back(wire, flat)

    def _wait(self, handle: int) -> None:
        """Waits with pauses: Horovod's own wait keeps a core busy, and knows no limit where it runs over Gloo."""
        deadline_s = time.monotonic() + self._timeout_s
        pause_s = _FIRST_PAUSE_S
        while not hvd.poll(handle):
            if time.monotonic() > deadline_s:
                raise TimeoutError(f"another rank stayed away for {self._timeout_s:g} s")
            time.sleep(pause_s)
            pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
        hvd.synchronize(handle)

    def _wire(self, flat: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
        """The buffer in a type and on a device that this build of Horovod can send; itself, where it can."""
        device = flat.device if self._on_gpu else torch.device("cpu")
        return flat.to(device=device, dtype=dtype)

    @staticmethod
    def _back(wire: torch.Tensor, flat: torch.Tensor) -> None:
        if wire is not flat:
            flat.copy_(wire)

    def shutdown(self) -> None:
        """See `Communicator`."""
        hvd.shutdown()


def _await_all_ranks(timeout_s: float) -> None:
    """Returns when every rank has said at the rendezvous that it is there; Horovod itself would abort the process."""
    address = os.environ.get("HOROVOD_GLOO_RENDEZVOUS_ADDR")
    if address is None:
        return
    base = f"http://{address}:{os.environ['HOROVOD_GLOO_RENDEZVOUS_PORT']}/{_SCOPE}"
    rank, size = int(os.environ["HOROVOD_RANK"]), int(os.environ["HOROVOD_SIZE"])
    deadline_s = time.monotonic() + timeout_s
    _direct.open(Request(f"{base}/{rank}", data=b"1", method="PUT"), timeout=timeout_s).close()
    missing = [other for other in range(size) if not _is_there(f"{base}/{other}", timeout_s)]
    while missing:
        if time.monotonic() > deadline_s:
            raise TimeoutError(f"rank {', '.join(map(str, missing))} of {size} did not come within {timeout_s:g} s")
        time.sleep(_LOOK_AGAIN_S)
        missing = [other for other in missing if not _is_there(f"{base}/{other}", timeout_s)]


def _is_there(url: str, timeout_s: float) -> bool:
    try:
        _direct.open(url, timeout=timeout_s).close()
    except HTTPError as error:
        if error.code != http.client.NOT_FOUND:
            raise
        return False
    return True
