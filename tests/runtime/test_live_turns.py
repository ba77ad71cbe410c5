"""A whole live run, seen from outside: what the trainers' own timestamps say about turns."""

import csv
from collections import defaultdict
from itertools import pairwise
from pathlib import Path

import pytest

from cluster_exp.cli import main

pytestmark = [pytest.mark.live, pytest.mark.slow]

TRACE = """job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration
wide,4,0,1500,bert,4,285000
wide2,4,5000,330,resnet18,128,304000
a,1,0,1200,gpt2,4,511000
b,1,1000,1000,a2c,64,517000
c,1,2000,600,shufflenet_v2_x1_0,128,479000
d,1,3000,4000,vgg16,16,428000
e,2,4000,1500,vgg19,16,307000
f,2,4000,300,dqn,128,148000
"""
CLUSTER = "num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node\n1,2,2,8,64\n"


@pytest.mark.parametrize("speed_model", ["lockstep", "rates"])
def test_members_of_a_group_never_hold_one_resource_at_once(tmp_path: Path, speed_model: str) -> None:
    (tmp_path / "trace.csv").write_text(TRACE)
    (tmp_path / "cluster.csv").write_text(CLUSTER)
    out = tmp_path / "out"
    files = ["--trace", str(tmp_path / "trace.csv"), "--cluster", str(tmp_path / "cluster.csv"), "--out", str(out)]
    live = ["--mode", "local", "--time-scale", "150", "--interval", "60", "--stage-logs"]
    assert main(["--policy", "muri-s", *files, *live, "--speed-model", speed_model]) == 0
    stages: dict[tuple[str, str], list[tuple[int, int, str]]] = defaultdict(list)
    turns = 0
    for path in (out / "logs").glob("stages-*.csv"):
        with path.open(newline="") as file:
            for row in csv.DictReader(file):
                turns += row["turn"] == "1"
                for gpu in row["gpus"].split():
                    who = row["job_id"]
                    stages[gpu, row["resource"]].append((int(row["start_ns"]), int(row["end_ns"]), who))
    assert turns > 100
    assert {gpu for gpu, _ in stages} == {"0/0", "0/1", "1/0", "1/1"}
    for (gpu, resource), intervals in stages.items():
        for (_, end_ns, job), (start_ns, _, other) in pairwise(sorted(intervals)):
            assert job == other or start_ns >= end_ns, (gpu, resource, job, other, end_ns - start_ns)
    assert main(["replay", str(out)]) == 0
