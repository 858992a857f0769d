"""The five workloads: a model, a batch, and one loss per record."""

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

Batch = tuple[Tensor, Tensor]


def losses(model: nn.Module, batch: Batch) -> Tensor:
    return functional.cross_entropy(model(batch[0]), batch[1], reduction="none")


def cnn() -> tuple[nn.Module, Batch]:
    """The MNIST network of the DP-SGD tutorials: 26,010 parameters, batches of 256."""
    model = nn.Sequential(
        nn.Conv2d(1, 16, 8, 2, padding=3),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Conv2d(16, 32, 4, 2),
        nn.ReLU(),
        nn.MaxPool2d(2, 1),
        nn.Flatten(),
        nn.Linear(512, 32),
        nn.ReLU(),
        nn.Linear(32, 10),
    )
    return model, (torch.randn(256, 1, 28, 28), torch.randint(0, 10, (256,)))


def mlp() -> tuple[nn.Module, Batch]:
    """2.4 million parameters, batches of 256."""
    widths = (784, 1024, 1024, 512)
    layers = [part for a, b in pairwise(widths) for part in (nn.Linear(a, b), nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(512, 10)), (torch.randn(256, 784), torch.randint(0, 10, (256,)))


def logreg() -> tuple[nn.Module, Batch]:
    """202 parameters, batches of 512."""
    return nn.Sequential(nn.Linear(100, 2)), (torch.randn(512, 100), torch.randint(0, 2, (512,)))


class Attention(nn.Module):
    """Written with Linear layers, so that every contender can run it."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        q, k, v = (part.unflatten(-1, (self.heads, -1)).transpose(1, 2) for part in (q, k, v))
        weights = torch.softmax(q @ k.transpose(2, 3) * q.shape[-1] ** -0.5, dim=-1)
        return self.out((weights @ v).transpose(1, 2).flatten(2))


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.first, self.second = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.wide, self.narrow = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.first(x))
        return x + self.narrow(functional.gelu(self.wide(self.second(x))))


class Transformer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(10_000, 256)
        self.blocks = nn.Sequential(*(Block(256, 4) for _ in range(4)))
        self.head = nn.Linear(256, 2)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.blocks(self.words(tokens)).mean(1))


def transformer() -> tuple[nn.Module, Batch]:
    """5.7 million parameters, batches of 32 with 64 tokens."""
    return Transformer(), (torch.randint(0, 10_000, (32, 64)), torch.randint(0, 2, (32,)))


def vgg() -> tuple[nn.Module, Batch]:
    """0.55 million parameters with GroupNorm, batches of 64 CIFAR-sized images."""
    layers: list[nn.Module] = []
    channels = 3
    for width in (32, 64, 128):
        for _ in range(2):
            layers += [nn.Conv2d(channels, width, 3, padding=1), nn.GroupNorm(8, width), nn.ReLU()]
            channels = width
        layers.append(nn.MaxPool2d(2))
    model = nn.Sequential(*layers, nn.Flatten(), nn.Linear(2048, 128), nn.ReLU(), nn.Linear(128, 10))
    return model, (torch.randn(64, 3, 32, 32), torch.randint(0, 10, (64,)))


WORKLOADS: dict[str, Callable[[], tuple[nn.Module, Batch]]] = {
    "cnn": cnn,
    "mlp": mlp,
    "logreg": logreg,
    "transformer": transformer,
    "vgg": vgg,
}
