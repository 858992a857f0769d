"""The mechanism: clip factors for records, and the noisy release of their sum.

Sensitivity: each record's vectors, multiplied by the factors of :meth:`GaussianSumMechanism.factors`, have a group norm
of at most S_g. A record whose norm is NaN or infinite gets the factor 0. The sum therefore moves by at most S_g (1 +
slack) when a record is added or removed, and noise of standard deviation s_g hides it.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from tacit.errors import InputError
from tacit.ledger import GaussianSumQuery
from tacit.mechanisms.clipping import CLIPPING_RULES, SHRINK, AdaptiveClip, Clipping, Shapes
from tacit.mechanisms.grid import Grid, Numerics
from tacit.mechanisms.groups import VectorGroup
from tacit.mechanisms.noise import GaussianNoise
from tacit.randomness import Randomness
from tacit.types import Vectors

_NOTHING = torch.zeros((), dtype=torch.float64)
UNCLIPPED = "#unclipped"  # no parameter can have this name
# What floating point may add to a record's share of the sum, relative to its clip norm (docs/maths.md
# section 11): 4e-4 where its share is formed by other products than its norm, 3.1e-5 in the norm itself, 4.9e-4 where
# records are added up in float32, and the rest for clip factors and sums in float64. It is charged: noise is relative
# to it.
SLACK = 1e-3
_LOST = 1e-14  # and in absolute terms, where squares of entries below 1e-19 leave float32, for up to 1e9 of them
_COUNT_BOUND = 0.5  # each record adds +1/2 (not clipped) or -1/2 (clipped): half the sensitivity of a plain count


@dataclass(slots=True)
class GaussianSumMechanism:
    """Clipping and noise resolved for vectors of known names and shapes.

    ``norm`` is the current clip norm of adaptive clipping, a function of released counts only; 1 otherwise. With strict
    ``numerics`` sums are whole numbers of steps of each group's grid (see :mod:`tacit.mechanisms.grid`).
    """

    groups: tuple[VectorGroup, ...]
    stddevs: tuple[float, ...]
    shapes: dict[str, torch.Size]
    clipping: Clipping
    slack: float
    multiplicity: int
    norm: float = 1.0
    numerics: Numerics = "float64"
    _grids: list[Grid | None] = field(init=False)
    _columns: list[list[int]] = field(init=False)
    _scales: list[Tensor | None] = field(init=False)

    def __post_init__(self) -> None:
        column = {name: index for index, name in enumerate(self.shapes)}
        strict = self.numerics == "strict"
        self._grids = [Grid.of(group.clip_norm) if strict else None for group in self.groups]
        self.stddevs = tuple(
            stddev if grid is None else grid.rounded_up(stddev)
            for stddev, grid in zip(self.stddevs, self._grids, strict=True)
        )
        self._columns = [[column[name] for name in group.names] for group in self.groups]
        self._scales = [None if group.scales is None else torch.tensor(group.scales).double() for group in self.groups]

    @property
    def queries(self) -> tuple[GaussianSumQuery, ...]:
        """The mechanism's half of the ledger entry, from the very fields it uses."""
        queries = [
            GaussianSumQuery(
                group.clip_norm,
                stddev,
                self.slack,
                self.multiplicity,
                _group_name(group, self.shapes),
                None if grid is None else grid.step,
            )
            for group, stddev, grid in zip(self.groups, self.stddevs, self._grids, strict=True)
        ]
        if isinstance(self.clipping, AdaptiveClip):
            noise = self.clipping.count_noise
            queries.append(GaussianSumQuery(_COUNT_BOUND, noise, 0.0, self.multiplicity, UNCLIPPED))
        return tuple(queries)

    def factors(self, squared_norms: Tensor) -> Tensor:
        """The factor of each record for each vector.

        Args:
            squared_norms: [records, vectors] in float64, vectors in the order of ``shapes``; NaN and inf are allowed.

        Returns:
            [records, vectors] in float64, finite; 0 in the whole group where its norm is not finite.
        """
        rule = CLIPPING_RULES[self.clipping.rule]
        found = []
        for group, norms in zip(self.groups, self._group_norms(squared_norms), strict=True):
            factor = rule(norms, group.clip_norm * self.norm)
            found.append(torch.where(norms < math.inf, factor, _NOTHING)[:, None])  # NaN is not below infinity
        if len(found) == 1:
            return found[0].expand(squared_norms.shape)
        factors = torch.zeros_like(squared_norms, dtype=torch.float64)
        for columns, factor in zip(self._columns, found, strict=True):
            factors[:, columns] = factor
        return factors

    @property
    def plain_clip(self) -> tuple[float, float, float] | None:
        """Where :meth:`factors` is 1 up to a norm and so much over it beyond, for all vectors together: these numbers,
        and what is added to a measured norm."""
        if self.clipping.rule != "clip" or len(self.groups) > 1 or self._scales[0] is not None:
            return None
        bound = self.groups[0].clip_norm * self.norm
        return bound, bound * SHRINK, _LOST

    def counts(self, squared_norms: Tensor) -> Vectors:
        """Sums that clipping itself asks for: the balance of unclipped over clipped records, for adaptive clipping."""
        if not isinstance(self.clipping, AdaptiveClip):
            return {}
        (norms,) = self._group_norms(squared_norms)
        unclipped = (norms <= self.norm).double() - _COUNT_BOUND  # NaN counts as clipped
        return {UNCLIPPED: unclipped.sum().reshape(1)}

    def shares(self, squared_norms: Tensor) -> Tensor:
        """How far each record moves the release, in units of the most that is charged for; private.

        sqrt(sum_g (|clipped v_g| + slack C_g)^2 / s_g^2) over the same with |v_g| = C_g: rounding is allowed for.
        """
        rule = CLIPPING_RULES[self.clipping.rule]
        moved = torch.zeros(len(squared_norms), dtype=torch.float64, device=squared_norms.device)
        most = 0.0
        for group, stddev, norms in zip(self.groups, self.stddevs, self._group_norms(squared_norms), strict=True):
            bound = group.clip_norm * self.norm
            clipped = torch.where(norms < math.inf, norms * rule(norms, bound), _NOTHING) / self.norm
            moved += ((clipped + self.slack * group.clip_norm) / stddev).square()
            most += (group.clip_norm * (1 + self.slack) / stddev) ** 2
        if isinstance(self.clipping, AdaptiveClip):  # every record adds or subtracts one half
            count = (_COUNT_BOUND / self.clipping.count_noise) ** 2
            moved, most = moved + count, most + count
        return (moved / most).sqrt().clamp(max=1.0)

    def zeros(self, device: torch.device) -> Vectors:
        """The sum over no records."""
        return self.sums({}, device)

    def sums(self, found: Mapping[str, Tensor], device: torch.device) -> Vectors:
        """The sums that were found, as they are, and zeros for the others, in float64 or in whole steps."""
        kind = torch.int64 if self.numerics == "strict" else torch.float64
        shapes = {**self.shapes, UNCLIPPED: (1,)} if isinstance(self.clipping, AdaptiveClip) else self.shapes
        return {
            name: found[name]
            if name in found
            else torch.zeros(shape, dtype=torch.float64 if name == UNCLIPPED else kind, device=device)
            for name, shape in shapes.items()
        }

    def on_grid(self, clipped: Mapping[str, Tensor]) -> Vectors:
        """One record's clipped vectors in whole steps, for strict numerics."""
        found: Vectors = {}
        for group, grid in zip(self.groups, self._grids, strict=True):
            assert grid is not None  # asked for only where numerics are strict
            parts = grid.whole([clipped[name] for name in group.names], _scales(group))
            found.update(zip(group.names, parts, strict=True))
        return {name: found[name] for name in clipped}

    def release(
        self,
        sums: Mapping[str, Tensor],
        denominator: float,
        randomness: Randomness,
        like: Mapping[str, Tensor] | None = None,
    ) -> Vectors:
        """Add the noise to the sums and divide by the declared public denominator: the only way out for data.

        Noise is drawn and added in float64. With ``like``, what has become public is then rounded to the type of these
        tensors in the same pass over memory. ``sums`` may hold some vectors only, or parts of them: every rank of a job
        adds the noise of its own.
        """
        if self.numerics == "strict":
            return self._release_strictly(sums, denominator, randomness, like or {})
        stddevs = self.stddev_by_name()
        kinds = [_dtype(name, like or {}) for name in sums]
        released = {
            name: torch.empty(value.shape, dtype=kind, device=value.device)
            for (name, value), kind in zip(sums.items(), kinds, strict=True)
        }
        randomness.add_noise(
            list(sums.values()), [stddevs[name] for name in sums], denominator, list(released.values())
        )
        self._follow(released)
        return released

    def _release_strictly(
        self, sums: Mapping[str, Tensor], denominator: float, randomness: Randomness, like: Mapping[str, Tensor]
    ) -> Vectors:
        """Whole numbers plus whole noise; only what has become public is turned into floats, once."""
        released = {}
        for group, stddev, grid in zip(self.groups, self.stddevs, self._grids, strict=True):
            assert grid is not None
            for name, scale in zip(group.names, _scales(group), strict=True):
                if name not in sums:
                    continue
                noise = randomness.discrete_normals(grid.sigma(stddev), sums[name].numel())
                steps = sums[name].cpu() + torch.from_numpy(noise).view(sums[name].shape)
                value = steps.double().mul_(grid.step * scale).div_(denominator)
                released[name] = value.to(dtype=_dtype(name, like), device=sums[name].device)
        return {name: released[name] for name in sums}

    def with_stddev(self, stddev: float) -> "GaussianSumMechanism":
        """The same clipping with one noise level for every group, as a Langevin sampler asks for at each step."""
        if isinstance(self.clipping, AdaptiveClip):
            raise InputError("a sampler's noise needs a fixed clip norm, found AdaptiveClip; use ClipRecords")
        return replace(self, stddevs=(stddev,) * len(self.groups))

    def _group_norms(self, squared_norms: Tensor) -> list[Tensor]:
        squared_norms = squared_norms.double()
        norms = []
        for columns, scales in zip(self._columns, self._scales, strict=True):
            all_columns = scales is None and len(columns) == squared_norms.shape[1]
            squares = squared_norms if all_columns else squared_norms[:, columns]
            if scales is not None:
                squares = squares / scales.to(squares.device).square()
            norms.append(squares.sum(1).sqrt_().add_(_LOST))
        return norms

    def bound_by_name(self) -> dict[str, float]:
        """The most that one record moves each vector, but for slack."""
        return {
            name: group.clip_norm * scale * self.norm
            for group in self.groups
            for name, scale in zip(group.names, _scales(group), strict=True)
        }

    def stddev_by_name(self) -> dict[str, float]:
        """The noise on each coordinate of each vector's sum."""
        stddevs = {}
        for group, stddev in zip(self.groups, self.stddevs, strict=True):
            for name, scale in zip(group.names, _scales(group), strict=True):
                stddevs[name] = stddev * scale * self.norm
        if isinstance(self.clipping, AdaptiveClip):
            stddevs[UNCLIPPED] = self.clipping.count_noise
        return stddevs

    def _follow(self, released: Vectors) -> None:
        if UNCLIPPED in released:
            assert isinstance(self.clipping, AdaptiveClip)
            share = float(released.pop(UNCLIPPED)) + _COUNT_BOUND
            self.norm = self.clipping.next_norm(self.norm, share)


def build_mechanism(
    clipping: Clipping,
    noise: GaussianNoise | None,
    shapes: Shapes,
    *,
    slack: float,
    multiplicity: int = 1,
    numerics: Numerics = "float64",
) -> GaussianSumMechanism:
    """Join clipping and noise for vectors of these shapes.

    The noise is relative to the sensitivity including slack, so that a multiplier of 1.3 is accounted as exactly 1.3.
    """
    shapes = dict(shapes)
    if not shapes:
        raise InputError("there is nothing to train: no parameter requires a gradient")
    if numerics == "strict":
        slack = 0.0  # whole numbers are added without rounding
        if isinstance(clipping, AdaptiveClip):
            raise InputError("strict numerics need a grid fixed beforehand, found AdaptiveClip; use ClipRecords")
    groups = clipping.groups(shapes)
    if isinstance(clipping, AdaptiveClip) and noise is not None:
        noise = noise.leave_room_for(clipping.count_noise / (_COUNT_BOUND * multiplicity))
    stddevs = _allocate(groups, noise, shapes, multiplicity * (1 + slack))
    mechanism = GaussianSumMechanism(groups, stddevs, shapes, clipping, slack, multiplicity, numerics=numerics)
    if isinstance(clipping, AdaptiveClip):
        mechanism.norm = clipping.initial
    return mechanism


def _allocate(
    groups: tuple[VectorGroup, ...], noise: GaussianNoise | None, shapes: Shapes, stretch: float
) -> tuple[float, ...]:
    given = [group.noise_stddev for group in groups]
    if all(value is not None for value in given):
        if noise is not None:
            raise InputError("noise is given twice: per group (noise_stddev) and as GaussianNoise; give one of them")
        return tuple(value for value in given if value is not None)
    if any(value is not None for value in given):
        raise InputError("either every vector group has a noise_stddev or none has")
    if noise is None:
        raise InputError("no noise is given: pass GaussianNoise(multiplier=...), or a noise_stddev for every group")
    dimensions = [sum(shapes[name].numel() for name in group.names) for group in groups]
    return tuple(noise.allocate([group.clip_norm * stretch for group in groups], dimensions))


def _dtype(name: str, like: Mapping[str, Tensor]) -> torch.dtype:
    return like[name].dtype if name in like else torch.float64


def _scales(group: VectorGroup) -> tuple[float, ...]:
    return group.scales or (1.0,) * len(group.names)


def _group_name(group: VectorGroup, shapes: Shapes) -> str:
    return "all" if len(group.names) == len(shapes) else ",".join(group.names)
