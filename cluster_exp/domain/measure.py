"""What a trainer measured of its own iterations."""

from dataclasses import dataclass

from cluster_exp.domain.profile import StageProfile

Stages = tuple[float, float, float, float]  # seconds, by Resource


@dataclass(frozen=True, slots=True)
class StageWindow:
    """Consecutive iterations of one launch, added up. Times in wall seconds, without waiting for turns."""

    iterations: int  # at least 1
    iterations_s: float  # all of them together
    sampled: int  # those of which the stages were timed, 1 to `iterations`
    stages_s: Stages  # the stages of the sampled ones together
    turns: bool  # whether the stages took turns with those of other jobs
    gpu_memory_mib: float | None = None  # peak of the process since it began; None = it uses no GPU

    def joined(self, later: "StageWindow") -> "StageWindow":
        """Both together; only the later one where one took turns and the other did not."""
        if self.turns != later.turns:
            return later
        storage_s, cpu_s, gpu_s, network_s = (a + b for a, b in zip(self.stages_s, later.stages_s, strict=True))
        peaks = [peak for peak in (self.gpu_memory_mib, later.gpu_memory_mib) if peak is not None]
        return StageWindow(
            self.iterations + later.iterations,
            self.iterations_s + later.iterations_s,
            self.sampled + later.sampled,
            (storage_s, cpu_s, gpu_s, network_s),
            self.turns,
            max(peaks, default=None),
        )

    def mean(self, time_scale: float = 1.0) -> StageProfile:
        """One iteration, in run seconds of which `time_scale` pass in one wall second."""
        return StageProfile(
            self.iterations_s / self.iterations * time_scale,
            *(stage_s / self.sampled * time_scale for stage_s in self.stages_s),
        )
