"""Bad input gives one line that says where, what was given and what is allowed, and exit code 2."""

from pathlib import Path

import pytest

from cluster_exp.cli import main

ROOT = Path(__file__).parents[2]
TRACE = str(ROOT / "trace_data" / "small.csv")
CLUSTER = str(ROOT / "cluster_spec" / "n2g4.csv")
HEAD = "job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration\n"
NODES = "num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node\n"


def words(out: Path, **options: str) -> list[str]:
    given = {"policy": "srsf", "trace": TRACE, "cluster": CLUSTER, "mode": "sim", "out": str(out), **options}
    return [word for name, value in given.items() for word in (f"--{name.replace('_', '-')}", value)]


def refused(argv: list[str], capsys) -> str:
    """The one line that a command printed when it refused."""
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    (line,) = captured.err.splitlines()
    assert line.startswith("error: ")
    return line


OPTIONS = {
    "policy": (["--policy: ", "'srsff'", "'srsf'", "fifo, sjf"], {"policy": "srsff"}),
    "one of several policies": (["--policy: ", "'nope'"], {"policy": "fifo,nope"}),
    "a policy twice": (["--policy: ", "twice"], {"policy": "fifo,fifo"}),
    "a comma": (["--policy: ", "','", "NAME"], {"policy": ","}),
    "an empty name": (["--policy: ", "'srsf,'", "NAME"], {"policy": "srsf,"}),
    "mode": (["--mode: ", "'sin'", "'sim'", "sim, local, testbed"], {"mode": "sin"}),
    "cost model": (["--cost-model: ", "'phys'", "'physical'"], {"cost_model": "phys"}),
    "speed model": (["--speed-model: ", "'rate'", "'rates'"], {"speed_model": "rate"}),
    "contention": (["--contention: ", "'muri'", "'muri22'"], {"contention": "muri"}),
    "placement": (["--placement: ", "'yarm'", "'yarn'"], {"placement": "yarm"}),
    "journal": (["--journal: ", "'ful'", "'full'", "summary"], {"journal": "ful"}),
    "time scale 0": (["--time-scale: ", "0.0", "above 0"], {"time_scale": "0"}),
    "time scale nan": (["--time-scale: ", "nan", "above 0"], {"time_scale": "nan"}),
    "time scale inf": (["--time-scale: ", "inf", "at most 1e+09"], {"time_scale": "inf"}),
    "time scale out of reach": (["--time-scale: ", "1e+300", "at most"], {"time_scale": "1e300"}),
    "negative interval": (["--interval: ", "-1.0", "from 0"], {"interval": "-1"}),
    "infinite interval": (["--interval: ", "inf", "from 0"], {"interval": "inf"}),
    "an interval that no clock can tell": (["--interval: ", "1e-300", "from 0.001"], {"interval": "1e-300"}),
    "negative start cost": (["--start-cost: ", "-5.0", "from 0"], {"start_cost": "-5"}),
    "negative seed": (["--seed: ", "-1", "from 0"], {"seed": "-1"}),
    "a seed of 400 digits": (["--seed: ", "from 0 to"], {"seed": "9" * 400}),
    "empty speed model": (["--speed-model: ", "''", "rates"], {"speed_model": ""}),
    "empty placement": (["--placement: ", "''", "yarn"], {"placement": ""}),
    "a line break in a path": (["no where.csv: no such file"], {"trace": "no\nwhere.csv"}),
    "text for a number": (["--seed", "'x'", "--help"], {"seed": "x"}),
    "no trace file": (["nowhere.csv: no such file"], {"trace": "nowhere.csv"}),
    "no cluster file": (["nowhere.csv: no such file"], {"cluster": "nowhere.csv"}),
    "another kind of cluster file": (["cluster.txt", ".csv, .yaml, .yml"], {"cluster": "cluster.txt"}),
    "programs in a simulation": (["--workloads: ", "simulation", "local or testbed"], {"workloads": "w.yaml"}),
    "ranks of emulated jobs": (["--comm: ", "--workloads"], {"mode": "local", "comm": "torch"}),
    "another exchange": (["--comm: ", "'mpi'", "horovod, torch"], {"mode": "local", "workloads": "w", "comm": "mpi"}),
    "no file of programs": (["w.yaml: no such file"], {"mode": "local", "workloads": "w.yaml"}),
    "negative retries": (["--retries: ", "-1", "from 0"], {"retries": "-1"}),
    "a negative wait": (["--retry-wait: ", "-1.0", "from 0 to 600"], {"retry_wait": "-1"}),
    "a wait that is no number": (["--retry-wait: ", "nan", "from 0 to 600"], {"retry_wait": "nan"}),
    "negative iterations": (["--checkpoint-every: ", "-1", "from 0"], {"checkpoint_every": "-1"}),
    "unknown option": (["--polcy", "--help"], {"polcy": "srsf"}),
}


@pytest.mark.parametrize(("says", "options"), OPTIONS.values(), ids=OPTIONS)
def test_options(tmp_path, capsys, says, options):
    line = refused(words(tmp_path / "out", **options), capsys)
    assert [part for part in says if part not in line] == []
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("missing", ["policy", "trace", "cluster", "out"])
def test_what_is_needed(tmp_path, capsys, missing):
    given = words(tmp_path / "out")
    at = given.index(f"--{missing}")
    assert f"--{missing}: is missing" in refused(given[:at] + given[at + 2 :], capsys)


# Name: the trace, where in it, and what the line says besides.
TRACES = {
    "missing column": (HEAD.replace(",duration", "") + "a,1,0,1,bert,4\n", 1, ["duration is missing"]),
    "text": (HEAD + "a,1,soon,1,bert,4,10\n", 2, ["submit_time", "'soon'", "allowed"]),
    "nan": (HEAD + "a,1,0,1,bert,4,nan\n", 2, ["duration", "'nan'", "allowed"]),
    "negative duration": (HEAD + "a,1,0,1,bert,4,-1\n", 2, ["duration", "'-1'", "allowed"]),
    "zero duration": (HEAD + "a,1,0,1,bert,4,0\n", 2, ["duration", "'0'", "allowed"]),
    "zero GPUs": (HEAD + "a,0,0,1,bert,4,10\n", 2, ["num_gpu", "'0'", "allowed"]),
    "too many GPUs": (HEAD + "a,16,0,1,bert,4,10\n", 2, ["num_gpu", "16 GPUs", "1 to 8"]),
    "too many GPUs, and no stage times": (HEAD + "a,9,0,1,bert,4,10\n", 2, ["num_gpu", "9 GPUs", "1 to 8"]),
    "twice": (HEAD + "a,1,0,1,bert,4,10\n\na,1,0,1,bert,4,10\n", 4, ["job_id", "'a'", "line 2"]),
    "unknown model": (HEAD + "a,1,0,1,berd,4,10\n", 2, ["model_name", "'berd'", "did you mean bert"]),
    "empty": (HEAD, 2, ["no jobs"]),
    "nothing": ("", 1, ["is empty"]),
}


@pytest.mark.parametrize(("content", "at", "says"), TRACES.values(), ids=TRACES)
def test_traces(tmp_path, capsys, content, at, says):
    trace = tmp_path / "t.csv"
    trace.write_text(content)
    line = refused(words(tmp_path / "out", trace=str(trace)), capsys)
    assert line.startswith(f"error: {trace}:{at}:")
    assert [part for part in says if part not in line] == []
    assert not (tmp_path / "out").exists()


CLUSTERS = {
    "zero nodes": (NODES + "1,0,4,1,1\n", 2, ["no nodes", "allowed"]),
    "no rows": (NODES, 2, ["no nodes"]),
    "zero GPUs": (NODES + "1,1,0,1,1\n", 2, ["num_gpu_p_node", "'0'", "allowed"]),
}


@pytest.mark.parametrize(("content", "at", "says"), CLUSTERS.values(), ids=CLUSTERS)
def test_clusters(tmp_path, capsys, content, at, says):
    cluster = tmp_path / "c.csv"
    cluster.write_text(content)
    line = refused(words(tmp_path / "out", cluster=str(cluster)), capsys)
    assert line.startswith(f"error: {cluster}:{at}:")
    assert [part for part in says if part not in line] == []


def test_what_is_odd_but_allowed(tmp_path):
    trace = tmp_path / "t.csv"
    rows = "late,1,5000,1,bert,4,10\n\nearly,1,0,0,bert,4,10"  # not sorted, blank line, 0 iterations, no last newline
    trace.write_text(HEAD + rows)
    assert main(words(tmp_path / "out", trace=str(trace))) == 0
    lines = (tmp_path / "out" / "job.csv").read_text().splitlines()
    assert [line.split(",")[1] for line in lines[1:]] == ["early", "late"]


def test_an_out_directory_that_holds_a_run(tmp_path, capsys):
    out = tmp_path / "out"
    assert main(words(out / "fifo", policy="fifo")) == 0
    before = {path: path.read_bytes() for path in out.rglob("*") if path.is_file()}
    capsys.readouterr()
    for target, policy, says in (
        (out / "fifo", "srsf", "holds another run"),
        (out, "srsf", "holds runs (fifo)"),
        (out, "fifo,sjf", "holds another run"),
        (out / "fifo", "srtf,srsf", "holds another run"),
        (out / "fifo" / "run.json", "srsf", "is a file"),
        (out / "fifo" / "run.json" / "below", "srsf", "is a file"),
    ):
        line = refused(words(target, policy=policy), capsys)
        assert "--out: " in line
        assert says in line
    assert {path: path.read_bytes() for path in out.rglob("*") if path.is_file()} == before


@pytest.mark.parametrize("argv", [["nope"], [], ["calc"], ["worker", "--master", "x"], ["generate", "--jobs", "1"]])
def test_commands(argv, capsys):
    assert "--help" in refused(argv, capsys)


def test_a_directory_without_a_run(tmp_path, capsys):
    assert f"error: {tmp_path}: " in refused(["calc", str(tmp_path)], capsys)
    assert "cannot be read" in refused(["replay", str(tmp_path)], capsys)
