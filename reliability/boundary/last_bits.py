"""Records whose company decides the last bit of the others' activations, and through it the sign of their gradients."""

import torch
from torch import nn

from reliability.boundary.attack import Loop, Outcome, attack, outlier, seeded
from reliability.boundary.numerics import worst, worst_of


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
