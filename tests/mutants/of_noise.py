"""Bugs of the noise and of where it comes from (F7, F8, F9)."""

import hashlib
import os

import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

from tacit.mechanisms.gaussian_sum import UNCLIPPED, GaussianSumMechanism
from tacit.randomness import Randomness, inverse_normal, streams
from tacit.training.private_sum import PrivateSum
from tests.mutants.mutant import Mutant, swap

REAL = Randomness.add_noise
REAL_COUNTER = Randomness._next_counter
REAL_STDDEVS = GaussianSumMechanism.stddev_by_name
REAL_RELEASE = PrivateSum.release


def scaled(factor):
    """The noise multiplied by a number."""

    def add_noise(self, sums, stddevs, denominator, outs):
        REAL(self, sums, [stddev * factor for stddev in stddevs], denominator, outs)

    return lambda: [swap(Randomness, "add_noise", add_noise)]


def drawn(draw):
    """Other draws: ``draw(source, shape, state)`` in place of independent normal ones."""

    def patches():
        state = {}

        def add_noise(self, sums, stddevs, denominator, outs):
            for value, stddev, out in zip(sums, stddevs, outs, strict=True):
                noise = draw(self, value.numel(), state).view(value.shape)
                out.copy_((value.double() + stddev * noise) / denominator)

        return [swap(Randomness, "add_noise", add_noise)]

    return patches


def normals(source, count):
    return source.normals(count)


def uniform(source, count, state):
    return (torch.rand(count, dtype=torch.float64) - 0.5) * 12**0.5


def laplace(source, count, state):
    return torch.distributions.Laplace(0.0, 0.5**0.5).sample((count,)).double()


def single_precision(source, count, state):
    return torch.randn(count).double()


def half_precision(source, count, state):
    return normals(source, count).half().double()


def common_part(source, count, state):
    """A tenth of the variance is the same for all coordinates."""
    return normals(source, count) * 0.9**0.5 + normals(source, 1) * 0.1**0.5


def from_the_step_before(source, count, state):
    fresh = normals(source, count)
    mixed = fresh * 0.99**0.5 + state.get(count, normals(source, count)) * 0.1
    state[count] = fresh
    return mixed


def from_the_coordinate_before(source, count, state):
    fresh = normals(source, count + 1)
    return fresh[1:] * 0.96**0.5 + fresh[:-1] * 0.2


def every_other_release(source, count, state):
    """Louder and softer by turns, right on average."""
    state["turn"] = not state.get("turn", False)
    return normals(source, count) * (1.5**0.5 if state["turn"] else 0.5**0.5)


def clamped(bound):
    return lambda source, count, state: normals(source, count).clamp(-bound, bound)


def one_layer_without(self, sums, stddevs, denominator, outs):
    silenced = [*stddevs[:-1], 1e-12] if len(stddevs) > 1 else stddevs
    REAL(self, sums, silenced, denominator, outs)


def first_coordinate_without(self, sums, stddevs, denominator, outs):
    REAL(self, sums, stddevs, denominator, outs)
    outs[0].view(-1)[0] = sums[0].reshape(-1)[0] / denominator


def where_there_is_a_sum(self, sums, stddevs, denominator, outs):
    REAL(self, sums, stddevs, denominator, outs)
    for value, out in zip(sums, outs, strict=True):
        out[value == 0] = 0.0


def shared_word(self, sums, stddevs, denominator, outs):
    """The second coordinate gets the noise of the first."""
    REAL(self, sums, stddevs, denominator, outs)
    total, out = sums[0].reshape(-1), outs[0].view(-1)
    out[1:2] = out[:1] + (total[1:2] - total[:1])[: len(out) - 1] / denominator


def shared_stretch(self, sums, stddevs, denominator, outs):
    """Every vector is given the draws of the first one."""
    calls = self._calls["noise"]
    for value, stddev, out in zip(sums, stddevs, outs, strict=True):
        self._calls["noise"] = calls
        REAL(self, [value], [stddev], denominator, [out])


def divided_twice(self, sums, stddevs, denominator, outs):
    REAL(self, sums, [stddev / denominator for stddev in stddevs], denominator, outs)


def same_counter(self, purpose):
    return REAL_COUNTER(self, purpose) if purpose != "noise" else bytes([2]) + bytes(15)


def no_new_key(self, purpose):
    self._process = os.getpid()  # so the real code sees no fork
    return REAL_COUNTER(self, purpose)


REAL_START, REAL_AHEAD, REAL_ENCRYPT = Randomness._start, Randomness._made_ahead, streams.encrypt


def known_key(self, key):
    REAL_START(self, bytes(32) if self._seed is None else key)


def shorter_key(shorten):
    return lambda self, key: REAL_START(self, shorten(key) if self._seed is None else key)


def four_bytes(self, counter):
    return Cipher(algorithms.AES(self._key[:4] + bytes(28)), modes.CTR(counter)).encryptor()


def four_bytes_of_few(key, blocks):
    return REAL_ENCRYPT(key[:4] + bytes(28), blocks)


def always_the_first(self, counter, count):
    """Draws made ahead for several calls, of which each gets those of the first."""
    return REAL_AHEAD(self, counter[:1] + bytes(15), count)


def unscaled_noise(self):
    """Joint clipping without the scales on the noise."""
    found = {}
    for group, stddev in zip(self.groups, self.stddevs, strict=True):
        found |= dict.fromkeys(group.names, stddev * self.norm / (1 if group.scales is None else max(group.scales)))
    return {**REAL_STDDEVS(self), **found}


def silent_count(self):
    return {name: 1e-9 if name == UNCLIPPED else stddev for name, stddev in REAL_STDDEVS(self).items()}


def skip_empty(self, sample, params):
    if sample.data is None:
        return {name: torch.zeros_like(value) for name, value in params.items()}
    return REAL_RELEASE(self, sample, params)


def short_range(words, out):
    """One minus a uniform that is rounded to single precision: the tails end at 5.4."""
    uniform = (words & ((1 << 52) - 1)).double().add_(0.5).mul_(2.0**-53).float().double().clamp_(min=2.0**-25)
    torch.special.ndtri(uniform, out=out)
    return out.copysign_(words.view(torch.float64)).neg_()


def no_kernel(*arguments):
    return False


MUTANTS = [
    Mutant("halved noise", "F8", scaled(0.5), "audit: noise"),
    Mutant("noise 5 % low", "F8", scaled(0.95), "audit: noise"),
    Mutant("noise 3 % low", "F8", scaled(0.97), "audit: noise", "scale ("),
    Mutant("noise 1 % low", "F8", scaled(0.99), "audit: noise, 5e6 draws", slow=True),
    Mutant("noise 30 % low, seen by a canary", "F8", scaled(0.7), "audit: canary"),
    Mutant("no noise at all", "F8", scaled(1e-12), "audit: noise"),
    Mutant("uniform noise", "F8", drawn(uniform), "audit: noise"),
    Mutant("Laplace noise", "F8", drawn(laplace), "audit: noise"),
    Mutant("noise in single precision (float32 tails)", "F8", drawn(single_precision), "audit: noise"),
    Mutant("noise in half precision", "F8", drawn(half_precision), "audit: noise"),
    Mutant("tails cut off at 4", "F8", drawn(clamped(4.0)), "audit: noise, 5e6 draws", slow=True),
    Mutant("tails cut off at 6", "F8", drawn(clamped(6.0)), "audit: noise"),
    Mutant("uniforms in single precision", "F8", lambda: [
        swap(streams, "to_normals", short_range), swap(inverse_normal, "to_normals", short_range),
        swap(streams, "add_noise_by_kernel", no_kernel)], "audit: noise"),
    Mutant("noise correlated over coordinates", "F8", drawn(common_part), "audit: noise"),
    Mutant("noise correlated with the step before", "F8", drawn(from_the_step_before), "audit: noise"),
    Mutant("noise correlated with the coordinate before", "F8", drawn(from_the_coordinate_before), "audit: noise"),
    Mutant("noise loud and soft by turns", "F8", drawn(every_other_release), "audit: noise"),
    Mutant("one layer without noise", "F8", lambda: [swap(Randomness, "add_noise", one_layer_without)],
           "audit: noise of groups", "scale of single coordinates"),
    Mutant("one coordinate without noise", "F8", lambda: [swap(Randomness, "add_noise", first_coordinate_without)],
           "audit: noise"),
    Mutant("one word of noise for two coordinates", "F8", lambda: [swap(Randomness, "add_noise", shared_word)],
           "audit: noise", "resolution ("),
    Mutant("one word of noise for two coordinates of a large model", "F8", lambda: [
        swap(Randomness, "add_noise", shared_word)], "audit: engine, noise", "equal coordinates ("),
    Mutant("all vectors share a stretch of noise", "F8", lambda: [swap(Randomness, "add_noise", shared_stretch)],
           "audit: engine, noise", "equal coordinates ("),
    Mutant("no noise where the sum is zero", "F7", lambda: [swap(Randomness, "add_noise", where_there_is_a_sum)],
           "audit: noise"),
    Mutant("noise divided twice", "F1", lambda: [swap(Randomness, "add_noise", divided_twice)], "audit: noise"),
    Mutant("joint clipping forgets to scale the noise", "F8", lambda: [
        swap(GaussianSumMechanism, "stddev_by_name", unscaled_noise)], "audit: noise of groups"),
    Mutant("adaptive clipping's count without noise", "F14", lambda: [
        swap(GaussianSumMechanism, "stddev_by_name", silent_count)], "audit: noise of groups"),
    Mutant("empty sample released without noise", "F7", lambda: [swap(PrivateSum, "release", skip_empty)],
           "audit: noise"),
    Mutant("the same stretch of noise at every step", "F9", lambda: [swap(Randomness, "_next_counter", same_counter)],
           "audit: noise"),
    Mutant("the same draws made ahead for every step", "F9", lambda: [
        swap(streams, "add_noise_by_kernel", no_kernel), swap(Randomness, "_made_ahead", always_the_first)],
        "audit: noise"),
    Mutant("key kept after a fork", "F9", lambda: [swap(Randomness, "_next_counter", no_new_key)],
           "audit: noise", "came twice"),
    Mutant("reused seed: every source has the same key", "F9", lambda: [swap(Randomness, "_start", known_key)],
           "audit: noise"),
    Mutant("a key of 32 bits, filled up with zeros", "F9", lambda: [
        swap(Randomness, "_start", shorter_key(lambda key: key[:4] + bytes(28)))], "audit: noise", "span 32 bits"),
    Mutant("a key of 32 bits, repeated", "F9", lambda: [
        swap(Randomness, "_start", shorter_key(lambda key: key[:4] * 8))], "audit: noise", "span 32 bits"),
    Mutant("a key hashed from 32 bits", "F9", lambda: [
        swap(Randomness, "_start", shorter_key(lambda key: hashlib.sha256(key[:4]).digest()))],
        "audit: key sizes", "fresh keys came twice", slow=True),
    Mutant("the noise uses 32 bits of the key", "F9", lambda: [
        swap(streams, "add_noise_by_kernel", no_kernel), swap(Randomness, "_stream", four_bytes),
        swap(streams, "encrypt", four_bytes_of_few)],
           "audit: noise", "224 of 256 bits of the key change nothing in the noise"),
    Mutant("a seeded source calls itself secure", "F8", lambda: [swap(Randomness, "kind", "secure")],
           "audit: records of a seeded run"),
]  # fmt: skip
