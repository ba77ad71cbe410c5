"""The profiler: short runs of real programs, what is stored, and what is said when it cannot be."""

from pathlib import Path

import pytest

from cluster_exp.cli import main
from cluster_exp.domain.errors import InputError
from cluster_exp.domain.measure import StageWindow
from cluster_exp.domain.profile import ProfileKey, StageProfile
from cluster_exp.inputs.profiles import ProfileTable, default_profiles, read_profiles, write_profiles
from cluster_exp.inputs.traces import read_trace
from cluster_exp.runtime.profiler import ProfilingError, summed_up
from cluster_exp.runtime.turn_server import TrainerProgress

SCRIPT = """
import argparse, time
from cluster_exp.runtime.trainer import Resource, Trainer

parser = argparse.ArgumentParser()
parser.add_argument("--batch-size")
trainer = Trainer.from_env()
while trainer.begin_iteration():
    for resource, length_s in ((Resource.STORAGE, 0.004), (Resource.GPU, 0.016)):
        with trainer.stage(resource):
            time.sleep(length_s)
    trainer.end_iteration()
trainer.close()
"""


@pytest.mark.parametrize("ranks", [1, 2])
def test_a_workload_is_measured_and_its_profile_stored(
    images: Path, tmp_path: Path, ranks: int, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "profiles.csv"
    other = ProfileKey("mine", 8, 1)
    table = ProfileTable()
    table.add(other, StageProfile(1.0, 0.0, 0.5, 0.4, 0.1), 123.0)
    write_profiles(path, table)
    options = ["--workload", "resnet18", "--batch-size", "2", "--gpus", str(ranks), "--iterations", "6"]
    words = ["--", "--data", str(images), "--size", "tiny", "--device", "cpu"]
    assert main(["profile", *options, "--profiles", str(path), *words]) == 0, capsys.readouterr()
    profiles = read_profiles(path)
    found = profiles[ProfileKey("resnet18", 2, ranks)]
    assert min(found.storage_s, found.cpu_s, found.gpu_s) > 0
    assert (found.network_s > 0) == (ranks > 1)
    assert found.busy_s <= found.iteration_s * 1.01
    assert profiles.gpu_memory_mib(other) == 123.0
    assert profiles.gpu_memory_mib(ProfileKey("resnet18", 2, ranks)) is None
    assert f"{ranks} ranks" in capsys.readouterr().out


def test_a_script_is_measured_and_policies_read_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.py").write_text(SCRIPT)
    path = tmp_path / "p.csv"
    given = ["--workload", str(tmp_path / "mine.py"), "--batch-size", "8", "--iterations", "30"]
    assert main(["profile", *given, "--profiles", str(path)]) == 0, capsys.readouterr()
    profile = read_profiles(path)[ProfileKey("mine", 8, 1)]
    assert profile.stages == pytest.approx((0.004, 0.0, 0.016, 0.0), abs=0.003)
    trace = tmp_path / "trace.csv"
    trace.write_text("job_id,num_gpu,submit_time,iterations,model_name,batch_size,duration\na,1,0,50,mine,8,1000\n")
    profiles = default_profiles()
    profiles.update(read_profiles(path))
    assert read_trace(trace, profiles).jobs[0].profile == profile
    (tmp_path / "c.csv").write_text(
        "num_switch,num_node_p_switch,num_gpu_p_node,num_cpu_p_node,mem_p_node\n1,1,1,8,64\n"
    )
    run = ["run", "--policy", "srsf", "--trace", str(trace), "--cluster", str(tmp_path / "c.csv")]
    assert main([*run, "--out", str(tmp_path / "out")]) == 2
    assert main([*run, "--out", str(tmp_path / "out"), "--profiles", str(path)]) == 0


@pytest.mark.parametrize(
    ("words", "code", "why"),
    [
        (["--workload", "resnet19"], 2, "no workload 'resnet19'; allowed: a2c, bert, dqn"),
        (["--workload", "no.py"], 2, "'no.py' is no file"),
        (["--workload", "dqn", "--gpus", "0"], 2, "--gpus: 0 given; allowed: from 1 on"),
        (["--workload", "dqn", "--iterations", "2"], 2, "--iterations: 2 given; allowed: from 3 on"),
        (["--workload", "dqn", "--comm", "mpi"], 2, "--comm"),
        (["--workload", "resnet18", "--", "--data", "/nowhere"], 1, "rank 0 ended with code 2: resnet18: /nowhere"),
    ],
)
def test_what_cannot_be_measured_is_said(
    tmp_path: Path, words: list[str], code: int, why: str, capsys: pytest.CaptureFixture[str]
) -> None:
    place = ["--batch-size", "4", "--profiles", str(tmp_path / "p.csv")]
    assert main(["profile", *place, *words]) == code
    assert why in capsys.readouterr().err
    assert not (tmp_path / "p.csv").exists()


def test_a_program_without_stages_is_no_measurement() -> None:
    empty = StageWindow(5, 1.0, 5, (0.0, 0.0, 0.0, 0.0), False)
    with pytest.raises(ProfilingError, match="rank 0 reported no stage times"):
        summed_up([TrainerProgress("profile", 1, 0, 0.0, 5, empty)], 1)


def test_ranks_are_averaged_and_the_largest_peak_counts() -> None:
    def window(iteration_s: float, peak_mib: float) -> StageWindow:
        return StageWindow(2, 2 * iteration_s, 1, (0.0, 0.0, iteration_s, 0.0), False, peak_mib)

    events = [TrainerProgress("profile", 1, 0, 0.0, 2, window(length_s, 100.0)) for length_s in (9.0, 1.0, 1.0)]
    events.append(TrainerProgress("profile", 1, 1, 0.0, 2, window(4.0, 300.0)))
    found = summed_up(events, 2)
    assert found.profile == StageProfile(2.0, 0.0, 0.0, 2.0, 0.0)
    assert (found.iterations, found.gpu_memory_mib) == (6, 300.0)


def test_a_bad_peak_is_refused_with_its_place(tmp_path: Path) -> None:
    path = tmp_path / "p.csv"
    write_profiles(path, ProfileTable({ProfileKey("m", 1, 1): StageProfile(1.0, 0.1, 0.2, 0.3, 0.4)}))
    path.write_text(path.read_text().rstrip("\n") + "-5\n")
    with pytest.raises(InputError) as caught:
        read_profiles(path)
    assert caught.value.where == f"{path}:2:11"
