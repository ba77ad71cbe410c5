"""Where a launch of a job leaves its checkpoints: a folder of its own, so that launches cannot overwrite each other.

A worker that is cut off may let a launch run on while the job is launched again elsewhere, and both see the same
shared disk. Each writes only into `launch-GENERATION`; whose number is not the highest counts no longer.
"""

import os
import re
from pathlib import Path

_NAME = re.compile(r"launch-([1-9][0-9]{0,17})")


class SupersededError(RuntimeError):
    """A newer launch of the job has begun; the message is one line."""


class LaunchFolder:
    """The folder of one launch below the job's."""

    def __init__(self, job_folder: str | Path, generation: int) -> None:
        """Makes the folder, which shows every older launch that it counts no longer.

        Raises:
            SupersededError: a newer launch has begun already.
            OSError: it cannot be made.
        """
        self._job_folder = Path(job_folder)
        self._generation = generation
        self.path = self._job_folder / f"launch-{generation}"
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        _sync(self._job_folder)
        self.check()

    def check(self) -> None:
        """Raises SupersededError when a newer launch has begun: call it before each checkpoint is written."""
        newest = max(self._launches(), default=0)
        if newest > self._generation:
            raise SupersededError(
                f"launch {newest} of this job has begun, so launch {self._generation} writes no more"
            )

    def older(self) -> list[Path]:
        """Folders of earlier launches, the newest first."""
        numbers = sorted((number for number in self._launches() if number < self._generation), reverse=True)
        return [self._job_folder / f"launch-{number}" for number in numbers]

    def _launches(self) -> list[int]:
        return [int(found[1]) for name in os.listdir(self._job_folder) if (found := _NAME.fullmatch(name))]


def newest_folder(job_folder: str | Path) -> Path:
    """The folder of the newest launch, or the job's own when no launch made one."""
    found = [(int(name[1]), path) for path in Path(job_folder).glob("*") if (name := _NAME.fullmatch(path.name))]
    return max(found)[1] if found else Path(job_folder)


def _sync(folder: Path) -> None:
    """Makes the names in a folder last."""
    directory = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
