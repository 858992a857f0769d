"""Temperature scaling on private data, as the charged query that it is (Guo et al. 2017, made private).

Dividing logits by one number tau > 0 mends over- or under-confidence without changing a decision. To choose tau on
private records is to learn from them: log tau is one parameter, trained privately like any other, on the same ledger.
"""

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from tacit.errors import InputError
from tacit.inference import SGD
from tacit.randomness import Randomness
from tacit.training.plan import TrainingPlan
from tacit.training.train import train


class _Temperature(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.log_temperature = nn.Parameter(torch.zeros(1))

    def forward(self, logits: Tensor) -> Tensor:
        return logits * torch.exp(-self.log_temperature)


def private_temperature(
    logits: Tensor,
    labels: Tensor,
    plan: TrainingPlan,
    *,
    learning_rate: float = 0.5,
    average_last: int | None = None,
    randomness: Randomness | None = None,
) -> float:
    """The temperature by which to divide logits, learned privately; the ledger of the plan is charged.

    Args:
        logits: [records, classes], of private records that the model was not trained on.
        plan: sampling, clipping and noise of the query; few steps will do, for one parameter.
        average_last: the mean of so many of the last iterates is taken; None takes half of them. It costs nothing.
    """
    if logits.dim() != 2 or len(logits) != len(labels):
        raise InputError(f"logits {list(logits.shape)} need one label per row, found {len(labels)}")

    def losses(model: nn.Module, batch: Any) -> Tensor:
        return cross_entropy(model(batch[0]), batch[1].long(), reduction="none")

    keep = average_last or max(1, plan.steps // 2)
    method = SGD(_Temperature(), losses, learning_rate)
    run = train(method, (logits, labels), plan, keep_last=keep, randomness=randomness)
    return float(torch.stack([draw["log_temperature"] for draw in run.posterior]).mean().exp())
