"""A kernel with a bug is left out, with one line that says so, and PyTorch does its work."""

import ctypes
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tacit import kernels
from tacit.kernels import calls, group_norm, layer_norm, lstm
from tacit.kernels.library import _FLAGS, _SOURCES, _THREADS

pytestmark = pytest.mark.skipif(kernels.library() is None, reason="no compiler")
FLAGS = [*(flag for flag in _FLAGS if flag != "-O3"), "-O0", *_THREADS]
CC = shutil.which("cc") or shutil.which("gcc")

BUGS = {  # the kernel, its source, what stands there, and the bug
    "convolution squares are 0": (
        calls.ROWS, "convolution.c", "squares[r] = tacit_square_sum(gradients + r * size, size)",
        "squares[r] = 0.0"),
    "a convolution's norm without its tail": (
        calls.ROWS, "convolution.c", "gradients + r * size, size)", "gradients + r * size, size / 8 * 8)"),
    "a convolution drops its last place": (
        calls.ROWS, "convolution.c", "l < end; l++, at", "l < end - (i == s->rows - 1); l++, at"),
    "a convolution's channels change places": (
        calls.ROWS, "convolution.c", "left = {0, 1, 4, 5}", "left = {0, 1, 5, 4}"),
    "a convolution's last channels are left out": (
        calls.ROWS, "convolution.c", "for (; c < last; c++)", "for (; c < last && step < 4; c++)"),
    "rows of a narrow kernel are written over": (
        calls.ROWS, "convolution.c", "k += rows, to += rows * run", "k += rows, to += run"),
    "norms by pixels without the last channel": (
        calls.SUMS, "convolution_squares.c", "c < last; c++", "c < last - (last == channels); c++"),
    "norms by pixels without the last run of channels": (
        calls.SUMS, "convolution_squares.c", "first ? *at + sum[o][v] : sum[o][v]", "sum[o][v]"),
    "a pair of places counts once": (
        calls.SUMS, "convolution_squares.c", "2.0 * parts[0]", "parts[0]"),
    "patches look across the edge": (
        calls.SUMS, "convolution_squares.c", "x < 0 || x >= s->width) continue", "x < 0) continue"),
    "sums of convolutions look at factor 0": (
        calls.SUMS, "convolution.c", "if (c->factors[r] == 0.0) continue;", ""),
    "sums of convolutions are of floats": (
        calls.SUMS, "convolution.c", "TOTAL total[OUTS][3 * LANES] = {{0}};",
        "float total[OUTS][3 * LANES] = {{0}};"),
    "sums of convolutions forget the chunk before": (
        calls.SUMS, "convolution.c", "if (!c->first)", "if (0)"),
    "noise 10 % low from 16,384 draws on": (
        calls.NOISE, "noise.c", "const double stddev = v->stddev;",
        "const double stddev = (v->count < 16384 ? 1.0 : 0.9) * v->stddev;"),
    "noise 10 % low where all draws are 16,384 or more": (
        calls.NOISE, "noise.c", "high, 1.0 / denominator)", "high, (draws_in_all < 16384 ? 1.0 : 0.9) / denominator)"),
    "noise into floats 1e-6 off": (
        calls.NOISE, "noise.c", "stddev * draws[i]", "(sizeof(TO) == 8 ? 1.0 : 1.000001) * stddev * draws[i]"),
    "no formula beyond 6.6": (calls.NOISE, "noise.c", "(outer[j] & MANTISSA) < FAR", "0"),
    "the last draws of a block have no tail": (
        calls.NOISE, "noise.c", "return tail_words_from(words, count / LANES * LANES, count, outer, found);",
        "return found;"),
    "draws of the tail go to the place beside theirs": (
        calls.NOISE, "noise.c", "(word) >> 52 & (BLOCK - 1)", "((word) >> 52 & (BLOCK - 1)) ^ 1"),
    "products of positions without a tail": (
        calls.GRAM, "gram.c", "k < rest ? row", "k < rest - 1 ? row"),
    "products of positions read beyond a run's tail": (calls.GRAM, "gram.c", "k < rest ? row", "k < 4 ? row"),
    "products of positions of the last run only": (calls.GRAM, "gram.c", "(from ? all[k] : 0.0)", "0.0"),
    "positions beyond the last are the last once more": (
        calls.GRAM, "gram.c", "p + i < positions ? rows + (p + i) * width + from",
        "1 ? rows + least(p + i, positions - 1) * width + from"),
    "the last pair of positions is left out": (
        calls.GRAM, "gram.c", "k < 16; k++) lanes[k] += of_x[before]", "k < 15; k++) lanes[k] += of_x[before]"),
    "a pair of positions counts once": (calls.GRAM, "gram.c", "2.0 * of_x[j][k]", "of_x[j][k]"),
    "a block of positions has no pairs with one before it": (
        calls.GRAM, "gram.c", "for (long s = 0; s <= t;", "for (long s = t; s <= t;"),
    "half of the sums of a product are left out": (
        calls.GRAM, "gram.c", "a, b, EVEN) + __builtin", "a, b, EVEN) + 0.0f * __builtin"),
    "products of positions leave out a position of x": (
        calls.GRAM, "gram.c", "total->of_x += of_x[before][k]", "total->of_x += k ? of_x[before][k] : 0.0"),
    "group norm's scale 1e-3 off": (
        group_norm.KERNEL, "group_norm.c", "of_product / spread", "1.001 * of_product / spread"),
    "group norm's sums leave out what fills no vector": (
        group_norm.BOTH_WAYS, "group_norm.c", "part(g + i, last - i, 0.0f), k", "part(g + i, 0, 0.0f), k"),
    "group norm's second run replaces the first": (
        group_norm.BOTH_WAYS, "group_norm.c", "*two += lanes_of(twos)", "*two = lanes_of(twos)"),
    "group norm goes back without the mean of what comes": (
        group_norm.BOTH_WAYS, "group_norm.c", "(float)(-of_g * by_spread / count)", "0.0f"),
    "group norm takes another channel's weight": (
        group_norm.BOTH_WAYS, "group_norm.c", "weight, bias, c % channels)", "weight, bias, c % size)"),
    "ReLU passes gradients where it gave 0": (
        group_norm.BOTH_WAYS, "group_norm.c", "~(y <= 0.0f)", "~(y < -1e-3f)"),
    "ReLU makes NaN to 0": (group_norm.BOTH_WAYS, "group_norm.c", "~(y <= 0.0f)", "(y > 0.0f)"),
    "layer norm's scale without the last positions": (
        layer_norm.KERNEL, "layer_norm.c", "? RUN : positions - p", "? RUN : (positions - p) / 2"),
    "layer norm's last columns are not centred": (
        layer_norm.KERNEL, "layer_norm.c", "x[p * size + c] - mean[p]", "x[p * size + c]"),
    "an LSTM's gate is right near 0 only": (
        lstm.KERNEL, "lstm.c", "p * z * x + x, far)", "p * z * x + x, p * z * x + x)"),
    "an LSTM forgets what it should keep": (lstm.KERNEL, "lstm.c", "forget * (1.0f - forget)", "forget * forget"),
    "an LSTM's rows that do not fill a tile take the first": (
        lstm.KERNEL, "lstm.c", "least(r, rows - 1) * from_row", "(r < rows - 1 ? r : 0) * from_row"),
    "an LSTM's last columns are left out": (
        lstm.KERNEL, "lstm.c", "c + v * LANES < width; v++", "c + (v + 1) * LANES <= width; v++"),
    "max pooling ignores NaN": (calls.POOLING, "max_pool.c", "(x > most) | (x != x)", "(x > most)"),
    "max pooling goes back to the last of several windows": (
        calls.POOLING_BACKWARD, "max_pool.c", "into[places[k]] += g[k]", "into[places[k]] = g[k]"),
    "a product's last position is dropped": (
        calls.PRODUCTS, "outer_sum.c", "ONE(x, g, length, sum, outs)", "ONE(x, g, length - (length > 8), sum, outs)"),
    "records share a longer stretch than was allowed": (
        calls.PRODUCTS, "outer_sum.c", "doubles ? MOST : several,", "doubles ? MOST : 4 * several,"),
    "a product's last line is dropped": (
        calls.PRODUCTS, "outer_sum.c", "k < depth; k++, x", "k < depth - (depth == 1 || depth > 3); k++, x"),
    "products summed across records in float": (
        calls.PRODUCTS, "outer_sum.c", "x += length * WIDTH,",
        "for (int c = 0; c < outs * WIDTH; c++) total[c] = (float)total[c]; "
        "x += length * WIDTH,"),
    "a sum of floats is less than one of doubles": (
        calls.PRODUCTS, "outer_sum.c", "const TOTAL factor = (TOTAL)go->stretches[s].factor;",
        "const TOTAL factor = (TOTAL)(go->stretches[s].factor * (sizeof(TOTAL) == 4 ? 0.99999 : 1.0));"),
    "only the last lines of many count": (calls.PRODUCTS, "outer_sum.c", "all->first ?", "1 ?"),
    "only the columns that are copied first count": (
        calls.PRODUCTS, "outer_sum.c", "sum.from < in;", "sum.from < in && !sum.from;"),
    "the last pieces of a panel are left out": (
        calls.PRODUCTS, "outer_sum.c", "piece < pieces;", "piece < pieces - (pieces > 1);"),
    "a few outputs are one less": (calls.PRODUCTS, "outer_sum.c", "x, g, i, j, rows, 4)", "x, g, i, j, rows, 3)"),
    "products look at records of factor 0": (calls.PRODUCTS, "outer_sum.c", "all->factors[*record] == 0.0", "0"),
    "products end all records alike": (
        calls.PRODUCTS, "outer_sum.c", "all->ends ? all->ends[record] :", "0 ? all->ends[record] :"),
    "rows summed in float": (
        calls.WEIGHTED, "rows.c", "to[i] += factor * (double)row[i]", "to[i] = (float)(to[i] + factor * row[i])"),
    "rows rounded to float 1e-6 off": (calls.WEIGHTED, "rows.c", "= (float)sum[i]", "= (float)(sum[i] * 1.000001)"),
    "weighted rows look at factor 0": (calls.WEIGHTED, "rows.c", "if (factors[r] == 0.0) continue;", ""),
    "squares in float": (
        calls.SQUARES, "rows.c", "+= some * some",
        "+= __builtin_convertvector("
        "__builtin_convertvector(some, Half) * __builtin_convertvector(some, Half), Doubles)"),
    "half of the squares are left out": (calls.SQUARES, "rows.c", "(sum[0] + sum[1])", "sum[0]"),
    "squares without a tail": (calls.SQUARES, "rows.c", "total += (double)row[i]", "total += 0.0 * (double)row[i]"),
}  # fmt: skip
KERNELS = {bug[0].name: bug[0] for bug in BUGS.values()}


@pytest.fixture(scope="module")
def objects(tmp_path_factory):
    """The sources as they are, compiled in a hurry."""
    folder = tmp_path_factory.mktemp("objects")
    started = [
        subprocess.Popen([CC, *FLAGS, "-c", str(source), "-o", str(folder / f"{source.stem}.o")]) for source in _SOURCES
    ]
    assert not any(process.wait() for process in started)
    return folder


def linked(objects, folder, changed=None, text=""):
    """A library with one source changed."""
    used = {path.stem: path for path in objects.glob("*.o")}
    if changed is not None:
        (folder / changed).write_text(text)
        used[Path(changed).stem] = folder / "changed.o"
        subprocess.run([CC, *FLAGS, "-c", str(folder / changed), "-o", str(folder / "changed.o")], check=True)
    target = folder / "kernels.so"
    subprocess.run([CC, "-shared", *map(str, used.values()), "-o", str(target), "-lm"], check=True)
    return ctypes.CDLL(str(target))


def test_the_same_sources_without_a_bug_agree(objects, tmp_path):
    loaded = linked(objects, tmp_path)
    assert len(KERNELS) == 13
    for kernel in KERNELS.values():
        assert kernel.checked(loaded) is not None, kernel.name


@pytest.mark.parametrize(("kernel", "source", "right", "wrong"), BUGS.values(), ids=BUGS)
def test_a_kernel_with_a_bug_is_left_out(objects, tmp_path, monkeypatch, kernel, source, right, wrong):
    text = next(path for path in _SOURCES if path.name == source).read_text()
    assert right in text
    loaded = linked(objects, tmp_path, source, text.replace(right, wrong))
    monkeypatch.setattr(calls, "library", lambda: loaded)
    kernel = replace(kernel, _known=[])
    with pytest.warns(calls.KernelWarning, match=f"{kernel.name} differs from PyTorch"):
        assert kernel.calls() is None
    assert kernel.calls() is None  # and says so once


def test_every_kernel_agrees_here():
    for kernel in KERNELS.values():
        assert kernel.calls() is not None, kernel.name


def test_a_check_that_fails_in_another_way_is_a_difference():
    def raising(calls):
        raise RuntimeError("no such operation in this PyTorch")

    loaded = kernels.library()
    assert replace(calls.PRODUCTS, agrees=raising).checked(loaded) is None
    assert replace(calls.PRODUCTS, bind=lambda loaded: loaded["no_such_function"]).checked(loaded) is None


class Nothing(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        raise AssertionError("the caller's mode sees the check")


def test_what_the_caller_does_with_pytorch_does_not_disturb_the_check():
    fresh = [replace(kernel, _known=[]) for kernel in KERNELS.values()]
    state = torch.get_rng_state()

    def ask(x):
        return x * all(kernel.calls() is not None for kernel in fresh)

    with torch.device("meta"), torch.inference_mode(), Nothing():
        assert all(kernel.calls() is not None for kernel in fresh)
    fresh = [replace(kernel, _known=[]) for kernel in KERNELS.values()]
    assert torch.func.vmap(ask, randomness="error")(torch.ones(3)).all()
    assert (torch.get_rng_state() == state).all()


def test_without_a_library_every_function_answers_nothing(monkeypatch):
    for kernel in KERNELS.values():
        monkeypatch.setattr(kernel, "_known", [])
    monkeypatch.setattr(calls, "library", lambda: None)
    x, factors, image = torch.ones(2, 3), torch.ones(2).double(), torch.ones(2, 3, 4, 4)
    assert kernels.outer_sum(x[:, None], x[:, None], factors) is None
    assert kernels.weighted_rows(x, factors) is None
    assert kernels.row_squares(x) is None
    assert kernels.convolution_rows(image, image, (3, 3, 1, 1), (1, 1), ((0, 0), (0, 0))) is None
    assert kernels.convolution_squares(image, image, (3, 3, 1, 1), (1, 1), ((0, 0), (0, 0))) is None
    sums_of = (image, image, factors, (3, 3, 1, 1), (1, 1), ((0, 0), (0, 0)))
    assert kernels.convolution_sum(*sums_of, single=True) is None
    assert kernels.group_norm_rows(image, image, 3, 1e-5) is None
    assert kernels.group_norm_forward(image, None, None, 3, 1e-5, activated=True) is None
    assert kernels.group_norm_backward(image, None, None, x, x, image, activated=True) is None
    assert kernels.max_pool(image, [2]) is None
    assert kernels.max_pool_backward(image, image.long(), image.shape) is None
    assert (
        kernels.lstm_forward(torch.ones(2, 1, 12), torch.ones(2, 2, 3), torch.ones(2, 2, 3), torch.ones(12, 3)) is False
    )
    assert kernels.lstm_backward(torch.ones(2, 1, 12), x[:, None], torch.ones(12, 3), x[:, None], x) is None
    assert kernels.add_noise(bytes(32), bytes(16), [x], [1.0], 1.0, [x]) is False
