"""Records built so that floating point does the moving: sums, norms and half precision."""

import torch
from torch import Tensor, nn

import tacit
from reliability.boundary.attack import Loop, Outcome, attack, linear, public_seeds, seeded
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
def a_product_with_a_zero():
    """PyTorch's backward pass of prod has another formula for all records once one of them holds a zero."""

    def losses(model, batch):
        return (batch[0] + model.bias).prod(1)

    model = nn.Linear(1, 3)
    nn.init.zeros_(model.bias)
    model.weight.requires_grad_(False)
    rows = torch.tensor([[1e-30, 1e-30, 1e30]]).expand(24, 3)  # the product is lost in float32; its derivatives are not
    return Loop(losses, model=model, rows=(rows,), more=(torch.zeros(1, 3),))


@attack(row="F6")
def norms_that_cancel():
    """A norm found as a difference of large numbers: inputs and outputs of very different sizes."""

    def build() -> Loop:
        model = seeded(lambda: nn.Sequential(nn.Conv1d(1, 1, 5, padding=2), nn.Flatten(), nn.Linear(64, 1)))
        x = torch.sin(torch.arange(64.0))[None, None] * 1e4 + 1e7
        return Loop(lambda model, batch: model(batch[0])[:, 0], model=model, rows=(torch.ones(8, 1, 64),), more=(x,))

    return worst([build])
