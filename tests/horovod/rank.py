"""A rank of the tests' job: trains a tiny model over whatever backend its environment names. Run as a script."""

import argparse
import hashlib
import os
import signal
import sys
from dataclasses import dataclass

import torch

from cluster_exp.runtime.trainer.comm import CommunicationError, connect
from cluster_exp.runtime.trainer.comm.gradients import GradientExchange, broadcast_state


def digest(model: torch.nn.Module) -> str:
    state = b"".join(tensor.numpy().tobytes() for tensor in model.state_dict().values())
    return hashlib.sha256(state).hexdigest()


@dataclass(frozen=True)
class Fault:
    kind: str
    rank: int
    iteration: int

    def happen(self) -> None:
        match self.kind:
            case "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            case "stopped":
                os.kill(os.getpid(), signal.SIGSTOP)
            case "idle":  # alive, but never exchanges again
                signal.pause()
            case kind:
                raise ValueError(f"no fault {kind!r}")


def train(comm, iterations: int, fault: Fault | None) -> str:
    torch.set_num_threads(1)
    torch.manual_seed(comm.rank)  # other weights on each rank, until rank 0 gives its own
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.BatchNorm1d(32), torch.nn.Linear(32, 1))
    broadcast_state(model, comm)
    gradients = GradientExchange(model.parameters(), comm)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    samples = torch.Generator().manual_seed(100 + comm.rank)  # other samples on each rank
    for iteration in range(iterations):
        if fault and fault.rank == comm.rank and fault.iteration == iteration:
            fault.happen()
        inputs = torch.randn(8, 16, generator=samples)
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True)).backward()
        gradients.exchange()
        optimizer.step()
    comm.broadcast(list(model.buffers()))  # running means are each rank's own
    return digest(model)


def exchange_all_types(comm) -> None:
    """Means and copies of every type, in one call each; the expected values are computed here."""
    mean = sum(range(comm.size)) / comm.size
    floats = [torch.float64, torch.float32, torch.float16, torch.bfloat16]
    tensors = [torch.full((3, 2), float(comm.rank), dtype=dtype) for dtype in floats for _ in range(2)]
    tensors += [torch.zeros(4, 6)[:, ::2].fill_(comm.rank), torch.zeros(0), torch.tensor(float(comm.rank))]
    comm.allreduce(tensors)
    assert all(torch.equal(tensor, torch.full_like(tensor, mean)) for tensor in tensors), tensors
    root = comm.size - 1
    others = [torch.bool, torch.uint8, torch.int16, torch.int64, torch.complex64, *floats]
    copies = [torch.full((5,), comm.rank == root, dtype=dtype) for dtype in others]
    parameter = torch.nn.Parameter(torch.full((2, 2), float(comm.rank)).T)
    comm.broadcast([*copies, parameter], root)
    assert all(torch.equal(copy, torch.ones_like(copy)) for copy in copies), copies
    assert torch.equal(parameter, torch.full((2, 2), float(root))), parameter
    comm.allreduce([])
    comm.barrier()


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--iterations", type=int, default=20)
    parser.add_argument("--fault", help="KIND,RANK,ITERATION")
    args = parser.parse_args()
    fault = None
    if args.fault:
        kind, rank, iteration = args.fault.split(",")
        fault = Fault(kind, int(rank), int(iteration))
    comm = None
    try:
        comm = connect()
        print(f"rank {comm.rank} local {comm.local_rank} size {comm.size}", flush=True)
        exchange_all_types(comm)
        print("weights", train(comm, args.iterations, fault), flush=True)
        comm.barrier()
    except CommunicationError as error:
        sys.stderr.write(f"LOST {error}\n")
        if comm is not None:
            comm.shutdown()
        return 3
    comm.shutdown()
    comm.shutdown()
    return 0


if __name__ == "__main__":
    sys.exit(main())
