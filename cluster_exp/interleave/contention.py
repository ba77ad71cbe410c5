"""How much jobs on the same GPUs slow one another beyond taking turns."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Contention:
    """Factors by which a group's cycle is longer than the sum of its slots, by group size 1 to 4."""

    name: str
    by_size: tuple[float, float, float, float]

    def factor(self, size: int) -> float:
        """The factor for a group of `size` jobs, at least 1."""
        return self.by_size[size - 1]


NO_CONTENTION = Contention("none", (1.0, 1.0, 1.0, 1.0))
# The factors of the simulator published with Muri (SIGCOMM'22); three is dearer than four there.
MURI22_CONTENTION = Contention("muri22", (1.0, 1.33 / 1.015, 1.5 / 1.015, 1.37 / 1.015))

# As published for groups that were formed without weighing them (the ablation without Blossom).
MURI22_CHUNKS_CONTENTION = Contention("muri22-chunks", (1.0, 1.33 / 1.015, 1.5 / 1.015, 1.3 / 1.015))

CONTENTIONS = {
    contention.name: contention for contention in (NO_CONTENTION, MURI22_CONTENTION, MURI22_CHUNKS_CONTENTION)
}
