"""Reads a sweep's file (YAML). Docs: docs/sweeps.md."""

from collections.abc import Callable, Hashable, Iterable
from dataclasses import fields
from pathlib import Path
from typing import TypeVar

from cluster_exp.core.placement import PLACEMENTS
from cluster_exp.domain.cluster import ClusterSpec
from cluster_exp.domain.errors import InputError
from cluster_exp.domain.snapshot import Ended
from cluster_exp.inputs.clusters import read_cluster
from cluster_exp.inputs.generate import GeneratorConfig
from cluster_exp.inputs.profiles import default_profiles
from cluster_exp.inputs.text import CellError, Span, nearest, parse_integer, parse_number, read_text, shown
from cluster_exp.inputs.traces import read_trace
from cluster_exp.inputs.yaml_tree import Mapping, Sequence, Value, compose
from cluster_exp.interleave.contention import CONTENTIONS
from cluster_exp.interleave.speed import SPEED_MODELS
from cluster_exp.policies.registry import make_policy
from cluster_exp.results.history import read_history
from cluster_exp.results.journal import Detail
from cluster_exp.sim.simulate import COST_MODELS
from cluster_exp.sweep.sources import ClusterSource, FileTrace, GeneratedTrace, TraceSource
from cluster_exp.sweep.spec import DEFAULT, SweepSpec, label

REQUIRED_KEYS = ("policies", "traces", "clusters")
KEYS = (
    *REQUIRED_KEYS,
    *("seeds", "interval", "cost_model", "speed_model", "contention", "placement", "start_cost"),
    *("journal", "drop_unfit"),
)

MAX_RUNS = 100_000

_MAX_BYTES = 1024 * 1024
_SHAPE = tuple(item.name for item in fields(GeneratorConfig) if isinstance(item.default, float))
_COUNT = Span(0, 1e9)
_SEED = Span(0, 1e18)
_AMOUNT = Span(0, 1e18)
_SECONDS = Span(0, 1e12, unit="seconds")
_LEAST_INTERVAL_S = 0.001  # shorter ones are lost in the rounding of long times
_SWITCH = {"yes": True, "true": True, "no": False, "false": False}
# What the generator calls a key.
_GENERATOR_KEYS = {"num_jobs": "jobs", "cluster_gpus": "cluster"}

Item = TypeVar("Item", bound=Hashable)
Source = TypeVar("Source", ClusterSource, TraceSource)
Parse = Callable[[str, Value], Item]  # takes the key and the value under it


def read_spec(path: Path) -> SweepSpec:
    """The sweep in a YAML file; every file that it names is read once, to see that it can be.

    Raises:
        InputError: at the first unusable value, as file:line:column; also for an unknown key or policy, an empty
            list, and a trace or a cluster that cannot be read or do not fit each other.
    """
    needed = f"a mapping with the keys {', '.join(REQUIRED_KEYS)}"
    root = compose(path, read_text(path, _MAX_BYTES), needed)
    if not isinstance(root, Mapping):
        raise root.error(f"a sweep is {needed}")
    root.check_keys(KEYS, REQUIRED_KEYS)
    return _Reader(path.parent, root).read()


class _Reader:
    def __init__(self, folder: Path, root: Mapping) -> None:
        self._folder = folder
        self._root = root
        self._files: dict[str, Path] = {}
        self._warnings: dict[str, None] = {}  # in order, each once

    def read(self) -> SweepSpec:
        """The sweep. Raises InputError."""
        policies = self._axis("policies", self._policy)
        seeds = self._axis("seeds", _integer(_SEED), 0)
        intervals_s = self._axis("interval", _interval_s, 0.0)
        cost_models = self._axis("cost_model", _one_of(COST_MODELS), "physical")
        speed_models = self._axis("speed_model", _or_default(_one_of(SPEED_MODELS)), None)
        contentions = self._axis("contention", _one_of(CONTENTIONS), "none")
        placements = self._axis("placement", _or_default(_one_of(PLACEMENTS)), None)
        start_costs_s = self._axis("start_cost", _or_default(_seconds), None)
        detail = Detail(self._word("journal", [detail.value for detail in Detail], Detail.NONE.value))
        drop_unfit = _SWITCH[self._word("drop_unfit", _SWITCH, "no")]
        clusters = self._named("clusters", self._cluster)
        traces = self._named("traces", self._trace)
        spec = SweepSpec(
            policies=policies,
            traces=tuple(trace for _, trace in traces),
            clusters=tuple(cluster for _, cluster in clusters),
            seeds=seeds,
            intervals_s=intervals_s,
            cost_models=cost_models,
            speed_models=speed_models,
            contentions=contentions,
            placements=placements,
            start_costs_s=start_costs_s,
            detail=detail,
            drop_unfit=drop_unfit,
            folder=self._folder,
            num_jobs=self._num_jobs(traces, clusters, drop_unfit=drop_unfit),
            files=self._files,
            warnings=(*self._warnings, *_idle_seeds(self._root, seeds, traces)),
        )
        if spec.num_runs > MAX_RUNS:
            raise self._root.error(f"the grid has {spec.num_runs:,} runs; allowed: at most {MAX_RUNS:,}")
        return spec

    def _items(self, key: str) -> list[Value]:
        """The values under a key, which may be one; none when the key is not given."""
        if key not in self._root:
            return []
        value = self._root[key]
        items = list(value) if isinstance(value, Sequence) else [value]
        if not items:
            raise value.error(f"{key}: the list is empty, so there is nothing to run; a value is needed")
        return items

    def _axis(self, key: str, parse: "Parse[Item]", *default: Item) -> tuple[Item, ...]:
        values: dict[Item, str] = {}
        for item in self._items(key):
            value = parse(key, item)
            if value in values:
                raise item.error(f"{key}: {label(value)} stands twice, first at {values[value]}")
            values[value] = item.where
        return tuple(values) or default

    def _word(self, key: str, allowed: Iterable[str], default: str) -> str:
        return _one_of(allowed)(key, self._root[key]) if key in self._root else default

    def _named(self, key: str, parse: "Callable[[Value], Source]") -> list[tuple[Value, Source]]:
        """The sources under a key, each with its place; their names are unique."""
        found: list[tuple[Value, Source]] = []
        places: dict[str, str] = {}
        for item in self._items(key):
            source = parse(item)
            if source.name in places:
                at = places[source.name]
                raise item.error(
                    f"{key}: {shown(source.name)} is the name of the one at {at} too; state another name"
                )
            places[source.name] = item.where
            found.append((item, source))
        return found

    def _file(self, value: Value, given: str) -> Path:
        if not given.strip():
            raise value.error("a file's path is needed")
        self._files[given] = self._folder / given
        return self._files[given]

    def _policy(self, key: str, value: Value) -> str:
        """The policy's name, aliases resolved."""

        def history(given: str) -> tuple[Ended, ...]:
            return read_history(str(self._file(value, given)))

        try:
            return make_policy(value.scalar(key), history).name
        except InputError as error:
            raise _at(value, error) from None

    def _cluster(self, value: Value) -> ClusterSource:
        name, path = "", value
        if isinstance(value, Mapping):
            value.check_keys(("name", "path"), ("path",))
            name, path = value.text("name", ""), value["path"]
        given = path.scalar("clusters")
        try:
            num_gpu = read_cluster(self._file(path, given)).num_gpu
        except InputError as error:
            raise _at(path, error) from None
        return ClusterSource(name or Path(given).stem, given, self._folder / given, num_gpu)

    def _trace(self, value: Value) -> TraceSource:
        if not isinstance(value, Mapping):
            return self._file_trace("", value)
        value.check_keys(("name", "path", "generate"), ())
        name = value.text("name", "")
        if ("path" in value) == ("generate" in value):
            raise value.error("traces: a mapping has either the key path or the key generate")
        if "path" in value:
            return self._file_trace(name, value["path"])
        generate = value["generate"]
        if not isinstance(generate, Mapping):
            raise generate.error("generate: a mapping with the key jobs is needed")
        return self._generated(name or "generated", generate)

    def _file_trace(self, name: str, value: Value) -> FileTrace:
        given = value.scalar("traces")
        path = self._file(value, given)
        return FileTrace(name or Path(given).stem, given, path)

    def _generated(self, name: str, generate: Mapping) -> GeneratedTrace:
        generate.check_keys(("jobs", "seed", "cluster", *_SHAPE), ("jobs",))
        trace = GeneratedTrace(
            name=name,
            num_jobs=generate.integer("jobs", _COUNT, 0),
            shape=tuple((key, generate.number(key, _AMOUNT, 0.0)) for key in _SHAPE if key in generate),
            seed=generate.integer("seed", _SEED, 0) if "seed" in generate else None,
            cluster=self._cluster(generate["cluster"]) if "cluster" in generate else None,
        )
        try:
            trace.config(num_gpu=1, seed=0)
        except InputError as error:
            key = _GENERATOR_KEYS.get(error.where, error.where)
            raise generate.at(key).error(f"{key}: {str(error).removeprefix(f'{error.where}: ')}") from None
        return trace

    def _num_jobs(
        self,
        traces: Iterable[tuple[Value, TraceSource]],
        clusters: Iterable[tuple[Value, ClusterSource]],
        *,
        drop_unfit: bool,
    ) -> dict[tuple[str, str], int]:
        """Jobs of each trace on each cluster, once it is sure that they fit. Raises InputError."""
        specs = [(source.name, source.read()) for _, source in clusters]
        counts = {}
        for value, trace in traces:
            for name, cluster in specs:
                try:
                    counts[trace.name, name] = self._fitting(trace, name, cluster, drop_unfit=drop_unfit)
                except InputError as error:
                    raise _at(value, error) from None
        return counts

    def _fitting(self, trace: TraceSource, name: str, cluster: ClusterSpec, *, drop_unfit: bool) -> int:
        if isinstance(trace, FileTrace):
            read = read_trace(trace.path, default_profiles(), cluster, drop_unfit=drop_unfit)
            self._warnings |= dict.fromkeys(read.warnings)
            return len(read.jobs)
        largest = trace.largest(cluster.num_gpu)
        if largest > cluster.num_gpu and not drop_unfit:
            message = f"has jobs of up to {largest} GPUs where cluster {name} has {cluster.num_gpu}"
            raise InputError(f"{message}; allowed with drop_unfit: yes", where=trace.name)
        return trace.num_jobs


def _at(value: Value, error: InputError) -> InputError:
    """The error at its place in the sweep's file; a file that it is about stays named, an option does not."""
    message = str(error)
    return value.error(message.removeprefix(f"{error.where}: ") if error.where.startswith("--") else message)


def _idle_seeds(root: Mapping, seeds: tuple[int, ...], traces: Iterable[tuple[Value, TraceSource]]) -> list[str]:
    idle = [trace.name for _, trace in traces if not trace.needs_seed] if len(seeds) > 1 else []
    if not idle:
        return []
    return [f"{root['seeds'].where}: seeds make no difference to traces that are read: {', '.join(idle)}"]


def _one_of(allowed: Iterable[str]) -> "Parse[str]":
    names = tuple(allowed)

    def parse(key: str, value: Value) -> str:
        name = value.scalar(key)
        if name not in names:
            raise value.error(f"{key}: {shown(name)} is not known; {nearest(name, names)}")
        return name

    return parse


def _or_default(parse: "Parse[Item]") -> "Parse[Item | None]":
    return lambda key, value: None if value.scalar(key) == DEFAULT else parse(key, value)


def _integer(span: Span) -> "Parse[int]":
    def parse(key: str, value: Value) -> int:
        try:
            return parse_integer(value.scalar(key), span)
        except CellError as error:
            raise value.error(f"{key}: {error}") from None

    return parse


def _seconds(key: str, value: Value) -> float:
    try:
        return parse_number(value.scalar(key), _SECONDS)
    except CellError as error:
        raise value.error(f"{key}: {error}") from None


def _interval_s(key: str, value: Value) -> float:
    seconds = _seconds(key, value)
    if 0 < seconds < _LEAST_INTERVAL_S:
        allowed = f"0 (at every event), or from {_LEAST_INTERVAL_S:g} seconds on"
        raise value.error(f"{key}: {shown(value.scalar(key))}; allowed: {allowed}")
    return seconds
