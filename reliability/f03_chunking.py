"""F3: the physical batch size changes speed only."""

from collections.abc import Iterator

import numpy as np
import torch
from torch import nn

from reliability.figures import Figure, tries
from tacit.audit.replay import classify
from tacit.gradients import clipped_sum
from tacit.losses import ModelLosses, RecordGroup, take_records
from tacit.mechanisms import ClipRecords, GaussianNoise, build_mechanism
from tacit.randomness import Randomness
from tacit.types import Batch


def prove(effort: float) -> Iterator[Figure]:
    times = tries(500, effort, least=3)
    generator = torch.Generator().manual_seed(4)
    lost, worst = 0, 0.0
    for _ in range(times):
        records, chunk = (int(torch.randint(1, most, (1,), generator=generator)) for most in (60, 70))
        losses = ModelLosses(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 2)), classify)
        data = torch.randn(records, 3, generator=generator) * 3, torch.randint(0, 2, (records,), generator=generator)
        shapes = {name: value.shape for name, value in losses.params.items()}
        mechanism = build_mechanism(ClipRecords(0.5), GaussianNoise(multiplier=1.0), shapes, slack=1e-5)
        chance = Randomness().record_chance(np.arange(records))
        parts, whole = (
            clipped_sum(losses, losses.params, groups, mechanism, chunk=size, chance=chance).sums
            for groups, size in ((_portions(data, generator), chunk), (data, records))
        )
        off = sum(float((parts[name] - whole[name]).double().square().sum()) for name in whole) ** 0.5
        worst = max(worst, off)
        lost += not off < 1e-5
    reached = f"largest difference {worst:.1e}, clip norm 0.5"
    yield Figure(
        "F3", "sums in portions and chunks of any size against the whole", times, lost, reached, "equal, 500 examples"
    )


def _portions(data: Batch, generator: torch.Generator) -> Iterator[list[RecordGroup]]:
    """As a sample that is larger than memory is read."""
    records = len(data[0])
    held = int(torch.randint(1, records + 1, (1,), generator=generator))
    for start in range(0, records, held):
        end = min(start + held, records)
        yield [RecordGroup(take_records(data, slice(start, end)), np.arange(start, end))]
