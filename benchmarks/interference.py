"""What learning who slows whom is worth: on measured pairs, and in a simulated cluster.

Measured pairs are those of Gavel (OSDI'20): throughput of two jobs on one GPU against each alone. They are split by
unordered pair of models, so that none is in both halves; the learner is compared with two simple predictors, the
median of the training half and the partner's median there. In the simulated cluster the true interference is drawn
from a seed and differs from what is believed at first. Both need the folder that CLUSTER_EXP_DATA names.

    CLUSTER_EXP_DATA=DIR python benchmarks/interference.py
    CLUSTER_EXP_DATA=DIR python benchmarks/interference.py --pairs-only --splits 5
"""

import argparse
import csv
import gzip
import os
import random
import statistics
import sys
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from cluster_exp.domain.actions import RecordEnd
from cluster_exp.inputs.clusters import read_cluster
from cluster_exp.inputs.profiles import default_profiles
from cluster_exp.inputs.restart import default_restart_costs
from cluster_exp.inputs.traces import read_trace
from cluster_exp.interleave.contention import MURI22_CONTENTION
from cluster_exp.interleave.interference import Interference
from cluster_exp.policies.registry import make_policy
from cluster_exp.results.tables import table
from cluster_exp.sim.simulate import SimulationOptions, simulate

Kind = tuple[str, str, str]  # worker type, model, batch size
SEEDS = (1, 2, 3)


@dataclass(frozen=True)
class Observed:
    """A member of a measured pair."""

    kind: Kind
    partner: Kind
    slowdown: float  # throughput alone over throughput beside the partner

    @property
    def models(self) -> tuple[str, str]:
        """The unordered pair of models."""
        one, other = sorted((self.kind[1], self.partner[1]))
        return one, other


def measured_pairs(data: Path) -> list[Observed]:
    """Both members of every pair on one GPU; worker types that repeat others, and zeros, are left out."""
    folder = data / "profiles"
    with open(folder / "gavel_simulation_isolated.csv", encoding="utf-8", newline="") as file:
        alone = {
            (row["worker_type"], row["model"], row["batch_size"]): float(row["steps_per_s"])
            for row in csv.DictReader(file)
            if row["scale_factor"] == "1"
        }
    seen: list[Observed] = []
    with gzip.open(folder / "gavel_simulation_colocated.csv.gz", "rt", encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            worker = row["worker_type"]
            if worker.endswith("_unconsolidated") or {row["scale_factor1"], row["scale_factor2"]} != {"1"}:
                continue
            kinds = [(worker, row[f"model{i}"], row[f"batch_size{i}"]) for i in (1, 2)]
            shared = [float(row[f"steps_per_s{i}"]) for i in (1, 2)]
            if min(*shared, *(alone.get(kind, 0.0) for kind in kinds)) > 0:
                for i in (0, 1):
                    seen.append(Observed(kinds[i], kinds[1 - i], alone[kinds[i]] / shared[i]))
    return seen


def split_ratio(seen: Sequence[Observed], seed: int) -> tuple[float, float, float]:
    """Mean absolute errors on the other half: the median's, the partner's median's, and the learner's."""
    pairs = sorted({one.models for one in seen})
    random.Random(seed).shuffle(pairs)
    half = set(pairs[: len(pairs) // 2])
    train, test = [one for one in seen if one.models in half], [one for one in seen if one.models not in half]
    median = statistics.median(one.slowdown for one in train)
    by_partner: defaultdict[Kind, list[float]] = defaultdict(list)
    for one in train:
        by_partner[one.partner].append(one.slowdown)
    number = {kind: i for i, kind in enumerate(sorted({one.kind for one in seen}))}
    learnt = Interference(MURI22_CONTENTION)
    for one in train:
        learnt.observe(number[one.kind], (number[one.partner],), one.slowdown)
    groups = np.array([(number[one.kind], number[one.partner]) for one in test])
    predicted = learnt.effects(len(number)).slowdowns(groups)[:, 0]
    partners = [statistics.median(by_partner[one.partner]) if one.partner in by_partner else median for one in test]
    true = np.array([one.slowdown for one in test])
    errors = [float(np.abs(np.array(guess) - true).mean()) for guess in ([median] * len(test), partners, predicted)]
    return errors[0], errors[1], errors[2]


def pairs_table(data: Path, splits: int) -> tuple[str, float]:
    """The table of all splits, and the learner's error over that of the better simple predictor, in the mean."""
    seen = measured_pairs(data)
    rows, ratios = [], []
    for seed in range(splits):
        median, partner, learnt = split_ratio(seen, seed)
        ratios.append(learnt / min(median, partner))
        rows.append((str(seed), f"{median:.3f}", f"{partner:.3f}", f"{learnt:.3f}", f"{ratios[-1]:.3f}"))
    mean = statistics.fmean(ratios)
    rows.append(("mean", "", "", "", f"{mean:.3f}"))
    return table(("split", "median", "partner's median", "learnt", "learnt / better"), rows), mean


class Ends:
    """A recorder of what became of the jobs."""

    def __init__(self) -> None:
        self.jct_s: list[float] = []

    def record(self, event, actions) -> None:
        """Keeps completion times."""
        for action in actions:
            if isinstance(action, RecordEnd):
                self.jct_s.append(action.record.end_s - action.record.submit_s)


def average_jct_s(data: Path, trace: str, policy: str, options: SimulationOptions) -> float:
    """Average job completion time of one simulation, in seconds."""
    cluster = read_cluster(data / "traces" / "muri" / "n8g8.csv")
    jobs = read_trace(data / "traces" / "muri" / f"{trace}.csv", default_profiles(), cluster, drop_unfit=True).jobs
    costs, ends = default_restart_costs(), Ends()
    simulate(make_policy(policy), jobs, cluster, options, lambda job: costs.start_s(job.model, job.num_gpu), ends)
    return statistics.fmean(ends.jct_s)


def cluster_table(data: Path, traces: Sequence[str], policies: Sequence[str]) -> str:
    """Average JCT with the prior and with learning, against that of a scheduler that knows the truth."""
    rows = []
    for policy in policies:
        for trace in traces:
            for seed in SEEDS:
                truth = f"drawn:{seed}"
                knows = average_jct_s(data, trace, policy, SimulationOptions(contention=truth))
                prior, learns = (
                    average_jct_s(data, trace, policy, SimulationOptions(contention=name, true_contention=truth))
                    for name in ("muri22", "learned")
                )
                rows.append((policy, trace, truth, f"{prior / knows:.3f}", f"{learns / knows:.3f}"))
    return table(("policy", "trace", "truth", "prior / truth", "learned / truth"), rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Prints the tables; 1 when learning is not 20 % below the better simple predictor in the mean."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--splits", type=int, default=20, metavar="N", help="random splits of the measured pairs")
    parser.add_argument("--pairs-only", action="store_true", help="leave the simulated cluster out")
    parser.add_argument("--traces", default="trace3,trace3_pr", metavar="NAME[,NAME...]")
    parser.add_argument("--policies", default="weave-s,muri-s", metavar="NAME[,NAME...]")
    args = parser.parse_args(argv)
    folder = os.environ.get("CLUSTER_EXP_DATA")
    if not folder:
        print("left out: CLUSTER_EXP_DATA does not name the folder of profiles and traces", file=sys.stderr)
        return 0
    printed, mean = pairs_table(Path(folder), args.splits)
    print(printed)
    if not args.pairs_only:
        print(cluster_table(Path(folder), args.traces.split(","), args.policies.split(",")))
    return int(mean > 0.8)


if __name__ == "__main__":
    sys.exit(main())
