"""Bugs of clipping, summing and units (F1, F3, F4, F5, F6, F18)."""

from importlib import import_module

import torch

from tacit.gradients import RecordGroup, before_the_run, random_calls
from tacit.gradients.batches import map_tensors
from tacit.mechanisms.release import GaussianSumMechanism
from tacit.sampling import Microbatches, Users
from tacit.sampling.units import DrawnRows
from tacit.training import private_sum
from tacit.training.private_sum import PrivateSum
from tests.mutants.mutant import Mutant, swap

clipped_sum = import_module("tacit.gradients.clipped_sum")  # the package gives the function of that name
REAL_FACTORS = GaussianSumMechanism.factors
REAL_NORMS = GaussianSumMechanism._group_norms
REAL_RELEASE = PrivateSum.release
REAL_SUM = clipped_sum.clipped_sum
REAL_PARTS = clipped_sum._parts
REAL_TOGETHER = clipped_sum._Summing._add_together


def factors(change):
    """Other factors."""
    return lambda: [swap(GaussianSumMechanism, "factors", lambda self, squares: change(self, squares))]


def norms(change):
    return lambda: [swap(GaussianSumMechanism, "_group_norms", lambda self, squares: change(self, squares))]


def ones(self, squares):
    return torch.ones_like(squares, dtype=torch.float64)


def looser(self, squares):
    return REAL_FACTORS(self, squares / 1.05**2)


def of_the_chunk(self, squares):
    """One factor for all records of a chunk."""
    found = REAL_FACTORS(self, squares)
    return found.min(0).values.expand(found.shape)


def without_guard(self, squares):
    """What is not above the bound passes unclipped, and NaN is not above anything."""
    return torch.where(squares.isnan().any(1, keepdim=True), 1.0, REAL_FACTORS(self, squares))


def largest_vector(self, squares):
    """The norm of the longest vector in place of the norm of all."""
    return [squares[:, columns].double().max(1).values.sqrt() for columns in self._columns]


def without_the_first(self, squares):
    squares = squares.clone()
    squares[:, 0] = 0.0
    return REAL_NORMS(self, squares)


def in_half_precision(self, squares):
    return [(value * 0.9995).half().double() for value in REAL_NORMS(self, squares)]


def squared(self, squares):
    return [value.sqrt() for value in REAL_NORMS(self, squares)]


def mean_of_the_batch(losses, params, batch, mechanism, **options):
    """Clip the mean of the batch instead of every record."""
    count = sum(len(group.places) for group in batch)
    if not count:
        return REAL_SUM(losses, params, batch, mechanism, **options)
    with swap(GaussianSumMechanism, "factors", ones):
        total = REAL_SUM(losses, params, batch, mechanism, **options)
    squares = torch.stack([(v.double() / count).square().sum() for v in total.sums.values()])[None]
    factor = REAL_FACTORS(mechanism, squares)[0]
    sums = {name: value.double() * f for (name, value), f in zip(total.sums.items(), factor, strict=True)}
    return clipped_sum.ClippedSum(sums, total.squared_norms)


def views_as_records(groups, sizes, views):
    if views is not None:
        groups = [
            RecordGroup(map_tensors(lambda tensor: tensor.flatten(0, 1), group.batch), group.places.repeat(views))
            for group in groups
        ]
    return REAL_PARTS(groups, sizes, None)


def first_chunk_only(self, part, chance, some, filled):
    """Clipping lost under accumulation: later chunks are added as they are."""
    if some[0] == 0:
        return REAL_TOGETHER(self, part, chance, some, filled)
    with swap(GaussianSumMechanism, "factors", ones):
        return REAL_TOGETHER(self, part, chance, some, filled)


def realised_divisor(self, sample, params):
    released = REAL_RELEASE(self, sample, params)
    size = len(sample.units)
    return {name: value * self.plan.sampling.denominator / max(1, size) for name, value in released.items()}


def raises_on_nobody(self, sample, params):
    if len(sample.units) < 4:
        raise RuntimeError("too few records")
    return REAL_RELEASE(self, sample, params)


def loud(self, sample, params):
    print("records:", len(sample.units))
    return REAL_RELEASE(self, sample, params)


def rows_of_users(self, drawn, rows, ids):
    found = USERS_ROWS(self, drawn, rows, ids)
    return DrawnRows(found.rows)


USERS_ROWS = Users.rows_of


def public_masks(self, shape, p, like):
    """From PyTorch's own generator, which the user's script may have seeded."""
    return (torch.rand(self.rows, *shape) >= p).to(like)


MUTANTS = [
    Mutant("missing clip", "F3", factors(ones), "audit: replay"),
    Mutant("missing clip, seen by a canary", "F3", factors(ones), "audit: canary"),
    Mutant("clip 5 % too loose", "F6", factors(looser), "audit: replay"),
    Mutant("clip of the batch mean", "F3", lambda: [swap(private_sum, "clipped_sum", mean_of_the_batch)],
           "audit: replay"),
    Mutant("one clip factor for a whole chunk", "F3", factors(of_the_chunk), "audit: replay"),
    Mutant("clip lost after the first chunk", "F3",
           lambda: [swap(clipped_sum._Summing, "_add_together", first_chunk_only)], "audit: replay"),
    Mutant("clip by the longest vector (inf-norm over vectors)", "F6", norms(largest_vector), "audit: replay"),
    Mutant("norm without the first vector", "F6", norms(without_the_first), "audit: replay"),
    Mutant("norms in half precision", "F6", norms(in_half_precision), "audit: replay"),
    Mutant("square root taken twice", "F6", norms(squared), "audit: replay"),
    Mutant("a NaN record poisons the sum", "F5", factors(without_guard), "audit: replay of faults"),
    Mutant("a label out of range stops the run", "F5",
           lambda: [swap(clipped_sum, "is_fault_of_a_record", lambda error: False)], "audit: replay of faults"),
    Mutant("views clipped one by one", "F3", lambda: [swap(clipped_sum, "_parts", views_as_records)],
           "audit: replay of views"),
    Mutant("a user's rows clipped as records", "F18", lambda: [swap(Users, "rows_of", rows_of_users)],
           "audit: replay of units"),
    Mutant("microbatch multiplicity forgotten", "F18", lambda: [swap(Microbatches, "multiplicity", 1)],
           "audit: replay of units"),
    Mutant("realised divisor", "F1", lambda: [swap(PrivateSum, "release", realised_divisor)], "audit: replay"),
    Mutant("a small sample stops the run", "F7", lambda: [swap(PrivateSum, "release", raises_on_nobody)],
           "audit: replay of policies"),
    Mutant("the size of the sample is printed", "F14", lambda: [swap(PrivateSum, "release", loud)], "audit: replay"),
    Mutant("batch normalisation accepted", "F4", lambda: [swap(before_the_run, "_BatchNorm", ()),
           swap(clipped_sum.Isolated, "watched", clipped_sum.Watched.watched)], "test_record_mixing"),
    Mutant("dropout masks from the global seed", "F9", lambda: [swap(random_calls.DrawsOfRows, "kept", public_masks)],
           "masks ignore the global seed"),
]  # fmt: skip
