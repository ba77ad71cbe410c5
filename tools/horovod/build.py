"""Builds Horovod against the torch of this Python's environment, once, and installs it there.

    python tools/horovod/build.py

The wheel is kept in a folder below $CLUSTER_EXP_CACHE (or ~/.cache/cluster-exp) whose name says what it was built
for, so that the second environment, or the second call, takes seconds. The build's tools get an environment of their
own.
Exit codes: 0 installed and importable; 1 a step failed, which one and where the log lies is said on standard error.
"""

import fcntl
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
RECIPE = 1  # raise it when a change here makes the wheels that lie in caches useless
SHOWN_LINES = 15
BUILD_ENV = {
    "HOROVOD_WITH_PYTORCH": "1",
    "HOROVOD_WITH_GLOO": "1",
    "HOROVOD_WITHOUT_MPI": "1",
    "HOROVOD_WITHOUT_TENSORFLOW": "1",
    "HOROVOD_WITHOUT_MXNET": "1",
}
IMPORT_CHECK = (
    "import horovod, torch, horovod.torch as hvd\n"
    "assert hvd.gloo_built(), 'built without Gloo'\n"
    "print(f'horovod {horovod.__version__} with torch {torch.__version__}, nccl: {bool(hvd.nccl_built())}')\n"
)


class StepFailedError(Exception):
    """A step of the build failed; the message says which, why and where the log lies."""


@dataclass(frozen=True, slots=True)
class Target:
    """What a wheel is built for."""

    horovod: str  # version
    torch: str  # version, with the local part that names its build
    python: str  # as in cp311
    platform: str
    gpu_operations: str  # NCCL, or empty

    @property
    def key(self) -> str:
        """A folder's name that tells wheels apart."""
        gpu = f"_{self.gpu_operations.lower()}" if self.gpu_operations else ""
        return f"horovod-{self.horovod}_torch-{self.torch}_{self.python}_{self.platform}{gpu}_r{RECIPE}"


def cache_dir(env: Mapping[str, str]) -> Path:
    """The folder of built wheels: $CLUSTER_EXP_CACHE/horovod, or the same below ~/.cache/cluster-exp."""
    base = env.get("CLUSTER_EXP_CACHE")
    return (Path(base) if base else Path.home() / ".cache" / "cluster-exp").absolute() / "horovod"


def find_target(env: Mapping[str, str]) -> Target:
    """What this environment needs. Raises StepFailedError when torch, make or a compiler is missing."""
    try:
        torch = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        raise StepFailedError(f"step 'torch' failed: no torch in {sys.prefix}; `make horovod` installs it") from None
    for program in (env.get("CXX", "c++"), "make"):
        if shutil.which(program) is None:
            raise StepFailedError(f"step 'compiler' failed: no {program}; Debian: apt-get install build-essential")
    version = re.search(r"^horovod==(\S+)", (HERE / "source.txt").read_text(encoding="utf-8"), re.MULTILINE)
    if version is None:
        raise StepFailedError(f"step 'source' failed: {HERE / 'source.txt'} names no `horovod==VERSION`")
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    platform = re.sub(r"\W", "_", sysconfig.get_platform())
    return Target(version[1], torch, python, platform, env.get("HOROVOD_GPU_OPERATIONS", ""))


def run_step(step: str, argv: Sequence[str | Path], log: Path, env: Mapping[str, str]) -> None:
    """Runs a command with its output appended to `log`. Raises StepFailedError with the end of that output."""
    began_s = time.monotonic()
    with log.open("a", encoding="utf-8") as out:
        out.write(f"== {step}: {' '.join(map(str, argv))}\n")
        out.flush()
        begin_bytes = out.tell()
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, stdout=out, stderr=subprocess.STDOUT, env=env)
    if done.returncode:
        lines = log.read_bytes()[begin_bytes:].decode(errors="replace").splitlines()
        errors = [line for line in lines if re.search(r"\berror\b", line, re.IGNORECASE)][:SHOWN_LINES]
        shown = "\n".join(f"    {line[:200]}" for line in errors or lines[-SHOWN_LINES:])
        raise StepFailedError(f"step '{step}' failed with exit code {done.returncode}; the whole log: {log}\n{shown}")
    print(f"  {step}: {time.monotonic() - began_s:.0f} s", flush=True)


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Holds a file's lock, so that two builds of one wheel come one after the other."""
    with path.open("w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def build_environment(tools: Path, env: Mapping[str, str]) -> dict[str, str]:
    """The variables of the compile step; `tools` is the build's own environment."""
    built = {name: value for name, value in env.items() if name not in {"MFLAGS", "MAKELEVEL", "PYTHONPATH"}}
    return {
        **built,
        **BUILD_ENV,
        "CXX": str(HERE / "cxx17"),
        "CXX17_COMPILER": env.get("CXX", "c++"),
        "MAKEFLAGS": f"-j{len(os.sched_getaffinity(0))}",
        "PATH": f"{tools / 'bin'}{os.pathsep}{env.get('PATH', os.defpath)}",
    }


def build_wheel(folder: Path, log: Path, env: Mapping[str, str]) -> None:
    """Builds the wheel into a new `folder`, which is there only if that succeeds."""
    with tempfile.TemporaryDirectory(prefix="building-", dir=folder.parent) as scratch_name:
        scratch = Path(scratch_name)
        tools, wheels = scratch / "tools", scratch / "wheels"
        pip: list[str | Path] = [tools / "bin" / "python", "-m", "pip", "--disable-pip-version-check", "--no-input"]
        run_step("environment", [sys.executable, "-m", "venv", tools], log, env)
        run_step("tools", [*pip, "install", "-r", HERE / "build.txt"], log, env)
        # torch itself comes from the environment that the wheel is for; the tools' own packages go first.
        site = tools / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
        paths = dict.fromkeys((sysconfig.get_path("purelib"), sysconfig.get_path("platlib")))
        (site / "torch_of_target.pth").write_text("".join(f"{path}\n" for path in paths), encoding="utf-8")
        options = ["--no-deps", "--no-build-isolation", "--no-cache-dir", "--no-binary", "horovod", "--verbose"]
        command = [*pip, "wheel", *options, "--require-hashes", "-r", HERE / "source.txt", "-w", wheels]
        run_step("compile", command, log, {**build_environment(tools, env), "TMPDIR": str(scratch)})
        wheels.replace(folder)


def install(wheel: Path, log: Path, env: Mapping[str, str]) -> None:
    """Installs the wheel and what it needs into this environment, and imports it."""
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "install"]
    run_step("requirements", [*pip, wheel], log, env)
    # One built for another torch has the same version: pip takes it for installed.
    run_step("install", [*pip, "--force-reinstall", "--no-deps", wheel], log, env)
    run_step("import", [sys.executable, "-c", IMPORT_CHECK], log, env)


def main() -> int:
    """Builds if need be, installs, checks; returns the exit code."""
    env = dict(os.environ)
    try:
        target = find_target(env)
        folder = cache_dir(env) / target.key
        try:
            folder.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StepFailedError(f"step 'cache' failed: {error}; $CLUSTER_EXP_CACHE names another folder") from error
        log = folder.with_name(f"{target.key}.log")
        with locked(folder.with_name(f"{target.key}.lock")):
            if folder.is_dir():
                print(f"horovod {target.horovod} for torch {target.torch} was built already: {folder}", flush=True)
            else:
                print(f"building horovod {target.horovod} for torch {target.torch} (minutes); log: {log}", flush=True)
                log.unlink(missing_ok=True)
                build_wheel(folder, log, env)
        (wheel,) = folder.glob("*.whl")
        install(wheel, log, env)
    except StepFailedError as error:
        sys.stderr.write(f"make horovod: {error}\n")
        return 1
    print(log.read_text(encoding="utf-8", errors="replace").splitlines()[-1])
    return 0


if __name__ == "__main__":
    sys.exit(main())
