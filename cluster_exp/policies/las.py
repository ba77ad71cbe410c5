"""Least attained service: whoever has had least runs."""

from cluster_exp.policies.parts import BY_ATTAINED_SERVICE
from cluster_exp.policies.queue import PreemptiveQueue


def las() -> PreemptiveQueue:
    """Least attained service first, in executed seconds x GPUs (Tiresias, NSDI'19, section 3.1).

    Nothing happens between two plans: with plans at events only, whoever was chosen runs on until a job arrives or
    ends. Rounds (an interval) let equals take turns.
    """
    return PreemptiveQueue("las", BY_ATTAINED_SERVICE)
