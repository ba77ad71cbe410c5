"""A master that kills itself at a chosen write to its state file: `python -m tests.runtime.mortal_master ...`.

Arguments: folder, port, the number of the write at which it dies (0 = never), and `before` or `after` it.
"""

import os
import signal
import sys
from dataclasses import replace
from pathlib import Path

from cluster_exp.results.journal import Detail, JournalWriter
from cluster_exp.runtime.local import LiveConfig, run_testbed
from cluster_exp.runtime.store import StateFile
from tests.runtime.live_kit import cluster, job, scheduler

SCALE = 20.0
JOBS = tuple(job(f"j{i}", 1 + i % 2, 60 + 30 * i, submit_s=5.0 * i) for i in range(5))


class MortalStateFile(StateFile):
    """Sends SIGKILL to its own process."""

    deadly = 0
    when = "after"
    _writes = 0

    def flush(self) -> None:
        """Writes, or dies before or after it."""
        self._writes += 1
        if self._writes == self.deadly and self.when == "before":
            os.kill(os.getpid(), signal.SIGKILL)
        super().flush()
        if self._writes == self.deadly:
            os.kill(os.getpid(), signal.SIGKILL)


def main(folder: Path, port: int, deadly: int, when: str) -> None:
    """Begins the run, or goes on with it; prints `complete` at its end."""
    path = folder / "state.sqlite"
    resumes = path.exists()
    state = StateFile.reopen(path) if resumes else StateFile.create(path, {})
    state.__class__ = MortalStateFile
    state.deadly, state.when = deadly, when
    (folder / "journal.jsonl").unlink(missing_ok=True)
    journal = JournalWriter(folder / "journal.jsonl", {"policy": "srsf"}, Detail.FULL)
    config = LiveConfig(
        cluster(), JOBS, SCALE, folder / "logs", bind=f"127.0.0.1:{port}", report_interval_s=0.2, state=state
    )
    result = run_testbed(replace(config, resumes=resumes), scheduler(), journal, lambda commands: None)
    journal.close()
    state.close()
    print("complete" if result.complete else result.reason)


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
