"""The workloads: a model, a batch, and one loss per record."""

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


class Residual(nn.Module):
    """Two convolutions beside a shortcut."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.first, self.second = nn.Conv2d(channels, width, 3, stride, 1, bias=False), _same(width)
        self.norms = nn.ModuleList([nn.GroupNorm(32, width), nn.GroupNorm(32, width)])
        self.short = nn.Sequential()
        if stride != 1 or channels != width:
            self.short = nn.Sequential(nn.Conv2d(channels, width, 1, stride, bias=False), nn.GroupNorm(32, width))

    def forward(self, x: Tensor) -> Tensor:
        inner = self.norms[1](self.second(torch.relu(self.norms[0](self.first(x)))))
        return torch.relu(inner + self.short(x))


def _same(width: int) -> nn.Conv2d:
    return nn.Conv2d(width, width, 3, 1, 1, bias=False)


def resnet18() -> tuple[nn.Module, Batch]:
    """11.2 million parameters, GroupNorm in place of BatchNorm, batches of 16 CIFAR-sized images."""
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 3, 1, 1, bias=False), nn.GroupNorm(32, 64), nn.ReLU()]
    channels = 64
    for width, stride in ((64, 1), (128, 2), (256, 2), (512, 2)):
        layers += [Residual(channels, width, stride), Residual(width, width, 1)]
        channels = width
    model = nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))
    return model, (torch.randn(16, 3, 32, 32), torch.randint(0, 10, (16,)))


class Reader(nn.Module):
    """The last state of an LSTM over words."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.head = nn.Embedding(5000, 64), nn.Linear(128, 2)
        self.lstm = nn.LSTM(64, 128, batch_first=True)

    def forward(self, tokens: Tensor) -> Tensor:
        return self.head(self.lstm(self.words(tokens))[0][:, -1])


def lstm() -> tuple[nn.Module, Batch]:
    """0.42 million parameters, batches of 64 with 48 tokens."""
    return Reader(), (torch.randint(0, 5000, (64, 48)), torch.randint(0, 2, (64,)))


class Logits(nn.Module):
    """A Hugging Face classifier as a function of tokens alone."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, tokens: Tensor) -> Tensor:
        return self.inner(input_ids=tokens, use_cache=False).logits


def lora() -> tuple[nn.Module, Batch]:
    """A Llama of 4 layers of width 256, of which 12,800 parameters of LoRA and head are trained; 32 of 64 tokens."""
    import peft
    import transformers

    config = transformers.LlamaConfig(
        vocab_size=4000, hidden_size=256, num_hidden_layers=4, num_attention_heads=4, num_key_value_heads=2,
        intermediate_size=1024, max_position_embeddings=128, pad_token_id=0, num_labels=2,
    )  # fmt: skip
    adapters = peft.LoraConfig(task_type="SEQ_CLS", r=8, lora_alpha=16, target_modules=["q_proj", "v_proj"])
    model = peft.get_peft_model(transformers.LlamaForSequenceClassification(config), adapters)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:  # zero at first, which would leave lora_A without a gradient
            nn.init.normal_(parameter, std=0.02)
    return Logits(model), (torch.randint(3, 4000, (32, 64)), torch.randint(0, 2, (32,)))


WORKLOADS: dict[str, Callable[[], tuple[nn.Module, Batch]]] = {
    "cnn": cnn,
    "mlp": mlp,
    "logreg": logreg,
    "transformer": transformer,
    "vgg": vgg,
    "lora": lora,
    "resnet18": resnet18,
    "lstm": lstm,
}
