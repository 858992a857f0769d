"""A kernel that is wrong: a copy of the library with one line of C changed, as a compiler's or a processor's bug would.

What is compiled is compared with PyTorch before it is used, or one record may move the release as far as it likes.
"""

import os
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

import torch
from torch import nn

import tacit
from reliability.boundary.attack import (
    ATTACKS,
    Loop,
    Outcome,
    attack,
    in_own_process,
    linear,
    ordinary,
    outlier,
    seeded,
)

_INSIDE = "TACIT_BOUNDARY_INSIDE"


def _with(file: str, found: str, put: str, build: Callable[[], Loop | Outcome], name: str) -> Loop | Outcome:
    """Run a loop on a copy of the library in which one piece of a kernel was replaced."""
    if os.environ.get(_INSIDE) == name:
        return build()
    source = Path(tacit.__file__).parents[1]
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "src"
        shutil.copytree(source / "tacit", copy / "tacit", ignore=shutil.ignore_patterns("__pycache__"))
        kernel = copy / "tacit" / "kernels" / file
        text = kernel.read_text() if kernel.exists() else ""
        changed, times = re.subn(found, put, text, count=1)
        if not times:
            return Outcome("broke", f"{file} has no such line any more: this attack has to be written anew")
        kernel.write_text(changed)
        before = {key: os.environ.get(key) for key in (_INSIDE, "XDG_CACHE_HOME")}
        os.environ.update({_INSIDE: name, "XDG_CACHE_HOME": folder})
        try:
            return in_own_process(name, source=copy)
        finally:
            for key, value in before.items():
                os.environ.pop(key) if value is None else os.environ.update({key: value})


def _convolution() -> Loop:
    model = seeded(lambda: nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 1)))
    model[3].requires_grad_(False)
    return Loop(model=model, rows=ordinary(24, 3, 8, 8), more=outlier(3, 8, 8))


def _odd_convolution() -> Loop:
    """A first layer of few numbers, most of which lie in the tail of a vector."""
    model = seeded(lambda: nn.Sequential(nn.Conv2d(1, 1, 3), nn.Flatten(), nn.Linear(36, 1, bias=False)))
    model[2].requires_grad_(False)
    return Loop(model=model, rows=ordinary(24, 1, 8, 8), more=outlier(1, 8, 8))


def _small() -> Loop:
    return Loop(model=linear())


@attack("A11", row="F6", slow=True)
def convolution_kernel_without_norms():
    """The squares of a convolution's gradients come out as 0: nothing is clipped."""
    return _with("convolution.c", r"squares\[r\] = [^;]+;", "squares[r] = 0.0;", _convolution, _name(0))


@attack("A11", row="F6", slow=True)
def convolution_kernel_without_the_tail_of_norms():
    """The last numbers of a vector are left out of the norm."""
    line = r"for \(; i < count; i\+\+\) total \+= \(double\)row\[i\] \* \(double\)row\[i\];"
    return _with("rows.c", line, "", _odd_convolution, _name(1))


@attack("A11", row="F6", slow=True)
def kernel_of_norms_that_gives_none():
    """The squares of every row come out as 0."""
    line = r"Doubles parts\[2\] = \{\{0\.0\}\};"
    return _with("rows.c", line, "return 0.0;\n    Doubles parts[2] = {{0.0}};", _small, _name(2))


@attack("A11", row="F6", slow=True)
def kernel_of_products_that_adds_twice():
    """Every record's share of a linear layer is added twice."""
    line = r"total\[c\] \+= factor \*"
    return _with("outer_sum.c", line, "total[c] += 2 * factor *", _small, _name(3))


@attack("A11", row="F6", slow=True)
def kernel_of_rows_that_adds_twice():
    """Every record's share of a bias is added twice."""
    line = r"\+= factor \* \(double\)row\[i\]"
    return _with("rows.c", line, "+= 2.0 * factor * (double)row[i]", _small, _name(4))


@attack("A11", row="F8", slow=True)
def noise_kernel_that_adds_too_little_to_large_vectors():
    """Noise of nine tenths, from 16,384 numbers on only."""
    line = r"const double stddev = v->stddev;"
    put = "const double stddev = (v->count >= 16384 ? 0.9 : 1.0) * v->stddev;"
    return _with("noise.c", line, put, _noise, _name(5))


def _noise() -> Outcome:
    model = seeded(lambda: nn.Linear(40_000, 1, bias=False))
    loop = Loop(
        model=model, rows=(torch.zeros(4, 40_000), torch.zeros(4)), more=(torch.zeros(1, 40_000), torch.zeros(1))
    )
    trace = loop.run(with_record=False)
    if trace.ended is not None:
        return trace.ended
    charged = trace.queries[0][0].noise_stddev
    added = float(trace.released[0]["weight"].std()) * 4
    return Outcome("moves", moved=charged / added if abs(charged / added - 1) > 0.02 else 1.0)


def _name(number: int) -> str:
    return [one.name for one in ATTACKS.values() if one.build.__module__ == __name__][number]
