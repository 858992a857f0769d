"""Have the chains come to agree? Rank-normalised split R-hat and effective sample size (Vehtari et al. 2021).

Both are functions of draws that were released, so they cost nothing. They are computed by arviz-stats.
"""

import math
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Literal

import torch
from torch import Tensor

from tacit.errors import InputError
from tacit.posteriors import Draws

Kind = Literal["rhat", "bulk", "tail"]


@dataclass(frozen=True, slots=True)
class Convergence:
    """R-hat and effective sample sizes of every weight.

    Args:
        rhat: between-chain over within-chain spread; above 1.01 the chains have not mixed.
        ess_bulk: how many independent draws the mean is worth.
        ess_tail: the same for the 5 % and 95 % quantiles.
    """

    rhat: dict[str, Tensor]
    ess_bulk: dict[str, Tensor]
    ess_tail: dict[str, Tensor]

    @property
    def worst_rhat(self) -> float:
        """NaN for one chain, which has nothing to be compared with."""
        return float(torch.cat([value.reshape(-1) for value in self.rhat.values()]).max())

    @property
    def least_ess(self) -> float:
        return min(float(value.min()) for values in (self.ess_bulk, self.ess_tail) for value in values.values())

    def __str__(self) -> str:
        if math.isnan(self.worst_rhat):
            return f"R-hat not measured: it compares several chains; effective draws at least {self.least_ess:.0f}"
        verdict = "have mixed" if self.worst_rhat <= 1.01 else "have not mixed"
        return f"R-hat at most {self.worst_rhat:.3f}, effective draws at least {self.least_ess:.0f}: chains {verdict}"


def convergence(draws: Draws) -> Convergence:
    """Diagnose a sampler's draws; give it several chains, because one cannot disagree with itself except with its past.

    Example:
        >>> good = convergence(Draws({"w": torch.randn(400, 2, generator=torch.Generator().manual_seed(1))}, chains=4))
        >>> good.worst_rhat < 1.03, good.least_ess > 200
        (True, True)
    """
    each = len(draws) // draws.chains
    if each < 4:
        raise InputError(f"a diagnosis needs at least 4 draws of each chain, found {each}; keep more iterates")
    stats = _array_stats()

    def of(kind: Kind) -> dict[str, Tensor]:
        return {name: _each_weight(stats, kind, value) for name, value in draws.by_chain.items()}

    return Convergence(of("rhat"), of("bulk"), of("tail"))


def _each_weight(stats: Any, kind: Kind, draws: Tensor) -> Tensor:
    values = draws.detach().cpu().double().flatten(2) if draws.dim() > 2 else draws.detach().cpu().double()[..., None]
    axes = {"chain_axis": 0, "draw_axis": 1}
    match kind:
        case "rhat":
            found = stats.rhat(values.numpy(), method="rank", **axes)
        case "bulk":
            found = stats.ess(values.numpy(), method="bulk", **axes)
        case "tail":
            found = stats.ess(values.numpy(), method="tail", prob=(0.05, 0.95), **axes)
    return torch.from_numpy(found).reshape(draws.shape[2:])


def _array_stats() -> Any:
    try:
        return import_module("arviz_stats.base").array_stats
    except ImportError as error:
        raise InputError("diagnostics need arviz-stats; install it with: pip install 'tacit[diagnostics]'") from error
