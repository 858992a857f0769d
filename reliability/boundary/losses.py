"""Losses that look at the batch: what is ordinary without privacy, and lets one record move all others with it."""

import math

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812

import tacit
from reliability.boundary.attack import (
    Loop,
    Then,
    attack,
    classify,
    linear,
    network,
    one_class,
    ordinary,
    other_class,
    outlier,
    seeded,
    squared,
)

# ---- the loss of a record depends on the losses of others ----


@attack("A1")
def loss_guard_by_the_batch_maximum():
    """Outliers must not dominate: scale the losses so that the largest is 5."""
    model = linear(4, 3)

    def losses(model, batch):
        each = classify(model, batch)
        return each * (5 / each.detach().max()).clamp(max=1)

    return Loop(losses, model=model, rows=one_class(), more=other_class(model))


@attack("A1")
def loss_guard_by_the_batch_maximum_with_clip_layers():
    """The same guard where every layer has its own clip."""
    loop = loss_guard_by_the_batch_maximum()
    loop.model = seeded(lambda: nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 3)))
    loop.clipping, loop.more = tacit.ClipLayers(1.0), other_class(loop.model)
    return loop


@attack()
def loss_guard_by_the_median():
    """Robust statistics: divide by the median absolute loss."""

    def losses(model, batch):
        each = squared(model, batch)
        return each / (each.detach().median() + 1e-6)

    return Loop(losses, rows=ordinary(2), model=network())


@attack()
def losses_below_a_quantile_only():
    """Trimmed loss: leave out the largest tenth of the losses."""

    def losses(model, batch):
        each = squared(model, batch)
        return each * (each.detach() <= each.detach().quantile(0.9))

    return Loop(losses, rows=ordinary(9))


@attack("A1")
def hard_example_mining():
    """Learn from the hardest 12 records of the batch only."""

    def losses(model, batch):
        each = squared(model, batch)
        hardest = torch.topk(each.detach(), min(12, len(each))).indices
        return each * torch.zeros_like(each).index_fill(0, hardest, 1.0)

    return Loop(losses, clipping=_normalised())


@attack()
def easy_examples_by_sorting():
    """Curriculum: sort by loss and weigh the easier half."""

    def losses(model, batch):
        each = squared(model, batch)
        rank = each.detach().argsort().argsort()
        return torch.where(rank % 2 == 0, each, -each)

    return Loop(losses, first=True, more=(torch.zeros(1, 4), torch.zeros(1)))


@attack()
def cumulative_sum_over_records():
    """A loss of how much was used up by the records before."""
    return Loop(lambda model, batch: squared(model, batch).cumsum(0), first=True)


@attack()
def losses_centred_by_their_mean():
    """A baseline as in policy gradients: l - l.mean()."""

    def losses(model, batch):
        each = squared(model, batch)
        return each - each.mean()

    return Loop(losses)


@attack()
def losses_times_their_own_advantage():
    """Policy gradient with a detached baseline: the batch's mean says which sign a record has."""

    def losses(model, batch):
        each = squared(model, batch)
        return each * (each.detach() - each.detach().mean())

    return Loop(losses)


@attack()
def the_same_mean_for_everyone():
    """l.mean() for every record, because the shape has to be right."""

    def losses(model, batch):
        each = squared(model, batch)
        return each.mean().expand(len(each))

    return Loop(losses)


@attack()
def contrastive_with_negatives_from_the_batch():
    """SimCLR or CLIP: the other records are the negatives."""

    def losses(model, batch):
        out = model(batch[0])
        return F.cross_entropy(out @ batch[0].T, torch.arange(len(out)), reduction="none")

    return Loop(losses, model=linear(4, 4))


@attack()
def softmax_over_the_batch():
    """Attention weights of the records: softmax in the wrong dimension."""
    return Loop(lambda model, batch: squared(model, batch) * (3 * batch[0][:, 0]).softmax(0) * 100)


@attack()
def loss_divided_by_the_number_of_records():
    """reduction='mean' by hand: divide by len(batch)."""
    return Loop(lambda model, batch: squared(model, batch) * 24 / len(batch[0]) ** 2)


@attack()
def pairwise_ranking_loss():
    """Every record must score above those with a smaller target."""

    def losses(model, batch):
        out = model(batch[0])[:, 0]
        better = (batch[1][:, None] > batch[1][None]).float()
        return (better * F.softplus(out[None] - out[:, None])).sum(1)

    return Loop(losses)


@attack()
def gradient_penalty_of_the_summed_outputs():
    """WGAN-GP: torch.autograd.grad of the outputs inside the loss, its norm taken over the whole batch."""

    def losses(model, batch):
        x = batch[0].clone().requires_grad_()
        (slope,) = torch.autograd.grad(model(x).sum(), x, create_graph=True)
        return squared(model, batch) / (1 + slope.norm() * batch[0].detach().norm())

    return Loop(losses, model=network())


@attack()
def inner_func_grad_of_the_batch_loss():
    """One inner step as in meta-learning: torch.func.grad of the batch's mean loss."""

    def losses(model, batch):
        def inner(shift):
            return (model(batch[0] + shift)[:, 0] - batch[1]).square().mean()

        shift = torch.func.grad(inner)(torch.zeros(4))
        return squared(model, (batch[0] - 10 * shift, batch[1]))

    return Loop(losses, model=network())


@attack()
def inner_vmap_that_sees_its_neighbours():
    """torch.func.vmap over records inside the loss, with the whole batch in its closure."""

    def losses(model, batch):
        x, y = batch

        def one(row, target):
            return (model(row - x.mean(0))[0] - target).square()

        return torch.func.vmap(one)(x, y)

    return Loop(losses)


# ---- the input of a record depends on the inputs of others ----


@attack("A1")
def inputs_scaled_by_a_clamped_batch_maximum():
    """Keep inputs in range: divide by the largest absolute value, where it is above 20."""

    def losses(model, batch):
        return classify(model, (batch[0] / (batch[0].abs().max() / 20).clamp(min=1), batch[1]))

    model = seeded(lambda: nn.Linear(4, 3, bias=False))
    return Loop(losses, model=model, rows=(one_class()[0] + 2, one_class()[1]), more=other_class(model))


@attack()
def inputs_normalised_by_the_batch():
    """Batch normalisation by hand."""
    return Loop(model=Then(lambda x: (x - x.mean(0)) / (x.std(0, unbiased=False) + 1e-3)))


@attack("A1")
def sorted_by_length_and_back():
    """Sort by length in buckets of 50 for speed and undo it, with a slip: the order and not its inverse."""

    def losses(model, batch):
        order = (batch[0].abs().sum(1) // 50).argsort(stable=True)
        out = model(batch[0][order])[:, 0]
        return (out[order] - batch[1]).square()

    return Loop(losses, rows=_along_the_inputs(), first=True)


@attack()
def rolled_by_one_record():
    """Negative samples: the inputs of the record before."""
    return Loop(model=Then(lambda x: x - torch.roll(x, 1, 0).sign() * 5))


@attack()
def mixup_inside_the_loss():
    """Mixup: each record is blended with its mirror image in the batch."""

    def losses(model, batch):
        return squared(model, (0.5 * batch[0] + 0.5 * batch[0].flip(0), 0.5 * batch[1] - 0.5 * batch[1].flip(0)))

    return Loop(losses)


@attack("A1")
def experts_with_capacity():
    """A mixture of experts in which each expert takes the first 6 records only."""

    def losses(model, batch):
        expert = (batch[0][:, 0] > 0).long()
        place = F.one_hot(expert, 2).cumsum(0).gather(1, expert[:, None])[:, 0]
        return squared(model, batch) * (place <= 6).float() * (1 - 2 * expert.float())

    return Loop(losses, first=True)


# ---- a branch of Python on the batch ----


@attack("A1")
def python_branch_on_the_batch():
    """Centre the batch if something in it is large."""

    def losses(model, batch):
        x, y = batch
        if x.abs().max() > 20:
            x, y = x - x.mean(0), y - 2 * y.mean()
        return squared(model, (x, y))

    return Loop(losses)


def _by_a_number(read):
    """A factor from a statistic of the batch that has become a Python number."""

    def losses(model, batch):
        return squared(model, batch) * (-1.0 if read(batch[0]) > 20 else 1.0)

    return Loop(losses)


@attack()
def branch_by_item():
    """.item() of the batch's maximum."""
    return _by_a_number(lambda x: x.abs().max().item())


@attack()
def branch_by_float():
    """float() of the batch's maximum."""
    return _by_a_number(lambda x: float(x.abs().max()))


@attack()
def branch_by_int():
    """int() of the batch's maximum."""
    return _by_a_number(lambda x: int(x.abs().max()))


def _signed(ask) -> Loop:
    """A column of zeros, of which one is negative: equal numbers, and not the same."""
    x, y = ordinary()
    x[:, 0] = 0.0
    more = outlier()
    more[0][:, 0] = -0.0

    def losses(model, batch):
        return torch.tensor([ask(value) for value in batch[0][:, 0]]) * model(batch[0])[:, 0]

    return Loop(losses, rows=(x, y), more=more, first=True, alive=True)


@attack()
def the_sign_of_a_zero():
    """math.copysign of a number: the first record's -0.0 must not answer for the others' 0.0."""
    return _signed(lambda value: math.copysign(1.0, value.item()))


@attack()
def the_angle_of_a_zero():
    """math.atan2, which is 0 or pi."""
    return _signed(lambda value: math.cos(math.atan2(0.0, value)))


@attack()
def branch_by_any():
    """bool() of (x > 20).any()."""
    return _by_a_number(lambda x: 100 if (x > 20).any() else 0)


@attack()
def branch_by_number_of_nonzeros():
    """How many entries are large: len(nonzero())."""
    return _by_a_number(lambda x: 100 * len((x > 20).nonzero()))


@attack()
def branch_by_tolist():
    """max() of Python over .tolist()."""
    return _by_a_number(lambda x: max(x.flatten().tolist()))


@attack()
def branch_by_numpy():
    """.numpy().max(), because it prints nicer."""
    return _by_a_number(lambda x: x.detach().numpy().max())


@attack()
def branch_by_text():
    """Read from the printed tensor."""
    return _by_a_number(lambda x: 100 if "e+" in repr(x * 1e4 * (x > 20)) else 0)


@attack()
def branch_by_boolean_indexing():
    """x[x > 20].numel(): a shape that depends on values."""
    return _by_a_number(lambda x: 100 * x[x > 20].numel())


@attack()
def branch_by_unique():
    """The number of different values."""
    return _by_a_number(lambda x: 100 * (len(torch.unique(x > 20)) > 1))


@attack()
def branch_by_a_loop_over_rows():
    """for row in x: Python's max over records."""
    return _by_a_number(lambda x: max(float(row.abs().max()) for row in x))


@attack()
def branch_on_the_number_of_records():
    """Large batches get a smaller loss, as in linear scaling of the learning rate: if len(x) > 24."""

    def losses(model, batch):
        return squared(model, batch) * (0.01 if len(batch[0]) > 24 else 1.0)

    return Loop(losses)


@attack()
def try_around_item():
    """Works on batches too: try .item(), except: go on with a default."""

    def losses(model, batch):
        try:
            factor = -1.0 if batch[0].abs().max().item() > 20 else 1.0
        except Exception:
            factor = float((batch[0].detach().abs().sum() > -1).all())
        return squared(model, batch) * factor

    return Loop(losses)


@attack()
def try_bare_around_a_branch():
    """A bare except around everything, with the batch's other half as fall-back."""

    def losses(model, batch):
        try:
            large = bool(batch[0].abs().max() > 20)
        except BaseException:
            large = True
        return squared(model, batch) * (-1.0 if large else 1.0)

    return Loop(losses)


@attack()
def exception_as_an_answer():
    """Validation by assert, and the message decides what happens next."""

    def losses(model, batch):
        try:
            assert batch[0].abs().max() < 20, "too large"
        except AssertionError:
            return -squared(model, batch)
        return squared(model, batch)

    return Loop(losses)


@attack()
def torch_where_on_a_batch_statistic():
    """No branch of Python at all: torch.where on the batch's maximum."""

    def losses(model, batch):
        each = squared(model, batch)
        return torch.where(batch[0].abs().max() > 20, -each, each)

    return Loop(losses)


@attack()
def torch_cond_on_a_batch_statistic():
    """torch.cond on the batch's maximum."""

    def losses(model, batch):
        each = squared(model, batch)
        return torch.cond(batch[0].abs().max() > 20, lambda e: -e, lambda e: e.clone(), (each,))

    return Loop(losses)


# ---- what is written ----


@attack()
def inputs_changed_in_place():
    """x.mul_(2) and centring in place save memory."""

    def losses(model, batch):
        x = batch[0]
        x.sub_(x.mean(0))
        return squared(model, (x, batch[1]))

    return Loop(losses, steps=2)


@attack()
def targets_changed_in_place():
    """Label smoothing in place, towards the batch's mean."""

    def losses(model, batch):
        batch[1].mul_(0.1).add_(0.9 * batch[1].mean())
        return squared(model, batch)

    return Loop(losses, more=(outlier()[0], torch.tensor([-1e5])))


@attack()
def zeros_filled_with_rows_of_the_batch():
    """Collect per-record values in a fresh tensor, then use their maximum."""

    def losses(model, batch):
        sizes = torch.zeros(len(batch[0]))
        for row in range(len(batch[0])):
            sizes[row] = batch[0][row].abs().max()
        return squared(model, batch) * torch.where(sizes.max() > 20, -1.0, 1.0)

    return Loop(losses)


@attack()
def losses_of_the_wrong_shape():
    """One number for the batch instead of one per record."""
    return Loop(lambda model, batch: squared(model, batch).sum().reshape(1))


@attack()
def losses_per_token_instead_of_per_record():
    """A loss for every output: [records, outputs]."""
    return Loop(lambda model, batch: model(batch[0]).square())


@attack()
def multi_task_weights_from_the_batch():
    """Balance two losses by their batch means."""

    def losses(model, batch):
        fit, small = squared(model, batch), model(batch[0])[:, 0].square()
        return fit - small * (fit.detach().mean() / small.detach().mean())

    return Loop(losses)


@attack()
def class_weights_from_the_batch():
    """Rare classes weigh more: weights from the counts of this batch."""

    def losses(model, batch):
        labels = (batch[1] > 0).long()
        weight = 1 - 2 * (torch.bincount(labels, minlength=2) % 2).float()
        return squared(model, batch) * weight[labels]

    return Loop(losses, more=(outlier()[0], torch.tensor([5.0])))


@attack()
def debug_unwrap_of_the_inputs():
    """torch.func.debug_unwrap, left over from debugging: the statistics of what is really there."""

    def losses(model, batch):
        x = batch[0]
        for _ in range(3):
            x = torch.func.debug_unwrap(x)
        return squared(model, batch) * (-1.0 if float(x.abs().max()) > 20 else 1.0)

    return Loop(losses)


@attack()
def norm_of_the_batch_under_no_grad():
    """with torch.no_grad(): a scale from the whole batch."""

    def losses(model, batch):
        with torch.no_grad():
            scale = torch.linalg.vector_norm(batch[0])
        return squared(model, (batch[0] / scale, batch[1])) - squared(model, batch) / (1 + scale)

    return Loop(losses)


def _along_the_inputs():
    """Targets that follow the inputs: gradients that shrink when the inputs do, or turn when records change places."""
    x = torch.eye(4).repeat(6, 1) * 3
    return x, 10 * (x[:, 0] - x[:, 2]) + 10 * (x[:, 1] - x[:, 3])


def _normalised():
    return tacit.ClipRecords(1.0, rule="normalise")
