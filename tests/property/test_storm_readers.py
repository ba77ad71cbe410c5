"""Whatever the bytes of a file, its reader answers with a result or an InputError that names the file.

CLUSTER_EXP_STORM=100000 tries more cases; a failure names its case.
"""

import tracemalloc
from functools import partial
from pathlib import Path

import pytest

from cluster_exp.cli import main
from cluster_exp.domain.errors import InputError
from cluster_exp.domain.events import PlanDue
from cluster_exp.inputs.clusters import read_cluster
from cluster_exp.inputs.profiles import default_profiles, read_profiles
from cluster_exp.inputs.restart import read_restart_costs
from cluster_exp.inputs.traces import read_trace
from cluster_exp.inputs.workloads import read_workloads
from cluster_exp.results.history import read_history
from cluster_exp.results.job_table import read_job_table
from cluster_exp.results.journal import read_journal
from cluster_exp.results.run_directory import read_run
from cluster_exp.runtime.security.access import TLS_FILES, load_access
from cluster_exp.runtime.store import StateFile
from cluster_exp.sim.faults.spec import parse_faults
from cluster_exp.sweep.reader import read_spec
from tests.property.storm_kit import CASES, endure, storm

ROOT = Path(__file__).parents[2]
PROFILES = default_profiles()
MOST_BYTES = 40_000_000  # that a reader may allocate for a file of some kilobytes

WORKLOADS = b"""commands:
  resnet18: ["{python}", "-m", "workloads.resnet18", "--batch-size", "{batch_size}"]
emulated: [vgg16, vgg19]
"""
TOKENS = b"admin " + b"a" * 40 + b"\nworker sha256:" + b"0" * 64 + b"\n"
JOURNAL = (
    b'{"format":1,"detail":"full","policy":"srsf"}\n'
    b'{"n":1,"event":"PlanDue","actions":1,"data":{"time_s":1.0}}\n'
    b'{"n":1,"action":"Preempt","data":{"time_s":1.0,"job_id":"a","generation":1,"reason":"r"}}\n'
    b'{"n":2,"event":"Progressed","actions":0,"data":{"time_s":1.0,"job_ids":["a"],"remaining_iterations":[2.0]}}\n'
)


def data(name: str) -> bytes:
    return (ROOT / "cluster_exp" / "inputs" / "data" / name).read_bytes()[:4_000]


def tokens(path: Path) -> object:
    path.chmod(0o600)
    for name in TLS_FILES:
        file = path.with_name(name)
        file.write_bytes(b"pem")
        file.chmod(0o600)
    return load_access(path.parent, path)


def state_file(run: Path) -> bytes:
    """The bytes of a state file with some events."""
    path = run / "valid.sqlite"
    if not path.exists():
        state = StateFile.create(path, {"policy": "srsf"})
        for number in range(8):
            state.record(PlanDue(float(number)), [])
        state.commit()
        state.close()
    return path.read_bytes()


def rows_of(path: Path) -> list:
    """What a state file holds, to the last row."""
    for suffix in ("-wal", "-shm"):
        Path(f"{path}{suffix}").unlink(missing_ok=True)
    state = StateFile.reopen(path)
    try:
        return [state.meta(), *state.rows()]
    finally:
        state.close()


def readers(run: Path) -> dict:
    """By name: the file's name, valid contents, what reads it."""
    table = (run / "job.csv").read_bytes()
    sweep = (ROOT / "trace_data" / "sweep.yaml").read_bytes()
    sweep = sweep.replace(b"../cluster_spec", str(ROOT / "cluster_spec").encode())
    return {
        "trace": ("t.csv", [(ROOT / "trace_data" / "small.csv").read_bytes()], lambda p: read_trace(p, PROFILES)),
        "cluster": ("c.csv", [(ROOT / "cluster_spec" / "n8g8.csv").read_bytes()], read_cluster),
        "cluster-yaml": ("c.yaml", [(ROOT / "cluster_spec" / "example.yaml").read_bytes()], read_cluster),
        "profiles": ("p.csv", [data("stage_times.csv")], read_profiles),
        "restart": ("r.csv", [data("start_overhead.csv")], read_restart_costs),
        "workloads": ("w.yaml", [WORKLOADS], read_workloads),
        "sweep": ("s.yaml", [sweep], read_spec),
        "tokens": ("tokens", [TOKENS], tokens),
        "journal": ("journal.jsonl", [JOURNAL, (run / "journal.jsonl").read_bytes()[:20_000]], read_journal),
        "run": ("run.json", [(run / "run.json").read_bytes()], lambda p: read_run(p.parent)),
        "jobs": ("job.csv", [table], read_job_table),
        "state": ("state.sqlite", [state_file(run)], rows_of),
        "history": ("job.csv", [table], lambda p: read_history(str(p))),
    }


NAMES = ("trace", "cluster", "cluster-yaml", "profiles", "restart", "workloads", "sweep", "tokens", "journal", "run")


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    """The directory of a small run."""
    out = tmp_path_factory.mktemp("storm") / "run"
    options = (
        "--trace",
        str(ROOT / "trace_data" / "small.csv"),
        "--cluster",
        str(ROOT / "cluster_spec" / "n2g4.csv"),
    )
    assert main(["--policy", "srsf", *options, "--out", str(out)]) == 0
    return out


@pytest.mark.parametrize("name", [*NAMES, "jobs", "history", "state"])
def test_a_reader_withstands_a_storm(name, run, tmp_path):
    file_name, valid, read = readers(run)[name]
    path = tmp_path / file_name
    refused = 0
    for case, content in storm(name, valid):
        path.write_bytes(content)
        refused += not endure(lambda: accepts(read, path), case)
    assert CASES > refused > CASES / 20  # the storm was one, and some of it passed


def accepts(read, path: Path) -> bool:
    """Whether a reader takes a file; an error has one line and names the file."""
    try:
        read(path)
    except InputError as error:
        message = str(error)
        assert message.startswith(str(path)), message
        assert len(message.splitlines()) == 1, message
        assert len(message) < 1_500 + len(str(path)), message
        return False
    return True


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (
            "cluster-yaml",
            b"a: &a [x,x,x,x,x,x,x,x,x]\n"
            + b"".join(b"%c: &%c [%s]\n" % (98 + i, 98 + i, b",".join([b"*%c" % (97 + i)] * 9)) for i in range(12)),
        ),
        ("sweep", b"[" * 20_000),
        ("workloads", b"commands: " + b"{a: " * 5_000),
        ("trace", b"job_id,num_gpu\n" + b"1," * 500_000),
        ("journal", b'{"format":1}\n' + b"[" * 500_000 + b"\n"),
        ("run", b"[" * 100_000),
    ],
)
def test_a_small_file_takes_little_memory(name, content, run, tmp_path):
    file_name, _, read = readers(run)[name]
    path = tmp_path / file_name
    path.write_bytes(content)
    tracemalloc.start()
    try:
        endure(lambda: accepts(read, path), name)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MOST_BYTES, f"{peak} bytes"


def test_a_specification_of_faults_withstands_a_storm():
    for case, content in storm("faults", [b"seed=3,masters=2,lost=0.1,report=1.5,lease=9"]):
        assert endure(partial(parses, content.decode(errors="replace")), case)


def parses(text: str) -> str:
    try:
        parse_faults(text)
    except InputError as error:
        return error.where
    return "parsed"
