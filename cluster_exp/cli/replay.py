"""replay: a journal's events through the core again."""

import argparse
import dataclasses
from pathlib import Path

HELP = "feeds a journal's events to the scheduler again and compares its actions"
EXAMPLE = "python run.py replay out/first"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's options."""
    parser.add_argument("directory", type=Path, metavar="DIR", help="a run with a full journal")


def run(arguments: argparse.Namespace) -> int:
    """Prints the first difference, if there is one, and returns 1 then."""
    from cluster_exp.domain.errors import InputError
    from cluster_exp.domain.job import JobSpec
    from cluster_exp.domain.memory import MemoryRules
    from cluster_exp.inputs.restart import default_restart_costs
    from cluster_exp.policies.registry import make_policy
    from cluster_exp.results.history import read_history
    from cluster_exp.results.journal import Detail, read_journal
    from cluster_exp.results.run_directory import JOURNAL_FILE
    from cluster_exp.sim.simulate import SimulationOptions, make_cost, make_scheduler

    path = arguments.directory / JOURNAL_FILE
    journal = read_journal(path)
    header = journal.header
    if header.get("detail") != Detail.FULL.value:
        raise InputError(f"is a {header.get('detail')} journal; a full one is needed", where=str(path))
    policy = make_policy(str(header["policy"]), read_history)
    names = ("cost_model", "speed_model", "contention", "true_contention", "placement", "interval_s")
    options = SimulationOptions(**{name: header[name] for name in names if name in header})
    if header.get("gpu_memory_mib") is not None:
        rules = MemoryRules(float(header["gpu_memory_mib"]), header.get("assume_memory_mib"))
        options = dataclasses.replace(options, memory=rules)
    costs, start_cost_s = default_restart_costs(), header.get("start_cost_s")

    def start_cost(job: JobSpec) -> float:
        return costs.start_s(job.model, job.num_gpu) if start_cost_s is None else float(start_cost_s)

    scheduler = make_scheduler(policy, options, make_cost(policy, options, start_cost))
    for entry in journal.entries:
        actions = tuple(scheduler.handle(entry.event))
        if actions != entry.actions:
            print(f"event {entry.number} {entry.event}")
            print(f"  recorded: {entry.actions}")
            print(f"  replayed: {actions}")
            return 1
    print(f"{len(journal.entries)} events replayed, all actions equal")
    return 0
