"""A sweep's file: what it says, and what is refused, with the place."""

from pathlib import Path

import pytest

from cluster_exp.domain.errors import InputError
from cluster_exp.results.journal import Detail
from cluster_exp.sweep.grid import grid_of
from cluster_exp.sweep.reader import KEYS, read_spec

ROOT = Path(__file__).parents[2]
INPUTS = {"small.csv": ROOT / "trace_data" / "small.csv", "n2g4.csv": ROOT / "cluster_spec" / "n2g4.csv"}
LEAST = "policies: srsf\ntraces: small.csv\nclusters: n2g4.csv\n"
TINY = "num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node\n1,1,2,0,0\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name, path in INPUTS.items():
        (tmp_path / name).write_bytes(path.read_bytes())
    (tmp_path / "tiny.csv").write_text(TINY)
    return tmp_path


def write(folder: Path, text: str) -> Path:
    (folder / "sweep.yaml").write_text(text)
    return folder / "sweep.yaml"


def test_the_least_is_one_run_with_the_defaults_of_run(folder):
    spec = read_spec(write(folder, LEAST))
    grid = grid_of(spec)
    assert grid.names == ("srsf",)
    assert grid.varying == ()
    (cell,) = grid.cells
    assert list(cell.labels().values()) == [
        *("srsf", "small", "n2g4", "0", "0", "physical", "default", "none", "default", "default")
    ]
    assert (cell.num_jobs, cell.detail, spec.warnings) == (12, Detail.NONE, ())
    assert set(spec.files) == {"small.csv", "n2g4.csv"}


def test_every_key_is_an_axis(folder):
    text = """
policies: [fifo, "muri-s:order=worst", shortest]
traces:
  - small.csv
  - {name: copy, path: ./small.csv}
  - generate: {jobs: 30, load: 2, max_duration_s: 5000}
  - {name: fixed, generate: {jobs: 20, seed: 9, cluster: tiny.csv}}
clusters: [n2g4.csv, {name: same, path: n2g4.csv}]
seeds: [3, 4]
interval: [0, 60.5]
cost_model: [physical, muri22]
speed_model: [default, rates]
contention: [none, muri22]
placement: [default, yarn]
start_cost: [default, 0]
journal: summary
drop_unfit: yes
"""
    spec = read_spec(write(folder, text))
    grid = grid_of(spec)
    assert len(grid.cells) == len(set(grid.names)) == spec.num_runs == 3 * 4 * 2**8
    assert spec.policies == ("fifo", "muri-s:order=worst", "srtf")
    assert [trace.name for trace in spec.traces] == ["small", "copy", "generated", "fixed"]
    assert (spec.detail, spec.drop_unfit) == (Detail.SUMMARY, True)
    assert spec.num_jobs["generated", "same"] == 30
    assert set(spec.files) == {"small.csv", "./small.csv", "n2g4.csv", "tiny.csv"}
    assert [cell.policy for cell in grid.cells[:4]] == ["fifo", "muri-s:order=worst", "srtf", "fifo"]
    assert [cell.seed for cell in grid.cells[:4]] == [3, 3, 3, 4]
    assert "small, copy, fixed" in spec.warnings[0]
    assert grid.names[1] == (
        "muri-s_order=worst_small_n2g4_seed=3_interval=0_cost_model=physical_speed_model=default"
        "_contention=none_placement=default_start_cost=default"
    )


def test_names_that_directories_cannot_have_are_told_apart(folder):
    long = "x" * 190
    traces = f"[{{name: a/b, path: small.csv}}, {{name: a b, path: small.csv}}, {{name: {long}, path: small.csv}}]"
    names = grid_of(read_spec(write(folder, LEAST.replace("small.csv", traces) + "seeds: [1234567, 2]"))).names
    assert len(set(names)) == 6
    assert [len(name) <= 209 and "/" not in name and " " not in name for name in names] == [True] * 6
    assert names[0].startswith("srsf_a_b_seed=1234567-")


def test_seeds_make_other_jobs_and_the_same_seed_the_same(folder):
    text = LEAST.replace("small.csv", "{generate: {jobs: 30}}") + "seeds: [1, 2]"
    spec = read_spec(write(folder, text))
    cluster = spec.clusters[0].read()
    (trace,) = spec.traces
    first, again, other = (trace.jobs(cluster, seed, drop_unfit=False) for seed in (1, 1, 2))
    assert repr(first) == repr(again)
    assert repr(first) != repr(other)
    assert spec.warnings == ()
    assert grid_of(spec).names == ("srsf_seed=1", "srsf_seed=2")
    fixed = read_spec(write(folder, text.replace("jobs: 30", "jobs: 30, seed: 2"))).traces[0]
    assert repr(fixed.jobs(cluster, 1, drop_unfit=False)) == repr(other)


def test_jobs_that_fit_no_cluster_are_left_out_when_asked(folder):
    text = LEAST.replace("n2g4", "tiny").replace("small.csv", "{generate: {jobs: 300, cluster: n2g4.csv}}")
    spec = read_spec(write(folder, text + "drop_unfit: true"))
    jobs = spec.traces[0].jobs(spec.clusters[0].read(), 0, drop_unfit=True)
    assert {job.num_gpu for job in jobs} == {1, 2}


REFUSED = {
    "no such key": (LEAST + "polices: fifo", "sweep.yaml:4:1: unknown key 'polices'; did you mean policies?"),
    "a key twice": (LEAST + "seeds: 1\nseeds: 2", "sweep.yaml:5:1: key 'seeds' stands twice"),
    "a missing key": ("policies: fifo\n", "sweep.yaml:1:1: key traces is missing"),
    "nothing": ("", "sweep.yaml:1:1: is empty; a mapping with the keys policies, traces, clusters is needed"),
    "a list": ("- fifo", "sweep.yaml:1:1: a sweep is a mapping"),
    "no YAML": ("policies: [", "sweep.yaml:1:12: is not usable YAML"),
    "an unknown policy": (
        LEAST.replace("srsf", "[fifo, srfs]"),
        "sweep.yaml:1:18: unknown policy 'srfs'; nearest is 'srtf'",
    ),
    "an unknown option": (LEAST.replace("srsf", "muri-s:x=1"), "sweep.yaml:1:11: unknown option 'x'"),
    "no history": (LEAST.replace("srsf", "gittins:history=no.csv"), "no.csv: cannot be read"),
    "a policy twice": (LEAST.replace("srsf", "[fifo, fifo]"), "sweep.yaml:1:18: policies: fifo stands twice"),
    "an alias twice": (LEAST.replace("srsf", "[srtf, shortest]"), "sweep.yaml:1:18: policies: srtf stands twice"),
    "an empty grid": (LEAST.replace("srsf", "[]"), "sweep.yaml:1:11: policies: the list is empty"),
    "empty seeds": (LEAST + "seeds: []", "sweep.yaml:4:8: seeds: the list is empty"),
    "no number": (LEAST + "seeds: [1, x]", "sweep.yaml:4:12: seeds: 'x' is not a number"),
    "half a seed": (LEAST + "seeds: 1.5", "sweep.yaml:4:8: seeds: '1.5' is not whole"),
    "equal numbers": (LEAST + "interval: [60, 60.0]", "sweep.yaml:4:16: interval: 60 stands twice"),
    "too short a time": (LEAST + "interval: 0.0001", "sweep.yaml:4:11: interval: '0.0001'; allowed: 0"),
    "a negative time": (LEAST + "start_cost: [default, -1]", "sweep.yaml:4:23: start_cost: '-1' is out of range"),
    "an unknown rule": (
        LEAST + "cost_model: phys",
        "cost_model: 'phys' is not known; did you mean physical? known: helios, muri22, physical",
    ),
    "no default there": (LEAST + "contention: default", "contention: 'default' is not known"),
    "an unknown switch": (LEAST + "drop_unfit: maybe", "drop_unfit: 'maybe' is not known"),
    "no trace": (LEAST.replace("small", "none"), "none.csv: no such file"),
    "no cluster": (LEAST.replace("n2g4", "none"), "none.csv: no such file"),
    "a trace that does not fit": (LEAST.replace("n2g4", "tiny"), "GPUs where the cluster has 2; allowed: 1 to 2"),
    "made ones that do not fit": (
        LEAST.replace("n2g4", "tiny").replace("small.csv", "{generate: {jobs: 3, cluster: n2g4.csv}}"),
        "sweep.yaml:2:9: generated: has jobs of up to 8 GPUs where cluster tiny has 2; allowed with drop_unfit: yes",
    ),
    "a name twice": (
        LEAST.replace("small.csv", "[small.csv, ./small.csv]"),
        "sweep.yaml:2:21: traces: 'small' is the name of the one at",
    ),
    "no jobs": (LEAST.replace("small.csv", "{generate: {load: 1}}"), "sweep.yaml:2:20: key jobs is missing"),
    "0 jobs": (LEAST.replace("small.csv", "{generate: {jobs: 0}}"), "sweep.yaml:2:27: jobs: is 0; allowed: 1 or"),
    "no load": (
        LEAST.replace("small.csv", "{generate: {jobs: 1, load: 0}}"),
        "sweep.yaml:2:36: load: is 0.0; allowed",
    ),
    "half a mapping": (LEAST.replace("small.csv", "{name: x}"), "either the key path or the key generate"),
    "a job's key": (
        LEAST.replace("small.csv", "{generate: {jobs: 1, lod: 1}}"),
        "unknown key 'lod'; did you mean load?",
    ),
    "too many": (
        LEAST + f"seeds: {list(range(400))}\ninterval: {list(range(251))}",
        "the grid has 100,400 runs; allowed: at most 100,000",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_mistakes_are_refused_in_one_line(folder, name):
    text, message = REFUSED[name]
    with pytest.raises(InputError) as error:
        read_spec(write(folder, text))
    assert str(error.value).startswith(str(folder / "sweep.yaml"))
    assert message in str(error.value)
    assert "\n" not in str(error.value)


def test_no_file_is_one_line(tmp_path):
    with pytest.raises(InputError, match=r"no.yaml: no such file"):
        read_spec(tmp_path / "no.yaml")


def test_the_page_names_every_key():
    page = (ROOT / "docs" / "sweeps.md").read_text()
    assert [key for key in KEYS if f"`{key}`" not in page] == []


def test_the_example_is_one(tmp_path):
    path = ROOT / "trace_data" / "sweep.yaml"
    spec = read_spec(path)
    assert f"{spec.num_runs} in all" in path.read_text()
    assert spec.warnings == ()
