"""Models of every kind, with losses and records: what the engine is tried on."""

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad

from tacit.audit.engine.judge import CLIP, HALF, PRECISION, RECORDS, Workload
from tacit.mechanisms import ClipLayers

LARGE = (130, 140)  # 18,200 entries: above the 16,384 from which on the kernel may use several threads
WIDE = 520  # so that 256 positions take less work than the gradients of such a layer
_ADDED = 3


def classify(model: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """Cross entropy, louder or softer by a number of the record, so that some are clipped and others are not."""
    inputs, labels, volume = batch
    return volume * cross_entropy(model(inputs).to(volume.dtype), labels, reduction="none")


def predict_next(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    tokens, volume = batch
    outputs = model(tokens[:, :-1]).flatten(0, 1)
    losses = cross_entropy(outputs, tokens[:, 1:].flatten(), reduction="none")
    return volume * losses.view(len(tokens), -1).sum(1)


def sum_of_outputs(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    inputs, volume = batch
    outputs: Tensor = model(inputs)
    return volume * outputs.flatten(1).sum(1)


def squares(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    """Nothing but a dense network, which is computed by its formula."""
    outputs: Tensor = model(batch[0])
    return (outputs[:, 0] - batch[1]).square()


class Attention(nn.Module):
    """Tokens, self-attention with its norms and its feed-forward part, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.block = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        found: Tensor = self.head(self.block(self.embed(tokens)).mean(1))
        return found


class Recurrent(nn.Module):
    """An LSTM and a GRU, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru = nn.LSTM(3, 5, batch_first=True), nn.GRU(5, 4, batch_first=True)
        self.head = nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        found: Tensor = self.head(self.gru(self.lstm(inputs)[0])[0][:, -1])
        return found


class Tied(nn.Module):
    """The embedding's matrix is the output's too."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(7, 5), nn.Linear(5, 7)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        found: Tensor = self.head(self.embed(tokens).tanh())
        return found


class Bag(nn.Module):
    """The mean of token vectors."""

    def __init__(self, head: int = 3) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(11, 6), nn.Linear(6, head)

    def forward(self, tokens: Tensor) -> Tensor:
        found: Tensor = self.head(self.embed(tokens).sum(1))
        return found


def _convolutions() -> nn.Module:
    """Weights of 54 and 90 entries: six and two beyond the kernel's vectors of eight."""
    return nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1), nn.Tanh(), nn.Conv2d(3, 5, (2, 3), stride=2), nn.Tanh(), nn.Flatten(),
        nn.Linear(45, 3),
    )  # fmt: skip


def _group_norm() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 6, 3), nn.GroupNorm(3, 6), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(24, 3)
    )


def perceptron(dtype: torch.dtype = torch.float32, sizes: tuple[int, int] = (6, 5), outputs: int = 3) -> nn.Module:
    return nn.Sequential(nn.Linear(*sizes, dtype=dtype), nn.Tanh(), nn.Linear(sizes[1], outputs, dtype=dtype))


def workloads() -> list[Workload]:
    """Models of every kind; the added records are a loud one, a quiet one, and the worst for the layer."""
    images, half = make_inputs(2, 6, 7), torch.bfloat16
    series, plain = make_inputs(5, 3), make_inputs(6)
    plain[-1] = 0.0  # nothing but the bias has a gradient
    tokens, next_tokens = _tokens(9, 11), _tokens(8, 7)
    labels, volume = make_labels(), make_volumes()
    line = make_inputs(1, 1, 9)
    return [
        Workload("convolution", _convolutions, classify, (images, labels, volume)),
        Workload("five weights", lambda: nn.Conv2d(1, 1, (1, 5), bias=False), sum_of_outputs, (line, volume)),
        Workload("group norm", _group_norm, classify, (images, labels, volume)),
        Workload("embedding", Bag, classify, (tokens, labels, volume)),
        Workload("attention", Attention, classify, (tokens, labels, volume)),
        Workload("recurrent", Recurrent, classify, (series, labels, volume)),
        Workload("tied weights", Tied, predict_next, (next_tokens, volume)),
        Workload("linear", perceptron, classify, (plain, labels, volume)),
        Workload("layers clipped apart", perceptron, classify, (plain, labels, volume), ClipLayers(CLIP)),
        Workload("dense network", lambda: perceptron(outputs=1), squares, (plain, volume)),
        Workload("large", lambda: perceptron(sizes=LARGE), classify, (make_inputs(LARGE[0]), labels, volume)),
        Workload(
            "bfloat16", lambda: perceptron(half), classify, (plain.to(half), labels, volume), precision=HALF
        ),
        Workload(
            "worst-case rounding", lambda: nn.Linear(WIDE, WIDE, bias=False), sum_of_outputs, _worst_rounding(),
            precision=5 * PRECISION,
        ),
        Workload("data set", lambda: Bag(3), classify, _items(), loading={"collate_fn": _padded}),
        Workload(
            "augmented data set", lambda: nn.Sequential(nn.Dropout(0.3), nn.Linear(6, 3)), classify,
            list(zip(plain, labels, volume, strict=True)), loading={"augment": _centred, "views": 2}, precision=None,
        ),
    ]  # fmt: skip


def make_inputs(*shape: int) -> Tensor:
    found = torch.randn(RECORDS + _ADDED, *shape, generator=torch.Generator().manual_seed(3))
    found[RECORDS] *= 3.0  # more would saturate activations, whose gradients float32 does not resolve
    return found


def make_labels() -> Tensor:
    return torch.randint(0, 3, (RECORDS + _ADDED,), generator=torch.Generator().manual_seed(4))


def make_volumes() -> Tensor:
    """Some records are clipped and some are not; of those that are added the second is not."""
    found = torch.logspace(-3, 2, RECORDS + _ADDED)[torch.arange(RECORDS + _ADDED) * 7 % (RECORDS + _ADDED)]
    found[RECORDS:] = torch.tensor([1e3, 1e-3, 50.0])
    return found


def _tokens(length: int, vocabulary: int) -> Tensor:
    """The last record is one token again and again: its rows add up, which a norm must see."""
    found = torch.randint(0, vocabulary, (RECORDS + _ADDED, length), generator=torch.Generator().manual_seed(5))
    found[-1] = 4
    return found


def _worst_rounding() -> tuple[Tensor, Tensor]:
    """The last record's positions, added in float32, round up at nearly every addition; its norm does not.

    Of so wide a layer the norm comes from products of positions, of which one entry each makes exact ones.
    """
    inputs = torch.zeros(RECORDS + 1, 256, WIDE)
    for record in range(RECORDS):
        inputs[record, :, record] = 0.5 + record / RECORDS
    inputs[-1, :, -1] = 1 + 65 * 2.0**-23
    return inputs, torch.ones(RECORDS + 1)


def _items() -> list[tuple[list[int], int, float]]:
    """Texts of many lengths; the last one is far longer than the others."""
    tokens, lengths = _tokens(12, 11).tolist(), [1 + place * 5 % 11 for place in range(RECORDS + _ADDED)]
    tokens[-1], lengths[-1] = [4] * 60, 60
    rows = zip(tokens, lengths, make_labels().tolist(), make_volumes().tolist(), strict=True)
    return [(text[:length], label, volume) for text, length, label, volume in rows]


def _padded(items: list[tuple[list[int], int, float]]) -> tuple[Tensor, Tensor, Tensor]:
    """Padded to the longest text of the batch, by a token that has a gradient: nobody may see the others' lengths."""
    longest = max(len(text) for text, _, _ in items)
    tokens = torch.stack([pad(torch.tensor(text), (0, longest - len(text)), value=9) for text, _, _ in items])
    return tokens, torch.tensor([label for _, label, _ in items]), torch.tensor([volume for _, _, volume in items])


def _centred(batch: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Less the mean of the batch, which is the record alone, and with chance."""
    inputs, labels, volume = batch
    return inputs - inputs.mean() + 0.1 * torch.randn_like(inputs), labels, volume
