"""Clusters: the nodes of a run, from a CSV or YAML file."""

import math
from pathlib import Path

from cluster_exp.domain.cluster import ClusterSpec, NodeSpec
from cluster_exp.domain.errors import InputError
from cluster_exp.inputs.table import Row, Table
from cluster_exp.inputs.text import Span, nearest, read_text, shown
from cluster_exp.inputs.yaml_tree import Mapping, Sequence, compose

MAX_NODES = 100_000

CSV_COLUMNS = ("num_switch", "num_node_p_switch", "num_gpu_p_node", "num_cpu_p_node", "mem_p_node")
NODE_KEYS = (
    "name",
    "host",
    "gpus",
    "gpu_type",
    "gpu_memory_mib",
    "cpus",
    "memory_gib",
    "switch",
    "count",
)

_MAX_YAML_BYTES = 1024 * 1024
_SUFFIXES = (".csv", ".yaml", ".yml")
_COUNT = Span(0, MAX_NODES)
_GPUS = Span(1, 1024)
_CPUS = Span(0, 1_000_000)
_SWITCH = Span(0, 1_000_000)
_MEMORY_GIB = Span(0, 1e9, unit="GiB")
_GPU_MEMORY_MIB = Span(0, 1e9, above=True, unit="MiB")
_INDEX = "{i}"


def read_cluster(path: str | Path) -> ClusterSpec:
    """The cluster in a .csv, .yaml or .yml file; both formats are described in docs/inputs.md.

    Raises:
        InputError: at the first unusable value, as file:line:field (CSV) or file:line:column (YAML); also when
            there is no node, or more than `MAX_NODES`.
    """
    path = Path(path)
    if path.suffix.lower() not in _SUFFIXES:
        raise InputError(f"a cluster file ends in {', '.join(_SUFFIXES)}", where=str(path))
    nodes = _csv_nodes(Table(path)) if path.suffix.lower() == ".csv" else _yaml_nodes(path)
    return ClusterSpec(tuple(nodes))


def _csv_nodes(table: Table) -> list[NodeSpec]:
    strangers = table.check_columns(CSV_COLUMNS, CSV_COLUMNS)
    if strangers:
        message = f"unknown column {shown(strangers[0])}; {nearest(strangers[0], CSV_COLUMNS)}"
        raise table.header_error(table.header.index(strangers[0]), message)
    nodes: list[NodeSpec] = []
    switches = 0
    row: Row | None = None
    for row in table:
        num_switch = row.integer("num_switch", _COUNT)
        per_switch = row.integer("num_node_p_switch", _COUNT)
        num_gpu = row.integer("num_gpu_p_node", _GPUS)
        num_cpu = row.integer("num_cpu_p_node", _CPUS)
        memory_gib = row.number("mem_p_node", _MEMORY_GIB)
        if len(nodes) + num_switch * per_switch > MAX_NODES:
            message = f"the cluster would have more than {MAX_NODES:,} nodes, the most that are allowed"
            raise row.error("num_node_p_switch", message)
        for node in range(num_switch * per_switch):
            switch = switches + node // per_switch
            name = f"n{len(nodes)}"
            nodes.append(NodeSpec(name, num_gpu, num_cpu=num_cpu, memory_gib=memory_gib or math.nan, switch=switch))
        switches += num_switch
    if row is None:
        raise InputError("the cluster has no nodes; a row is needed", where=f"{table.path}:{table.header_line + 1}:1")
    if not nodes:
        column = "num_node_p_switch" if row.integer("num_switch", _COUNT) else "num_switch"
        raise row.error(column, f"{column}: '0': the cluster has no nodes; allowed: 1 or more")
    return nodes


def _yaml_nodes(path: Path) -> list[NodeSpec]:
    root = compose(path, read_text(path, _MAX_YAML_BYTES), "a mapping with the key nodes")
    if not isinstance(root, Mapping):
        raise root.error("a cluster is a mapping with the key nodes")
    root.check_keys(("nodes",), required=("nodes",))
    entries = root["nodes"]
    if not isinstance(entries, Sequence):
        raise entries.error("nodes: a list of nodes is needed")
    nodes: list[NodeSpec] = []
    places: dict[str, str] = {}
    for entry in entries:
        if not isinstance(entry, Mapping):
            raise entry.error("a node is a mapping; " + nearest("", NODE_KEYS))
        for node in _entry_nodes(entry, len(nodes)):
            if node.name in places:
                at = places[node.name]
                raise entry.at("name").error(f"name: {shown(node.name)} is the name of the node at {at} too")
            places[node.name] = entry.where
            nodes.append(node)
    if not nodes:
        raise entries.error("the cluster has no nodes; at least one is needed")
    return nodes


def _entry_nodes(entry: Mapping, index: int) -> list[NodeSpec]:
    """The nodes of one entry; `index` nodes come before it."""
    entry.check_keys(NODE_KEYS, required=("gpus",))
    num_gpu = entry.integer("gpus", _GPUS, 0)
    count = entry.integer("count", _COUNT, 1)
    if index + count > MAX_NODES:
        message = f"the cluster would have more than {MAX_NODES:,} nodes, the most that are allowed"
        raise entry.at("count").error(message)
    name, host = entry.text("name", ""), entry.text("host", "127.0.0.1")
    if "count" in entry and name and _INDEX not in name:
        name += _INDEX
    gpu_type = entry.text("gpu_type", "")
    gpu_memory_mib = entry.number("gpu_memory_mib", _GPU_MEMORY_MIB, math.nan)
    num_cpu = entry.integer("cpus", _CPUS, 0)
    memory_gib = entry.number("memory_gib", _MEMORY_GIB, math.nan)
    switch = entry.integer("switch", _SWITCH, 0)
    return [
        NodeSpec(
            name=name.replace(_INDEX, str(number)) if name else f"n{index + number}",
            num_gpu=num_gpu,
            host=host.replace(_INDEX, str(number)),
            gpu_type=gpu_type,
            gpu_memory_mib=gpu_memory_mib,
            num_cpu=num_cpu,
            memory_gib=memory_gib,
            switch=switch,
        )
        for number in range(count)
    ]
