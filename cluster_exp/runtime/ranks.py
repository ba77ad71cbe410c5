"""Starts the ranks of one node: `python -m cluster_exp.runtime.ranks PROGRAM [ARGUMENT...]`.

The worker starts it in a process group of its own, with the variables of each rank, as a JSON list of objects, in
CLUSTER_EXP_RANKS. All ranks stay in that group. When one of them fails the others are ended, because they wait for
it; the exit code is then that of the first one that failed. A SIGTERM is passed on.
"""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress

from cluster_exp.runtime.orphans import parent_death_prefix

_GRACE_S = 2.0  # wall time between SIGTERM and SIGKILL for the ranks that are left over


def run_ranks(argv: Sequence[str], envs: Sequence[Mapping[str, str]]) -> int:
    """Runs a program once for each environment, and returns 0 when all of them did.

    Else it returns the exit code of the first that failed, 128 + N for a death by signal N.
    """
    common = {name: value for name, value in os.environ.items() if name != "CLUSTER_EXP_RANKS"}
    prefix = parent_death_prefix()
    ranks: dict[int, subprocess.Popen[bytes]] = {}

    def pass_on(number: int, frame: object) -> None:
        for pid in ranks:  # not by `Popen`, which would take the exit status away from the wait below
            with suppress(ProcessLookupError):
                os.kill(pid, number)

    signal.signal(signal.SIGTERM, pass_on)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    for env in envs:
        rank = subprocess.Popen([*prefix, *argv], env={**common, **env}, stdin=subprocess.DEVNULL)
        ranks[rank.pid] = rank
    while ranks:
        pid, status = os.waitpid(-1, 0)
        if pid not in ranks:
            continue
        rank = ranks.pop(pid)
        rank.returncode = code = os.waitstatus_to_exitcode(status)
        if code:
            _end(list(ranks.values()))
            return code if code > 0 else 128 - code
    return 0


def _end(ranks: Sequence["subprocess.Popen[bytes]"]) -> None:
    """Ends what waits for a rank that is gone."""
    for rank in ranks:
        rank.terminate()
    for rank in ranks:
        try:
            rank.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            rank.kill()
            rank.wait()


def main(argv: Sequence[str]) -> int:
    """Reads the ranks' variables and runs them."""
    try:
        return run_ranks(argv, json.loads(os.environ["CLUSTER_EXP_RANKS"]))
    except OSError as error:
        sys.stderr.write(f"{argv[0]} cannot be started: {error.strerror}\n")
        return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
