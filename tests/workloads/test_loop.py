"""Stages, ranks, turns: the training loop."""

import csv
import itertools
import math
import os
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch

from cluster_exp.runtime.trainer import Resource
from cluster_exp.runtime.trainer.launch_folder import LaunchFolder, SupersededError, newest_folder
from cluster_exp.runtime.trainer.sdk import Identity
from cluster_exp.runtime.turn_server import TurnServer
from tests.workloads.kit import DEADLINE_S, Thread, difference, options, program, train_elsewhere, train_here
from workloads import checkpoint
from workloads.command import _parser
from workloads.communicator import SingleProcess
from workloads.loop import Trainer, Training, train
from workloads.workload import Place

CPU = torch.device("cpu")


class Recorder(Trainer):
    """A trainer outside of a cluster that notes its stages."""

    def __init__(self) -> None:
        super().__init__(None)
        self.now = ""
        self.stages: list[str] = []

    @contextmanager
    def stage(self, resource: Resource):
        self.now = resource.name
        self.stages.append(self.now)
        yield
        self.now = ""


def built(name: str, arguments: list[str], comm) -> Training:
    """A training of a script, not started."""
    chosen = program(name)
    args = _parser(chosen).parse_args(arguments)
    args.batch_size = args.batch_size or chosen.batch_size[args.size]
    torch.manual_seed(args.seed)
    return Training(chosen.build(args, Place(comm.rank, comm.size, CPU)), comm, CPU, {})


@pytest.mark.parametrize("name", ["resnet18", "gpt2", "dqn"])
def test_work_is_done_in_its_stage(name: str, images: Path, text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer, done = Recorder(), []
    training = built(name, options(name, images, text), SingleProcess())
    training.start()

    def note(method: str) -> None:
        real = getattr(training.workload, method)

        def noted(*arguments):
            done.append((method, trainer.now))
            return real(*arguments)

        monkeypatch.setattr(training.workload, method, noted)

    for method in ("read", "prepare", "loss", "updated"):
        note(method)
    train(training, trainer, 2)
    assert trainer.stages == ["STORAGE", "CPU", "GPU"] * 2
    assert done == [("read", "STORAGE"), ("prepare", "CPU"), ("loss", "GPU"), ("updated", "GPU")] * 2
    assert (training.iterations, trainer.iterations_done) == (2, 2)
    assert math.isfinite(training.loss)


def test_with_several_processes_the_exchange_and_the_update_are_the_network_stage(images: Path, text: Path) -> None:
    trainings, recorders = in_threads("resnet18", options("resnet18", images, text), ranks=2, iterations=3)
    assert recorders[0].stages == recorders[1].stages == ["STORAGE", "CPU", "GPU", "NETWORK"] * 3
    assert {training.iterations for training in trainings} == {3}


@pytest.mark.parametrize("name", ["resnet18", "bert", "a2c", "dqn"])
def test_ranks_keep_the_same_weights_on_different_data(name: str, images: Path, text: Path) -> None:
    trainings, _ = in_threads(name, options(name, images, text), ranks=2, iterations=3)
    one, other = (dict(training.workload.model.named_parameters()) for training in trainings)
    assert [key for key in one if not torch.equal(one[key], other[key])] == []
    assert trainings[0].loss != trainings[1].loss


def test_two_ranks_do_what_one_with_twice_the_batch_does(images: Path, text: Path) -> None:
    """VGG without dropout: nothing in it depends on how a batch is cut."""
    arguments = options("vgg16", images, text)
    together, _ = in_threads("vgg16", [*arguments, "--batch-size", "3"], ranks=2, iterations=4, quiet=True)
    alone = built("vgg16", [*arguments, "--batch-size", "6"], SingleProcess())
    alone.start()
    alone.workload.model.eval()
    train(alone, Recorder(), 4)
    for ours, theirs in zip(alone.workload.model.parameters(), together[0].workload.model.parameters(), strict=True):
        assert torch.allclose(ours, theirs, rtol=1e-4, atol=1e-6)


def in_threads(
    name: str, arguments: list[str], ranks: int, iterations: int, quiet: bool = False
) -> tuple[list[Training], list[Recorder]]:
    """The same training on several ranks, each a thread; `quiet` turns dropout off."""
    barrier, shared = threading.Barrier(ranks), {}
    comms = [Thread(rank, barrier, shared) for rank in range(ranks)]
    trainings = [built(name, arguments, comm) for comm in comms]
    with torch.no_grad():
        for tensor in trainings[-1].workload.model.parameters():
            tensor.add_(0.1)  # what rank 0 broadcasts has to undo it
    recorders = [Recorder() for _ in comms]
    failed = []

    def run(training: Training, recorder: Recorder) -> None:
        try:
            training.start()
            if quiet:
                training.workload.model.eval()
            train(training, recorder, iterations)
        except BaseException as error:
            failed.append(error)
            barrier.abort()

    threads = [threading.Thread(target=run, args=pair) for pair in zip(trainings, recorders, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    assert failed == []
    return trainings, recorders


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TurnServer]:
    server = TurnServer(tmp_path / "turns", lambda event: None)
    server.start()
    yield server
    server.close()


def grouped(server: TurnServer, jobs: Sequence[str]) -> None:
    """The jobs share the same GPUs."""
    server.set_group(1, 1, [((job, 1), 2 * number) for number, job in enumerate(jobs)], 1)
    for job in jobs:
        server.expect(job, 1)


def test_jobs_that_take_turns_end_with_the_bits_that_they_have_alone(
    server: TurnServer, images: Path, text: Path, tmp_path: Path
) -> None:
    jobs, iterations, log = ("resnet18", "a2c"), 12, tmp_path / "stages.csv"
    grouped(server, jobs)
    arguments = {job: options(job, images, text) for job in jobs}
    alone, shared = ({job: built(job, arguments[job], SingleProcess()) for job in jobs} for _ in range(2))
    together = threading.Barrier(len(jobs))

    def run(job: str) -> None:
        address = server.address
        trainer = Trainer(Identity(job, 1, 0, 1, address, address, iterations, 0, stage_log=str(log)))
        shared[job].start()
        together.wait(DEADLINE_S)
        train(shared[job], trainer, 0)
        trainer.close()

    threads = [threading.Thread(target=run, args=(job,)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(DEADLINE_S)
    for job in jobs:
        alone[job].start()
        train(alone[job], Trainer(None), iterations)
        ours, theirs = ({**of[job].state_dict(), "random": None} for of in (alone, shared))  # threads share torch's
        assert theirs["iterations"] == iterations
        assert difference(ours, theirs) == []
    assert_no_overlap(log, jobs)


def assert_no_overlap(log: Path, jobs: Sequence[str]) -> None:
    """Stages that took turns never use a resource at the same time, and both jobs' did."""
    with open(log, newline="") as file:
        rows = [row for row in csv.DictReader(file) if row["turn"] == "1"]
    for resource in ("storage", "cpu", "gpu"):
        used = [row for row in rows if row["resource"] == resource]
        assert {row["job_id"] for row in used} == set(jobs)
        spans = sorted((int(row["start_ns"]), int(row["end_ns"])) for row in used)
        assert [pair for pair in itertools.pairwise(spans) if pair[1][0] < pair[0][1]] == []


def environment(server: TurnServer, job: str, **others: object) -> dict[str, str]:
    """What a launcher tells a trainer."""
    told = {
        "JOB_ID": job,
        "GENERATION": 1,
        "RANK": 0,
        "WORLD": 1,
        "WORKER": server.address,
        "ARBITER": server.address,
    }
    told = {**told, "ITERATIONS": 3, "ITERATIONS_DONE": 0, **others}
    return {**os.environ, **{f"CLUSTER_EXP_{name}": str(value) for name, value in told.items()}}


@pytest.mark.parametrize(("done", "code"), [(0, 0), (2, 2)])
def test_a_script_goes_by_its_launcher_if_that_counts_as_its_checkpoint_does(
    done: int, code: int, server: TurnServer, images: Path, text: Path, tmp_path: Path
) -> None:
    grouped(server, ["a2c"])
    arguments = [*options("a2c", images, text), "--checkpoint-dir", str(tmp_path)]
    process = train_elsewhere("a2c", *arguments, env=environment(server, "a2c", ITERATIONS_DONE=done))
    assert process.wait(DEADLINE_S) == code
    state = checkpoint.load(checkpoint.path_of(tmp_path / "launch-1", 0))
    assert (state["iterations"] if state else None) == (None if code else 3)


def launch(server: TurnServer, generation: int, done: int, folder: Path, *arguments: str) -> int:
    server.expect("a2c", generation)
    server.set_group(1, generation, [(("a2c", generation), 0)], 1)
    env = environment(server, "a2c", GENERATION=generation, ITERATIONS=2 + 2 * generation, ITERATIONS_DONE=done)
    env["CLUSTER_EXP_CHECKPOINT_DIR"], env["CLUSTER_EXP_CHECKPOINT_EVERY"] = str(folder), "1"
    process = train_elsewhere("a2c", *arguments, env=env)
    return process.wait(DEADLINE_S)


def test_a_launch_goes_on_from_the_newest_whole_checkpoint_and_ends_with_the_same_bits(
    server: TurnServer, images: Path, text: Path, tmp_path: Path
) -> None:
    arguments = options("a2c", images, text)
    assert launch(server, 1, 0, tmp_path, *arguments) == 0
    newest = checkpoint.path_of(tmp_path / "launch-1", 0)
    assert checkpoint.load(newest)["iterations"] == 4
    damaged = bytearray(newest.read_bytes())
    damaged[len(damaged) // 2] ^= 1
    newest.write_bytes(damaged)
    assert launch(server, 2, 4, tmp_path, *arguments) == 0  # the launcher counts what is damaged
    train_here("a2c", *arguments, "--iterations", "6", "--checkpoint-dir", str(tmp_path / "alone"))
    ours, theirs = (checkpoint.load(checkpoint.path_of(tmp_path / folder, 0)) for folder in ("launch-2", "alone"))
    assert ours["iterations"] == 6
    assert difference(ours, theirs) == []
    assert not (tmp_path / "launch-1").exists()  # two newer ones are there


def test_a_launch_that_counts_no_longer_writes_nothing(
    server: TurnServer, images: Path, text: Path, tmp_path: Path
) -> None:
    (tmp_path / "launch-7").mkdir()
    kept = tmp_path / "launch-7" / "rank-0.pt"
    kept.write_text("of the newer launch")
    assert launch(server, 1, 0, tmp_path, *options("a2c", images, text)) == 2
    assert kept.read_text() == "of the newer launch"
    assert list((tmp_path / "launch-1").iterdir()) == []


def test_a_newer_launch_stops_the_writing_of_an_older_one(tmp_path: Path) -> None:
    older = LaunchFolder(tmp_path / "job", 3)
    older.check()
    newer = LaunchFolder(tmp_path / "job", 10)
    with pytest.raises(SupersededError, match="launch 10 of this job has begun, so launch 3 writes no more"):
        older.check()
    assert newer.older() == [older.path]
    assert newest_folder(tmp_path / "job") == newer.path
    (tmp_path / "job" / "launch-010").mkdir()  # no name that a launch makes
    newer.check()
