"""The accelerator that a training program uses, as far as the SDK has to know it. Imports no framework itself."""

import sys
from typing import Protocol

_MIB = 2**20


class Device(Protocol):
    """What is asked of an accelerator."""

    @property
    def busy(self) -> bool:
        """Whether it may still work on what the program gave it."""
        ...

    def synchronise(self) -> None:
        """Waits until it has done all that."""
        ...

    def peak_memory_mib(self) -> float | None:
        """Most memory that this process had at once; None where it uses none."""
        ...


class TorchCuda:
    """CUDA through PyTorch, once the program has loaded the one and used the other; nothing before."""

    @property
    def busy(self) -> bool:
        """Whether the program uses CUDA."""
        torch = sys.modules.get("torch")
        cuda = getattr(torch, "cuda", None)  # None while torch is being imported
        return cuda is not None and bool(cuda.is_initialized())

    def synchronise(self) -> None:
        """Waits for every kernel of the current device."""
        if self.busy:
            sys.modules["torch"].cuda.synchronize()

    def peak_memory_mib(self) -> float | None:
        """Peak of PyTorch's allocator on the current device."""
        return float(sys.modules["torch"].cuda.max_memory_allocated()) / _MIB if self.busy else None
