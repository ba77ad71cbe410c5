"""Which program trains which model: the YAML file that makes the jobs of a trace real ones."""

import string
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from cluster_exp.domain.errors import InputError
from cluster_exp.domain.job import JobSpec
from cluster_exp.inputs import yaml_tree
from cluster_exp.inputs.text import nearest, read_text, shown

MOST_WORDS = 200
_MAX_BYTES = 1_000_000
_KEYS = ("commands", "emulated")
_NAMES = ("python", "job_id", "model", "batch_size", "num_gpu")  # what may stand in braces
_KEPT = {"python": "{python}"}  # each worker puts in its own


@dataclass(frozen=True, slots=True)
class Workloads:
    """What a file says."""

    path: Path
    commands: Mapping[str, tuple[str, ...]]  # argument lists by model; `{name}` stands for a property of the job
    emulated: frozenset[str]  # models of which trainers are emulated

    def applied(self, jobs: Iterable[JobSpec]) -> tuple[JobSpec, ...]:
        """The jobs with their commands. Raises InputError for a model that the file does not name."""
        return tuple(job if job.model in self.emulated else self._with_command(job) for job in jobs)

    def _with_command(self, job: JobSpec) -> JobSpec:
        template = self.commands.get(job.model)
        if template is None:
            known = nearest(job.model, sorted({*self.commands, *self.emulated}))
            message = f"names no command for model {shown(job.model)} of job {job.job_id}; {known}"
            raise InputError(f"{message}; add one, or the model to `emulated`", where=str(self.path))
        values = {
            **_KEPT,
            "job_id": job.job_id,
            "model": job.model,
            "batch_size": job.batch_size,
            "num_gpu": job.num_gpu,
        }
        return replace(job, command=tuple(word.format_map(values) for word in template))


def read_workloads(path: Path) -> Workloads:
    """Reads a file of commands (docs/running-a-testbed.md).

    Raises:
        InputError: the file cannot be read, or something in it is unknown; with file:line:column.
    """
    root = yaml_tree.compose(path, read_text(path, _MAX_BYTES), "a mapping with the key commands")
    if not isinstance(root, yaml_tree.Mapping):
        raise root.error("a mapping with the key commands is needed")
    root.check_keys(_KEYS, required=())
    commands: dict[str, tuple[str, ...]] = {}
    if "commands" in root:
        named = root["commands"]
        if not isinstance(named, yaml_tree.Mapping):
            raise named.error("commands: a mapping of models to lists of words is needed")
        commands = {model: _words(model, value) for model, value in named.items()}
    emulated: frozenset[str] = frozenset()
    if "emulated" in root:
        listed = root["emulated"]
        if not isinstance(listed, yaml_tree.Sequence):
            raise listed.error("emulated: a list of models is needed")
        emulated = frozenset(entry.scalar("emulated") for entry in listed)
    both = sorted(emulated & commands.keys())
    if both:
        raise root["emulated"].error(f"emulated: {shown(both[0])} has a command too")
    if not commands:
        raise root.error("commands: at least one model is needed")
    return Workloads(path, commands, emulated)


def _words(model: str, value: yaml_tree.Value) -> tuple[str, ...]:
    """The argument list of a model."""
    if not isinstance(value, yaml_tree.Sequence):
        raise value.error(f'{model}: a list of words is needed, as ["{{python}}", -m, workloads.resnet18]')
    words = []
    for entry in value:
        word = entry.scalar(model)
        try:
            parts = list(string.Formatter().parse(word))
        except ValueError as error:
            raise entry.error(f"{model}: {shown(word)}: {error}; a brace itself is written twice") from None
        for _, name, form, conversion in parts:
            if name is not None and (name not in _NAMES or form or conversion):
                allowed = ", ".join(f"{{{known}}}" for known in _NAMES)
                raise entry.error(f"{model}: {shown(word)}: allowed in braces: {allowed}")
        words.append(word)
    if not words or not words[0] or len(words) > MOST_WORDS:
        raise value.error(f"{model}: {len(words)} words; allowed: 1 to {MOST_WORDS}, the first one a program")
    return tuple(words)
