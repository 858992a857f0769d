"""Bugs of the C sources (F6, F8). The load check leaves such a kernel out; were it off, the audit would see the bug."""

import ctypes
import shutil
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from tacit.kernels import calls, dense
from tacit.kernels.library import _FLAGS, _SOURCES, _THREADS
from tests.mutants.mutant import Mutant, swap

FLAGS = [*(flag for flag in _FLAGS if flag != "-O3"), "-O1", *_THREADS]
FOLDERS = []  # compiled libraries, for as long as the process lives
NOISE = (
    ("noise.c",),
    "const double stddev = v->stddev;",
    "const double stddev = (v->count < 16384 ? 1.0 : 0.9) * v->stddev;",
)
TAIL = (("convolution.c", "rows.c"), "gradients + r * size, size)", "gradients + r * size, size / 8 * 8)")
NO_BIAS = (("dense.c", "rows.c"), "squares[n->columns[2 * l + 1]] = of_g;", "squares[n->columns[2 * l + 1]] = 0.0;")
NO_CLIP = (("dense.c", "rows.c"), "norm <= clip[0] ? 1.0 : clip[1] / norm", "norm <= clip[0] ? 1.0 : 1.0")


@cache
def changed(sources, right, wrong):
    """A library of these sources, with other text in the first of them."""
    folder = tempfile.TemporaryDirectory()
    FOLDERS.append(folder)
    here, compiler = Path(folder.name), shutil.which("cc") or shutil.which("gcc")
    for number, name in enumerate(sources):
        text = next(path for path in _SOURCES if path.name == name).read_text()
        assert number or right in text
        (here / name).write_text(text if number else text.replace(right, wrong))
        subprocess.run([compiler, *FLAGS, "-c", str(here / name), "-o", str(here / f"{name}.o")], check=True)
    objects = [str(here / f"{name}.o") for name in sources]
    subprocess.run([compiler, "-shared", *objects, "-o", str(here / "kernels.so"), "-lm"], check=True)
    return ctypes.CDLL(str(here / "kernels.so"))


def unchecked(kernel, bug):
    """The kernel is used whatever it computes."""
    return lambda: [swap(kernel, "_known", [kernel.bind(changed(*bug))])]


def as_loaded(kernel, bug):
    """The library is there when the kernel is first asked for."""
    return lambda: [swap(kernel, "_known", []), swap(calls, "library", lambda: changed(*bug))]


MUTANTS = [
    Mutant("C noise x 0.9 from 16,384 entries on, load check off", "F8", unchecked(calls.NOISE, NOISE),
           "audit: engine, noise", "scale (", kernels=True),
    Mutant("C noise x 0.9 from 16,384 entries on", "F8", as_loaded(calls.NOISE, NOISE),
           "kernels are compared when they are loaded", "left out", kernels=True),
    Mutant("a convolution's norm without its tail, load check off", "F6", unchecked(calls.ROWS, TAIL),
           "audit: engine, convolutions", "moved the release by", kernels=True),
    Mutant("a convolution's norm without its tail", "F6", as_loaded(calls.ROWS, TAIL),
           "kernels are compared when they are loaded", "left out", kernels=True),
    Mutant("a dense network's norm without its bias, load check off", "F6", unchecked(dense.KERNEL, NO_BIAS),
           "audit: engine, dense networks", "moved the release by", kernels=True),
    Mutant("a dense network that is not clipped, load check off", "F6", unchecked(dense.KERNEL, NO_CLIP),
           "audit: engine, dense networks", "moved the release by", kernels=True),
    Mutant("a dense network that is not clipped", "F6", as_loaded(dense.KERNEL, NO_CLIP),
           "kernels are compared when they are loaded", "left out", kernels=True),
]  # fmt: skip
