import math
import time
from pathlib import Path

import pytest

from cluster_exp.domain.cluster import NodeSpec
from cluster_exp.domain.errors import InputError
from cluster_exp.inputs.clusters import MAX_NODES, read_cluster

SPECS = Path(__file__).parents[2] / "cluster_spec"
HEAD = "num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node\n"
DEEP = "nodes: " + "[" * 5000

BAD_CSV = [
    ("", "1:1", "is empty"),
    (HEAD, "2:1", "the cluster has no nodes"),
    (HEAD + "0,8,8,92,520\n", "2:1", "num_switch: '0': the cluster has no nodes"),
    (HEAD + "1,0,8,92,520", "2:2", "num_node_p_switch: '0': the cluster has no nodes"),
    (HEAD + "1,8,0,92,520", "2:3", "num_gpu_p_node: '0' is out of range; allowed: a whole number from 1 to 1024"),
    (HEAD + "1,8,x,92,520", "2:3", "num_gpu_p_node: 'x' is not a number"),
    (HEAD + "1,8,8,nan,520", "2:4", "num_cpu_p_node: 'nan' is out of range"),
    (HEAD + "1,8,8,92,-1", "2:5", "mem_p_node: '-1' is out of range"),
    (HEAD + "1000,1000,8,92,520", "2:2", "more than 100,000 nodes"),
    (HEAD + "1e9,8,8,92,520", "2:1", "num_switch: '1e9' is out of range"),
    (HEAD + "1,8,8,92", "2:5", "4 fields where the header has 5"),
    (HEAD.replace("\n", ",num_gpu_p_node\n") + "1,8,8,92,520,8", "1:6", "column num_gpu_p_node stands twice"),
    (HEAD.replace("mem_p_node", "mem") + "1,8,8,92,520", "1:6", "column mem_p_node is missing"),
    (HEAD.replace("\n", ",colour\n") + "1,8,8,92,520,red", "1:6", "unknown column 'colour'"),
]

BAD_YAML = [
    ("", "1:1", "is empty"),
    ("# nothing\n", "1:1", "is empty"),
    ("3", "1:1", "a cluster is a mapping"),
    ("- gpus: 4\n", "1:1", "a cluster is a mapping"),
    ("{}", "1:1", "key nodes is missing"),
    ("nodes:\n", "1:7", "key nodes is missing"),
    ("node:\n  - gpus: 4\n", "1:1", "unknown key 'node'; did you mean nodes?"),
    ("nodes: 7\n", "1:8", "a list of nodes is needed"),
    ("nodes: []\n", "1:8", "the cluster has no nodes"),
    ("nodes:\n  - gpus: 4\n    count: 0\n", "2:3", "the cluster has no nodes"),
    ("nodes:\n  - 4\n", "2:5", "a node is a mapping"),
    ("nodes:\n  - name: a\n", "2:5", "key gpus is missing"),
    ("nodes:\n  - gpus:\n", "2:10", "key gpus is missing"),
    ("nodes:\n  - gpu: 4\n", "2:5", "unknown key 'gpu'; did you mean gpus?"),
    ("nodes:\n  - gpus: four\n", "2:11", "gpus: 'four' is not a number"),
    ("nodes:\n  - gpus: 0\n", "2:11", "gpus: '0' is out of range"),
    ("nodes:\n  - gpus: .nan\n", "2:11", "gpus: '.nan' is not a number"),
    ("nodes:\n  - gpus: [4]\n", "2:11", "gpus: a single value is needed"),
    ("nodes:\n  - gpus: 4\n    gpu_memory_mib: 0\n", "3:21", "gpu_memory_mib: '0' is out of range"),
    ("nodes:\n  - gpus: 4\n    gpus: 8\n", "3:5", "key 'gpus' stands twice, first at"),
    ("nodes:\n  - gpus: 4\n    count: 999999999999\n", "3:12", "count: '999999999999' is out of range"),
    ("nodes:\n" + "  - {gpus: 1, count: 60000}\n" * 2, "3:22", "more than 100,000 nodes"),
    ("nodes:\n  - {gpus: 4, name: a}\n  - {gpus: 4, name: a}\n", "3:21", "name: 'a' is the name of the node at"),
    ("nodes:\n  - {gpus: 4, name: n1}\n  - {gpus: 4}\n", "3:5", "name: 'n1' is the name"),
    ("nodes:\n  - ? [a]\n    : 4\n", "2:7", "a key: a single value is needed"),
    ("nodes: &a\n  - *a\n", "2:5", "aliases are not allowed"),
    ("a: &a [x]\nb: [*a, *a]\n", "2:5", "aliases are not allowed"),
    (DEEP, "1:23", "nested deeper than 16 levels"),
    ("nodes: [\n", "2:1", "not usable YAML"),
    ("nodes:\n\t- gpus: 4\n", "2:1", "not usable YAML"),
    ("nodes: []\n---\nnodes: []\n", "2:1", "not usable YAML"),
    ('nodes: "\\UFFFFFFFF"\n', "1:11", "a number is too large"),
    ("nodes:\n  - gpus: 4\n    name: \x07\n", "3:11", "character U+0007 is not allowed"),
    ("nodes:\n  - !!python/object/apply:os.system {gpus: 4}\n  - {gpus: x}\n", "3:12", "'x' is not a number"),
]


@pytest.mark.parametrize(
    ("name", "text", "place", "words"),
    [("c.csv", *case) for case in BAD_CSV] + [("c.yaml", *case) for case in BAD_YAML],
)
def test_a_bad_cluster_is_refused_with_its_place(tmp_path, name, text, place, words):
    path = tmp_path / name
    path.write_text(text)
    with pytest.raises(InputError) as caught:
        read_cluster(path)
    assert caught.value.where == f"{path}:{place}", str(caught.value)
    message = str(caught.value)
    assert words in message
    assert "\n" not in message


def test_files_that_cannot_be_read_are_named(tmp_path):
    with pytest.raises(InputError, match="no such file"):
        read_cluster(tmp_path / "none.yaml")
    with pytest.raises(InputError, match=r"ends in \.csv, \.yaml, \.yml"):
        read_cluster(tmp_path / "cluster.json")
    directory = tmp_path / "d.csv"
    directory.mkdir()
    with pytest.raises(InputError, match="is a directory"):
        read_cluster(directory)
    large = tmp_path / "large.yaml"
    large.write_text("#" * (1024 * 1024 + 1))
    with pytest.raises(InputError, match="larger than 1,048,576 bytes"):
        read_cluster(large)


def test_csv_nodes_are_numbered_over_the_switches(tmp_path):
    path = tmp_path / "c.csv"
    path.write_text(HEAD + "\n2,2,4,46,260\n1,1,8,0,0")
    nodes = read_cluster(path).nodes
    assert [(node.name, node.num_gpu, node.switch) for node in nodes] == [
        ("n0", 4, 0),
        ("n1", 4, 0),
        ("n2", 4, 1),
        ("n3", 4, 1),
        ("n4", 8, 2),
    ]
    assert nodes[0].num_cpu == 46
    assert nodes[0].memory_gib == 260.0
    assert math.isnan(nodes[4].memory_gib)


def test_yaml_states_all_that_a_node_has(tmp_path):
    path = tmp_path / "c.yml"
    path.write_text(
        "nodes:\n- {name: a, host: h, gpus: 8, gpu_type: v100, gpu_memory_mib: 32768, cpus: 96, memory_gib: 0.5,"
        " switch: 3}\n"
    )
    assert read_cluster(path).nodes == (NodeSpec("a", 8, "h", "v100", 32768.0, 96, 0.5, 3),)


def test_count_repeats_a_node(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(
        "nodes:\n- {gpus: 1}\n- {name: x, gpus: 2, count: 2}\n"
        "- {name: 'g{i}h', host: '10.0.0.{i}', gpus: 4, count: 2}\n- {gpus: 8, count: 2}\n"
    )
    nodes = read_cluster(path).nodes
    assert [node.name for node in nodes] == ["n0", "x0", "x1", "g0h", "g1h", "n5", "n6"]
    assert [node.host for node in nodes[3:5]] == ["10.0.0.0", "10.0.0.1"]


def test_the_largest_cluster_is_read_quickly(tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(f"nodes: [{{gpus: 8, count: {MAX_NODES}}}]\n")
    begin = time.process_time()
    assert len(read_cluster(path).nodes) == MAX_NODES
    assert time.process_time() - begin < 10


@pytest.mark.parametrize(
    ("name", "num_nodes", "num_gpu"),
    [("n1g8.csv", 1, 8), ("n2g4.csv", 2, 8), ("n2g16.csv", 2, 32), ("n8g8.csv", 8, 64), ("example.yaml", 7, 28)],
)
def test_the_shipped_specs(name, num_nodes, num_gpu):
    cluster = read_cluster(SPECS / name)
    assert (len(cluster.nodes), cluster.num_gpu) == (num_nodes, num_gpu)
