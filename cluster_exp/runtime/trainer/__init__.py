"""The trainer SDK: the only thing that a training program imports. Standard library only.

The launcher tells a trainer who it is by environment variables:

| variable | meaning |
|---|---|
| CLUSTER_EXP_JOB_ID, CLUSTER_EXP_GENERATION | the job, and the number of its launch |
| CLUSTER_EXP_RANK, CLUSTER_EXP_WORLD | this process among the job's |
| CLUSTER_EXP_WORKER | `unix:PATH` of this node's worker: reports go there |
| CLUSTER_EXP_ARBITER | `unix:PATH`, `tcp:HOST:PORT` or `tls:HOST:PORT` of the worker that hands out the turns |
| CLUSTER_EXP_TURNS_TOKEN | the token that an arbiter on another node asks for |
| CLUSTER_EXP_TLS | folder of this host's ca.pem, cert.pem and key.pem, for `tls:` |
| CLUSTER_EXP_ITERATIONS, CLUSTER_EXP_ITERATIONS_DONE | iterations to do in all, and done in earlier launches |
| CLUSTER_EXP_GPUS | this process's GPUs, as `node/gpu,node/gpu` |
| CLUSTER_EXP_CHECKPOINT_DIR | optional: the job's folder for checkpoints, on a path that all nodes share |
| CLUSTER_EXP_CHECKPOINT_EVERY | optional: iterations between checkpoints; 0 = only when told to leave |
| CLUSTER_EXP_STAGE_LOG | optional: a CSV file that gets a row for every stage |
"""

from cluster_exp.domain.resources import Resource
from cluster_exp.runtime.trainer.sdk import Identity, Trainer, WorkerLostError

__all__ = ["Identity", "Resource", "Trainer", "WorkerLostError"]
