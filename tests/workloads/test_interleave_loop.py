"""`interleave`: an ordinary loop's stages are seen, and its bits stay what they are."""

import csv
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch.utils.data import DataLoader, TensorDataset

from cluster_exp.domain.resources import Resource
from cluster_exp.protocol.turns import Discipline
from cluster_exp.runtime.trainer import Trainer
from cluster_exp.runtime.trainer.sdk import Identity
from cluster_exp.runtime.trainer.torch import InterleavedLoader, interleave
from cluster_exp.runtime.turn_server import TurnServer

EPOCHS, BATCHES = 2, 6
ALL = EPOCHS * BATCHES
Wrap = Callable[..., object]


def train(wrap: Wrap | None = None, steps_every: int = 1, **options: object) -> dict[str, torch.Tensor]:
    """A plain loop with a schedule of learning rates; the wrapper is the one line that may differ."""
    torch.manual_seed(7)
    loader = DataLoader(TensorDataset(torch.randn(24, 5), torch.randn(24, 1)), batch_size=4, shuffle=True)
    model = torch.nn.Sequential(torch.nn.Linear(5, 8), torch.nn.ReLU(), torch.nn.Dropout(0.2), torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 1, 0.5)
    if wrap is not None:
        loader = wrap(loader, model, optimizer, **options)
    number = 0
    for _ in range(EPOCHS):
        for inputs, targets in loader:
            loss = torch.nn.functional.mse_loss(model(inputs), targets)
            loss.backward()
            number += 1
            if number % steps_every == 0:
                optimizer.step()
                optimizer.zero_grad()
        schedule.step()
    return dict(model.state_dict())


def same(ours: dict[str, torch.Tensor], theirs: dict[str, torch.Tensor]) -> bool:
    return all(torch.equal(ours[name], theirs[name]) for name in theirs)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[TurnServer]:
    """Jobs a and b share GPUs; b is there and asks for nothing. Job c is alone."""
    server = TurnServer(tmp_path / "turns", lambda event: None, discipline=Discipline.WORK_CONSERVING)
    server.start()
    server.set_group(1, 1, [(("a", 1), 0), (("b", 1), 2)], 1)
    server.set_group(2, 1, [(("c", 1), 0)], 1)
    for job in "abc":
        server.expect(job, 1)
    yield server
    server.close()


def trainer_of(server: TurnServer, job: str, log: Path | None = None, iterations: int = ALL) -> Trainer:
    stage_log = str(log or "")
    return Trainer(Identity(job, 1, 0, 1, server.address, server.address, iterations, 0, stage_log=stage_log))


def stages(log: Path) -> list[tuple[int, str, int]]:
    """(iteration, resource, whether by turn), in order."""
    with log.open() as file:
        return [(int(row["iteration"]), row["resource"], int(row["turn"])) for row in csv.DictReader(file)]


def test_outside_a_cluster_the_loader_comes_back_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("CLUSTER_EXP_JOB_ID", "CLUSTER_EXP_COMM"):
        monkeypatch.delenv(name, raising=False)
    model = torch.nn.Linear(1, 1)
    loader = [1, 2]
    assert interleave(loader, model, torch.optim.SGD(model.parameters())) is loader
    assert same(train(interleave), train())


@pytest.mark.parametrize(("job", "turns"), [("a", 1), ("c", 0)])
def test_a_plain_loop_shows_its_stages_and_keeps_its_bits(
    server: TurnServer, tmp_path: Path, job: str, turns: int
) -> None:
    silent = trainer_of(server, "b")
    trainer = trainer_of(server, job, tmp_path / "log")
    assert same(train(interleave, trainer=trainer), train())
    trainer.close()
    silent.close()
    assert trainer.iterations_done == ALL
    seen = stages(tmp_path / "log")
    counted = [row for row in seen if row[0] < ALL]
    for epoch in range(1, EPOCHS):  # asking for a batch after an epoch's last one is loading, too
        counted.remove((epoch * BATCHES, "cpu", turns))
    assert counted == [(number, stage, turns) for number in range(ALL) for stage in ("cpu", "gpu")]


def test_a_job_that_is_done_gets_no_more_batches(server: TurnServer) -> None:
    trainer = trainer_of(server, "c", iterations=4)
    train(interleave, trainer=trainer)
    assert trainer.iterations_done == 4
    assert not trainer.stopped
    trainer.close()


def test_a_batch_without_a_step_counts_and_has_no_network_stage(server: TurnServer, tmp_path: Path) -> None:
    trainer = trainer_of(server, "c", tmp_path / "log")
    assert same(train(interleave, 3, trainer=trainer, loading=Resource.STORAGE), train(steps_every=3))
    trainer.close()
    assert trainer.iterations_done == ALL
    assert {stage for _, stage, _ in stages(tmp_path / "log")} == {"storage", "gpu"}


class Twin:
    """Another rank that has the very same gradients; it notes in which stage it is asked."""

    rank, size, local_rank = 0, 2, 0

    def __init__(self, log: Path) -> None:
        self._log = log
        self.exchanges: list[int] = []  # stages that were over then

    def allreduce(self, tensors: list[torch.Tensor]) -> None:
        self.exchanges.append(len(stages(self._log)))

    def broadcast(self, tensors: list[torch.Tensor], root: int = 0) -> None:
        self.exchanges.append(-1)

    def barrier(self) -> None:
        raise AssertionError("nobody asks for it")

    def shutdown(self) -> None:
        raise AssertionError("it is the caller's")


def test_gradients_travel_inside_the_network_turn_only(server: TurnServer, tmp_path: Path) -> None:
    silent = trainer_of(server, "b")
    log = tmp_path / "log"
    trainer = trainer_of(server, "a", log)
    twin = Twin(log)
    assert same(train(interleave, trainer=trainer, comm=twin), train())
    trainer.close()
    silent.close()
    assert twin.exchanges.pop(0) == -1, "first all take rank 0's weights"
    seen = [stage for _, stage, _ in stages(log)]
    assert len(twin.exchanges) == seen.count("network") == ALL
    for over in twin.exchanges:
        assert (seen[over - 1], seen[over]) == ("gpu", "network"), "the gpu turn was over, the network's was not"


def test_a_loop_that_is_left_early_gives_its_turn_back(server: TurnServer, tmp_path: Path) -> None:
    trainer = trainer_of(server, "c", tmp_path / "log")
    model = torch.nn.Linear(1, 1)
    loader = interleave(range(5), model, torch.optim.SGD(model.parameters()), trainer=trainer)
    assert isinstance(loader, InterleavedLoader)
    assert len(loader) == 5
    assert loader.stop == 5, "attributes are the loader's own"
    for _ in loader:
        break
    assert [stage for _, stage, _ in stages(tmp_path / "log")] == ["cpu", "gpu"]
    assert trainer.iterations_done == 0
    assert list(loader) == list(range(5))
    trainer.close()


def test_what_cannot_work_is_refused(server: TurnServer, tmp_path: Path) -> None:
    trainer = trainer_of(server, "c", tmp_path / "log")
    model = torch.nn.Linear(1, 1)
    optimizer = torch.optim.SGD(model.parameters())
    with pytest.raises(ValueError, match=r"allowed: Resource.STORAGE, Resource.CPU"):
        interleave([1], model, optimizer, loading=Resource.GPU, trainer=trainer)
    interleave([1], model, optimizer, trainer=trainer, comm=Twin(tmp_path / "log"))
    with pytest.raises(ValueError, match="with a closure"):
        optimizer.step(lambda: 1.0)
    trainer.close()
