"""The scripts as people start them."""

import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.workloads.kit import DEADLINE_S, LANGUAGE, RL, ROOT, VISION, options, program
from workloads.command import SIZES, main


@pytest.mark.parametrize("name", [*VISION, *LANGUAGE, *RL])
def test_every_script_explains_itself(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(program(name), ["--help"])
    said = capsys.readouterr().out
    assert stopped.value.code == 0
    assert said.startswith(f"usage: python -m workloads.{name} ")
    assert "--size {full,small,tiny}" in said
    assert "None" not in said
    assert set(program(name).batch_size) == set(SIZES)


def test_a_script_trains_alone_and_says_so(images: Path, text: Path) -> None:
    command = [sys.executable, "-m", "workloads.resnet18", *options("resnet18", images, text)]
    run = subprocess.run(
        [*command, "--iterations", "4", "--log-every", "2"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=DEADLINE_S,
    )
    assert (run.returncode, run.stderr) == (0, "")
    first, second, last = run.stdout.splitlines()
    assert first.startswith("resnet18 iteration=2 loss=")
    assert second.startswith("resnet18 iteration=4 loss=")
    assert last.startswith("resnet18: 4 iterations done, loss ")


@pytest.mark.parametrize("name", [*VISION, *LANGUAGE, *RL])
def test_an_iteration_of_the_tiny_size_takes_well_under_a_second(name: str, images: Path, text: Path) -> None:
    arguments = [*options(name, images, text), "--iterations"]
    times_s = []
    for count in ("1", "21"):
        start_s = time.process_time()
        assert main(program(name), [*arguments, count]) == 0
        times_s.append(time.process_time() - start_s)
    assert (times_s[1] - times_s[0]) / 20 < 0.3


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("resnet18", ["--data", "nowhere"], "nowhere: no such folder; a folder with a folder of images"),
        ("gpt2", ["--data", "nowhere"], "nowhere: no such text file"),
        (
            "gpt2",
            ["--data", "README.md", "--sequence-length", "1025"],
            "--sequence-length: 1025 is given, 4 to 1024",
        ),
        ("a2c", ["--game", "Go"], "--game: Go is given; allowed are Adventure,"),
        ("a2c", ["--batch-size", "9", "--envs", "2"], "--batch-size: 9 is given, a multiple of the 2 games"),
        ("dqn", ["--replay-size", "5"], "--replay-size: 5 is given, a number from 6 on"),
        ("dqn", ["--device", "tpu"], "--device: tpu is given, cpu, cuda and cuda:N are allowed"),
        ("dqn", ["--device", "mps"], "--device: mps is given, cpu, cuda and cuda:N are allowed"),
    ],
)
def test_bad_input_is_one_line(
    name: str, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(ROOT)
    assert main(program(name), arguments) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"{name}: {message}")
    assert said.count("\n") == 1


@pytest.mark.parametrize(
    "arguments", [["--iterations", "0"], ["--threads", "-1"], ["--seed", "x"], ["--size", "huge"]]
)
def test_a_bad_option_is_refused(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        main(program("dqn"), arguments)
    assert stopped.value.code == 2
    assert arguments[0] in capsys.readouterr().err
