"""The processes of a data loader take turns: no bit changes, no two jobs decode at once, nobody waits for ever."""

import csv
import gc
import itertools
import multiprocessing
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from torch.multiprocessing.reductions import shared_cache
from torch.utils.data import DataLoader, Dataset, IterableDataset

from cluster_exp.domain.resources import Resource
from cluster_exp.protocol.turns import Discipline
from cluster_exp.runtime.trainer import Trainer
from cluster_exp.runtime.trainer.identity import Identity
from cluster_exp.runtime.trainer.torch import interleave
from cluster_exp.runtime.trainer_events import TrainerProgress
from cluster_exp.runtime.turn_server import TurnServer

EPOCHS, BATCHES, BATCH = 2, 8, 4
ALL = EPOCHS * BATCHES
BOTH = (Resource.CPU, Resource.STORAGE)
LONGEST_END_S = 4.0  # a data loader waits 5 s for a process that does not end


class Slow(Dataset):
    """Samples that take a while to make."""

    def __init__(self, pause_s: float) -> None:
        self._pause_s = pause_s

    def __len__(self) -> int:
        return BATCHES * BATCH

    def __getitem__(self, number: int) -> tuple[torch.Tensor, torch.Tensor]:
        time.sleep(self._pause_s)
        return torch.tensor([float(number)]), torch.rand(1)


class Stream(IterableDataset):
    """The same without numbers; each process gives its part."""

    def __iter__(self) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
        info = torch.utils.data.get_worker_info()
        slow = Slow(0)
        yield from (slow[number] for number in range(info.id, len(slow), info.num_workers))


def train(dataset: Dataset, trainer: Trainer | None, steps: int = ALL, **options: object) -> torch.Tensor:
    """An ordinary loop over a loader with processes; returns the weights."""
    torch.manual_seed(3)
    shape = {"num_workers": 2, "batch_size": BATCH, "persistent_workers": options.pop("persistent", False)}
    loader = DataLoader(dataset, **shape, shuffle=None if isinstance(dataset, IterableDataset) else True)
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    if trainer is not None:
        loader = interleave(loader, model, optimizer, trainer=trainer, **options)
    for _ in range(EPOCHS):
        for inputs, targets in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(inputs), targets).backward()
            optimizer.step()
            steps -= 1
            if steps == 0:
                break
    return model.weight.detach().clone()


@pytest.fixture(autouse=True)
def batches_are_let_go() -> Iterator[None]:
    """Else torch complains of each batch that another process made, when Python ends."""
    yield
    gc.collect()
    shared_cache.free_dead_references()


@pytest.fixture(params=list(Discipline))
def server(request, tmp_path: Path) -> Iterator[TurnServer]:
    """Jobs a and b share GPUs, c is alone."""
    heard = []
    server = TurnServer(tmp_path / "turns", heard.append, discipline=request.param)
    server.heard = heard
    server.start()
    server.set_group(1, 1, [(("a", 1), 0), (("b", 1), 2)], 1)
    server.set_group(2, 1, [(("c", 1), 0)], 1)
    for job in "abc":
        server.expect(job, 1)
    yield server
    server.close()


def trainer_of(address: str, job: str, log: Path, iterations: int = ALL) -> Trainer:
    return Trainer(Identity(job, 1, 0, 1, address, address, iterations, 0, stage_log=str(log)))


def rows(*logs: Path) -> list[dict[str, str]]:
    return [row for log in logs for row in csv.DictReader(log.open())]


@pytest.mark.parametrize("loading", [Resource.CPU, BOTH])
@pytest.mark.parametrize("job", ["a", "c"])
@pytest.mark.parametrize("dataset", [Slow(0), Stream()], ids=["map", "stream"])
def test_every_batch_takes_a_turn_and_no_bit_changes(server, tmp_path, dataset, job, loading):
    silent = trainer_of(server.address, "b", tmp_path / "silent")
    trainer = trainer_of(server.address, job, tmp_path / "log")
    assert torch.equal(train(dataset, trainer, loading=loading), train(dataset, None))
    assert trainer.iterations_done == ALL
    trainer.close()
    silent.close()
    fetched = [row for row in rows(tmp_path / "log") if row["iteration"] == "-1"]
    assert {row["resource"] for row in fetched} == {"cpu" if loading is Resource.CPU else "storage+cpu"}
    # A process of a stream finds out by asking once more that it is at its end.
    assert len(fetched) == ALL + (EPOCHS * 2 if isinstance(dataset, Stream) else 0)


def test_what_was_fetched_is_measured_where_it_was_fetched(server, tmp_path):
    trainer = trainer_of(server.address, "c", tmp_path / "log")
    train(Slow(0.002), trainer)
    trainer.close()
    windows = [event.window for event in server.heard if isinstance(event, TrainerProgress) and event.window]
    sampled = sum(window.sampled for window in windows)
    assert sum(window.stages_s[Resource.CPU] for window in windows) / sampled > 0.5 * BATCH * 0.002


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize(("iterations", "steps"), [(ALL, 3), (5, ALL)], ids=["left early", "done early"])
def test_a_loop_that_ends_early_waits_for_no_turn_of_its_helpers(server, tmp_path, iterations, steps, persistent):
    silent = trainer_of(server.address, "b", tmp_path / "silent")
    trainer = trainer_of(server.address, "a", tmp_path / "log", iterations)
    start_s = time.monotonic()
    train(Slow(0), trainer, steps, persistent=persistent)
    assert time.monotonic() - start_s < LONGEST_END_S
    assert not multiprocessing.active_children()
    trainer.close()
    silent.close()


def run(address: str, job: str, log: str) -> None:
    trainer = trainer_of(address, job, Path(log))
    train(Slow(0.001), trainer)
    trainer.close()


def test_no_two_jobs_prefetch_at_once(server, tmp_path):
    spawn = multiprocessing.get_context("spawn")
    logs = [tmp_path / job for job in "ab"]
    children = [spawn.Process(target=run, args=(server.address, log.name, str(log))) for log in logs]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
        assert child.exitcode == 0
    # Until both are there, each runs alone.
    seen = rows(*logs)
    began = max(min(int(row["start_ns"]) for row in seen if row["job_id"] == job) for job in "ab")
    ended = min(max(int(row["end_ns"]) for row in seen if row["job_id"] == job) for job in "ab")
    loads = [
        (int(row["start_ns"]), int(row["end_ns"]), row["job_id"])
        for row in seen
        if row["resource"] == "cpu" and row["turn"] == "1" and began <= int(row["start_ns"]) <= ended
    ]
    assert {job for _, _, job in loads} == {"a", "b"}
    for one, other in itertools.combinations(loads, 2):
        if one[2] != other[2]:
            assert one[1] <= other[0] or other[1] <= one[0], "two jobs used the CPU at once"
