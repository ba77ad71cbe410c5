import ast
import configparser
import runpy
import sys
from pathlib import Path

import pytest
import setuptools

ROOT = Path(__file__).parents[2]
generate = runpy.run_path(str(ROOT / "protos" / "generate.py"))["generate"]
PROTO = """syntax = "proto3";
package a.b;
message Ping { int32 count = 1; }
service S { rpc Do(Ping) returns (Ping); }
"""


def test_stubs_lie_where_their_proto_files_lie(tmp_path):
    source = tmp_path / "protos" / "a" / "b"
    source.mkdir(parents=True)
    (source / "x.proto").write_text(PROTO)
    assert generate(tmp_path / "protos", tmp_path) == 1
    written = sorted(path.name for path in (tmp_path / "a" / "b").iterdir())
    assert written == ["x_pb2.py", "x_pb2.pyi", "x_pb2_grpc.py"]
    assert "from a.b import x_pb2" in (tmp_path / "a" / "b" / "x_pb2_grpc.py").read_text()


def test_a_proto_file_that_is_refused_fails_the_build(tmp_path):
    (tmp_path / "x.proto").write_text("not a proto file")
    with pytest.raises(RuntimeError, match="protoc refused a file under"):
        generate(tmp_path, tmp_path)
    assert not list(tmp_path.glob("*_pb2*"))


def test_folders_that_receive_stubs_are_packages():
    for path in (ROOT / "protos").rglob("*.proto"):
        folder = ROOT / path.parent.relative_to(ROOT / "protos")
        assert (folder / "__init__.py").is_file(), f"setuptools leaves {folder} out"


def requirements(section: str, option: str) -> set[str]:
    """Names of the packages that setup.cfg lists there."""
    config = configparser.ConfigParser()
    config.read(ROOT / "setup.cfg")
    return {line.split()[0].lower() for line in config[section][option].split("\n") if line}


def foreign_imports(folder: Path) -> set[str]:
    """Packages, by the names under which they are required, that the modules of a folder import."""
    names = {"google": "protobuf", "grpc": "grpcio", "yaml": "pyyaml", "ale_py": "ale-py", "PIL": "pillow"}
    foreign = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                foreign |= {alias.name.split(".")[0] for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                foreign.add(node.module.split(".")[0])
    return {names.get(name, name) for name in foreign - sys.stdlib_module_names - {"cluster_exp", "workloads"}}


def test_every_import_of_the_package_is_a_stated_requirement():
    extras = {"torch", "horovod", "matplotlib", "cryptography"}
    assert foreign_imports(ROOT / "cluster_exp") - extras <= requirements("options", "install_requires")


def test_every_import_of_the_workloads_is_a_requirement_of_their_extra_and_the_other_way_round():
    extra = requirements("options.extras_require", "workloads")
    assert foreign_imports(ROOT / "workloads") - {"numpy"} == extra


def test_what_does_not_compile_is_left_out(monkeypatch):
    """An optional extension; of one that is not, a machine without a compiler gets no package at all."""
    given = {}
    monkeypatch.setattr(setuptools, "setup", lambda **arguments: given.update(arguments))
    monkeypatch.chdir(ROOT)
    runpy.run_path("setup.py")
    assert len(given["ext_modules"]) == 7
    assert all(module.optional for module in given["ext_modules"])
