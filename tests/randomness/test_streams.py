import copy
import os
import pickle
import sys
import threading

import numpy as np
import pytest
import torch
from scipy import stats

from tacit.errors import InputError
from tacit.randomness import Randomness
from tacit.randomness.inverse_normal import to_normals


def test_the_normal_draws_have_the_right_scale_shape_and_range():
    draws = torch.cat([Randomness().normals(1_000_000) for _ in range(5)]).numpy()
    assert abs(draws.std() - 1) < 0.0025
    assert abs(draws.mean()) < 6 / np.sqrt(len(draws))
    assert stats.kstest(draws[:200_000], "norm").pvalue > 1e-6
    assert abs(np.corrcoef(draws[:-1], draws[1:])[0, 1]) < 6 / np.sqrt(len(draws))


def test_the_ends_of_the_range_are_finite_and_symmetric():
    words = np.array([0, 2**63, 2**52 - 1, 2**64 - 1], dtype=np.uint64).view(np.int64)
    draws = to_normals(torch.from_numpy(words), torch.empty(4, dtype=torch.float64))
    assert torch.isfinite(draws).all()
    assert draws[0] == -draws[1]
    assert draws.abs().max() == pytest.approx(8.2924, abs=1e-3)
    assert draws.abs().min() < 1e-15


def test_words_are_uniform_in_every_bit():
    bits = np.unpackbits(Randomness().words("sampling", 100_000).view(np.uint8)).reshape(-1, 64).mean(0)
    assert np.abs(bits - 0.5).max() < 6 * 0.5 / np.sqrt(100_000)


def test_streams_of_sampling_and_noise_differ():
    source = Randomness.seeded(1)
    assert not (source.words("sampling", 4) == source.words("noise", 4)).any()


def test_a_longer_draw_begins_with_the_shorter():
    assert (Randomness.seeded(1).words("sampling", 9)[:5] == Randomness.seeded(1).words("sampling", 5)).all()


def test_secure_sources_never_repeat_and_say_so():
    assert Randomness().kind == "secure"
    assert not (Randomness().words("noise", 4) == Randomness().words("noise", 4)).any()
    assert Randomness.seeded(3).kind == "seeded"


def test_a_forked_child_has_its_own_key():
    source = Randomness()
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(writer, source.words("noise", 4).tobytes())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(reader, 32) != source.words("noise", 4).tobytes()
    os.close(reader)
    os.close(writer)


def test_a_key_cannot_be_copied_or_saved():
    for save in (pickle.dumps, copy.copy, copy.deepcopy):
        with pytest.raises(TypeError, match="cannot be copied"):
            save(Randomness())


def test_a_seed_is_a_whole_number():
    with pytest.raises(InputError, match="seed"):
        Randomness.seeded(1.5)


def test_threads_never_draw_the_same_words():
    source, found = Randomness.seeded(1), []

    def draw():
        found.extend(source.words("noise", 1).item() for _ in range(3000))

    threads = [threading.Thread(target=draw) for _ in range(4)]
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert len(set(found)) == 12_000
