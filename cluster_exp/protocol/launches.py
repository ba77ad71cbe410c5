"""Which launches a worker has seen: none is started twice, and none after a newer one of its job. No I/O."""

from collections import OrderedDict

from cluster_exp.protocol.refusal import RefusalKind, Refused

_REMEMBERED = 100_000


class Launches:
    """The newest generation seen of each job."""

    def __init__(self, remembered: int = _REMEMBERED) -> None:
        """Of so many jobs at most."""
        self._remembered = remembered
        self._latest: OrderedDict[str, int] = OrderedDict()

    def is_new(self, job_id: str, generation: int) -> bool:
        """Whether a launch was not seen yet.

        Raises:
            Refused: a newer generation of the job was seen.
        """
        latest = self._latest.get(job_id, 0)
        if generation < latest:
            raise Refused(RefusalKind.PRECONDITION, f"generation {latest} of job {job_id} was launched already")
        return generation > latest

    def note(self, job_id: str, generation: int) -> None:
        """A launch was started."""
        self._latest[job_id] = generation
        self._latest.move_to_end(job_id)
        if len(self._latest) > self._remembered:
            self._latest.popitem(last=False)

    def clear(self) -> None:
        """Forgets all: the master counts this worker as a new one."""
        self._latest.clear()
