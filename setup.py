"""Builds the package; the gRPC stubs are written first, so that every way of installing has them."""

import runpy
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py

HERE = Path(__file__).resolve().parent


class BuildWithStubs(build_py):
    """`build_py` after `protos/generate.py`; editable installs take the same way."""

    def run(self) -> None:
        """Writes the stubs into the source tree, then builds."""
        runpy.run_path(str(HERE / "protos" / "generate.py"))["generate"](HERE / "protos", HERE)
        super().run()


setup(cmdclass={"build_py": BuildWithStubs})
