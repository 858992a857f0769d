"""Bugs of clipping, summing and units (F1, F3, F4, F5, F6, F18)."""

from importlib import import_module
from unittest.mock import patch

import numpy as np
import torch
from torch.utils.data import default_collate

from tacit.gradients import bookkeeping, computing
from tacit.isolation import StateGuard, chance
from tacit.layers import record_gradients, unsuitable
from tacit.losses import RecordGroup, map_tensors, take_records
from tacit.mechanisms.gaussian_sum import GaussianSumMechanism
from tacit.sampling import Microbatches, Users
from tacit.sampling.units import DrawnRows
from tacit.training import before_the_run, private_sum
from tacit.training.private_sum import PrivateSum
from tacit.training.reading import source
from tacit.training.reading.items import Found, Items
from tests.mutants.mutant import Mutant, swap

clipped_sum = import_module("tacit.gradients.clipped_sum")  # the package gives the function of that name
embedding = import_module("tacit.layers.embedding")
SQUARING = [record_gradients, embedding, import_module("tacit.layers.convolution")]
REAL_FACTORS = GaussianSumMechanism.factors
REAL_NORMS = GaussianSumMechanism._group_norms
REAL_RELEASE = PrivateSum.release
REAL_SUM = clipped_sum.clipped_sum
REAL_PARTS = clipped_sum.parts_of
REAL_ADD = clipped_sum._Summing._add
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
    return [value.half().double() for value in REAL_NORMS(self, squares)]


def squares_in_half_precision(rows):
    """Squares of single entries are rounded to half precision before they are added up."""
    return rows.reshape(len(rows), -1).half().square().sum(1).double()


def without_biases(self, squares):
    squares = squares.clone()
    squares[:, [name.endswith("bias") for name in self.shapes]] = 0.0
    return REAL_NORMS(self, squares)


def first_group_only(self, squares):
    """The other groups pass unclipped."""
    found = REAL_FACTORS(self, squares).clone()
    for columns in self._columns[1:]:
        found[:, columns] = 1.0
    return found


def one_chunk_one_clip(self, gradients, units, held):
    """The sum of a chunk is clipped in place of its records."""
    before = {name: value.clone() for name, value in self.sums.items()}
    with swap(GaussianSumMechanism, "factors", ones):
        REAL_ADD(self, gradients, units, held)
    squares = torch.stack([(self.sums[name] - before[name]).square().sum() for name in self.mechanism.shapes])[None]
    for (name, value), factor in zip(before.items(), REAL_FACTORS(self.mechanism, squares)[0], strict=True):
        self.sums[name] = value + (self.sums[name] - value) * factor


def unmerged(self):
    """A token's rows as if each stood alone."""
    return record_gradients.row_squares(self.g)


def raw_batch(losses, params, batch, mechanism, **options):
    """The losses see whole chunks, as if the user had declared them trusted."""
    return REAL_SUM(losses, params, batch, mechanism, **{**options, "isolation": "trusted"})


def over_all_rows(run, input, *statistics, **options):
    """Batch normalisation over all rows, which are there for the taking beneath vmap."""
    rows = run.rows_first(input)
    return run.wrap((rows - rows.mean((0, 1))) / (rows.var((0, 1), unbiased=False) + 1e-5).sqrt())


def whole_batch(function, batch, chance):
    with torch.no_grad():
        return function(batch)


def collated_together(self, asked):
    """collate_fn is called with all items of the sample, as a loader does."""
    items = [self.rows[row] for row, _ in asked]
    return Found([RecordGroup((self.collate or default_collate)(items), np.arange(len(items)))], len(items))


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


def drawn_from_the_global_seed(function, batch, chance):
    """Each record alone, but the chance is PyTorch's own."""
    with torch.no_grad():
        found = [function(take_records(batch, slice(i, i + 1))) for i in range(chance.records)]
    columns = [torch.cat(parts) for parts in zip(*found, strict=True)]
    return tuple(columns)


def public_masks(self, shape, p, like):
    """From the seed of PyTorch's own generator, which the user's script may have set and published."""
    draws = np.random.default_rng(torch.initial_seed()).random((self.rows, *shape))
    return torch.from_numpy(draws >= p).to(like)


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
    Mutant("norms in half precision", "F6", norms(in_half_precision),
           "audit: engine, linear", "away from the one of plain autograd"),
    Mutant("squares in half precision", "F6", lambda: [
        swap(module, "row_squares", squares_in_half_precision) for module in SQUARING],
        "audit: engine, linear", "away from the one of plain autograd"),
    Mutant("norm without the biases", "F6", norms(without_biases), "audit: engine, linear", "moved the release by"),
    Mutant("norm without the biases, replayed", "F6", norms(without_biases), "audit: replay", "moved by more than"),
    Mutant("one group only is clipped", "F6", factors(first_group_only),
           "audit: engine, linear", "moved the release by"),
    Mutant("the sum of a chunk is clipped", "F3", lambda: [swap(clipped_sum._Summing, "_add", one_chunk_one_clip)],
           "audit: engine, linear", "the release of 20 records is"),
    Mutant("an embedding's norm unmerged", "F6", lambda: [swap(embedding.TokenRows, "squared_norms", unmerged)],
           "audit: engine, embedding", "moved the release by"),
    Mutant("isolation bypassed: losses run on the raw batch", "F4", lambda: [
        swap(private_sum, "clipped_sum", raw_batch)],
           "audit: engine, records apart", "a branch on the batch: one record moved"),
    Mutant("isolation lets a batch statistic through", "F4", lambda: [
        swap(unsuitable, "_BatchNorm", ()), swap(before_the_run, "_refuse_statistics", lambda *arguments: None),
        patch.dict(bookkeeping.RULE_OF_FUNCTION, {torch.nn.functional.batch_norm: over_all_rows})],
           "audit: engine, records apart", "batch normalisation: one record moved"),
    Mutant("state outlives a call", "F4", lambda: [swap(StateGuard, "put_back", lambda self: []),
           swap(clipped_sum.Again, "compare", lambda self: None)],
           "audit: engine, records apart", "a model that remembers: one record moved"),
    Mutant("collate_fn sees the whole sample", "F4", lambda: [swap(Items, "_fetch", collated_together)],
           "audit: engine, data", "data set: record"),
    Mutant("augment sees the whole sample", "F4", lambda: [swap(source, "map_records", whole_batch)],
           "audit: engine, data", "augmented data set: record"),
    Mutant("square root taken twice", "F6", norms(squared), "audit: replay"),
    Mutant("a NaN record poisons the sum", "F5", factors(without_guard), "audit: replay of faults"),
    Mutant("a label out of range stops the run", "F5",
           lambda: [swap(clipped_sum, "is_fault_of_a_record", lambda error: False)], "audit: replay of faults"),
    Mutant("views clipped one by one", "F3", lambda: [swap(clipped_sum, "parts_of", views_as_records)],
           "audit: replay of views"),
    Mutant("a user's rows clipped as records", "F18", lambda: [swap(Users, "rows_of", rows_of_users)],
           "audit: replay of units"),
    Mutant("microbatch multiplicity forgotten", "F18", lambda: [swap(Microbatches, "multiplicity", 1)],
           "audit: replay of units"),
    Mutant("realised divisor", "F1", lambda: [swap(PrivateSum, "release", realised_divisor)],
           "audit: replay", "moved by more than"),
    Mutant("a small sample stops the run", "F7", lambda: [swap(PrivateSum, "release", raises_on_nobody)],
           "audit: replay of policies"),
    Mutant("the size of the sample is printed", "F14", lambda: [swap(PrivateSum, "release", loud)], "audit: replay"),
    Mutant("batch normalisation accepted", "F4", lambda: [swap(unsuitable, "_BatchNorm", ()),
           swap(computing.ForwardPass, "__torch_function__", computing.Watched.__torch_function__)],
           "test_record_mixing"),
    Mutant("dropout masks from the global seed", "F9", lambda: [
        swap(chance.DrawsOfRows, "kept", public_masks),
        swap(computing, "seed_everything", lambda seed: None)],
           "audit: engine, chance", "draws of dropout follow the global seed"),
    Mutant("augmentation from the global seed", "F9", lambda: [
        swap(source, "map_records", drawn_from_the_global_seed)], "audit: engine, chance", "follow the global seed"),
]  # fmt: skip
