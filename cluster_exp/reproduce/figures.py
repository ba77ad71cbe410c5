"""The figures and tables that are reproduced: for each, what is simulated and which published rows it is held to.

The published numbers themselves are in no code: they are read from the data folder (`published.py`).
"""

from dataclasses import dataclass
from datetime import datetime
from itertools import product

from cluster_exp.sim.simulate import SimulationOptions

GPUS_PER_NODE = 8


@dataclass(frozen=True, slots=True)
class Window:
    """Jobs of a trace that were submitted between two instants of wall-clock time, both included."""

    origin: datetime  # the wall-clock time that the trace calls 0
    first: datetime
    last: datetime

    def holds(self, submit_s: float) -> bool:
        """Whether a job of this submit time, in seconds from the origin, is kept."""
        return (self.first - self.origin).total_seconds() <= submit_s <= (self.last - self.origin).total_seconds()


@dataclass(frozen=True, slots=True)
class TraceUse:
    """A trace of the data folder, and how it is used."""

    name: str  # file name below `traces/muri`, without its ending
    published: str  # what the published table calls it
    nodes: int = 8  # of eight GPUs each
    window: Window | None = None  # None = all jobs


@dataclass(frozen=True, slots=True)
class PolicyUse:
    """A policy, and whose published row it is compared with."""

    spec: str  # as on the command line
    published: str  # what the published table calls it
    speed: str | None = None  # `SimulationOptions.speed_model`

    @property
    def label(self) -> str:
        """The spec, and the speed model if it is not the policy's own."""
        return self.spec if self.speed is None else f"{self.spec} ({self.speed})"


@dataclass(frozen=True, slots=True)
class Figure:
    """A published figure or table."""

    name: str
    title: str
    source: str  # the column `source` of its published rows
    cost_model: str
    traces: tuple[TraceUse, ...]
    policies: tuple[PolicyUse, ...]
    metrics: tuple[str, ...]  # as the published table calls them
    interval_s: float = 0.0  # seconds between plans; 0 = at every event

    def rules(self, policy: PolicyUse) -> SimulationOptions:
        """The simulation's options."""
        return SimulationOptions(self.cost_model, speed_model=policy.speed, interval_s=self.interval_s)

    def uses(self) -> tuple[tuple[TraceUse, PolicyUse], ...]:
        """Every pair of a trace and a policy, trace by trace."""
        return tuple(product(self.traces, self.policies))


_FIGURES_9_10 = "Muri simulator/draw_fig9-10.py"
_FIGURES_11_13 = "Muri simulator/draw_fig11-13.py "
_ALL_METRICS = ("avg_jct", "makespan", "p99_jct")
_VIRTUAL_CLUSTERS = ("trace1", "trace2", "trace3", "trace4")
_ARRIVING = tuple(TraceUse(name, name) for name in _VIRTUAL_CLUSTERS)
_AT_ONCE = tuple(TraceUse(f"{name}_pr", f"{name}_pr") for name in _VIRTUAL_CLUSTERS)

# Origins: data/traces/muri/SOURCE.md. The window is the one of HeliosArtifact's Philly experiment.
_OCTOBER = datetime(2017, 10, 1), datetime(2017, 11, 30, 23, 59)
_VCS = (
    TraceUse("trace3", "Philly VC 2869ce", 16, Window(datetime(2017, 9, 18, 16, 23, 59), *_OCTOBER)),
    TraceUse("trace4", "Philly VC 0e4a51", 32, Window(datetime(2017, 9, 26, 22, 24, 22), *_OCTOBER)),
)

FIGURES: dict[str, Figure] = {
    figure.name: figure
    for figure in (
        Figure(
            "muri-fig9",
            "Muri, figure 9: durations known",
            _FIGURES_9_10,
            "muri22",
            _ARRIVING + _AT_ONCE,
            # Muri-S was published without unpacking slow groups.
            (PolicyUse("srtf", "SRTF"), PolicyUse("srsf", "SRSF"), PolicyUse("muri-s:unpack=off", "Muri_S")),
            _ALL_METRICS,
        ),
        Figure(
            "muri-fig10",
            "Muri, figure 10: durations unknown",
            _FIGURES_9_10,
            "muri22",
            _ARRIVING + _AT_ONCE,
            # Themis was published with its units mixed; Muri-L's row mixes runs with and without unpacking.
            (
                PolicyUse("tiresias", "Tiresias_L"),
                PolicyUse("antman", "antman"),
                PolicyUse("themis:units=iterations", "themis"),
                PolicyUse("muri-l", "Muri_L"),
                PolicyUse("muri-l:unpack=off", "Muri_L"),
            ),
            _ALL_METRICS,
        ),
        Figure(
            "muri-fig11",
            "Muri, figure 11: without the best order of turns, without matching",
            _FIGURES_11_13 + "Fig11",
            "muri22",
            _ARRIVING,
            # Without unpacking, no matching gives the published trace3 to the last digit.
            (
                PolicyUse("muri-l", "Muri_L"),
                PolicyUse("muri-l:order=worst:unpack=off", "Muri_L_w_worstordering"),
                PolicyUse("muri-l:grouping=chunks:unpack=off", "Muri_L_wo_blossom"),
            ),
            ("avg_jct", "makespan"),
        ),
        Figure(
            "muri-fig12",
            "Muri, figure 12: group sizes",
            _FIGURES_11_13 + "Fig12",
            "muri22",
            _AT_ONCE,
            # Where all jobs are there at once, the published Muri-L is without unpacking.
            (
                PolicyUse("antman", "antman"),
                PolicyUse("muri-l:group=2:unpack=off", "Muri_L_2"),
                PolicyUse("muri-l:group=3:unpack=off", "Muri_L_3"),
                PolicyUse("muri-l:unpack=off", "Muri_L_4"),
            ),
            ("avg_jct", "makespan"),
        ),
        Figure(
            "muri-fig13",
            "Muri, figure 13: how many types of jobs there are",
            _FIGURES_11_13 + "Fig13",
            "muri22",
            # The published Muri-S of job_type_1, where few groups pay, is with unpacking.
            (
                TraceUse("job_type_1", "job_type_1"),
                TraceUse("job_type_2", "job_type_2"),
                TraceUse("job_type_3", "job_type_3"),
                TraceUse("trace3", "job_type_4(=trace3)"),
            ),
            (
                PolicyUse("srtf", "SRTF"),
                PolicyUse("muri-s", "Muri_S"),
                PolicyUse("tiresias", "Tiresias"),
                PolicyUse("muri-l", "Muri_L"),
            ),
            ("avg_jct",),
        ),
        Figure(
            "helios-vc",
            "HeliosArtifact: two virtual clusters of Philly",
            "HeliosArtifact framework/QSSF Service/plot/result_plot.ipynb",
            "helios",
            _VCS,
            (PolicyUse("fifo", "fifo"), PolicyUse("sjf", "sjf"), PolicyUse("srtf", "srtf")),
            ("avg_jct", "avg_queue"),
        ),
        Figure(
            "muri-testbed",
            "Muri's testbed: 400 jobs on 64 V100, simulated in rounds",
            "Muri cluster_exp/results (testbed)",
            "physical",
            (TraceUse("cluster_trace", "cluster_trace.csv (400 jobs)"),),
            (
                PolicyUse("srtf", "SRTF"),
                PolicyUse("srsf", "SRSF"),
                PolicyUse("muri-s", "Muri-S"),
                PolicyUse("muri-s", "Muri-S", speed="rates"),
                PolicyUse("tiresias", "tiresias"),
                PolicyUse("themis", "themis"),
                PolicyUse("muri-l", "Muri-L"),
                PolicyUse("muri-l", "Muri-L", speed="rates"),
            ),
            _ALL_METRICS,
            interval_s=360.0,
        ),
    )
}
