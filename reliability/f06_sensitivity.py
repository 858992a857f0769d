"""F6: no vector, of any length, size or precision, adds more than the clip norm."""

from collections.abc import Iterator

import numpy as np
import torch

from reliability.figures import Figure, tries
from tacit.layers.record_gradients import Dense
from tacit.mechanisms import CLIPPING_RULES, SLACK, ClipRecords, GaussianNoise, build_mechanism

_TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


def prove(effort: float) -> Iterator[Figure]:
    times = tries(10_000, effort, least=20)
    generator = np.random.default_rng(6)
    for rule in CLIPPING_RULES:
        lost, most = 0, 0.0
        for number in range(times // len(CLIPPING_RULES)):
            dimension = int(10 ** generator.uniform(0, 5 if number % 10 == 0 else 3))
            scale = 10.0 ** generator.uniform(-30, 30)
            vector = torch.from_numpy(generator.standard_normal(dimension) * scale).to(_TYPES[number % len(_TYPES)])
            norm = float(10 ** generator.uniform(-3, 3))
            shapes = {"w": vector.shape}
            mechanism = build_mechanism(ClipRecords(norm, rule), GaussianNoise(multiplier=1.0), shapes, slack=SLACK)
            rows = Dense(vector[None] if vector.dtype == torch.float64 else vector[None].float())
            total = rows.weighted_sum(mechanism.factors(rows.squared_norms()[:, None])[:, 0].contiguous())
            share = float(total.norm()) / norm
            most = max(most, share)
            lost += not share <= 1
        yield Figure("F6", f"vectors of up to 1e5 dimensions, rule {rule}", times // len(CLIPPING_RULES), lost,
                     f"largest norm {most:.8f} C", "0 above C")  # fmt: skip
