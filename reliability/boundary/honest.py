"""What must work: ordinary code beside the attacks, held to a sum that is written out record by record in float64."""

import copy
import itertools
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F  # noqa: N812

import tacit
from reliability.boundary.attack import (
    SEED,
    Items,
    classify,
    ledger_path,
    linear,
    network,
    one_class,
    one_line,
    ordinary,
    ordinary_process,
    public_seeds,
    seeded,
    squared,
)
from reliability.boundary.models import Checkpointed

PATTERNS: dict[str, Callable[[], "Pattern"]] = {}
CLIP = 1.0


@dataclass
class Pattern:
    """A loop as users write it. ``units`` are the batches, each of one unit, whose mean loss is clipped once."""

    losses: Callable[[nn.Module, Any], Tensor] = squared
    model: nn.Module = field(default_factory=network)
    rows: Any = field(default_factory=ordinary)
    samples: dict[str, Any] = field(default_factory=dict)
    unit: Any = field(default_factory=tacit.Records)
    units: list[Any] | None = None
    reference: nn.Module | None = None  # where the model itself does not run by record in float64
    check: Callable[[dict[str, Tensor]], bool] | None = None  # where chance leaves no single right sum

    def released(self) -> dict[str, Tensor]:
        """The sum of clipped gradients, with noise of a billionth."""
        sampling = tacit.PoissonSampling(1.0, 1.0)
        with ledger_path() as path, tacit.PrivateGradient(
            self.model, self.losses, sampling, tacit.ClipRecords(CLIP), tacit.GaussianNoise(stddev=1e-9), ledger=path,
            unit=self.unit, physical_batch=16, randomness=tacit.Randomness.seeded(SEED),
        ) as private:  # fmt: skip
            for sample in private.samples(self.rows, 1, **self.samples):
                private.backward(sample)
        return {name: p.grad.double() for name, p in self.model.named_parameters() if p.requires_grad}

    def by_hand(self) -> dict[str, Tensor]:
        """Each unit alone, by autograd in float64, clipped and added."""
        model = copy.deepcopy(self.reference or self.model).double()
        params = {name: p for name, p in model.named_parameters() if p.requires_grad}
        sums = {name: torch.zeros_like(p) for name, p in params.items()}
        for unit in self.units or each(self.rows):
            loss = self.losses(model, _doubled(unit)).mean()
            found = torch.autograd.grad(loss, list(params.values()), allow_unused=True)
            gradients = [torch.zeros_like(p) if g is None else g for p, g in zip(params.values(), found, strict=True)]
            norm = torch.sqrt(sum(g.square().sum() for g in gradients))
            for name, gradient in zip(params, gradients, strict=True):
                sums[name] += gradient * min(1.0, CLIP / float(norm))
        return {name.removeprefix("_orig_mod."): value for name, value in sums.items()}

    def problem(self) -> str:
        """Empty if it works."""
        with ordinary_process():
            public_seeds()
            try:
                found = self.released()
            except Exception as error:
                return f"{type(error).__name__}: {one_line(error)}"
            if self.check is not None:
                return "" if self.check(found) else f"an unlikely sum: {found}"
            right = self.by_hand()
        for name, value in found.items():
            plain = name.removeprefix("_orig_mod.")
            size = max(1.0, float(right[plain].abs().max()))
            apart = float((value - right[plain]).abs().max()) / size
            if not apart < 1e-5:
                return f"{name} is {apart:.2g} from the sum by hand"
        return ""


def pattern(build: Callable[[], Pattern]) -> Callable[[], Pattern]:
    PATTERNS[build.__name__.replace("_", " ")] = build
    return build


def each(rows: Any) -> list[Any]:
    """Batches of one record."""
    if isinstance(rows, dict):
        return [{key: value[i : i + 1] for key, value in rows.items()} for i in range(len(next(iter(rows.values()))))]
    if isinstance(rows, tuple):
        return [tuple(part[i : i + 1] for part in rows) for i in range(len(rows[0]))]
    return [torch.utils.data.default_collate([rows[i]]) for i in range(len(rows))]


def _doubled(batch: Any) -> Any:
    if isinstance(batch, Tensor):
        return batch.double() if batch.is_floating_point() else batch
    if isinstance(batch, dict):
        return {key: _doubled(value) for key, value in batch.items()}
    return tuple(_doubled(part) for part in batch)


def sequences(records: int = 24) -> tuple[Tensor, Tensor, Tensor]:
    """Words, which of them are there, and a class."""
    generator = torch.Generator().manual_seed(6)
    words = torch.randint(0, 12, (records, 7), generator=generator)
    lengths = torch.randint(2, 8, (records, 1), generator=generator)
    return words, torch.arange(7)[None] < lengths, torch.randint(0, 3, (records,), generator=generator)


# ---- losses ----


@pattern
def cross_entropy():
    return Pattern(classify, linear(4, 3), one_class())


@pattern
def mean_squared_error():
    def losses(model, batch):
        return F.mse_loss(model(batch[0])[:, 0], batch[1], reduction="none")

    return Pattern(losses)


@pattern
def several_terms_and_a_penalty():
    def losses(model, batch):
        out = model(batch[0])[:, 0]
        return F.huber_loss(out, batch[1], reduction="none") + 0.1 * out.abs() + 0.01 * model[0].weight.square().sum()

    return Pattern(losses)


@pattern
def one_hot_targets():
    def losses(model, batch):
        return -(F.one_hot(batch[1], 3) * model(batch[0]).log_softmax(1)).sum(1)

    return Pattern(losses, linear(4, 3), one_class())


@pattern
def masked_token_loss():
    class Tagger(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.out = nn.Embedding(12, 4), nn.Linear(4, 12)

        def forward(self, words):
            return self.out(self.words(words))

    def losses(model, batch):
        words, there, _ = batch
        each = F.cross_entropy(model(words).transpose(1, 2), words, reduction="none")
        return (each * there).sum(1) / there.sum(1)

    return Pattern(losses, seeded(Tagger), sequences())


@pattern
def dictionary_batches():
    x, y = ordinary()
    return Pattern(lambda model, batch: squared(model, (batch["x"], batch["y"])), rows={"x": x, "y": y})


# ---- models ----


@pattern
def dropout():
    """Gradients are there or not, as the mask falls, doubled: some are, and some are not."""
    rows = (torch.eye(24) * 0.1, torch.zeros(24))
    model = nn.Sequential(nn.Dropout(0.5), nn.Linear(24, 1, bias=False))

    def losses(model, batch):
        return model(batch[0])[:, 0]

    def check(found):
        (weight,) = found.values()
        there = (weight - 0.2).abs() < 1e-5
        return bool((there | (weight.abs() < 1e-5)).all()) and 2 < int(there.sum()) < 22

    return Pattern(losses, model, rows, check=check)


class Recurrent(nn.Module):
    def __init__(self, kind: type[nn.Module]) -> None:
        super().__init__()
        self.cell, self.out = kind(4, 3, batch_first=True), nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.out(self.cell(x)[0][:, -1])


@pattern
def lstm():
    return Pattern(model=seeded(lambda: Recurrent(nn.LSTM)), rows=ordinary(24, 5, 4))


@pattern
def gru():
    return Pattern(model=seeded(lambda: Recurrent(nn.GRU)), rows=ordinary(24, 5, 4))


@pattern
def recurrent_layers_of_which_only_the_hidden_states_learn():
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = nn.LSTM(4, 3, batch_first=True), nn.GRU(4, 3, bias=False, batch_first=True)

        def forward(self, x):
            return self.first(x)[0][:, -1] + self.second(x)[0][:, -1]

    model = seeded(Both)
    for name, parameter in model.named_parameters():
        parameter.requires_grad_("_hh_" in name)
    return Pattern(lambda model, batch: (model(batch[0]).sum(1) - batch[1]).square(), model, ordinary(24, 5, 4))


@pattern
def padding_and_gradients_scaled_by_frequency():
    class Words(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.out = nn.Embedding(12, 4, padding_idx=3, scale_grad_by_freq=True), nn.Linear(4, 3)

        def forward(self, words):
            return self.out(self.words(words).mean(1))

    return Pattern(
        lambda model, batch: F.cross_entropy(model(batch[0]), batch[2], reduction="none"), seeded(Words), sequences()
    )


class Reader(nn.Module):
    """A small transformer that is told which words are there, with or without a branch."""

    def __init__(self, branch: bool) -> None:
        super().__init__()
        self.words = nn.Embedding(12, 8)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.norm, self.out, self.branch = nn.LayerNorm(8), nn.Linear(8, 3), branch

    def forward(self, words: Tensor, there: Tensor) -> Tensor:
        x = self.words(words)
        mask = None if self.branch and bool(there.all()) else ~there
        x = self.norm(x + self.attention(x, x, x, key_padding_mask=mask, need_weights=False)[0])
        return self.out((x * there[..., None]).sum(1) / there.sum(1, keepdim=True))


def _read(model, batch):
    return F.cross_entropy(model(batch[0], batch[1]), batch[2], reduction="none")


@pattern
def attention_with_a_padding_mask():
    return Pattern(_read, seeded(lambda: Reader(branch=False)), sequences())


@pattern
def branch_on_the_mask_as_in_hugging_face():
    return Pattern(_read, seeded(lambda: Reader(branch=True)), sequences())


@pattern
def tied_embeddings():
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.words, self.out = nn.Embedding(12, 4), nn.Linear(4, 12, bias=False)
            self.out.weight = self.words.weight

        def forward(self, words):
            return self.out(self.words(words))

    def losses(model, batch):
        return F.cross_entropy(model(batch[0])[:, :-1].transpose(1, 2), batch[0][:, 1:], reduction="none").mean(1)

    return Pattern(losses, seeded(Tied), sequences())


@pattern
def batch_norm_in_evaluation():
    model = seeded(lambda: nn.Sequential(nn.Linear(4, 6), nn.BatchNorm1d(6), nn.ReLU(), nn.Linear(6, 1)))
    return Pattern(model=model.eval())


@pattern
def convolutions_with_group_norm_and_pooling():
    model = seeded(
        lambda: nn.Sequential(
            nn.Conv2d(3, 6, 3),
            nn.GroupNorm(2, 6),
            nn.ReLU(inplace=True),
            nn.MaxPool2d(2),
            nn.Flatten(),
            nn.Linear(54, 1),
        )
    )
    return Pattern(model=model, rows=ordinary(24, 3, 8, 8))


@pattern
def checkpoint_without_reentry():
    return Pattern(model=Checkpointed(False))


@pattern
def checkpoint_with_reentry():
    return Pattern(model=Checkpointed(True), reference=Checkpointed(False))


@pattern
def compiled_by_the_eager_backend():
    plain = network()
    return Pattern(model=torch.compile(copy.deepcopy(plain), backend="eager"), reference=plain)


def _scripted(how, *given):
    with warnings.catch_warnings(action="ignore"):  # that TorchScript is deprecated
        return how(*given)


@pattern
def scripted_model():
    """torch.jit.script: its calls are not seen, so that records are taken one after the other."""
    model = network()
    return Pattern(squared, _scripted(torch.jit.script, model), reference=model)


@pattern
def traced_model():
    model = network()
    return Pattern(squared, _scripted(torch.jit.trace, model, torch.zeros(2, 4)), reference=model)


@pattern
def scripted_activation():
    def doubled(x):
        return torch.tanh(x) * 2

    activation = _scripted(torch.jit.script, doubled)
    return Pattern(lambda model, batch: (activation(model(batch[0]))[:, 0] - batch[1]).square())


@pattern
def spectral_filter():
    """A real parameter that is used as complex numbers."""

    class Filter(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 2))
            self.out = nn.Linear(4, 1)

        def forward(self, x):
            return self.out(torch.fft.ifft(torch.fft.fft(x) * torch.view_as_complex(self.weight)).real)

    return Pattern(squared, seeded(Filter))


@pattern
def sums_written_into_zeros():
    """zeros(...).scatter_add_(...) with an index that is the same for all records."""

    def losses(model, batch):
        rows = len(batch[0])
        sums = torch.zeros(rows, 2, dtype=batch[0].dtype)
        sums.scatter_add_(1, torch.tensor([[0, 0, 1, 1]]).expand(rows, 4), batch[0])
        return squared(model, (sums.repeat(1, 2), batch[1]))

    return Pattern(losses)


@pattern
def einsum():
    class Bilinear(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(4, 4))

        def forward(self, x):
            return torch.einsum("ni,ij,nj->n", x, self.weight, x)[:, None]

    return Pattern(model=seeded(Bilinear))


@pattern
def copy_of_a_weight_that_is_changed_after_its_use():
    """What was computed with the copy before has the gradient of the copy as it was then."""

    def losses(model, batch):
        weight = model.weight.clone()
        out = F.linear(batch[0], weight)[:, 0]
        weight *= 3
        return (out - batch[1]).square()

    return Pattern(losses, linear())


@pattern
def frozen_body():
    model = network()
    model[0].requires_grad_(False)
    return Pattern(model=model)


# ---- the data path ----


@pattern
def default_collation_of_items():
    rows = [(x, float(y)) for x, y in zip(*ordinary(), strict=True)]
    return Pattern(rows=rows)


@pattern
def sequences_of_several_lengths():
    """pad_sequence per record: each keeps its own length, as it would alone."""
    items = [(torch.full((2 + n % 4, 4), 0.1 * n), torch.tensor(3.0)) for n in range(24)]

    def collate(items):
        padded = nn.utils.rnn.pad_sequence([x for x, _ in items], batch_first=True)
        return padded, torch.stack([y for _, y in items])

    def losses(model, batch):
        return (model(batch[0]).sum((1, 2)) - batch[1]).square()

    return Pattern(losses, rows=items, samples={"collate_fn": collate}, units=[collate([item]) for item in items])


@pattern
def random_crops_of_items():
    """Each record is one of its two halves, by its own chance."""

    def crop(index, row):
        start = int(torch.randint(0, 2, ())) * 24
        return row[start : start + 24]

    rows = Items([torch.cat([torch.eye(24)[n], -torch.eye(24)[n]]) * 0.1 for n in range(24)], crop)
    return Pattern(lambda model, x: model(x)[:, 0], nn.Linear(24, 1, bias=False), rows, check=_both_signs)


@pattern
def augment_with_chance_of_each_record():
    def augment(batch):
        return (batch[0] * torch.rand(len(batch[0])).sub(0.5).sign()[:, None],)

    rows = (torch.eye(24) * 0.1,)
    return Pattern(
        lambda model, batch: model(batch[0])[:, 0], nn.Linear(24, 1, bias=False), rows,
        samples={"augment": augment, "views": 1}, check=_both_signs,
    )  # fmt: skip


def _both_signs(found):
    (weight,) = found.values()
    return bool(((weight.abs() - 0.1).abs() < 1e-5).all()) and 2 < int((weight > 0).sum()) < 22


@pattern
def two_views():
    """Gradients of a record's views are averaged before the clip; here both are the same."""
    x, y = ordinary()

    def augment(batch):
        return batch[0] + 0.5, batch[1]

    return Pattern(rows=(x, y), samples={"augment": augment, "views": 2}, units=each((x + 0.5, y)))


@pattern
def users_with_equal_numbers_of_rows():
    x, y = ordinary()
    units = [(x[i : i + 3], y[i : i + 3]) for i in range(0, 24, 3)]
    return Pattern(unit=tacit.Users(), samples={"user_ids": [i // 3 for i in range(24)]}, units=units)


@pattern
def users_with_unequal_numbers_of_rows():
    x, y = ordinary()
    ends = [0, 1, 4, 9, 16, 24]
    owners = [user for user, (a, b) in enumerate(itertools.pairwise(ends)) for _ in range(b - a)]
    units = [(x[a:b], y[a:b]) for a, b in itertools.pairwise(ends)]
    return Pattern(unit=tacit.Users(), samples={"user_ids": owners}, units=units)


@pattern
def two_workers():
    rows = [(x, float(y)) for x, y in zip(*ordinary(), strict=True)]
    return Pattern(rows=rows, samples={"workers": 2})
