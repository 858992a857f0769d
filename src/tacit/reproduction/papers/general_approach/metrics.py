"""Paper G, sections 1 and 2: metrics and batch statistics as further groups of vectors, in the same release.

A scalar parameter whose gradient on a record is "was it right?" makes the training accuracy one more vector; one whose
gradient is the record's hidden activations makes their mean another. Both come out noisy, are charged with the step,
and need no other machinery. Groups share the noise in proportion to their clips.
"""

import torch
from digits import BATCH, DELTA, SIZE, STEPS, calibrated, load
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import tacit
from tacit.reproduction import Work

HIDDEN, RATE = 128, 2.0


class WithMetrics(nn.Module):
    """A network and two parameters that stay zero: only their gradients matter."""

    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.output = nn.Linear(64, HIDDEN), nn.Linear(HIDDEN, 10)
        self.right = nn.Parameter(torch.zeros(1))
        self.activations = nn.Parameter(torch.zeros(HIDDEN))


def losses(model: WithMetrics, batch: tuple[Tensor, Tensor]) -> Tensor:
    inputs, labels = batch
    hidden = torch.tanh(model.hidden(inputs))
    scores = model.output(hidden)
    right = (scores.argmax(dim=1) == labels).float()
    return cross_entropy(scores, labels, reduction="none") + right * model.right + hidden.detach() @ model.activations


def groups() -> tacit.ClipGroups:
    """The metric can be no larger than 1, a tanh layer's activations no longer than sqrt(width)."""
    gradients = ("hidden.weight", "hidden.bias", "output.weight", "output.bias")
    return tacit.ClipGroups(
        [
            tacit.VectorGroup(gradients, 1.0, noise_stddev=None),
            tacit.VectorGroup(("right",), 1.0),
            tacit.VectorGroup(("activations",), HIDDEN**0.5),
        ]
    )


def reproduce(work: Work) -> None:
    steps = 20 if work.quick else STEPS
    train, (inputs, labels) = load(work.seed)
    torch.manual_seed(work.seed)
    model = WithMetrics()
    sampling = tacit.PoissonSampling(probability=BATCH / SIZE, expected_size=BATCH)
    noise = tacit.GaussianNoise(multiplier=calibrated(steps))
    private = tacit.PrivateGradient(
        model, losses, sampling, groups(), noise, ledger=work.folder("run") / "ledger.jsonl"
    )
    network = [value for name, value in model.named_parameters() if "." in name]
    optimizer = torch.optim.SGD(network, lr=RATE)
    accuracy, statistics = [], []
    for sample in private.samples(train, steps=steps):
        model.zero_grad()
        private.backward(sample)
        optimizer.step()
        accuracy.append(float(model.right.grad))
        statistics.append(model.activations.grad.clone())
    last = slice(-min(steps, 50), None)
    hidden = torch.tanh(model.hidden(train[0])).detach()
    true = float((model.output(hidden).argmax(dim=1) == train[1]).float().mean())
    work.measure(
        "training accuracy, private, mean of the last 50 steps", 100 * sum(accuracy[last]) / len(accuracy[last])
    )
    work.measure("training accuracy, true", 100 * true)
    mean = torch.stack(statistics[last]).mean(dim=0)
    work.measure("correlation of private and true mean activations", correlation(mean, hidden.mean(dim=0)))
    scores = model.output(torch.tanh(model.hidden(inputs)))
    work.measure("test accuracy", 100 * float((scores.argmax(dim=1) == labels).float().mean()))
    [guarantee] = tacit.guarantees(private.ledger, DELTA, only=["pld"])
    work.measure("epsilon of gradients, accuracy and activations together", guarantee.epsilon)


def correlation(one: Tensor, other: Tensor) -> float:
    return float(torch.corrcoef(torch.stack([one, other]))[0, 1])
