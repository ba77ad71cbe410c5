"""Profile tables: the stage times of models."""

import csv
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path

from cluster_exp.domain.errors import InputError
from cluster_exp.domain.profile import ProfileKey, StageProfile
from cluster_exp.inputs.stages import (
    BATCH,
    FOUR_COLUMNS,
    GPUS,
    ITERATION_COLUMN,
    POSITIVE_MS,
    STAGE_COLUMNS,
    read_stages,
    stage_columns,
)
from cluster_exp.inputs.table import Table
from cluster_exp.inputs.text import Span, nearest, shown

_DATA = Path(__file__).parent / "data"
_KEY_COLUMNS = ("model_name", "batch_size", "num_gpu")
_MEMORY_COLUMN = "gpu_memory_mib"
_OPTIONAL_COLUMNS = frozenset({"gpu_type", "spread", _MEMORY_COLUMN})
_SPREAD = Span(1, 1_000_000)
_MEMORY = Span(0, 1e9, above=True, unit="MiB")
_WRITTEN = (*_KEY_COLUMNS, "gpu_type", "spread", ITERATION_COLUMN, *FOUR_COLUMNS, _MEMORY_COLUMN)


class ProfileTable:
    """Stage profiles by what they depend on."""

    def __init__(self, profiles: Mapping[ProfileKey, StageProfile] | None = None) -> None:
        self._profiles = dict(profiles or {})
        self._gpu_memory_mib: dict[ProfileKey, float] = {}

    def __len__(self) -> int:
        return len(self._profiles)

    def __iter__(self) -> Iterator[ProfileKey]:
        return iter(self._profiles)

    def __getitem__(self, key: ProfileKey) -> StageProfile:
        """The profile under exactly this key. Raises KeyError."""
        return self._profiles[key]

    def add(self, key: ProfileKey, profile: StageProfile, gpu_memory_mib: float | None = None) -> None:
        """Adds a profile and the peak memory per GPU, if known, or replaces those under the same key."""
        self._profiles[key] = profile
        self._gpu_memory_mib.pop(key, None)
        if gpu_memory_mib is not None:
            self._gpu_memory_mib[key] = gpu_memory_mib

    def gpu_memory_mib(self, key: ProfileKey) -> float | None:
        """Peak memory per GPU under exactly this key; None = not known."""
        return self._gpu_memory_mib.get(key)

    def update(self, others: "ProfileTable") -> None:
        """Adds all of another table; under a key of both, the other's counts."""
        for key in others:
            self.add(key, others[key], others.gpu_memory_mib(key))

    def find(self, key: ProfileKey) -> StageProfile | None:
        """The profile under the key, else of spread 1, else also of no stated GPU type, else None."""
        for near in (key, replace(key, spread=1), replace(key, spread=1, gpu_type="")):
            if (profile := self._profiles.get(near)) is not None:
                return profile
        return None

    @property
    def models(self) -> tuple[str, ...]:
        """Names of the models, sorted."""
        return tuple(sorted({key.model for key in self._profiles}))

    def keys_of(self, model: str) -> tuple[ProfileKey, ...]:
        """All keys of a model, by batch size, GPUs, type of GPU and spread."""
        keys = (key for key in self._profiles if key.model == model)
        return tuple(sorted(keys, key=lambda key: (key.batch_size, key.num_gpu, key.gpu_type, key.spread)))

    def what_is_known(self, key: ProfileKey) -> tuple[str, str]:
        """For a key that `find` does not know: the trace column to blame, and what is known, in words."""
        keys = self.keys_of(key.model)
        if not keys:
            return "model_name", f"no stage times of such a model; {nearest(key.model, self.models)}"
        of_batch = sorted({near.num_gpu for near in keys if near.batch_size == key.batch_size})
        if not of_batch:
            known = ", ".join(str(size) for size in sorted({near.batch_size for near in keys}))
            return "batch_size", f"no stage times of {key.model} with that batch size; known: {known}"
        known = ", ".join(map(str, of_batch))
        return "num_gpu", f"no stage times of {key.model}/{key.batch_size} on so many GPUs; known: {known}"


def read_profiles(path: str | Path) -> ProfileTable:
    """The profiles of a CSV file.

    Columns model_name, batch_size (samples per GPU), num_gpu, iteration_time (ms), resource_time_0 to _2 (ms:
    cpu, gpu, network) or storage_time, cpu_time, gpu_time, network_time (ms); optionally gpu_type, spread
    (nodes) and gpu_memory_mib (peak per GPU).

    Raises:
        InputError: at the first unusable field, at a key that stands twice, and when there is no row.
    """
    table = Table(Path(path))
    known = {*_KEY_COLUMNS, *_OPTIONAL_COLUMNS, *STAGE_COLUMNS}
    strangers = table.check_columns((*_KEY_COLUMNS, ITERATION_COLUMN), known)
    if strangers:
        message = f"unknown column {shown(strangers[0])}; {nearest(strangers[0], known)}"
        raise table.header_error(table.fields[strangers[0]], message)
    columns = stage_columns(table)
    if not columns:
        table.check_columns(("resource_time_0",), ())
    profiles = ProfileTable()
    first_line: dict[ProfileKey, int] = {}
    for row in table:
        model = row.name("model_name")
        if not model:
            raise row.error("model_name", "model_name: is empty; a name is needed")
        key = ProfileKey(
            model,
            row.integer("batch_size", BATCH),
            row.integer("num_gpu", GPUS),
            row.name("gpu_type"),
            row.integer("spread", _SPREAD) if row.text("spread") else 1,
        )
        iteration_s = row.number(ITERATION_COLUMN, POSITIVE_MS) / 1000
        stages = read_stages(row, columns)
        if stages is None:
            raise row.error(columns[0], f"{columns[0]}: is empty; stage times are needed (ms)")
        if (line := first_line.setdefault(key, row.line)) != row.line:
            raise row.error("model_name", f"model_name: line {line} has the same model, batch size and GPUs")
        memory_mib = row.number(_MEMORY_COLUMN, _MEMORY) if row.text(_MEMORY_COLUMN) else None
        profiles.add(key, StageProfile(iteration_s, *stages), memory_mib)
    if not len(profiles):
        raise InputError("has no rows", where=f"{table.path}:{table.header_line + 1}:1")
    return profiles


def write_profiles(path: Path, profiles: ProfileTable) -> None:
    """Writes a table that `read_profiles` reads, in place of the file that is there. Raises OSError."""
    draft = path.with_name(f"{path.name}.tmp")
    with draft.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(_WRITTEN)
        for key in (key for model in profiles.models for key in profiles.keys_of(model)):
            profile, memory_mib = profiles[key], profiles.gpu_memory_mib(key)
            times = (f"{seconds * 1000:.6g}" for seconds in (profile.iteration_s, *profile.stages))
            memory = "" if memory_mib is None else f"{memory_mib:.6g}"
            writer.writerow(
                (key.model, key.batch_size, key.num_gpu, key.gpu_type, key.spread, *times, memory),
            )
        file.flush()
        os.fsync(file.fileno())
    os.replace(draft, path)


def default_profiles() -> ProfileTable:
    """The eight models of Muri (SIGCOMM 2022) on 1 to 32 V100 GPUs; see data/README.md."""
    return read_profiles(_DATA / "stage_times.csv")
