"""Attempts to get around the engine's rules: losses, models and data sets that try to let one record change the others,
chance that a user's seed must not foretell, and samples that must be released once.
"""

import copy
from collections.abc import Callable
from dataclasses import replace

import torch
from torch import Tensor, nn

from tacit.audit.engine.judge import RECORDS, Workload, engine, release
from tacit.audit.engine.workloads import classify, make_inputs, make_labels, make_volumes, perceptron, workloads
from tacit.audit.noise.keys import in_forked_child
from tacit.audit.replay import ROOM, share_of_charge
from tacit.errors import InputError
from tacit.randomness import Randomness
from tacit.training import PrivateGradient, Sample
from tacit.types import Vectors

Attempt = Callable[[], list[str]]


def records_apart() -> list[str]:
    """What mixes records is refused, or computed as if each record were alone: then the move is within the charge."""
    broke = []
    for workload in _mixing():
        base = release(workload, range(RECORDS))
        more = release(workload, [RECORDS, *range(RECORDS)])  # in front, where the others come after it
        if base.refused or more.refused:
            continue
        moves = {name: more.sums[name] - base.sums[name] for name in base.sums}
        share = share_of_charge(moves, base.queries, base.rounding + more.rounding)
        if not share <= 1 + ROOM:
            broke.append(f"isolation: {workload.name}: one record moved the release by {share:.4g} of the charge")
    return broke


def chance_is_secret() -> list[str]:
    """Dropout and augmentation: a seed of the user's script must not foretell them, nor change anything."""
    broke = []
    dropout = Workload("dropout", lambda: nn.Sequential(nn.Dropout(0.5), nn.Linear(6, 3)), classify,
                       (make_inputs(6), make_labels(), make_volumes() + 1))  # fmt: skip
    augmented = next(one for one in workloads() if one.loading.get("augment"))
    augmented = replace(augmented, build=lambda: nn.Linear(6, 3))
    for workload in (dropout, augmented):
        with torch.random.fork_rng(devices=[]):
            found = []
            for seed, source in ((0, None), (0, None), (1, 5), (2, 5)):
                torch.default_generator.manual_seed(seed)
                randomness = Randomness() if source is None else Randomness.seeded(source)
                found.append(release(workload, range(RECORDS), randomness=randomness).sums)
        if _near(found[0], found[1]):
            broke.append(
                f"chance: the draws of {workload.name} follow the global seed, which a script may have published"
            )
        if not _near(found[2], found[3]):
            broke.append(f"chance: the draws of {workload.name} do not come from the run's source alone")
    return broke


def released_once() -> list[str]:
    """A second release of a sample, of its copy, by another engine or in another process: none of them is paid for."""
    broke = []
    rows, model, other_model = (make_inputs(6), make_labels(), make_volumes()), perceptron(), perceptron()
    with engine(model, classify) as private, engine(other_model, classify) as other:
        first, second = private.samples(rows, 2), other.samples(rows, 1)
        sample = next(first)
        if _is_accepted(other, sample):
            broke.append("releases: a sample that another engine drew was released")
        if in_forked_child(lambda: b"accepted" if _is_accepted(private, sample) else b"refused") != b"refused":
            broke.append("releases: a forked process released its parent's sample: two releases for one charge")
        twin = copy.copy(sample)
        private.backward(sample)
        if _is_accepted(private, sample):
            broke.append("releases: a sample was released twice for one charge")
        if _is_accepted(private, twin):
            broke.append("releases: the copy of a released sample was released again")
        first.close()
        second.close()
    return broke


def _guarded_losses(model: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """Scaled down together when one of them is large: it does not show on ordinary records."""
    losses = classify(model, batch)
    return losses * (300.0 / losses.detach().max()).clamp(max=1.0)


def _branching(model: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    inputs, labels, volume = batch
    if inputs.abs().max() > 20:
        inputs = inputs - inputs.mean(0)
    return classify(model, (inputs, labels, volume))


class Remembers(nn.Module):
    """Once it has seen a large record it answers all others differently."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.was_large = nn.Linear(6, 3), False

    def forward(self, inputs: Tensor) -> Tensor:
        if inputs.abs().max() > 20:
            self.was_large = True
        found: Tensor = self.layer(inputs)
        return 0.01 * found if self.was_large else found


def _mixing() -> list[Workload]:
    inputs, labels, volume = make_inputs(6), make_labels(), make_volumes()
    inputs[RECORDS] *= 20.0
    volume[:RECORDS] = 10.0
    rows = (inputs[:-1], labels[:-1], volume[:-1])
    norm = nn.BatchNorm1d(5, affine=False, track_running_stats=False)
    return [
        Workload("losses scaled by their maximum", perceptron, _guarded_losses, rows),
        Workload("a branch on the batch", perceptron, _branching, rows),
        Workload("batch normalisation", lambda: nn.Sequential(nn.Linear(6, 5), norm, nn.Linear(5, 3)), classify, rows),
        Workload("a model that remembers", Remembers, classify, rows),
    ]


def _near(one: Vectors, other: Vectors) -> bool:
    return all(bool(torch.allclose(one[name], other[name], rtol=0.0, atol=1e-4)) for name in one) and bool(one)


def _is_accepted(private: PrivateGradient, sample: Sample) -> bool:
    try:
        private.backward(sample)
    except InputError:
        return False
    return True


ATTEMPTS: tuple[Attempt, ...] = (records_apart, chance_is_secret, released_once)
