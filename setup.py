"""Builds the C kernels ahead, into the wheel; all else is in pyproject.toml.

Without a compiler there is a wheel without them, which works on any machine: kernels are then compiled at first use
where there is one. An editable installation builds none, so that a changed source is compiled anew.
"""

import importlib.util
import subprocess
import sys
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

SPEC = importlib.util.spec_from_file_location("builds", Path(__file__).parent / "src/tacit/kernels/builds.py")
builds = importlib.util.module_from_spec(SPEC)
sys.modules["builds"] = builds  # where dataclasses look for it
SPEC.loader.exec_module(builds)
COMPILES = bool(builds.SETS and builds.find_compiler())


class BuildWithKernels(build_py):
    def run(self):
        super().run()
        if COMPILES and not self.editable_mode:
            try:
                builds.build_ahead(Path(self.build_lib) / "tacit" / "kernels" / builds.AHEAD.name)
            except subprocess.SubprocessError as error:
                sys.exit(f"building the kernels failed; without a compiler on PATH they are left out: {error.stderr}")


class WheelOfThisPlatform(bdist_wheel):
    """The libraries are none of Python's: a wheel suits every Python 3 of its platform."""

    def get_tag(self):
        python, abi, platform = super().get_tag()
        return ("py3", "none", platform) if COMPILES else (python, abi, platform)


class WithLibraries(Distribution):
    def has_ext_modules(self):
        return COMPILES


setup(cmdclass={"build_py": BuildWithKernels, "bdist_wheel": WheelOfThisPlatform}, distclass=WithLibraries)
