"""Trainers time themselves, and what they measured reaches the master's decisions."""

import asyncio
import dataclasses
import sys
import time
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from cluster_exp.domain.actions import Launch, UseProfile
from cluster_exp.domain.events import Measured
from cluster_exp.domain.job import JobStatus
from cluster_exp.domain.measure import StageWindow
from cluster_exp.domain.profile import StageProfile
from cluster_exp.domain.resources import Resource
from cluster_exp.protocol.messages import ReportBatch, ReportKind, TrainerReport
from cluster_exp.protocol.outbox import Outbox
from cluster_exp.protocol.turn_wire import WireError, encode, parse_trainer_line
from cluster_exp.runtime import codec
from cluster_exp.runtime.fields import FieldError
from cluster_exp.runtime.local import LiveConfig, run_local
from cluster_exp.runtime.trainer import Trainer
from cluster_exp.runtime.trainer.device import TorchCuda
from cluster_exp.runtime.trainer.meter import FIRST_WINDOW_S, Meter
from cluster_exp.runtime.trainer.sdk import Identity, window_fields
from cluster_exp.runtime.turn_server import TrainerEvent, TrainerProgress, TurnServer
from tests.runtime.live_kit import Memory, cluster, job, scheduler

WINDOW = StageWindow(4, 2.0, 2, (0.1, 0.2, 0.3, 0.4), False, 64.0)
MS = 1_000_000


def iterate(meter: Meter, number: int, *, turns: bool = False, waits: bool = False) -> None:
    """Iterations of 50 ms, 10 of them spent on waiting, with stages of 5, 0, 20 and 10 ms."""
    for _ in range(number):
        meter.begin(1000 * MS, turns, waits)
        meter.waited(10 * MS)
        for stage, length_ms in ((0, 5), (2, 20), (3, 10)):
            meter.stage(stage, length_ms * MS)
        meter.end(1050 * MS, 1)


def test_a_window_is_net_of_waiting_and_of_the_first_iteration() -> None:
    meter = Meter()
    iterate(meter, 1)
    assert meter.take(None) is None
    iterate(meter, 4)
    assert meter.due
    window = meter.take(12.0)
    assert window == StageWindow(4, 0.16, 4, (0.02, 0.0, 0.08, 0.04), False, 12.0)
    assert window.mean(100.0) == StageProfile(4.0, 0.5, 0.0, 2.0, 1.0)


def test_windows_grow_and_do_not_mix_turns_with_none() -> None:
    meter = Meter()
    iterate(meter, 4)
    assert meter.due
    meter.take(None)
    iterate(meter, 4)
    assert not meter.due, "the second window lasts twice the first"
    iterate(meter, 3, turns=True)
    window = meter.take(None)
    assert window is not None
    assert (window.iterations, window.turns) == (3, True)
    assert FIRST_WINDOW_S == 0.1


def test_alone_a_device_is_waited_for_in_some_iterations_only() -> None:
    meter = Meter()
    sampled = 0
    for _ in range(160):
        iterate(meter, 1, waits=True)
        sampled += meter.sampling
    window = meter.take(None)
    assert window is not None
    assert sampled == 16 + 9
    assert (window.iterations, window.sampled) == (159, 24)
    assert window.mean().gpu_s == pytest.approx(0.02)
    iterate(meter, 1, waits=True, turns=True)
    assert meter.sampling


class StandIn:
    """A device that is always busy, and remembers what was asked of it."""

    busy = True

    def __init__(self) -> None:
        self.log: list[str] = []

    def synchronise(self) -> None:
        self.log.append("synchronised")

    def peak_memory_mib(self) -> float | None:
        return 77.0


@pytest.fixture
def events() -> list[TrainerEvent]:
    return []


@pytest.fixture
def server(tmp_path: Path, events: list[TrainerEvent]) -> Iterator[TurnServer]:
    server = TurnServer(tmp_path / "turns", events.append)
    server.start()
    server.expect("a", 1)
    yield server
    server.close()


def test_the_device_is_waited_for_before_the_gpu_turn_is_given_back(
    server: TurnServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    device = StandIn()
    trainer = Trainer(Identity("a", 1, 0, 1, server.address, server.address, 1, 0), device)
    assert trainer.begin_iteration()
    trainer.turns = True
    monkeypatch.setattr(trainer._arbiter, "take_turn", lambda stage: device.log.append(f"granted {stage[0]}"))
    monkeypatch.setattr(trainer._arbiter, "give_turn", lambda: device.log.append("given back"))
    with trainer.stage(Resource.GPU):
        device.log.append("gpu work")
    with trainer.stage(Resource.NETWORK):
        pass
    order = device.log[device.log.index("granted 2") :]
    turn = ["synchronised", "given back"]
    assert order == ["granted 2", "gpu work", *turn, "granted 3", *turn]


class FakeCuda:
    """What `TorchCuda` asks of torch.cuda."""

    def __init__(self) -> None:
        self.initialised = False
        self.synchronised = 0

    def is_initialized(self) -> bool:
        return self.initialised

    def synchronize(self) -> None:
        self.synchronised += 1

    def max_memory_allocated(self) -> int:
        return 3 * 2**20


def test_cuda_is_waited_for_only_where_the_program_uses_it(monkeypatch: pytest.MonkeyPatch) -> None:
    cuda, device = FakeCuda(), TorchCuda()
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    device.synchronise()
    assert (device.busy, device.peak_memory_mib()) == (False, None)
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(cuda=cuda))
    device.synchronise()
    assert (device.busy, cuda.synchronised, device.peak_memory_mib()) == (False, 0, None)
    cuda.initialised = True
    device.synchronise()
    assert (device.busy, cuda.synchronised, device.peak_memory_mib()) == (True, 1, 3.0)


def test_a_trainer_reports_what_it_measured(server: TurnServer, events: list[TrainerEvent]) -> None:
    trainer = Trainer(Identity("a", 1, 0, 1, server.address, server.address, 5, 0), StandIn())
    while trainer.begin_iteration():
        with trainer.stage(Resource.CPU):
            until_s = time.monotonic() + 0.02
            while time.monotonic() < until_s:
                pass
        trainer.end_iteration()
    trainer.close()
    deadline_s = time.monotonic() + 10
    while not (windows := [e.window for e in events if isinstance(e, TrainerProgress) and e.window]):
        assert time.monotonic() < deadline_s, events
        time.sleep(0.005)
    assert windows[0].gpu_memory_mib == 77.0
    assert windows[0].iterations >= 2
    assert 0.02 <= windows[0].mean().cpu_s <= windows[0].mean().iteration_s


def test_a_window_survives_the_way_over_the_wire() -> None:
    line = parse_trainer_line(encode("progress", done=4, window=window_fields(WINDOW)))
    assert line.window == WINDOW
    assert parse_trainer_line(encode("progress", done=4)).window is None
    report = TrainerReport("a", 1, ReportKind.MEASURED, 4, window=WINDOW)
    no_gpu = dataclasses.replace(report, window=dataclasses.replace(WINDOW, gpu_memory_mib=None))
    batch = ReportBatch("n0", "first", 1, (report, no_gpu))
    assert codec.batch_from(codec.batch_to(batch)) == batch


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"n": 0}, "n is 0"),
        ({"sampled": 5}, "sampled is 5"),
        ({"stages": [1, 2]}, "allowed: 4 numbers"),
        ({"stages": [1, 2, 3, -1]}, "stages is -1"),
        ({"s": "long"}, "s is 'long'"),
        ({"s": float("inf")}, "s is inf"),
        ({"mib": True}, "mib is True"),
    ],
)
def test_a_window_that_cannot_be_is_refused(changes: dict[str, object], why: str) -> None:
    with pytest.raises(WireError, match=why):
        parse_trainer_line(encode("progress", done=4, window={**window_fields(WINDOW), **changes}))


def test_a_measurement_that_cannot_be_is_refused_by_the_master() -> None:
    window = dataclasses.replace(WINDOW, sampled=9)
    batch = ReportBatch("n0", "first", 1, (TrainerReport("a", 1, ReportKind.MEASURED, 4, window=window),))
    with pytest.raises(FieldError, match=r"reports\[0\].measured.sampled"):
        codec.batch_from(codec.batch_to(batch))


def test_an_outbox_adds_measurements_up() -> None:
    async def scenario() -> None:
        outbox = Outbox("n0", "first")
        report = TrainerReport("a", 1, ReportKind.MEASURED, 4, window=WINDOW)
        outbox.add(report)
        outbox.add(dataclasses.replace(report, iterations_done=8))
        outbox.add(TrainerReport("a", 1, ReportKind.FINISHED, 8))
        measured, finished = outbox.batch().reports
        assert finished.kind is ReportKind.FINISHED
        assert measured.window == StageWindow(8, 4.0, 4, (0.2, 0.4, 0.6, 0.8), False, 64.0)
        in_turns = dataclasses.replace(WINDOW, turns=True)
        assert WINDOW.joined(in_turns) == in_turns

    asyncio.run(scenario())


@pytest.mark.live
def test_an_unprofiled_job_is_measured_alone_and_then_shares(tmp_path: Path) -> None:
    """The trainers emulate what they are told in compressed time; measured, it comes out in the run's seconds."""
    reader, learner = StageProfile(1.0, 0.6, 0.2, 0.1, 0.1), StageProfile(1.0, 0.1, 0.1, 0.7, 0.1)
    jobs = (
        dataclasses.replace(job("new", 1, 600, 0.0, reader), profiled=False, model="new"),
        job("known", 1, 600, 0.0, learner),
    )
    memory = Memory()
    config = LiveConfig(cluster(1, 1), jobs, 200.0, tmp_path, measures=True)
    result = run_local(config, scheduler("muri-s"), memory)
    assert dict(result.ended) == {JobStatus.FINISHED.name.lower(): 2}
    change = next(action for action in memory.of(UseProfile) if action.guessed)
    assert change.job_ids == ("new",)
    assert change.profile.iteration_s == pytest.approx(1.0, rel=0.1)
    assert change.profile.stages == pytest.approx(reader.stages, abs=0.1)
    assert any(event.turns for event in memory.of(Measured)), "both shared the GPU in the end"
    assert min(a.time_s for a in memory.of(Launch) if a.job.job_id == "new") < change.time_s
    fresh = scheduler("muri-s")
    for event, actions in memory.entries:
        assert fresh.handle(event) == actions


@pytest.mark.live
def test_stated_profiles_stay_where_nobody_asks_for_measured_ones(tmp_path: Path) -> None:
    memory = Memory()
    run_local(LiveConfig(cluster(1, 1), (job("a", 1, 100),), 200.0, tmp_path), scheduler(), memory)
    assert memory.of(Measured) == []
