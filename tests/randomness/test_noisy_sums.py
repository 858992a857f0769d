"""The compiled kernel and PyTorch give the same noise; without a compiler the tests of the kernel are skipped."""

import ctypes
import math
import os

import numpy as np
import pytest
import torch
from scipy import special, stats

from tacit.kernels import library
from tacit.kernels.calls import NOISE
from tacit.randomness import Randomness, streams
from tacit.randomness.inverse_normal import to_normals

needs_kernel = pytest.mark.skipif(library() is None, reason="no compiler")


@pytest.fixture(params=["kernel", "pytorch"])
def path(request, monkeypatch):
    if request.param == "pytorch":
        monkeypatch.setattr(streams, "add_noise_by_kernel", lambda *arguments: False)
    elif NOISE.calls() is None:
        pytest.skip("no compiler")
    return request.param


def noisy(sums, stddevs, denominator, dtype=torch.float64, seed=5):
    outs = [torch.empty(value.shape, dtype=dtype) for value in sums]
    Randomness.seeded(seed).add_noise(sums, stddevs, denominator, outs)
    return outs


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_every_vector_gets_its_own_draws_of_one_stretch(path, dtype):
    sums = [torch.randn(shape).to(dtype) for shape in ((3,), (), (0,), (5, 7), (40_001,), (9, 8, 7))]
    stddevs = [1.0, 2.0, 3.0, 0.5, 1.5, 1e-3]
    draws = Randomness.seeded(5).normals(sum(value.numel() for value in sums))
    for value, stddev, out in zip(sums, stddevs, noisy(sums, stddevs, 7.0), strict=True):
        mine, draws = draws[: value.numel()].view(value.shape), draws[value.numel() :]
        torch.testing.assert_close(out, (value.double() + stddev * mine) / 7.0, rtol=1e-12, atol=1e-14)


def test_a_float32_result_is_the_float64_one_rounded(path):
    sums = [torch.randn(100_003)]
    (exact,), (rounded,) = noisy(sums, [1.3], 256.0), noisy(sums, [1.3], 256.0, torch.float32)
    assert (exact.float() == rounded).all()


def test_layouts_that_are_not_contiguous_are_read_rightly(path):
    value = torch.randn(30, 20).T
    torch.testing.assert_close(noisy([value], [1.0], 1.0)[0], noisy([value.contiguous()], [1.0], 1.0)[0])


def test_a_source_never_gives_the_same_noise_twice(path):
    source, zero, outs = Randomness(), [torch.zeros(4)], [[torch.empty(4)] for _ in range(2)]
    for out in outs:
        source.add_noise(zero, [1.0], 1.0, out)
    assert not (outs[0][0] == outs[1][0]).any()


def test_the_noise_is_normal_to_the_tails(path):
    draws = noisy([torch.zeros(3_000_000)], [1.0], 1.0)[0].numpy()
    assert abs(draws.std() - 1) < 0.0025
    assert abs(draws.mean()) < 6 / math.sqrt(len(draws))
    assert stats.kstest(draws[::10], "norm").pvalue > 1e-6
    assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 6 / math.sqrt(len(draws))
    for bound in (1.4395, 2.0, 3.0, 4.0):  # 1.4395 is where the kernel changes its formula
        expected = len(draws) * stats.norm.sf(bound)
        for side in (draws > bound, draws < -bound):
            assert abs(side.sum() - expected) < 6 * math.sqrt(expected)


def kernel_normals(words):
    draws = np.empty(len(words))
    call = library().tacit_normals
    call.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_long)
    call(words.ctypes.data, draws.ctypes.data, len(words))
    return draws


@needs_kernel
def test_the_kernel_inverts_the_normal_distribution_to_full_precision():
    generator = np.random.default_rng(0)
    anywhere = generator.integers(0, 2**64, size=300_000, dtype=np.uint64)
    near_the_ends = np.uint64(1) << generator.integers(0, 52, size=5_000, dtype=np.uint64)
    borders = [0, 2**63, 1, 2, 125090, 125091, 125092, 675539944105573, 675539944105574, 675539944105575, 2**52 - 1]
    words = np.concatenate([anywhere, near_the_ends, np.array(borders, dtype=np.uint64)])
    draws = kernel_normals(words)
    halves = -special.ndtri(((words & np.uint64(2**52 - 1)).astype(float) + 0.5) * 2.0**-53)
    right = np.where(words >> np.uint64(63), halves, -halves)
    assert np.abs(draws / right - 1).max() < 3e-15
    by_torch = to_normals(torch.from_numpy(words.view(np.int64)), torch.empty(len(words)).double()).numpy()
    assert np.abs(draws / by_torch - 1).max() < 3e-15


@needs_kernel
def test_the_kernels_key_stream_goes_on_where_counters_carry():
    # 300 thousand words cross the borders of groups, of blocks and of 2^16 in the counter
    sums = [torch.zeros(1), torch.zeros(300_000)]
    draws = torch.cat(noisy(sums, [1.0, 1.0], 1.0))
    torch.testing.assert_close(draws, Randomness.seeded(5).normals(300_001), rtol=1e-13, atol=0)


@needs_kernel
def test_threads_change_nothing():
    before = torch.get_num_threads()
    try:
        found = []
        for threads in (1, 3):
            torch.set_num_threads(threads)
            found.append(noisy([torch.ones(100_001)], [1.0], 3.0)[0])
    finally:
        torch.set_num_threads(before)
    assert (found[0] == found[1]).all()


def test_small_calls_get_the_draws_of_their_own_stretch_whatever_was_made_ahead(path):
    source, other = Randomness.seeded(5), Randomness.seeded(5)
    for count in [6] * 45 + [3, 6, 819, 820, 6, 6, 1, 40_000, 6]:
        out, wanted = [torch.empty(count).double()], other.normals(count)
        source.add_noise([torch.zeros(count)], [1.0], 1.0, out)
        torch.testing.assert_close(out[0], wanted, rtol=1e-13, atol=0)


def test_a_forked_child_adds_none_of_the_noise_that_was_made_ahead(path):
    source, zero, outs = Randomness(), [torch.zeros(4)], [torch.empty(4).double() for _ in range(2)]
    source.add_noise(zero, [1.0], 1.0, [outs[0]])
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        source.add_noise(zero, [1.0], 1.0, [outs[1]])
        os.write(writer, outs[1].numpy().tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    source.add_noise(zero, [1.0], 1.0, [outs[1]])
    assert os.read(reader, 32) != outs[1].numpy().tobytes()
    os.close(reader)
    os.close(writer)
