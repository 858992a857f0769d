"""Records built so that floating point does the moving: sums, norms, half precision, the last bit of an activation."""

import torch
from torch import Tensor, nn

import tacit
from reliability.boundary.attack import Loop, Outcome, attack, linear, outlier, public_seeds, seeded
from reliability.boundary.attack import compare as compare_runs


def worst(loops) -> Outcome:
    """The worst outcome of several pairs of runs; each is a function that builds its loop anew."""
    found = Outcome("moves")
    for build in loops:
        public_seeds()
        one = build().run(with_record=False)
        public_seeds()
        outcome = compare_runs(one, build().run(with_record=True), build())
        if outcome.kind not in ("moves", "refused"):
            return outcome
        found = max(found, outcome, key=lambda item: item.moved)
    return outcome if outcome.kind == "refused" and found.moved == 0 else found


def worst_of(outcomes) -> Outcome:
    return max(outcomes, key=lambda outcome: (not outcome.holds, outcome.moved))


def _directly(model: nn.Module, batch) -> Tensor:
    """The gradient of a record is the record itself."""
    return model(batch[0]).sum(1)


# ---- float32 sums ----


def _crossing(records: int, width: int, order: str, kind: torch.dtype = torch.float32) -> Loop:
    """Half of the records bring a coordinate just below a power of two; the rest add half a unit in the last place.

    With one record more the sum passes the power, the unit doubles, and every later addition is rounded the other way.
    """
    half = records // 2
    unit = half * torch.finfo(kind).eps  # the spacing just above the power of two
    large = torch.full((half, width), 1.0 / width**0.5, dtype=torch.float64)
    small = torch.full((records - half, width), 0.5001 * unit / width**0.5, dtype=torch.float64)
    large[0] *= 0.5
    rows = torch.cat([large, small])
    if order == "interleaved":
        rows = rows.reshape(2, half, width).transpose(0, 1).reshape(records, width)
    more = torch.full((1, width), 1.0 / width**0.5)
    return Loop(
        _directly, model=seeded(lambda: nn.Linear(width, 1, bias=False)).to(kind), rows=(rows.to(kind),),
        more=(more.to(kind),), first=True, physical_batch=records + 1, noise=tacit.GaussianNoise(stddev=1e-3),
    )  # fmt: skip


def _crossings(records: int):
    return worst(
        lambda width=width, order=order: _crossing(records, width, order)
        for width in (1, 16)
        for order in ("in a row", "interleaved")
    )


@attack("A10", row="F6")
def float32_sum_of_256_crosses_a_power_of_two():
    """physical_batch=256 and records that happen to add up to a power of two."""
    return _crossings(256)


@attack("A10", row="F6")
def stretches_in_float32_cross_a_power_of_two():
    """Samples so small that several records are added up in float32, among them the largest of that kind."""
    return worst_of(_crossings(records) for records in (8, 64, 512, 800, 2000))


@attack("A10", row="F6")
def float32_sum_of_4096_crosses_a_power_of_two():
    """physical_batch=4096."""
    return _crossings(4096)


@attack("A10", row="F6")
def float32_sum_of_16384_crosses_a_power_of_two():
    """physical_batch=16384."""
    return _crossings(16384)


# ---- half precision ----


class Half(nn.Module):
    """A weight of four numbers whose gradient is the record itself; kinds of use are subclasses."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))

    def rows(self, records: int, towards: Tensor) -> Tensor:
        """Equal records that add up to this, as far as they are not clipped."""
        return (towards / records).clamp(-0.45, 0.45).expand(records, -1)


class Einsum(Half):
    def forward(self, x: Tensor) -> Tensor:
        return torch.einsum("ni,oi->no", x, self.weight[None])[:, 0]


class Linear(Half):
    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.weight[None])[:, 0]


class Factor(Half):
    def forward(self, x: Tensor) -> Tensor:
        return (x * self.weight).sum(1)


class Word(Half):
    def forward(self, x: Tensor) -> Tensor:
        return (nn.functional.embedding(torch.zeros_like(x[:, :1]).long(), self.weight[None])[:, 0] * x).sum(1)


class WeightNorm(nn.Module):
    """A layer with weight_norm; records along its weight have a gradient in the scale alone."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = seeded(lambda: nn.utils.parametrizations.weight_norm(nn.Linear(4, 1, bias=False)))

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x)[:, 0]

    def rows(self, records: int, towards: Tensor) -> Tensor:
        along = self.layer.weight.detach().double()
        return (towards[:1] / records).clamp(-0.9, 0.9) * (along / along.norm()).expand(records, -1)


def _half(make: type[nn.Module], kind: torch.dtype) -> Outcome:
    """Sums in half precision before the noise: one record crosses half a unit in the last place and moves a whole one.

    The sum is made to cancel the noise, which a run without data shows, so that what is released is small and its own
    rounding, which is post-processing, hides nothing.
    """

    def build(towards: Tensor, records: int) -> Loop:
        model = make()
        rows, more = model.rows(records, towards), model.rows(1, torch.full((4,), 0.4))
        return Loop(
            lambda model, batch: model(batch[0]).float(), model=model.to(kind), rows=(rows.to(kind),),
            more=(more.to(kind),), physical_batch=4096, noise=tacit.GaussianNoise(stddev=300.0),
        )  # fmt: skip

    quiet = build(torch.zeros(4), 1000).run(with_record=False)
    if quiet.ended is not None:
        return quiet.ended
    noise = torch.cat([value.flatten() for value in quiet.released[0].values()]).double()[:4] * 1000
    return worst(lambda records=records: build(-noise, records) for records in range(1000, 1012))


@attack("A10", row="F6")
def bfloat16_weights_by_einsum():
    """A model in bfloat16 whose weight is used by einsum."""
    return _half(Einsum, torch.bfloat16)


@attack("A10", row="F6")
def float16_weights_by_einsum():
    """The same in float16."""
    return _half(Einsum, torch.float16)


@attack("A10", row="F6")
def bfloat16_weights_in_a_linear_layer():
    """A linear layer in bfloat16."""
    return _half(Linear, torch.bfloat16)


@attack("A10", row="F6")
def bfloat16_weights_as_factors():
    """x * weight in bfloat16."""
    return _half(Factor, torch.bfloat16)


@attack("A10", row="F6")
def bfloat16_weight_norm():
    """weight_norm in bfloat16."""
    return _half(WeightNorm, torch.bfloat16)


@attack("A10", row="F6")
def bfloat16_embedding():
    """An embedding in bfloat16: every record has the same word."""
    return _half(Word, torch.bfloat16)


# ---- norms that vanish or overflow ----


@attack("A9", row="F6")
def normalised_gradients_of_1e_23():
    """rule="normalise" on a well-classified record of 1,000 classes: most squares vanish in float32, not all."""

    def losses(model, batch):
        label = torch.zeros(len(batch[0]), dtype=torch.long)
        return nn.functional.cross_entropy(model(batch[0]), label, reduction="none")

    def build(size: float) -> Loop:
        model = nn.Linear(2, 1000, bias=False)
        with torch.no_grad():
            model.weight.zero_()
            model.weight[0, 0] = model.weight[1, 1] = 1.0
        more = (torch.tensor([[size, 0.6]]),)
        return Loop(losses, model=model, rows=(torch.zeros(8, 2),), more=more, clipping=_NORMALISED)

    return worst(lambda size=size: build(size) for size in torch.arange(51.5, 53.0, 0.1).tolist())


@attack("A9", row="F6")
def normalised_gradients_that_are_tiny_everywhere():
    """rule="normalise" on gradients from 1e-19 to 1e-45 with many coordinates, one of them three times the others."""

    def build(size: float) -> Loop:
        more = torch.full((1, 2000), size)
        more[0, 0] = 3 * size
        return Loop(_directly, model=Scale(), rows=(torch.zeros(8, 2000),), more=(more,), clipping=_NORMALISED)

    return worst(lambda size=10.0 ** (power / 10): build(size) for power in range(-240, -190, 2))


class Scale(nn.Module):
    """A factor for every input."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(2000))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


_NORMALISED = tacit.ClipRecords(1.0, rule="normalise")


@attack(row="F6")
def norms_that_overflow():
    """Gradients of 1e20: their squares overflow in float32."""

    def build(size: float, width: int) -> Loop:
        more = (torch.full((1, width), size),)
        return Loop(_directly, model=linear(width), rows=(torch.ones(8, width),), more=more)

    sizes = (1e18, 1e19, 2e19, 1e25, 1e37, 3e38)
    return worst(lambda size=size, width=width: build(size, width) for size in sizes for width in (1, 50))


@attack(row="F6")
def norms_that_cancel():
    """A norm found as a difference of large numbers: inputs and outputs of very different sizes."""

    def build() -> Loop:
        model = seeded(lambda: nn.Sequential(nn.Conv1d(1, 1, 5, padding=2), nn.Flatten(), nn.Linear(64, 1)))
        x = torch.sin(torch.arange(64.0))[None, None] * 1e4 + 1e7
        return Loop(lambda model, batch: model(batch[0])[:, 0], model=model, rows=(torch.ones(8, 1, 64),), more=(x,))

    return worst([build])


# ---- the last bit ----


def _last_bit(model, shape: tuple[int, ...], sizes: tuple[int, ...], weights: bool = False) -> Outcome:
    """A hash of the activations decides the sign of the loss. Equal activations give equal signs, and only then.

    If a kernel computes a record in another way when there is one more row, the last bit differs, and so does the sign
    of everybody's gradient.
    """

    def losses(model, batch):
        out = model(batch[0]).flatten(1)
        if len(out) > 1:
            return out  # no batch of one: it does not let itself be compared with one, which would refuse it
        bits = (out.detach().double() * 2.0**40).remainder(2.0**20).sum(1)
        total = out[:, 0] if weights else out.sum(1)  # the outputs of a softmax add up to 1
        return total * torch.where(bits.remainder(2.0**18) < 2.0**17, 1.0, -1.0)

    generator = torch.Generator().manual_seed(4)
    x = torch.randn(max(sizes), *shape, generator=generator)
    return worst(
        lambda size=size, first=first: Loop(
            losses, model=seeded(model), rows=(x[:size],), more=(outlier(*shape)[0],), first=first
        )
        for size in sizes
        for first in (False, True)  # another number of rows, and another place for each of them
    )


SIZES = (1, 2, 3, 4, 5, 7, 8, 9, 15, 16, 17, 31, 32, 47, 63, 64, 100, 127)


@attack()
def last_bit_of_a_linear_layer():
    """Dropout by a hash of the activations: repeatable, needs no generator."""
    return _last_bit(lambda: nn.Linear(67, 33), (67,), SIZES)


@attack()
def last_bit_of_a_narrow_linear_layer():
    """The same for one output, where a matrix product becomes a product of vectors."""
    return _last_bit(lambda: nn.Linear(300, 1), (300,), SIZES)


@attack()
def last_bit_by_the_place_in_memory():
    """Rows of 24 and 20 bytes lie at another distance from a cache line each: every second record is at a tie."""
    return worst_of(_last_bit(lambda width=width: nn.Linear(width, 8), (width,), (8, 33, 64)) for width in (5, 6, 10))


@attack()
def an_error_of_one_record_with_words_of_vmap():
    """raise ValueError("unbatched ...") for one record must not send the others down another path."""

    def losses(model, batch):
        out = model(batch[0])
        if batch[0].abs().max() > 30:
            raise ValueError("unbatched input in the data; see functorch")
        if len(out) > 1:
            return out
        bits = (out.detach().double() * 2.0**40).remainder(2.0**20).sum(1)
        return out.sum(1) * torch.where(bits.remainder(2.0**18) < 2.0**17, 1.0, -1.0)

    x = torch.randn(40, 33, generator=torch.Generator().manual_seed(4))
    return worst(
        lambda first=first: Loop(losses, model=seeded(lambda: nn.Linear(33, 7)), rows=(x,), more=(outlier(33)[0],),
                                 first=first)
        for first in (False, True)
    )  # fmt: skip


@attack()
def last_bit_of_a_convolution():
    """The same for a convolution, whose algorithm may follow the size of the batch."""
    return _last_bit(lambda: nn.Conv2d(3, 8, 3), (3, 9, 9), SIZES)


@attack()
def last_bit_of_a_pointwise_convolution():
    """The same for a 1 x 1 convolution, which is a matrix product in disguise."""
    return _last_bit(lambda: nn.Conv2d(32, 64, 1), (32, 5, 5), SIZES)


@attack()
def last_bit_of_a_strided_convolution():
    """The same with stride and groups."""
    return _last_bit(lambda: nn.Conv2d(4, 8, 3, stride=2, groups=2), (4, 12, 12), SIZES)


@attack()
def last_bit_of_an_lstm():
    """The same for an LSTM."""

    class Last(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.lstm = nn.LSTM(5, 7, batch_first=True)

        def forward(self, x):
            return self.lstm(x)[0][:, -1]

    return _last_bit(Last, (6, 5), SIZES[:12])


@attack()
def last_bit_of_attention():
    """The same for attention."""
    return _last_bit(lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), (6, 8), SIZES[:12])


@attack()
def last_bit_of_a_deep_network():
    """The same for three layers with group normalisation and softmax."""
    return _last_bit(
        lambda: nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8), nn.GELU(), nn.AdaptiveAvgPool2d(3), nn.Flatten(), nn.Linear(72, 10),
            nn.Softmax(1),
        ),
        (3, 8, 8),
        SIZES[:12],
        weights=True,
    )  # fmt: skip


@attack()
def last_bit_with_a_guard_of_ties():
    """Max pooling over ties that rounding decides: which of two equal pixels gets the gradient."""

    def model():
        return nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(64, 1))

    def losses(model, batch):
        return model(batch[0])[:, 0]

    flat = torch.ones(32, 1, 8, 8) * torch.linspace(0.1, 3, 32)[:, None, None, None]
    return worst(
        lambda size=size: Loop(losses, model=seeded(model), rows=(flat[:size],), more=(outlier(1, 8, 8)[0],))
        for size in (1, 2, 7, 8, 15, 31)
    )
