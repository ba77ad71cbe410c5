"""The traces in trace_data/, and how each was made."""

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

from cluster_exp.inputs.generate import GeneratorConfig, generate_trace, write_trace

_SMALL_CLUSTER_WEIGHTS: Mapping[int, float] = MappingProxyType({1: 0.5, 2: 0.22, 4: 0.2, 8: 0.08})

SHIPPED_TRACES: Mapping[str, GeneratorConfig] = MappingProxyType(
    {
        "demo.csv": GeneratorConfig(
            num_jobs=60,
            seed=10,
            cluster_gpus=8,
            load=5.0,
            gpu_weights=_SMALL_CLUSTER_WEIGHTS,
            median_duration_s=1_400.0,
            duration_sigma=0.8,
            min_duration_s=300.0,
            max_duration_s=6_000.0,
            burst_size=2.0,
            day_swing=0.0,
        ),
        "small.csv": GeneratorConfig(
            num_jobs=12,
            seed=1,
            cluster_gpus=8,
            load=1.5,
            gpu_weights=_SMALL_CLUSTER_WEIGHTS,
            median_duration_s=300.0,
            duration_sigma=0.8,
            min_duration_s=60.0,
            max_duration_s=1_200.0,
            day_swing=0.0,
        ),
        "philly_1000.csv": GeneratorConfig(num_jobs=1_000, seed=1, cluster_gpus=64, load=0.9),
    }
)


def write_shipped(folder: str | Path) -> None:
    """Writes all shipped traces into an existing folder. Raises OSError."""
    for name, config in SHIPPED_TRACES.items():
        write_trace(Path(folder) / name, generate_trace(config))
