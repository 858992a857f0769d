"""Check 7: the engine itself, by the way users take: PrivateGradient, samples and backward.

Every model is judged (``judge``), every attempt to get around the engine's rules is made (``attempts``), and the noise
of models that are large enough for the kernel's blocks is tested.
"""

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import torch

from tacit.audit.engine.attempts import ATTEMPTS, Attempt
from tacit.audit.engine.judge import Workload, engine, judge
from tacit.audit.engine.workloads import LARGE, classify, perceptron, workloads
from tacit.audit.finding import Finding, Trial, rejected, turns_errors_into_findings
from tacit.audit.noise.normality import Table, normality_trials, scale_of
from tacit.kernels import status
from tacit.sampling import PoissonSampling

_NOBODY = PoissonSampling(probability=1e-15, expected_size=4.0)
_DTYPES = (torch.float64, torch.float32, torch.bfloat16)


@turns_errors_into_findings("engine")
def check_engine(
    draws: int = 1_500_000, models: Sequence[Workload] | None = None, attempts: Sequence[Attempt] | None = None
) -> Finding:
    """Every model, every attempt to get around the engine's rules, and the noise of large models (0 draws: without)."""
    models = workloads() if models is None else models
    attempts = ATTEMPTS if attempts is None else attempts
    judged = [judge(workload) for workload in models]
    broke = [sentence for one in judged for sentence in one.broke]
    broke += [sentence for attempt in attempts for sentence in attempt()]
    trials: list[Trial] = []
    measured = [f"{len(models)} models"]
    if judged:
        most, farthest = max(one.moved for one in judged), max(one.off for one in judged)
        measured.append(
            f"largest move {most:.4f} of what was charged for, {farthest:.1e} of the clip norm from autograd"
        )
    if draws:
        tables = {dtype: noise_of_large_model(draws // 3, dtype) for dtype in _DTYPES}
        trials = [trial for dtype, table in tables.items() for trial in _noise_trials(table, dtype)]
        off = max(abs(scale_of(table) - 1) for table in tables.values())
        measured.append(f"noise of {math.prod(LARGE):,} entries within {off:.2%} of the ledger's")
    return Finding(
        "engine",
        f"{len(models)} models by the public interface, {len(attempts)} attempts, {len(trials)} tests of noise",
        sum(one.releases for one in judged),
        (*dict.fromkeys(broke), *rejected(trials)),
        "; ".join([*measured, status()]),
    )


def noise_of_large_model(draws: int, dtype: torch.dtype) -> Table:
    """Releases on nobody, in units of what the ledger claims: [releases, coordinates]."""
    model = perceptron(dtype, LARGE)
    each = sum(value.numel() for value in model.parameters())
    steps = max(12, draws // each)  # so many that no two coordinates are equal by rounding
    rows = []
    with engine(model, classify, sampling=_NOBODY, multiplier=1.0) as private:
        for sample in private.samples(
            (torch.zeros(4, LARGE[0], dtype=dtype), torch.zeros(4).long(), torch.ones(4)), steps
        ):
            model.zero_grad()
            private.backward(sample)
            parts = [value.grad.double().flatten() for value in model.parameters() if value.grad is not None]
            rows.append(torch.cat(parts))
        (query,) = private.ledger.charges[0].event.queries
    return np.asarray((torch.stack(rows) * _NOBODY.denominator / query.noise_stddev).numpy())


def _noise_trials(table: Table, dtype: torch.dtype) -> list[Trial]:
    found = normality_trials(table)
    # coarse results repeat themselves by rounding, however fine the noise was; whole columns do not
    shown_by_rounding = {torch.float32: ("resolution",), torch.bfloat16: ("resolution", "shape", "beyond")}
    kept = [one for one in found if not one.name.startswith(shown_by_rounding.get(dtype, "-"))]
    twice = table.shape[1] - len({column.tobytes() for column in np.ascontiguousarray(table.T)})
    kept.append(Trial("equal coordinates", 0.0 if twice else 1.0, f"{twice} coordinates have the noise of another one"))
    where = f"{table.shape[1]:,} entries, {str(dtype).partition('.')[2]}"
    return [replace(one, name=f"{one.name} ({where})") for one in kept]
