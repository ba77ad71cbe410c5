"""What the code may import and how long it may be; read from the source, nothing is executed."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGE = ROOT / "cluster_exp"
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if "_pb2" not in path.name)
WORKLOADS = sorted((ROOT / "workloads").rglob("*.py"))

# A layer may import itself and what is listed; inputs and results stand beside core; results
# implement the core's recorder.
LAYERS = {
    "domain": set(),
    "interleave": {"domain"},
    "policies": {"domain", "interleave"},
    "core": {"domain", "interleave", "policies"},
    "protocol": {"domain", "interleave", "policies", "core"},
    "inputs": {"domain", "interleave", "policies"},
    "results": {"domain", "interleave", "policies", "core"},
    "sim": {"domain", "interleave", "policies", "core", "protocol", "inputs", "results"},
    "runtime": {"domain", "interleave", "policies", "core", "protocol", "inputs", "results"},
    "parallel": {"domain"},
    "reproduce": {"domain", "interleave", "policies", "core", "protocol", "inputs", "results", "sim", "parallel"},
    "sweep": {"domain", "interleave", "policies", "core", "protocol", "inputs", "results", "sim", "parallel"},
    "cli": {
        *("domain", "interleave", "policies", "core", "protocol"),
        *("inputs", "results", "sim", "runtime", "parallel", "reproduce", "sweep"),
    },
}
PURE_LAYERS = ("domain", "interleave", "policies", "core", "protocol")
IMPURE_MODULES = frozenset(
    {
        *("time", "datetime", "sched", "calendar", "random", "secrets", "uuid"),
        *("socket", "ssl", "select", "selectors", "socketserver", "http", "urllib", "requests", "grpc"),
        *("asyncio", "threading", "multiprocessing", "concurrent", "subprocess", "signal", "queue", "_thread"),
        *("os", "io", "pathlib", "shutil", "tempfile", "glob", "fcntl", "mmap", "sqlite3", "dbm", "shelve"),
        *("logging", "warnings", "sys", "platform", "resource", "getpass", "yaml", "tqdm"),
    }
)
IMPURE_CALLS = frozenset({"open", "print", "input", "exec", "eval", "compile", "__import__"})
MAX_MODULE_LINES = 400
MAX_FUNCTION_LINES = 70


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def layer_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE).parts
    return parts[0] if len(parts) > 1 else ""


def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imported(path: Path, tree: ast.Module) -> Iterator[str]:
    """Dotted names of everything that a module imports, wherever in it."""
    package = list(path.relative_to(ROOT).parent.parts)
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            yield from (f"{module}.{alias.name}" for alias in node.names)


def upward_imports(path: Path, tree: ast.Module) -> list[str]:
    layer = layer_of(path)
    allowed = LAYERS.get(layer, set()) | {layer}
    wrong = []
    for name in imported(path, tree):
        parts = name.split(".")
        if parts[0] == "cluster_exp" and len(parts) > 1 and parts[1] in LAYERS and parts[1] not in allowed:
            wrong.append(name)
    return wrong


def impurities(path: Path, tree: ast.Module) -> list[str]:
    found = [name for name in imported(path, tree) if name.split(".")[0] in IMPURE_MODULES]
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS:
            found.append(f"{node.func.id}() in line {node.lineno}")
        if isinstance(node, ast.Attribute) and ast.unparse(node) in {"np.random", "numpy.random"}:
            found.append(f"numpy.random in line {node.lineno}")
    return found


@pytest.mark.parametrize("path", MODULES, ids=name_of)
def test_imports_point_downward(path):
    layer = layer_of(path)
    assert layer in LAYERS or path.parent == PACKAGE, f"{layer} is no known layer"
    if path.name != "__main__.py":
        assert upward_imports(path, tree_of(path)) == []


@pytest.mark.parametrize("path", [path for path in MODULES if layer_of(path) in PURE_LAYERS], ids=name_of)
def test_the_pure_layers_touch_nothing_outside(path):
    assert impurities(path, tree_of(path)) == []


@pytest.mark.parametrize("path", [*MODULES, *WORKLOADS], ids=name_of)
def test_modules_and_functions_are_short(path):
    assert len(path.read_text(encoding="utf-8").splitlines()) <= MAX_MODULE_LINES
    functions = [node for node in ast.walk(tree_of(path)) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    long = {
        node.name: node.end_lineno - node.lineno + 1
        for node in functions
        if node.end_lineno - node.lineno + 1 > MAX_FUNCTION_LINES
    }
    assert long == {}


@pytest.mark.parametrize("path", [*(path for path in MODULES if layer_of(path) != "cli"), *WORKLOADS], ids=name_of)
def test_only_the_command_line_prints(path):
    prints = [
        node.lineno
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "print"
    ]
    assert prints == []


def test_no_module_is_a_drawer_for_anything():
    assert [name_of(path) for path in [*MODULES, *WORKLOADS] if path.stem in {"utils", "util", "misc"}] == []


def test_trainers_of_users_import_only_the_sdk():
    wrong = {}
    assert WORKLOADS
    for path in WORKLOADS:
        names = [name for name in imported(path, tree_of(path)) if name.split(".")[0] == "cluster_exp"]
        foreign = [name for name in names if not name.startswith("cluster_exp.runtime.trainer")]
        if foreign:
            wrong[name_of(path)] = foreign
        if names and path.name != "loop.py":
            wrong[name_of(path)] = names
    assert wrong == {}


def test_these_checks_see_what_they_look_for():
    path = PACKAGE / "domain" / "job.py"
    upward = ast.parse("def f():\n    from ..core import state\nimport cluster_exp.sim.engine\n")
    assert upward_imports(path, upward) == ["cluster_exp.sim.engine", "cluster_exp.core.state"]
    impure = ast.parse("import os.path\nfrom time import time\nopen('x')\nimport math\nnp.random.default_rng()\n")
    assert impurities(path, impure) == [
        "os.path",
        "time.time",
        "open() in line 3",
        "numpy.random in line 5",
    ]
