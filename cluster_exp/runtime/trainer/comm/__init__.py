"""How the ranks of a job exchange tensors: one interface, three backends, chosen by name.

    comm = connect()  # as the launcher says, or alone; connect("torch") names one
    broadcast_state(model, comm)
    gradients = GradientExchange(model.parameters(), comm)
    ...
    loss.backward()  # collects, exchanges nothing
    with trainer.stage(Resource.NETWORK):
        gradients.exchange()
    optimizer.step()

`broadcast_state` and `GradientExchange` are in `comm.gradients`, which needs torch; this module needs the standard
library only. Beside what its backend reads, a rank is told by the launcher:

| variable | meaning |
|---|---|
| CLUSTER_EXP_COMM | the backend: `none`, `horovod` or `torch`; unset = `none` |
| CLUSTER_EXP_COMM_TIMEOUT_S | after how many seconds a rank that is waited for counts as lost |
"""

from cluster_exp.runtime.trainer.comm.base import (
    BACKENDS,
    BackendMissingError,
    CommunicationError,
    Communicator,
    check_backend,
)
from cluster_exp.runtime.trainer.comm.connect import connect

__all__ = ["BACKENDS", "BackendMissingError", "CommunicationError", "Communicator", "check_backend", "connect"]
