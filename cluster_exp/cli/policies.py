"""policies: what can be given to --policy."""

import argparse

HELP = "lists the policies"
EXAMPLE = "python run.py policies"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds no options."""


def run(arguments: argparse.Namespace) -> int:
    """Prints a line a policy."""
    from cluster_exp.policies.registry import describe, policy_names

    width = max(len(name) for name in policy_names())
    for name in policy_names():
        print(f"{name:<{width}}  {describe(name)}")
    return 0
