"""resume: a live run that was stopped, or whose master died, goes on."""

import argparse
import os
from pathlib import Path

HELP = "goes on with a live run that was stopped, or whose master died"
EXAMPLE = "python run.py resume out/first"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the verb's options."""
    parser.add_argument("directory", type=Path, metavar="DIR", help="of the run (--out, or a policy's below it)")


def run(arguments: argparse.Namespace) -> int:
    """Runs what is left of the run; prints the same table as `run`."""
    from cluster_exp.cli import run as run_verb
    from cluster_exp.cli.options import run_spec
    from cluster_exp.cli.origin import check_origin
    from cluster_exp.domain.errors import InputError
    from cluster_exp.results.run_directory import STATE_FILE
    from cluster_exp.results.summary import summarise, summary_table
    from cluster_exp.runtime.store import StateFile

    directory = arguments.directory.resolve()
    path = directory / STATE_FILE
    state = StateFile.reopen(path)
    origin = state.meta()
    words = origin.get("words")
    if not words:
        state.close()
        raise InputError("was not begun by `run`, so there is no command to go on with", where=str(path))
    parser = argparse.ArgumentParser()
    run_verb.add_arguments(parser)
    settings = parser.parse_args(words)
    os.chdir(origin["cwd"])  # where the command's paths, and those of its jobs, begin
    check_origin(origin, settings)
    spec = run_spec(settings, resumes=True)
    policy = next(policy for policy in spec.policies if policy.name == origin["policy"])
    code = run_verb.run_one(spec, policy, directory, state)
    if code == 0:
        print(summary_table([summarise(directory)]))
    return code
