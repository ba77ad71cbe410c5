"""Small clusters that break, drawn from a seed."""

import random
import sys
from dataclasses import replace

from cluster_exp.interleave.speed import LockstepSpeed
from cluster_exp.sim.faults.run import FaultReport, FaultyRun
from cluster_exp.sim.faults.spec import FaultSpec
from tests.runtime.live_kit import cluster, job, scheduler

CHANCES = (0.0, 0.02, 0.1)


def broken_run(seed: int, *, calm: bool = False, rough: bool = False) -> FaultReport:
    """Eight jobs on three nodes of two GPUs: half from a trace, half from users; some are real, some emulated."""
    draw = random.Random(seed)
    jobs = [
        replace(
            job(f"j{i}", draw.choice((1, 1, 2, 3)), draw.randrange(5, 40), draw.uniform(0.0, 40.0)),
            command=("train",) if draw.random() < 0.5 else (),
        )
        for i in range(8)
    ]
    spec = FaultSpec(
        seed,
        masters=draw.randrange(5),
        workers=draw.randrange(3),
        cuts=draw.randrange(3),
        slow=draw.randrange(2),
        crashes=draw.randrange(4),
        hangs=draw.randrange(2),
        loops=draw.randrange(2),
        jumps=draw.randrange(2),
        lost=draw.choice(CHANCES),
        late=draw.choice(CHANCES),
        twice=draw.choice(CHANCES),
    )
    if rough:
        spec = replace(spec, masters=6, workers=3, cuts=4, loops=1, lost=0.1, late=0.1, twice=0.1)
    policy = "muri-s" if seed % 3 == 0 else "srsf"
    return FaultyRun(
        spec.calm if calm else spec,
        cluster(3, 2),
        jobs[:4],
        jobs[4:],
        lambda: scheduler(policy),
        LockstepSpeed(),
        retry_wait_s=draw.choice((0.0, 2.0)),
    ).run()


def killed_run(point: int) -> FaultReport:
    """A short run without other faults whose master is killed at one point of its work."""
    jobs = [job(f"j{i}", 1 + i % 3, 4 + i, 2.0 * i) for i in range(4)]
    run = FaultyRun(FaultSpec(point), cluster(2, 2), jobs[:2], jobs[2:], lambda: scheduler("srsf"), LockstepSpeed())
    run.kill_master_at(point)
    return run.run()


if __name__ == "__main__":
    print(broken_run(int(sys.argv[1])))
