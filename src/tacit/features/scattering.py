"""The scattering transform (Bruna and Mallat 2013): features of pictures that nobody trained.

Morlet wavelets of J scales and L directions, a modulus, the same once more, and a local average over 2^J pixels. What
comes out hardly changes when the picture moves a little, and it is a fixed function of one picture: under differential
privacy it is free, and a linear model on it needs far fewer parameters than a network does.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import final

import torch
from torch import Tensor
from torch.nn.functional import pad

from tacit.errors import InputError, check_count

_SPREAD = 0.8  # of a wavelet in space, in units of its scale 2^j
_CENTRE = 3 * math.pi / 4  # its frequency, in units of 2^-j
_ALIASES = range(-3, 4)  # a filter on a grid is the sum of its copies at distance 2 pi; the fourth is below 1e-30


@final
@dataclass(frozen=True)
class Scattering:
    """S x = (x * phi, |x * psi_1| * phi, ||x * psi_1| * psi_2| * phi), sampled at every 2^J-th pixel.

    Second-order paths go from finer to coarser scales only: the others carry next to no energy. The wavelets are scaled
    by one number so that |phi|^2 + sum (|psi(w)|^2 + |psi(-w)|^2)/2 <= 1 at every frequency; hence the transform of
    a periodic picture never has more energy than the picture, and never moves two pictures apart.

    Args:
        height, width: of the pictures, multiples of 2^J.
        scales: J.
        directions: L, evenly spread over half a turn.

    Example:
        >>> Scattering(28, 28)(torch.rand(2, 1, 28, 28)).shape
        torch.Size([2, 81, 7, 7])
    """

    height: int
    width: int
    scales: int = 2
    directions: int = 8

    def __post_init__(self) -> None:
        for name in ("height", "width", "scales", "directions"):
            check_count(name, getattr(self, name))
        step = 2**self.scales
        if self.height % step or self.width % step or min(self.height, self.width) <= step:
            raise InputError(
                f"height and width must be multiples of {step} above it, found {self.height}, {self.width}"
            )

    @property
    def channels(self) -> int:
        """1 + J L + L^2 J (J - 1)/2."""
        j, directions = self.scales, self.directions
        return 1 + j * directions + directions**2 * j * (j - 1) // 2

    def __call__(self, images: Tensor, *, chunk: int = 32) -> Tensor:
        """Features [n, k * channels, height / 2^J, width / 2^J] of pictures [n, k, height, width], k colours.

        Args:
            chunk: how many planes are transformed at once; a few fit into the processor's cache.
        """
        if images.dim() != 4 or images.shape[2:] != (self.height, self.width):
            raise InputError(f"images must be [n, k, {self.height}, {self.width}], found {list(images.shape)}")
        n, colours = images.shape[:2]
        step = 2**self.scales
        small = (self.height // step, self.width // step)
        planes = images.reshape(n * colours, self.height, self.width)
        found = torch.empty(n * colours, self.channels, *small, dtype=_real_type(images))
        for start in range(0, len(planes), chunk):
            part = planes[start : start + chunk].to(found.dtype)
            found[start : start + chunk] = torch.cat(list(self._orders(part)), 1)
        return found.reshape(n, colours * self.channels, *small)

    def _orders(self, planes: Tensor) -> Iterator[Tensor]:
        """Order 0, then each scale's order 1, then order 2: [n, channels, h, w] each."""
        bank = self.bank(planes.dtype)
        padded = self._padded(planes)
        yield bank.average(padded[:, None], 0)
        spectrum = torch.fft.fft2(padded)[:, None]
        second = []
        for first in range(self.scales):
            modulus = bank.modulus(spectrum, 0, first)
            yield bank.average(modulus, first)
            if first + 1 < self.scales:
                again = torch.fft.fft2(modulus)[:, :, None]
                for later in range(first + 1, self.scales):
                    deeper = bank.modulus(again, first, later)
                    second.append(bank.average(deeper.flatten(1, 2), later))
        yield from second

    def _padded(self, planes: Tensor) -> Tensor:
        """Mirrored at the edges, so that what the filters see beyond them is like what is inside."""
        edge = 2**self.scales
        return pad(planes[:, None], (edge, edge, edge, edge), mode="reflect")[:, 0]

    def bank(self, dtype: torch.dtype = torch.float64) -> "FilterBank":
        """The filters for padded pictures."""
        return self._bank if dtype == torch.float64 else self._bank.to(dtype)

    @cached_property
    def _bank(self) -> "FilterBank":
        edge = 2 ** (self.scales + 1)
        return FilterBank.of(self.height + edge, self.width + edge, self.scales, self.directions)


@dataclass(frozen=True, slots=True)
class FilterBank:
    """Wavelets as spectra on the finest grid, and the local average as a matrix for each side and resolution.

    ``wavelets[j]`` is [L, height, width] and real; ``rows[j]`` takes a signal sampled at every 2^j-th pixel to its
    average around every 2^J-th pixel inside the padding.
    """

    wavelets: tuple[Tensor, ...]
    rows: tuple[Tensor, ...]
    columns: tuple[Tensor, ...]

    @classmethod
    def of(cls, height: int, width: int, scales: int, directions: int) -> "FilterBank":
        wavelets = [_wavelets(height, width, scale, directions) for scale in range(scales)]
        strength = _strength(wavelets, scales)
        sides = [tuple(_average(side, scales, 2**scale) for scale in range(scales)) for side in (height, width)]
        return cls(tuple(wavelet * strength for wavelet in wavelets), sides[0], sides[1])

    def to(self, dtype: torch.dtype) -> "FilterBank":
        return FilterBank(*(tuple(t.to(dtype) for t in kind) for kind in (self.wavelets, self.rows, self.columns)))

    def modulus(self, spectrum: Tensor, resolution: int, scale: int) -> Tensor:
        """|x * psi_scale| at every 2^scale-th pixel, for x given by its spectrum at every 2^resolution-th.

        Sampling a signal folds its spectrum; a wavelet of that scale leaves little to fold.
        """
        times = 2 ** (scale - resolution)
        filters = _folded(self.wavelets[scale], 2**resolution) / times**2
        folded = None
        for x, psi in zip(_copies(spectrum, times), _copies(filters.to(spectrum.dtype), times), strict=True):
            folded = x * psi if folded is None else folded.addcmul_(x, psi)
        assert folded is not None
        return torch.abs(torch.fft.ifft2(folded), out=torch.empty(folded.shape, dtype=filters.dtype))

    def average(self, signal: Tensor, resolution: int) -> Tensor:
        """x * phi at every 2^J-th pixel inside the padding; phi is separable, so one matrix for each side does it."""
        return self.rows[resolution] @ signal @ self.columns[resolution].T


def _wavelets(height: int, width: int, scale: int, directions: int) -> Tensor:
    """Morlet: a Gaussian around the frequency xi, less as much of one around 0 as makes the mean 0."""
    spread, centre = _SPREAD * 2**scale, _CENTRE / 2**scale
    found = []
    for number in range(directions):
        angle = math.pi * number / directions
        shape = (spread, 4 / directions, angle)  # narrower across for more directions
        xi = (centre * math.cos(angle), centre * math.sin(angle))
        hump, base = _gaussian(height, width, shape, xi), _gaussian(height, width, shape, (0.0, 0.0))
        found.append(hump - base * hump[0, 0] / base[0, 0])
    return torch.stack(found)


def _gaussian(height: int, width: int, shape: tuple[float, float, float], centre: tuple[float, float]) -> Tensor:
    """exp(-s^2 (u^2 + v^2 / slant^2) / 2) around a centre, with its copies; u along the angle, v across."""
    spread, slant, angle = shape
    total = torch.zeros(height, width, dtype=torch.float64)
    for row in _ALIASES:
        for column in _ALIASES:
            y = _frequencies(height)[:, None] + 2 * math.pi * row - centre[1]
            x = _frequencies(width)[None, :] + 2 * math.pi * column - centre[0]
            u, v = x * math.cos(angle) + y * math.sin(angle), y * math.cos(angle) - x * math.sin(angle)
            total += torch.exp(-(spread**2) * (u.square() + v.square() / slant**2) / 2)
    return total


def _low_pass(side: int, scales: int) -> Tensor:
    """The spectrum of phi along one side; 1 at frequency 0."""
    spread = _SPREAD * 2 ** (scales - 1)
    w = _frequencies(side)
    copies = torch.stack([torch.exp(-(spread**2) * (w + 2 * math.pi * k).square() / 2) for k in _ALIASES])
    return copies.sum(0) / copies.sum(0)[0]


def _average(side: int, scales: int, step: int) -> Tensor:
    """The matrix that averages a signal of every ``step``-th pixel around every 2^J-th one inside the padding."""
    kernel: Tensor = torch.fft.ifft(_folded_line(_low_pass(side, scales), step)).real
    count = side // step
    inside = torch.arange(2**scales, side - 2**scales, 2**scales) // step
    return kernel[(inside[:, None] - torch.arange(count)) % count]


def _strength(wavelets: list[Tensor], scales: int) -> float:
    """The largest number by which the wavelets may be multiplied without gaining energy at any frequency."""
    height, width = wavelets[0].shape[1:]
    low = torch.outer(_low_pass(height, scales), _low_pass(width, scales)).square()
    high = sum((wavelet.square().sum(0) for wavelet in wavelets), torch.zeros_like(low))
    both = (high + high.flip(0, 1).roll((1, 1), (0, 1))) / 2
    felt = both > 1e-12
    return float(((1 - low)[felt] / both[felt]).min().sqrt())


def _frequencies(side: int) -> Tensor:
    cycles: Tensor = torch.fft.fftfreq(side, dtype=torch.float64)
    return 2 * math.pi * cycles


def _copies(spectrum: Tensor, times: int) -> Iterator[Tensor]:
    """The ``times`` x ``times`` parts of a spectrum that fall on each other when every ``times``-th pixel is kept."""
    for rows in spectrum.chunk(times, -2):
        yield from rows.chunk(times, -1)


def _folded(spectrum: Tensor, times: int) -> Tensor:
    return torch.stack(list(_copies(spectrum, times))).sum(0)


def _folded_line(spectrum: Tensor, times: int) -> Tensor:
    return spectrum.reshape(times, -1).sum(0)


def _real_type(images: Tensor) -> torch.dtype:
    return torch.float64 if images.dtype == torch.float64 else torch.float32
