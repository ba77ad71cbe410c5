"""The backend `torch`: torch.distributed with Gloo for CPU tensors and, where there is CUDA, NCCL for the others."""

import os
import socket
from datetime import timedelta

import torch
import torch.distributed as dist
import torch.distributed.nn.functional  # its default arguments would keep a group that is there first for ever

from cluster_exp.domain.errors import InputError
from cluster_exp.runtime.trainer.comm.base import CommunicationError
from cluster_exp.runtime.trainer.comm.fused import FusedCommunicator, first_words


class TorchCommunicator(FusedCommunicator):
    """A rank as RANK, WORLD_SIZE, LOCAL_RANK, MASTER_ADDR and MASTER_PORT say."""

    backend = "torch"

    def __init__(self, timeout_s: float) -> None:
        """Meets the other ranks, waiting `timeout_s` seconds at most, here and in every later call.

        Raises:
            InputError: a variable is missing or no number.
            CommunicationError: another rank did not come, or the port is taken.
        """
        rank, size, port = _number("RANK"), _number("WORLD_SIZE"), _number("MASTER_PORT")
        super().__init__(rank, size, _number("LOCAL_RANK", "0"))
        timeout = timedelta(seconds=timeout_s)
        kinds = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() and dist.is_nccl_available() else "gloo"
        try:
            store = _store(_variable("MASTER_ADDR"), port, rank, size, timeout)
            dist.init_process_group(kinds, store=store, rank=rank, world_size=size, timeout=timeout)
        except (RuntimeError, OSError) as error:
            why = f"the ranks did not meet over torch: {first_words(error)}"
            raise CommunicationError(f"rank {rank} of {size}: {why}") from error

    def _sum(self, flat: torch.Tensor) -> None:
        _wait(dist.all_reduce(flat, async_op=True))

    def _copy_from(self, flat: torch.Tensor, root: int) -> None:
        _wait(dist.broadcast(flat, root, async_op=True))

    def shutdown(self) -> None:
        """See `Communicator`."""
        if dist.is_initialized():
            dist.destroy_process_group()


def _wait(work: dist.Work) -> None:
    """Waits for an exchange; what it raises does not keep the group, whose threads must end before Python does."""
    try:
        work.wait()
    finally:
        del work


def _store(address: str, port: int, rank: int, size: int, timeout: timedelta) -> dist.TCPStore:
    """The place where the ranks meet: rank 0 keeps it, and listens on that address alone."""
    if rank != 0 or os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
        return dist.TCPStore(address, port, size, is_master=False, timeout=timeout)
    listener = socket.create_server((address, port), backlog=max(128, size))
    return dist.TCPStore(address, port, size, is_master=True, timeout=timeout, master_listen_fd=listener.detach())


def _variable(name: str, default: str | None = None) -> str:
    value = os.environ.get(name, default)
    if value is None:
        raise InputError("not set; the launcher of a rank sets it (see docs/horovod.md)", where=name)
    return value


def _number(name: str, default: str | None = None) -> int:
    value = _variable(name, default)
    try:
        return int(value)
    except ValueError:
        raise InputError(f"{value!r} is no whole number", where=name) from None
