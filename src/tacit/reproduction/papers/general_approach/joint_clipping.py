"""Paper G, section 2: vectors of scales 1 and 100, one of which is zero in every record; four ways to clip them.

All four are released with the same noise multiplier, hence at the same price. The error of a mean is what a user of it
would see: noise and clipping bias together, in units of the vector's scale.
"""

import math

import torch
from torch import Tensor, nn

import tacit
from tacit.reproduction import Work

SIZE, BATCH, DIMENSION, STEPS, NOISE = 10_000, 1_000, 20, 200, 10.0
SCALES = {"small": 1.0, "large": 100.0}


class TwoVectors(nn.Module):
    """A model whose gradient on a record is the record itself: what is released is the mean of the records."""

    def __init__(self) -> None:
        super().__init__()
        self.small = nn.Parameter(torch.zeros(DIMENSION))
        self.large = nn.Parameter(torch.zeros(DIMENSION))

    def forward(self, small: Tensor, large: Tensor) -> Tensor:
        return small @ self.small + large @ self.large


def losses(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    return model(*batch)


def records(seed: int) -> tuple[Tensor, Tensor]:
    """Half of the records hold only the small vector, half only the large one; their norms reach the scale."""
    generator = torch.Generator().manual_seed(seed)
    directions = torch.randn(SIZE, DIMENSION, generator=generator) + 0.5
    unit = directions / directions.norm(dim=1, keepdim=True)
    first = (torch.arange(SIZE) % 2 == 0)[:, None]
    return unit * first * SCALES["small"], unit * ~first * SCALES["large"]


def clippings() -> dict[str, tacit.ClipRecords | tacit.ClipGroups]:
    group = tacit.VectorGroup
    return {
        "joint": tacit.ClipGroups([group(("small", "large"), 1.0, scales=(1.0, 100.0))]),
        "separate": tacit.ClipGroups([group(("small",), 1.0), group(("large",), 100.0)]),
        "flat at 100": tacit.ClipRecords(100.0),
        "flat at 1": tacit.ClipRecords(1.0),
    }


def released(
    clipping: tacit.ClipRecords | tacit.ClipGroups, data: tuple[Tensor, Tensor], work: Work
) -> list[dict[str, Tensor]]:
    model = TwoVectors()
    sampling = tacit.PoissonSampling(probability=BATCH / SIZE, expected_size=BATCH)
    noise = tacit.GaussianNoise(multiplier=NOISE)
    private = tacit.PrivateGradient(
        model, losses, sampling, clipping, noise, ledger=work.folder("run") / "ledger.jsonl"
    )
    found = []
    for sample in private.samples(data, steps=STEPS):
        model.zero_grad()
        private.backward(sample)
        found.append({name: value.grad.clone() for name, value in model.named_parameters()})
    return found


def reproduce(work: Work) -> None:
    data = records(work.seed)
    truth = dict(zip(SCALES, (part.mean(dim=0) for part in data), strict=True))
    noises = {}
    for name, clipping in clippings().items():
        means = released(clipping, data, work)
        for vector, scale in SCALES.items():
            errors = torch.stack([mean[vector] - truth[vector] for mean in means]) / scale
            work.measure(f"{name}: error of the {vector} mean", float(errors.square().mean().sqrt()))
        noises[name] = torch.stack([mean["small"] for mean in means]).std(dim=0).mean()
    sampling = math.sqrt((1 - BATCH / SIZE) / BATCH)  # of the order of the sampling error, which all four share
    work.measure("noise of separate over joint clipping", float(noises["separate"] / noises["joint"]))
    work.note(
        f"every way is accounted with z = {NOISE:g}; drawing the sample alone adds an error of about {sampling / 9:.4f}"
    )
