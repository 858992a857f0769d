"""Chance inside the losses: dropout and other draws, for each row from a secret of its own.

PyTorch would draw for a whole batch from one generator: a record's mask would depend on its place among the others, and
on a seed that the user's script may have published. What is not entered here (``torch.multinomial``) fails under vmap
and is therefore drawn on the path that takes one record after the other, where PyTorch's generator starts from the
record's own seed. A function that does not suit a call answers NotImplemented.
"""

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from tacit.randomness import RecordChance

if TYPE_CHECKING:
    from tacit.isolation.rows import Isolated

_ALPHA = -1.7580993408473766  # what alpha dropout sets dropped entries to: the lower bound of SELU


class DrawsOfRows:
    """Draws for every row, numbered in the order in which the losses ask for them."""

    rows: int
    chance: RecordChance
    draws: int

    def words(self, shape: tuple[int, ...]) -> npt.NDArray[np.uint32]:
        """[rows, *shape], uniform."""
        self.draws += 1
        return self.chance.words(self.draws, math.prod(shape)).reshape(self.rows, *shape)

    def uniforms(self, shape: tuple[int, ...], device: torch.device) -> Tensor:
        """[rows, *shape] in float64, uniform in (0, 1)."""
        return torch.from_numpy((self.words(shape) + 0.5) * 2.0**-32).to(device)

    def kept(self, shape: tuple[int, ...], p: float, like: Tensor) -> Tensor:
        """1 with probability 1 - p, else 0, in the type of ``like``."""
        return torch.from_numpy(self.words(shape) >= np.uint32(p * 2.0**32)).to(like)

    def dropped(self, rows: Tensor, p: float, shape: tuple[int, ...]) -> Tensor:
        """Entries of [rows, ...] dropped with probability p and the others scaled up; one mask entry per ``shape``."""
        return rows * self.kept(shape, p, rows).div_(1 - p) if p < 1 else rows * 0.0


def _dropout(run: "Isolated", input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    if not training or p == 0.0:
        return input
    rows = run.rows_first(input)
    return run.wrap(run.dropped(rows, p, tuple(rows.shape[1:])))


def _feature_dropout(
    run: "Isolated", input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False
) -> Tensor:
    """Whole channels: one mask entry for each of the first two dimensions."""
    if not training or p == 0.0:
        return input
    rows = run.rows_first(input)
    return run.wrap(run.dropped(rows, p, _channels(rows)))


def _channels(rows: Tensor) -> tuple[int, ...]:
    """Without a dimension of examples the first one holds the channels, as in PyTorch's own."""
    held = 2 if rows.dim() - 1 not in (2, 3) or rows.shape[1] == 1 else 1
    return (*rows.shape[1 : 1 + held], *[1] * (rows.dim() - 1 - held))


def _alpha(features: bool) -> Callable[..., Tensor]:
    def alpha_dropout(
        run: "Isolated", input: Tensor, p: float = 0.5, training: bool = False, inplace: bool = False
    ) -> Tensor:
        if not training or p == 0.0:
            return input
        rows = run.rows_first(input)
        if p >= 1:
            return run.wrap(rows * 0.0)
        kept = run.kept(_channels(rows) if features else tuple(rows.shape[1:]), p, rows)
        scale = ((1 - p) * (1 + p * _ALPHA**2)) ** -0.5
        return run.wrap((rows * kept + _ALPHA * (1 - kept)) * scale - scale * _ALPHA * p)

    return alpha_dropout


def _bernoulli(run: "Isolated", input: Tensor, *, generator: object = None, out: None = None) -> Tensor:
    chances = run.rows_first(input)
    draws = run.uniforms(tuple(chances.shape[1:]), chances.device) < chances.detach()
    return run.wrap(draws.to(chances.dtype))


def _like(make: Callable[["Isolated", Tensor], Tensor]) -> Callable[..., Tensor]:
    """Draws in the shape of a tensor, such as torch.rand_like."""

    def draw(run: "Isolated", input: Tensor, **options: Any) -> Tensor:
        one = torch.empty(
            input.shape, dtype=options.get("dtype") or input.dtype, device=options.get("device") or input.device
        )
        return run.wrap(make(run, one))

    return draw


def _of_sizes(make: Callable[["Isolated", Tensor], Tensor]) -> Callable[..., Tensor]:
    """Draws in a given shape, such as torch.rand."""

    def draw(run: "Isolated", *sizes: Any, generator: object = None, **options: Any) -> Tensor:
        options.pop("requires_grad", None)
        return run.wrap(make(run, torch.empty(*sizes, **options)))

    return draw


def _into(make: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Draws that are written into a tensor of rows, such as ``torch.empty_like(x).normal_()``."""

    def draw(run: "Isolated", target: Tensor, *given: Any, generator: object = None, **named: Any) -> Any:
        if not run.is_of_rows(target):
            if run.fresh:
                return NotImplemented
            raise RuntimeError("vmap: inplace draws for each row into a tensor that all share")  # a copy a row is next
        run.rows_first(target).copy_(make(run, target, *given, **named))
        return target

    return draw


def _uniform(run: "Isolated", one: Tensor, low: float = 0.0, high: float = 1.0) -> Tensor:
    return run.uniforms(tuple(one.shape), one.device).mul_(high - low).add_(low).to(one.dtype)


def _normal(run: "Isolated", one: Tensor, mean: float = 0.0, std: float = 1.0) -> Tensor:
    draws: Tensor = torch.special.ndtri(run.uniforms(tuple(one.shape), one.device))
    return draws.mul_(std).add_(mean).to(one.dtype)


def _exponential(run: "Isolated", one: Tensor, lambd: float = 1.0) -> Tensor:
    run.computes(one.numel())  # a logarithm, of which the last few are computed by other code
    return run.uniforms(tuple(one.shape), one.device).log_().div_(-lambd).to(one.dtype)


def _gumbel_softmax(
    run: "Isolated", logits: Tensor, tau: float = 1.0, hard: bool = False, eps: float = 1e-10, dim: int = -1
) -> Any:
    noise = run.wrap(_exponential(run, torch.empty(logits.shape, dtype=logits.dtype, device=logits.device)))
    soft = functional.softmax((logits - noise.log()) / tau, dim)
    if hard:
        top = torch.zeros_like(soft).scatter(dim, soft.argmax(dim, keepdim=True), 1.0)
        soft = top - soft.detach() + soft
    run.computes(logits.numel())
    return run.born(soft)


def _chosen(run: "Isolated", one: Tensor, p: Any = 0.5) -> Any:
    wanted = run.rows_first(p).detach() if isinstance(p, Tensor) else p
    return (run.uniforms(tuple(one.shape), one.device) < wanted).to(one.dtype)


def _normal_around(
    run: "Isolated", mean: Any = 0.0, std: Any = 1.0, size: Any = None, *, generator: object = None, **options: Any
) -> Any:
    """torch.normal: around given numbers, or tensors, in their shape, or in a given one."""
    if size is None:
        like: Tensor = mean + 0 * std
        one = torch.empty(like.shape, dtype=like.dtype, device=like.device)
    else:
        one = torch.empty(size, **options)
    with torch.no_grad():
        return run.born(mean + std * run.wrap(_normal(run, one)))


def _whole(run: "Isolated", one: Tensor, low: int, high: int | None = None) -> Tensor:
    """Whole numbers from low to high - 1, or from 0 to low - 1."""
    low, high = (0, low) if high is None else (low, high)
    return run.uniforms(tuple(one.shape), one.device).mul_(high - low).floor_().add_(low).to(one.dtype)


def _whole_like(run: "Isolated", input: Tensor, *given: int, **named: Any) -> Any:
    bounds = {name: named.pop(name) for name in ("low", "high") if name in named}
    return _like(lambda run, one: _whole(run, one, *given, **bounds))(run, input, **named)


RANDOM_CALLS: dict[Any, Callable[..., Any]] = {
    functional.dropout: _dropout,
    torch.dropout: _dropout,
    **dict.fromkeys((functional.dropout1d, functional.dropout2d, functional.dropout3d), _feature_dropout),
    torch.feature_dropout: _feature_dropout,
    functional.alpha_dropout: _alpha(features=False),
    functional.feature_alpha_dropout: _alpha(features=True),
    torch.bernoulli: _bernoulli,
    torch.rand: _of_sizes(_uniform),
    torch.randn: _of_sizes(_normal),
    torch.rand_like: _like(_uniform),
    torch.randn_like: _like(_normal),
    torch.randint_like: _whole_like,
    torch.normal: _normal_around,
    functional.gumbel_softmax: _gumbel_softmax,
    Tensor.normal_: _into(_normal),
    Tensor.uniform_: _into(_uniform),
    Tensor.exponential_: _into(_exponential),
    Tensor.bernoulli_: _into(_chosen),
}
