"""--faults on the command line."""

import json

from cluster_exp.cli import main

HEADER = (
    "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration,iteration_time,"
    "resource_time_0,resource_time_1,resource_time_2,priority\n"
)
TRACE = HEADER + "".join(
    f"{i},{1 + i % 2},{10 * i},{20 + 5 * i},resnet18,128,30000,1010,300,117,77,1\n" for i in range(6)
)
CLUSTER = "num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node\n1,2,2,46,260\n"


def run(tmp_path, capsys, *words: str) -> tuple[int, str, str]:
    trace, cluster = tmp_path / "trace.csv", tmp_path / "cluster.csv"
    trace.write_text(TRACE)
    cluster.write_text(CLUSTER)
    options = ["--policy", "srsf", "--trace", str(trace), "--cluster", str(cluster), "--out", str(tmp_path / "out")]
    code = main([*options, *words])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def test_a_simulated_run_meets_faults_and_says_which(tmp_path, capsys):
    code, out, err = run(tmp_path, capsys, "--faults", "seed=3,masters=2,workers=1,crashes=2,lost=0.05")
    assert code == 0, err
    assert "srsf jobs: finished 6, lost 0" in out
    noted = json.loads((tmp_path / "out" / "run.json").read_text())
    assert noted["faults_injected"]["masters killed"] == 2
    assert noted["jobs_lost"] == []
    assert main(["replay", str(tmp_path / "out")]) == 0


def test_live_clusters_are_not_broken(tmp_path, capsys):
    code, _, err = run(tmp_path, capsys, "--faults", "seed=3", "--mode", "local")
    assert code == 2
    assert "--faults: breaks simulated clusters; --mode local given, allowed: sim" in err
    assert not (tmp_path / "out").exists()
