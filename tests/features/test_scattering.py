"""Scattering: equals a slow computation in space, loses energy only, and hardly notices that a picture moved."""

import cmath
import math

import numpy as np
import pytest
import torch

from tacit.errors import InputError
from tacit.features import Scattering

SIDE, EDGE = 8, 4  # a small picture, and its padding at J = 2


def gaussian_in_space(x, y, spread, slant, angle):
    """The periodic copies of a two-dimensional Gaussian of mass 1, at one point of the padded grid."""
    period = SIDE + 2 * EDGE
    for a in range(-4, 5):
        for b in range(-4, 5):
            u = (x + a * period) * math.cos(angle) + (y + b * period) * math.sin(angle)
            v = (y + b * period) * math.cos(angle) - (x + a * period) * math.sin(angle)
            yield u, math.exp(-(u * u + slant**2 * v * v) / (2 * spread**2)) * slant / (2 * math.pi * spread**2)


def filters_in_space(directions):
    """phi and every psi[scale][direction] on the padded grid, from their formulas in space."""
    period = SIDE + 2 * EDGE
    grid = [[(x, y) for x in range(period)] for y in range(period)]

    def sampled(value):
        return np.array([[value(x, y) for x, y in line] for line in grid])

    phi = sampled(lambda x, y: sum(g for _, g in gaussian_in_space(x, y, 0.8 * 2, 1.0, 0.0)))
    wavelets = []
    for scale in range(2):
        spread, centre = 0.8 * 2**scale, 3 * math.pi / 4 / 2**scale
        of_scale = []
        for number in range(directions):
            shape = (spread, 4 / directions, math.pi * number / directions)
            wave = sampled(
                lambda x, y, s=shape, c=centre: sum(g * cmath.exp(1j * c * u) for u, g in gaussian_in_space(x, y, *s))
            )
            hump = sampled(lambda x, y, s=shape: sum(g for _, g in gaussian_in_space(x, y, *s)))
            of_scale.append(wave - hump * wave.sum() / hump.sum())
        wavelets.append(of_scale)
    return phi / phi.sum(), wavelets


def convolve(signal, kernel):
    """Circular, by its definition."""
    height, width = signal.shape
    result = np.zeros(signal.shape, dtype=complex)
    for y in range(height):
        for x in range(width):
            result[y, x] = sum(
                signal[b, a] * kernel[(y - b) % height, (x - a) % width] for b in range(height) for a in range(width)
            )
    return result


def slow_scattering(picture, directions):
    phi, wavelets = filters_in_space(directions)
    spectra = [[np.abs(np.fft.fft2(psi)) ** 2 for psi in of_scale] for of_scale in wavelets]
    high = sum(sum(of_scale) for of_scale in spectra)
    high = (high + np.roll(high[::-1, ::-1], 1, (0, 1))) / 2
    low = np.abs(np.fft.fft2(phi)) ** 2
    strength = math.sqrt(min((1 - low[high > 1e-12]) / high[high > 1e-12]))

    def coarse(kernel, step):
        return kernel[::step, ::step] * step**2

    def averaged(signal, step):
        smooth = convolve(signal, coarse(phi, step)).real
        inside = slice(EDGE // step, (EDGE + SIDE) // step, 4 // step)
        return smooth[inside, inside]

    padded = np.pad(picture, EDGE, mode="reflect")
    orders = [averaged(padded, 1)]
    second = []
    for scale in range(2):
        for psi in wavelets[scale]:
            step = 2**scale
            first = np.abs(convolve(padded, strength * psi))[::step, ::step]
            orders.append(averaged(first, step))
            if scale == 0:
                second += [averaged(np.abs(convolve(first, strength * last))[::2, ::2], 2) for last in wavelets[1]]
    return np.stack(orders + second)


def test_equals_a_slow_computation_in_space():
    picture = np.random.default_rng(0).random((SIDE, SIDE))
    fast = Scattering(SIDE, SIDE, directions=3)(torch.from_numpy(picture)[None, None])
    np.testing.assert_allclose(fast[0].numpy(), slow_scattering(picture, 3), atol=1e-10)


def test_no_frequency_gains_energy_and_one_keeps_all():
    from tacit.features.scattering import _low_pass

    bank = Scattering(28, 28).bank()
    high = sum(wavelet.square().sum(0) for wavelet in bank.wavelets)
    both = (high + high.flip(0, 1).roll((1, 1), (0, 1))) / 2
    low = torch.outer(_low_pass(36, 2), _low_pass(36, 2)).square()
    assert float((both + low).max()) == pytest.approx(1.0, abs=1e-9)
    assert float((both + low).min()) > 0.1  # and none is forgotten


def test_a_flat_picture_has_no_waves():
    found = Scattering(16, 16)(torch.full((1, 1, 16, 16), 0.5, dtype=torch.float64))[0]
    torch.testing.assert_close(found[0], torch.full((4, 4), 0.5, dtype=torch.float64))
    assert float(found[1:].abs().max()) < 1e-12


def test_a_picture_that_moves_moves_its_features_and_little_else():
    picture = torch.zeros(1, 1, 32, 32, dtype=torch.float64)
    picture[..., 12:20, 8:16] = torch.rand(8, 8, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    scattering = Scattering(32, 32)
    here, there = scattering(picture), scattering(picture.roll(4, 3))
    torch.testing.assert_close(there[..., 2:], here[..., 1:-1], atol=1e-6, rtol=0)
    nearby, moved = scattering(picture.roll(1, 3)), picture.roll(1, 3)
    assert (nearby - here).norm() / here.norm() < 0.3 < (moved - picture).norm() / picture.norm()


def test_pictures_do_not_see_each_other():
    pictures = torch.rand(5, 3, 16, 16)
    scattering = Scattering(16, 16)
    together = scattering(pictures, chunk=4)
    assert together.shape == (5, 3 * 81, 4, 4)
    torch.testing.assert_close(together[3:4], scattering(pictures[3:4]))
    assert scattering.channels == 81


@pytest.mark.parametrize("shape", [(30, 28), (4, 4)])
def test_sides_must_fit(shape):
    with pytest.raises(InputError, match="multiples of 4"):
        Scattering(*shape)
    with pytest.raises(InputError, match="images must be"):
        Scattering(16, 16)(torch.rand(2, 1, 28, 28))
