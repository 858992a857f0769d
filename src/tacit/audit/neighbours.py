"""Neighbouring data sets for the replay: policies, clipping rules, units and the hostile records that are added."""

import itertools
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from tacit.mechanisms import AdaptiveClip, ClipGroups, ClipLayers, Clipping, ClipRecords, VectorGroup
from tacit.sampling import (
    RECORDS,
    BallsInBinsSampling,
    FixedSizeSampling,
    Microbatches,
    PoissonSampling,
    SamplingPolicy,
    UnitOfPrivacy,
    Users,
)

SIZE, CLIP = 6, 0.8

SAMPLING: dict[str, SamplingPolicy] = {
    "poisson": PoissonSampling(probability=0.5, expected_size=3),
    "full batch": PoissonSampling(probability=1.0, expected_size=6),
    "nobody": PoissonSampling(probability=1e-15, expected_size=3),
    "balls in bins": BallsInBinsSampling(bins=2, expected_size=3),
    "fixed size": FixedSizeSampling(size=4, population=SIZE),
}
CLIPPING: dict[str, Clipping] = {
    "clip": ClipRecords(CLIP),
    "normalise": ClipRecords(CLIP, rule="normalise"),
    "layers": ClipLayers(CLIP),
    "adaptive": AdaptiveClip(CLIP),
    "joint": ClipGroups(
        (VectorGroup(("0.weight", "0.bias", "2.weight", "2.bias"), CLIP, scales=(1.0, 1.0, 2.0, 4.0)),)
    ),
}
UNITS: dict[str, tuple[UnitOfPrivacy, int]] = {  # and the rows of one that is added
    "user": (Users(), 2),
    "microbatch": (Microbatches(2), 2),
    "record of a microbatch": (Microbatches(2, protect="record"), 1),
}
HOSTILE = (math.nan, math.inf, -math.inf, 3e38, -3e38, 1e-45, 0.0, 1e4, 1.0)
LABELS = (0, 1, -1, 2, 99, -100)
SCALES = (1.0, 1e-3, 1e6)


@dataclass(frozen=True, slots=True)
class Case:
    """One pair of neighbours."""

    sampling: SamplingPolicy
    clipping: Clipping
    record: Sequence[float]
    label: int = 0
    scale: float = 1.0
    unit: UnitOfPrivacy = RECORDS
    rows: int = 1  # that the unit brings along
    views: int | None = None
    as_items: bool = field(default=False)  # a map-style data set in place of tensors

    def data(self) -> tuple[Tensor, Tensor]:
        generator = torch.Generator().manual_seed(2)
        inputs = torch.randn(SIZE, 4, generator=generator) * self.scale
        labels = torch.randint(0, 2, (SIZE,), generator=generator)
        # one microbatch is not full, so that the added record has a companion
        alone = self.unit == UNITS["record of a microbatch"][0]
        return (inputs[:-1], labels[:-1]) if alone else (inputs, labels)

    def neighbour(self) -> tuple[Tensor, Tensor]:
        """One unit more, or the last one replaced where the number of units is public."""
        inputs, labels = self.data()
        if self.sampling.neighbours == "replace_one":
            inputs, labels = inputs[: -self.rows], labels[: -self.rows]
        more = torch.tensor([list(self.record)] * self.rows, dtype=torch.float32)
        return torch.cat([inputs, more]), torch.cat([labels, torch.full((self.rows,), self.label)])

    @property
    def moves(self) -> float:
        """How many contributions one unit can change: two if it is replaced."""
        return 2.0 if self.sampling.neighbours == "replace_one" else 1.0


def every_case() -> list[Case]:
    """Each policy, rule and unit, with the hostile values dealt out over them."""
    values = itertools.cycle(itertools.product(HOSTILE, LABELS[:4], SCALES))
    pairs = itertools.product(SAMPLING.values(), CLIPPING.values())
    cases = [Case(sampling, clipping, *_next_values(values)) for sampling, clipping in pairs]
    poisson, full = SAMPLING["poisson"], SAMPLING["full batch"]
    for unit, rows in UNITS.values():
        for sampling in (poisson, full):
            cases.append(Case(sampling, CLIPPING["clip"], *_next_values(values), unit=unit, rows=rows))
            cases.append(Case(sampling, CLIPPING["clip"], [50.0, -20.0, 3.0, 9.0], unit=unit, rows=rows))
    cases += [opposite_of_its_companion(full), opposite_of_its_companion(poisson)]
    cases += [Case(full, CLIPPING["clip"], [value] * 4) for value in HOSTILE]
    cases += [Case(full, CLIPPING["clip"], [100.0] * 4, label) for label in LABELS]
    cases += [
        Case(poisson, rule, [100.0, -3.0, 7.0, 1.0], 1, views=2) for rule in (CLIPPING["clip"], CLIPPING["layers"])
    ]
    cases += [Case(sampling, CLIPPING["clip"], [100.0] * 4, as_items=True) for sampling in (poisson, full)]
    return cases


def opposite_of_its_companion(sampling: SamplingPolicy) -> Case:
    """A record that turns its microbatch's mean around: twice the clip norm, the most that it can do."""
    unit = UNITS["record of a microbatch"][0]
    case = Case(sampling, CLIPPING["clip"], [0.0] * 4, scale=3.0, unit=unit)
    inputs, labels = case.data()
    return replace(case, record=(-2.5 * inputs[-1]).tolist(), label=int(labels[-1]))


def few_cases() -> list[Case]:
    """A hundredth of a second each: enough to see most of what replays see."""
    poisson, full = SAMPLING["poisson"], SAMPLING["full batch"]
    return [
        Case(poisson, CLIPPING["clip"], [1e4, 1.0, -2.0, 30.0], 1, scale=1e6),
        Case(full, CLIPPING["clip"], [3.0, -2.0, 1.0, 5.0], 0),
        Case(full, CLIPPING["layers"], [math.nan, 1.0, -2.0, 30.0], 0),
        Case(full, CLIPPING["normalise"], [3e38, 1.0, -2.0, 30.0], 1),
        Case(full, CLIPPING["clip"], [50.0, -20.0, 3.0, 9.0], unit=Users(), rows=2),
    ]


def _next_values(values: Iterator[tuple[float, int, float]]) -> tuple[list[float], int, float]:
    value, label, scale = next(values)
    return [value, 1.0, -2.0, 30.0], label, scale
