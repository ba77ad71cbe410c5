"""The backend `horovod`: Gloo between CPUs, NCCL between GPUs where Horovod was built with it."""

import horovod.torch as hvd
import torch

from cluster_exp.runtime.trainer.comm.base import CommunicationError
from cluster_exp.runtime.trainer.comm.fused import FusedCommunicator, first_line

_SUMMED = frozenset({torch.float16, torch.float32, torch.float64})


class HorovodCommunicator(FusedCommunicator):
    """A rank as Horovod's environment variables (HOROVOD_RANK and others) say."""

    backend = "horovod"

    def __init__(self) -> None:
        """Meets the other ranks. Raises CommunicationError when they do not come."""
        try:
            hvd.init()
        except (RuntimeError, ValueError) as error:
            raise CommunicationError(f"the ranks did not meet over horovod: {first_line(error)}") from error
        super().__init__(hvd.rank(), hvd.size(), hvd.local_rank())
        self._on_gpu = bool(hvd.nccl_built())

    def _sum(self, flat: torch.Tensor) -> None:
        wire = self._wire(flat, flat.dtype if flat.dtype in _SUMMED else torch.float32)
        hvd.allreduce_(wire, name=f"sum.{wire.dtype}", op=hvd.Sum)
        self._back(wire, flat)

    def _copy_from(self, flat: torch.Tensor, root: int) -> None:
        wire = self._wire(flat, flat.dtype)
        hvd.broadcast_(wire, root, name="copy")
        self._back(wire, flat)

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
