"""What `make horovod` does when something is missing or fails, and that it builds once; compiles nothing."""

import importlib.metadata
import importlib.util
import stat
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = Path(__file__).parents[2] / "tools" / "horovod"


@pytest.fixture
def build(monkeypatch, tmp_path):
    """The script as a module, with torch installed, a cache of its own, and nothing run but what a test allows."""
    spec = importlib.util.spec_from_file_location("horovod_build", TOOLS / "build.py")
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "horovod_build", module)
    spec.loader.exec_module(module)
    monkeypatch.setattr(importlib.metadata, "version", lambda name: {"torch": "2.13.0+cpu"}[name])
    monkeypatch.setattr(module.shutil, "which", lambda program: f"/usr/bin/{program}")
    monkeypatch.setenv("CLUSTER_EXP_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("HOROVOD_GPU_OPERATIONS", raising=False)
    return module


def stand_in_for(build, monkeypatch, commands):
    """Runs `commands[step]` in place of a step's command; other steps succeed and do nothing."""
    ran, run_step = [], build.run_step

    def step(name, argv, log, env):
        ran.append(name)
        if name == "compile":
            site = Path(argv[0]).parents[1] / "lib"
            assert [path.name for path in site.rglob("*.pth")] == ["torch_of_target.pth"]
        if name == "environment":
            (Path(argv[-1]) / "lib" / f"python3.{sys.version_info.minor}" / "site-packages").mkdir(parents=True)
        run_step(name, commands.get(name, ["true"]), log, env)

    monkeypatch.setattr(build, "run_step", step)
    return ran


def test_a_wheels_folder_says_what_it_was_built_for(build, monkeypatch):
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    key = build.find_target({}).key
    assert key.startswith(f"horovod-0.28.1_torch-2.13.0+cpu_{python}_linux_")
    assert build.find_target({"HOROVOD_GPU_OPERATIONS": "NCCL"}).key == key.replace("_r1", "_nccl_r1")
    monkeypatch.setenv("HOME", "/home/me")
    assert build.cache_dir({}) == Path("/home/me/.cache/cluster-exp/horovod")


def test_the_wheel_is_built_once(build, monkeypatch, tmp_path, capsys):
    wheel = "mkdir -p $TMPDIR/wheels && touch $TMPDIR/wheels/horovod-0.28.1.whl"
    ran = stand_in_for(build, monkeypatch, {"compile": ["sh", "-c", wheel], "import": ["echo", "horovod there"]})
    assert build.main() == 0
    assert ran == ["environment", "tools", "compile", "requirements", "install", "import"]
    ran.clear()
    assert build.main() == 0
    assert ran == ["requirements", "install", "import"]
    assert "was built already" in capsys.readouterr().out
    folder = tmp_path / "cache" / "horovod"
    kinds = sorted(path.suffix if path.is_file() else "folder" for path in folder.iterdir())
    assert kinds == [".lock", ".log", "folder"]


def test_a_failed_step_is_named_with_its_errors_and_the_log(build, monkeypatch, tmp_path, capsys):
    compiler = "echo checking; echo 'a.cc:1: error: no such type'; echo done; exit 3"
    stand_in_for(build, monkeypatch, {"compile": ["sh", "-c", compiler]})
    assert build.main() == 1
    said = capsys.readouterr().err
    (log,) = (tmp_path / "cache" / "horovod").glob("*.log")
    failed = f"make horovod: step 'compile' failed with exit code 3; the whole log: {log}\n"
    assert said == f"{failed}    a.cc:1: error: no such type\n"
    assert "checking\n" in log.read_text()
    assert [path for path in log.parent.iterdir() if path.is_dir()] == []


@pytest.mark.parametrize(
    ("missing", "message"),
    [("torch", "step 'torch' failed: no torch in "), ("c++", "step 'compiler' failed: no c"), ("make", ": no make;")],
)
def test_what_is_missing_is_said_before_anything_runs(build, monkeypatch, capsys, missing, message):
    ran = stand_in_for(build, monkeypatch, {})
    if missing == "torch":
        monkeypatch.setattr(importlib.metadata, "version", importlib.metadata.Distribution.from_name)
        monkeypatch.setattr(sys, "path", [])
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setattr(build.shutil, "which", lambda program: None if program == missing else program)
    assert build.main() == 1
    assert message in capsys.readouterr().err
    assert ran == []


def test_a_cache_that_cannot_be_written_is_named(build, monkeypatch, tmp_path, capsys):
    (tmp_path / "file").touch()
    monkeypatch.setenv("CLUSTER_EXP_CACHE", str(tmp_path / "file"))
    assert build.main() == 1
    assert "$CLUSTER_EXP_CACHE names another folder" in capsys.readouterr().err


def test_the_compiler_is_told_another_standard_and_nothing_else(tmp_path):
    compiler = tmp_path / "cc"
    compiler.write_text('#!/bin/sh\nfor word in "$@"; do echo "$word"; done\n')
    compiler.chmod(stat.S_IRWXU)
    given = ["-c", "a b.cc", "-std=c++14", "-std=c++11", "-DX=-std=c++14"]
    done = subprocess.run(
        [TOOLS / "cxx17", *given], env={"CXX17_COMPILER": str(compiler), "PATH": "/usr/bin:/bin"}, capture_output=True
    )
    assert done.stdout.decode().splitlines() == ["-c", "a b.cc", "-std=c++17", "-std=c++11", "-DX=-std=c++14"]
