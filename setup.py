"""Builds the package.

The gRPC stubs are written first, so that every way of installing has them. The modules of COMPILED are compiled where
there is a C compiler; where there is none they stay as they are, and run slower (docs/decisions/speed.md).
"""

import runpy
from pathlib import Path

from Cython.Build import cythonize
from setuptools import Extension, setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent
COMPILED = (
    "cluster_exp/core/pool.py",
    "cluster_exp/core/placer.py",
    "cluster_exp/interleave/simplex.py",
    "cluster_exp/interleave/turn_rates.py",
    "cluster_exp/policies/pairing.py",
    "cluster_exp/policies/weave_groups.py",
    "cluster_exp/policies/weave_search.py",
)
DIRECTIVES = {
    "language_level": 3,
    "annotation_typing": False,  # annotations are Python's; C types are in the .pxd files
    "infer_types": True,
    "boundscheck": False,
    "wraparound": False,
    "initializedcheck": False,
    "cdivision": True,
}


class BuildWithStubs(build_py):
    """`build_py` after `protos/generate.py`; editable installs take the same way."""

    def run(self) -> None:
        """Writes the stubs into the source tree, then builds."""
        runpy.run_path(str(HERE / "protos" / "generate.py"))["generate"](HERE / "protos", HERE)
        super().run()


def extensions() -> list[Extension]:
    """Extension modules of the same names as the Python ones, which they stand in for."""
    modules = [
        Extension(path.removesuffix(".py").replace("/", "."), [path], extra_compile_args=["-O3"]) for path in COMPILED
    ]
    compiled: list[Extension] = cythonize(modules, build_dir="build", compiler_directives=DIRECTIVES, quiet=True)
    for module in compiled:
        module.optional = True  # `cythonize` does not take it over from the modules that it is given
    return compiled


setup(cmdclass={"build_py": BuildWithStubs}, ext_modules=extensions())
