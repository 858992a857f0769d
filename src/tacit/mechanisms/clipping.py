"""Clipping as a value: which vectors are clipped together, and by which rule.

A rule maps the norms of records to the factors by which their vectors are multiplied. To add one, write its function
and enter it in ``CLIPPING_RULES``; the contract tests then hold it to "no record exceeds the bound".
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

import torch
from torch import Tensor

from tacit.errors import InputError, check_inside, check_positive
from tacit.mechanisms.groups import VectorGroup, clip_norms_by_dimension

Shapes = Mapping[str, torch.Size]
RuleName = Literal["clip", "normalise"]

# Rounding a scaled float32 vector can lengthen it by about 1e-7; factors are shrunk by more than that.
SHRINK = 1.0 - 1e-6
# Below this norm squares of a float32 vector's entries vanish, hence so does its measured norm: normalising it would
# lengthen what is left of it without bound.
_TINY = 1e-12


_LARGEST = 200.0  # of the logarithm of a clip norm that adapts

_ONE = torch.ones((), dtype=torch.float64)


def clip(norms: Tensor, clip_norm: float) -> Tensor:
    """min(1, C / |g|): short vectors pass unchanged."""
    return torch.where(norms <= clip_norm, _ONE, norms.reciprocal().mul_(clip_norm * SHRINK))


def normalise(norms: Tensor, clip_norm: float) -> Tensor:
    """C / |g| for every record ("automatic clipping"); 0/0 gives 0."""
    return torch.where(norms < _TINY, torch.zeros_like(norms), clip_norm / norms * SHRINK)


CLIPPING_RULES: dict[RuleName, Callable[[Tensor, float], Tensor]] = {"clip": clip, "normalise": normalise}


class Clipping(Protocol):
    """What a mechanism asks of a clipping value."""

    @property
    def rule(self) -> RuleName: ...

    def groups(self, shapes: Shapes) -> tuple[VectorGroup, ...]:
        """The groups of the vectors with these names and shapes; every name in exactly one of them."""


@dataclass(frozen=True, slots=True)
class ClipRecords:
    """Flat clipping: the whole gradient of a record is one vector.

    Example:
        >>> ClipRecords(1.0).groups({"w": torch.Size([3]), "b": torch.Size([1])})[0].names
        ('w', 'b')
    """

    norm: float
    rule: RuleName = "clip"

    def __post_init__(self) -> None:
        check_positive("norm", self.norm)
        _check_rule(self.rule)

    def groups(self, shapes: Shapes) -> tuple[VectorGroup, ...]:
        return (VectorGroup(tuple(shapes), self.norm),)


@dataclass(frozen=True, slots=True)
class ClipLayers:
    """Per-layer clipping: the vectors of one module form a group, and the groups' norms add up to ``norm``.

    ``allocation="equal"`` gives each of the m layers norm/sqrt(m), ``"dimension"`` gives S* sqrt(d_g / D) (McMahan et
    al. 2018).
    """

    norm: float
    rule: RuleName = "clip"
    allocation: Literal["equal", "dimension"] = "equal"

    def __post_init__(self) -> None:
        check_positive("norm", self.norm)
        _check_rule(self.rule)
        if self.allocation not in ("equal", "dimension"):
            raise InputError(f"allocation must be 'equal' or 'dimension', found {self.allocation!r}")

    def groups(self, shapes: Shapes) -> tuple[VectorGroup, ...]:
        layers: dict[str, list[str]] = {}
        for name in shapes:
            layers.setdefault(name.rpartition(".")[0], []).append(name)
        sizes = [sum(shapes[name].numel() for name in names) for names in layers.values()]
        equal = [self.norm / math.sqrt(len(sizes))] * len(sizes)
        norms = equal if self.allocation == "equal" else clip_norms_by_dimension(self.norm, sizes)
        return tuple(VectorGroup(tuple(names), norm) for names, norm in zip(layers.values(), norms, strict=True))


@dataclass(frozen=True, slots=True)
class ClipGroups:
    """Groups as the user draws them, clipped separately, or jointly where a group has scales."""

    vector_groups: Sequence[VectorGroup]
    rule: RuleName = "clip"

    def __post_init__(self) -> None:
        _check_rule(self.rule)
        if not self.vector_groups or not all(isinstance(group, VectorGroup) for group in self.vector_groups):
            raise InputError(f"vector_groups must hold at least one VectorGroup, found {self.vector_groups!r}")

    def groups(self, shapes: Shapes) -> tuple[VectorGroup, ...]:
        named = [name for group in self.vector_groups for name in group.names]
        if len(set(named)) != len(named):
            raise InputError(f"a vector is in two groups: {sorted({n for n in named if named.count(n) > 1})}")
        if unknown := sorted(set(named) - set(shapes)):
            raise InputError(f"groups name vectors the model does not train: {unknown}")
        if missing := sorted(set(shapes) - set(named)):
            raise InputError(f"no group holds {missing}: every trained vector needs a clip")
        return tuple(self.vector_groups)


@dataclass(frozen=True, slots=True)
class AdaptiveClip:
    """Flat clipping whose norm follows a private quantile of the records' norms (Andrew et al. 2021).

    Each release also counts, with noise of standard deviation ``count_noise``, how many records were not clipped; the
    count is one more query in the ledger. Then C <- C exp(-learning_rate (share - quantile)), which needs no data.
    """

    initial: float
    quantile: float = 0.5
    learning_rate: float = 0.2
    count_noise: float = 10.0
    rule: RuleName = "clip"

    def __post_init__(self) -> None:
        check_positive("initial", self.initial)
        check_positive("count_noise", self.count_noise)
        _check_rule(self.rule)
        check_inside("quantile", self.quantile)
        check_positive("learning_rate", self.learning_rate)

    def groups(self, shapes: Shapes) -> tuple[VectorGroup, ...]:
        # In units of the current norm, which follows released counts: the ledger must not depend on the data.
        return (VectorGroup(tuple(shapes), 1.0),)

    def next_norm(self, norm: float, unclipped_share: float) -> float:
        exponent = -self.learning_rate * (unclipped_share - self.quantile)
        found = norm * math.exp(exponent) if abs(exponent) < _LARGEST else math.inf
        if not math.exp(-_LARGEST) < found < math.exp(_LARGEST):
            raise InputError(
                f"adaptive clipping has left the range of numbers: a step moved the norm {norm:.3g} by "
                f"e^{exponent:.3g}; lower its learning_rate or count_noise, or raise expected_size"
            )
        return found


def _check_rule(rule: str) -> None:
    if rule not in CLIPPING_RULES:
        raise InputError(f"rule must be one of {', '.join(CLIPPING_RULES)}, found {rule!r}")
