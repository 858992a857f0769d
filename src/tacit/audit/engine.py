"""Check 7: the engine itself, by the way users take: PrivateGradient, samples and backward, on models of every kind.

Each model is released on D and on D with one record more, with the same randomness and nearly without noise, in several
chunks. So what one record does is seen as it is, and is judged three times:

- the release may move by what the *ledger* was charged for;
- it must move by the record's gradient as plain autograd gives it, alone and in float64, clipped to the ledger's norm;
- the release on D must be the sum of such gradients.

Then losses, models and data sets that try to let one record change the others, chance that a user's seed must not
foretell, samples that must be released once, and the noise of models that are large enough for the kernel's blocks.
"""

import copy
import math
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, pad
from torch.utils.data import default_collate

from tacit.audit.finding import Finding, Trial, described, rejected, turns_errors_into_findings
from tacit.audit.normality import Table, normality_trials, scale_of
from tacit.audit.processes import in_forked_child
from tacit.audit.replay import ROOM, share_of_charge
from tacit.errors import InputError, TacitError
from tacit.gradients.record_gradients import ROUNDING
from tacit.isolation.batches import map_tensors
from tacit.kernels import status
from tacit.ledger import GaussianSumQuery
from tacit.losses import UserLosses
from tacit.mechanisms import ClipLayers, Clipping, ClipRecords, GaussianNoise
from tacit.randomness import Randomness
from tacit.sampling import PoissonSampling
from tacit.training import PrivateGradient, Sample
from tacit.types import Batch, Vectors

RECORDS, CHUNK, CLIP = 20, 8, 0.5
_CLIPPED = ClipRecords(CLIP)
_SEED = 17
_SILENT = 1e-7  # a noise multiplier at which what is released is the sum
_EVERYBODY = PoissonSampling(probability=1.0, expected_size=4.0)  # a power of two, which no sample has as its size
_NOBODY = PoissonSampling(probability=1e-15, expected_size=4.0)
_PRECISION = 2e-5  # of the clip norm: what float32 may do to the gradient of a record of ours; half precision does more
_HALF = 0.05  # the same for models in bfloat16, whose forward pass alone errs by a percent
_DTYPES = (torch.float64, torch.float32, torch.bfloat16)
_LARGE = (130, 140)  # 18,200 entries: above the 16,384 from which on the kernel may use several threads


@dataclass(frozen=True, slots=True)
class Workload:
    """A model, its losses and its records, of which the last few are added to the others, one at a time.

    Args:
        build: makes the model, always the same.
        rows: tensors with a row for each record, or a map-style data set.
        loading: what ``samples`` gets besides: collate_fn, augment, views.
        precision: how far a release may lie from plain autograd's; None if plain autograd would see other chance.
    """

    name: str
    build: Callable[[], nn.Module]
    losses: UserLosses
    rows: Any
    clipping: Clipping = _CLIPPED
    loading: Mapping[str, Any] = field(default_factory=dict)
    precision: float | None = _PRECISION

    def take(self, places: Sequence[int]) -> Any:
        """Some of the records, in the form in which users give them."""
        if isinstance(self.rows, tuple):
            return tuple(column[list(places)] for column in self.rows)
        return [self.rows[place] for place in places]

    def neighbours(self) -> Iterator[list[int]]:
        """The others with one record more, for each that is there to be added."""
        total = len(self.rows[0]) if isinstance(self.rows, tuple) else len(self.rows)
        for added in range(RECORDS, total):
            yield [*range(RECORDS), added]

    def model(self) -> nn.Module:
        with torch.random.fork_rng(devices=[]):
            torch.default_generator.manual_seed(_SEED)
            return self.build()


@dataclass(frozen=True, slots=True)
class Released:
    """What left the engine, as sums in float64; or why it refused to work."""

    sums: Vectors = field(default_factory=dict)
    queries: tuple[GaussianSumQuery, ...] = ()
    rounding: float = 0.0  # the length of what rounding to the parameters' type may have done
    refused: str = ""


Attempt = Callable[[], list[str]]


@turns_errors_into_findings("engine")
def check_engine(
    draws: int = 1_500_000, models: Sequence[Workload] | None = None, attempts: Sequence[Attempt] | None = None
) -> Finding:
    """Every model, every attempt to get around the engine's rules, and the noise of large models (0 draws: without)."""
    models = workloads() if models is None else models
    attempts = ATTEMPTS if attempts is None else attempts
    judged = [judge(workload) for workload in models]
    broke = [sentence for one in judged for sentence in one.broke]
    broke += [sentence for attempt in attempts for sentence in attempt()]
    trials: list[Trial] = []
    measured = [f"{len(models)} models"]
    if judged:
        most, farthest = max(one.moved for one in judged), max(one.off for one in judged)
        measured.append(
            f"largest move {most:.4f} of what was charged for, {farthest:.1e} of the clip norm from autograd"
        )
    if draws:
        tables = {dtype: noise_of_large_model(draws // 3, dtype) for dtype in _DTYPES}
        trials = [trial for dtype, table in tables.items() for trial in _noise_trials(table, dtype)]
        off = max(abs(scale_of(table) - 1) for table in tables.values())
        measured.append(f"noise of {math.prod(_LARGE):,} entries within {off:.2%} of the ledger's")
    return Finding(
        "engine",
        f"{len(models)} models by the public interface, {len(attempts)} attempts, {len(trials)} tests of noise",
        sum(one.releases for one in judged),
        (*dict.fromkeys(broke), *rejected(trials)),
        "; ".join([*measured, status()]),
    )


# ---- one model ----


@dataclass(slots=True)
class Judgement:
    """What is wrong with the releases of a model, and the figures."""

    broke: list[str] = field(default_factory=list)
    moved: float = 0.0
    off: float = 0.0
    releases: int = 0


def judge(workload: Workload) -> Judgement:
    """Add each record in turn and compare with the charge and with plain autograd."""
    found = Judgement()
    base = release(workload, range(RECORDS))
    found.releases += 1
    if base.refused:
        found.broke.append(f"{workload.name}: a sound model was refused: {base.refused}")
        return found
    slack = min(query.slack for query in base.queries)
    if slack < ROUNDING:
        found.broke.append(f"the ledger's slack is {slack:g}, rounding may add {ROUNDING:g} to a record")
    plain = None if workload.precision is None else Plain(workload, base.queries)
    if plain is not None:
        wanted = plain.sum(range(RECORDS))
        _compare(found, workload, f"the release of {RECORDS} records", base.sums, wanted, base.rounding, RECORDS)
    for places in workload.neighbours():
        more = release(workload, places)
        found.releases += 1
        number = f"record {places[-1]}"
        if more.refused:
            found.broke.append(f"{workload.name}: {number} more made the engine refuse: {more.refused}")
            continue
        moves = {name: more.sums[name] - base.sums[name] for name in base.sums}
        room = base.rounding + more.rounding
        share = share_of_charge(moves, base.queries, room)
        found.moved = max(found.moved, share)
        if not share <= 1 + ROOM:
            found.broke.append(f"{workload.name}: {number} moved the release by {share:.7g} of what was charged for")
        if plain is not None:
            _compare(found, workload, f"the move by {number}", moves, plain.clipped(places[-1]), room, 1)
    return found


def _compare(
    found: Judgement, workload: Workload, what: str, got: Vectors, wanted: Vectors, room: float, records: int
) -> None:
    """Equal to plain autograd, up to float32 and the rounding of the release."""
    assert workload.precision is not None
    distance = math.sqrt(sum(float((got[name] - wanted[name]).square().sum()) for name in wanted))
    off = max(0.0, distance - room) / (CLIP * records)
    if workload.precision < _HALF:
        found.off = max(found.off, off)
    if not off <= workload.precision:
        found.broke.append(f"{workload.name}: {what} is {off:.2g} of the clip norm away from the one of plain autograd")


def release(
    workload: Workload,
    places: Sequence[int],
    *,
    randomness: Randomness | None = None,
    chunk: int = CHUNK,
) -> Released:
    """One step on some of the records, all of whom are drawn."""
    model, source = workload.model(), randomness or Randomness.seeded(_SEED)
    try:
        with engine(model, workload.losses, workload.clipping, chunk=chunk, randomness=source) as private:
            for sample in private.samples(workload.take(places), 1, **workload.loading):
                private.backward(sample)
            queries = private.ledger.charges[0].event.queries
    except TacitError as error:
        return Released(refused=described(error))
    gradients = {name: value.grad for name, value in model.named_parameters() if value.grad is not None}
    sums = {name: value.double() * _EVERYBODY.denominator for name, value in gradients.items()}
    rounding = [torch.finfo(value.dtype).eps / 2 * float(sums[name].norm()) for name, value in gradients.items()]
    return Released(sums, queries, math.hypot(*rounding))


@contextmanager
def engine(
    model: nn.Module,
    losses: UserLosses,
    clipping: Clipping = _CLIPPED,
    *,
    sampling: PoissonSampling = _EVERYBODY,
    multiplier: float = _SILENT,
    chunk: int = CHUNK,
    randomness: Randomness | None = None,
) -> Iterator[PrivateGradient]:
    """As a user makes it, with a ledger of its own."""
    with tempfile.TemporaryDirectory() as folder:
        private = PrivateGradient(
            model,
            losses,
            sampling,
            clipping,
            GaussianNoise(multiplier=multiplier),
            ledger=Path(folder) / "ledger.jsonl",
            physical_batch=chunk,
            randomness=randomness,
        )
        with private:
            yield private


class Plain:
    """The gradients of single records by plain autograd, in float64, clipped by what the ledger says."""

    def __init__(self, workload: Workload, queries: Sequence[GaussianSumQuery]) -> None:
        self._workload, self._queries = workload, queries
        half = workload.precision == _HALF  # there the model's own roundings are part of what is trained
        self._model = workload.model() if half else workload.model().double()
        self._half = half

    def sum(self, places: Sequence[int]) -> Vectors:
        found = [self.clipped(place) for place in places]
        return {name: torch.stack([one[name] for one in found]).sum(0) for name in found[0]}

    def clipped(self, place: int) -> Vectors:
        gradient = self._gradient(place)
        for query in self._queries:
            names = list(gradient) if query.group == "all" else query.group.split(",")
            norm = math.sqrt(sum(float(gradient[name].square().sum()) for name in names))
            for name in names:
                gradient[name] = gradient[name] * min(1.0, query.clip_norm / max(norm, 1e-300))
        return gradient

    def _gradient(self, place: int) -> Vectors:
        params = dict(self._model.named_parameters())
        found = torch.autograd.grad(
            self._workload.losses(self._model, self._batch(place)).sum(), list(params.values()), materialize_grads=True,
            allow_unused=True,
        )  # fmt: skip
        return {name: value.double() for name, value in zip(params, found, strict=True)}

    def _batch(self, place: int) -> Batch:
        rows, loading = self._workload.take([place]), self._workload.loading
        batch = rows if isinstance(rows, tuple) else loading.get("collate_fn", default_collate)(rows)
        if self._half:
            return batch
        return map_tensors(lambda tensor: tensor.double() if tensor.is_floating_point() else tensor, batch)


# ---- models ----


def classify(model: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """Cross entropy, louder or softer by a number of the record, so that some are clipped and others are not."""
    inputs, labels, volume = batch
    return volume * cross_entropy(model(inputs).to(volume.dtype), labels, reduction="none")


def predict_next(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    tokens, volume = batch
    outputs = model(tokens[:, :-1]).flatten(0, 1)
    losses = cross_entropy(outputs, tokens[:, 1:].flatten(), reduction="none")
    return volume * losses.view(len(tokens), -1).sum(1)


def sum_of_outputs(model: nn.Module, batch: tuple[Tensor, Tensor]) -> Tensor:
    inputs, volume = batch
    outputs: Tensor = model(inputs)
    return volume * outputs.flatten(1).sum(1)


class Attention(nn.Module):
    """Tokens, self-attention with its norms and its feed-forward part, and a head."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 8)
        self.block = nn.TransformerEncoderLayer(8, 2, 12, dropout=0.0, batch_first=True)
        self.head = nn.Linear(8, 3)

    def forward(self, tokens: Tensor) -> Tensor:
        found: Tensor = self.head(self.block(self.embed(tokens)).mean(1))
        return found


class Recurrent(nn.Module):
    """An LSTM and a GRU, one after the other."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm, self.gru = nn.LSTM(3, 5, batch_first=True), nn.GRU(5, 4, batch_first=True)
        self.head = nn.Linear(4, 3)

    def forward(self, inputs: Tensor) -> Tensor:
        found: Tensor = self.head(self.gru(self.lstm(inputs)[0])[0][:, -1])
        return found


class Tied(nn.Module):
    """The embedding's matrix is the output's too."""

    def __init__(self) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(7, 5), nn.Linear(5, 7)
        self.head.weight = self.embed.weight

    def forward(self, tokens: Tensor) -> Tensor:
        found: Tensor = self.head(self.embed(tokens).tanh())
        return found


class Bag(nn.Module):
    """The mean of token vectors."""

    def __init__(self, head: int = 3) -> None:
        super().__init__()
        self.embed, self.head = nn.Embedding(11, 6), nn.Linear(6, head)

    def forward(self, tokens: Tensor) -> Tensor:
        found: Tensor = self.head(self.embed(tokens).sum(1))
        return found


def _convolutions() -> nn.Module:
    """Weights of 54 and 90 entries: six and two beyond the kernel's vectors of eight."""
    return nn.Sequential(
        nn.Conv2d(2, 3, 3, padding=1), nn.Tanh(), nn.Conv2d(3, 5, (2, 3), stride=2), nn.Tanh(), nn.Flatten(),
        nn.Linear(45, 3),
    )  # fmt: skip


def _group_norm() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 6, 3), nn.GroupNorm(3, 6), nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(24, 3)
    )


def _perceptron(dtype: torch.dtype = torch.float32, sizes: tuple[int, int] = (6, 5)) -> nn.Module:
    return nn.Sequential(nn.Linear(*sizes, dtype=dtype), nn.Tanh(), nn.Linear(sizes[1], 3, dtype=dtype))


def workloads() -> list[Workload]:
    """Models of every kind; the added records are a loud one, a quiet one, and the worst for the layer."""
    images, half = _inputs(2, 6, 7), torch.bfloat16
    series, plain = _inputs(5, 3), _inputs(6)
    plain[-1] = 0.0  # nothing but the bias has a gradient
    tokens, next_tokens = _tokens(9, 11), _tokens(8, 7)
    labels, volume = _labels(), _volumes()
    line = _inputs(1, 1, 9)
    return [
        Workload("convolution", _convolutions, classify, (images, labels, volume)),
        Workload("five weights", lambda: nn.Conv2d(1, 1, (1, 5), bias=False), sum_of_outputs, (line, volume)),
        Workload("group norm", _group_norm, classify, (images, labels, volume)),
        Workload("embedding", Bag, classify, (tokens, labels, volume)),
        Workload("attention", Attention, classify, (tokens, labels, volume)),
        Workload("recurrent", Recurrent, classify, (series, labels, volume)),
        Workload("tied weights", Tied, predict_next, (next_tokens, volume)),
        Workload("linear", _perceptron, classify, (plain, labels, volume)),
        Workload("layers clipped apart", _perceptron, classify, (plain, labels, volume), ClipLayers(CLIP)),
        Workload("large", lambda: _perceptron(sizes=_LARGE), classify, (_inputs(_LARGE[0]), labels, volume)),
        Workload(
            "bfloat16", lambda: _perceptron(half), classify, (plain.to(half), labels, volume), precision=_HALF
        ),
        Workload(
            "worst-case rounding", lambda: nn.Linear(16, 16, bias=False), sum_of_outputs, _worst_rounding(),
            precision=5 * _PRECISION,
        ),
        Workload("data set", lambda: Bag(3), classify, _items(), loading={"collate_fn": _padded}),
        Workload(
            "augmented data set", lambda: nn.Sequential(nn.Dropout(0.3), nn.Linear(6, 3)), classify,
            list(zip(plain, labels, volume, strict=True)), loading={"augment": _centred, "views": 2}, precision=None,
        ),
    ]  # fmt: skip


_ADDED = 3


def _inputs(*shape: int) -> Tensor:
    found = torch.randn(RECORDS + _ADDED, *shape, generator=torch.Generator().manual_seed(3))
    found[RECORDS] *= 3.0  # more would saturate activations, whose gradients float32 does not resolve
    return found


def _labels() -> Tensor:
    return torch.randint(0, 3, (RECORDS + _ADDED,), generator=torch.Generator().manual_seed(4))


def _volumes() -> Tensor:
    """Some records are clipped and some are not; of those that are added the second is not."""
    found = torch.logspace(-3, 2, RECORDS + _ADDED)[torch.arange(RECORDS + _ADDED) * 7 % (RECORDS + _ADDED)]
    found[RECORDS:] = torch.tensor([1e3, 1e-3, 50.0])
    return found


def _tokens(length: int, vocabulary: int) -> Tensor:
    """The last record is one token again and again: its rows add up, which a norm must see."""
    found = torch.randint(0, vocabulary, (RECORDS + _ADDED, length), generator=torch.Generator().manual_seed(5))
    found[-1] = 4
    return found


def _worst_rounding() -> tuple[Tensor, Tensor]:
    """The last record's positions, added in float32, round up at nearly every addition; its norm does not."""
    inputs = torch.zeros(RECORDS + 1, 256, 16)
    inputs[:, 0] = torch.randn(RECORDS + 1, 16, generator=torch.Generator().manual_seed(6))
    inputs[-1] = 1 + 65 * 2.0**-23
    return inputs, torch.ones(RECORDS + 1)


def _items() -> list[tuple[list[int], int, float]]:
    """Texts of many lengths; the last one is far longer than the others."""
    tokens, lengths = _tokens(12, 11).tolist(), [1 + place * 5 % 11 for place in range(RECORDS + _ADDED)]
    tokens[-1], lengths[-1] = [4] * 60, 60
    rows = zip(tokens, lengths, _labels().tolist(), _volumes().tolist(), strict=True)
    return [(text[:length], label, volume) for text, length, label, volume in rows]


def _padded(items: list[tuple[list[int], int, float]]) -> tuple[Tensor, Tensor, Tensor]:
    """Padded to the longest text of the batch, by a token that has a gradient: nobody may see the others' lengths."""
    longest = max(len(text) for text, _, _ in items)
    tokens = torch.stack([pad(torch.tensor(text), (0, longest - len(text)), value=9) for text, _, _ in items])
    return tokens, torch.tensor([label for _, label, _ in items]), torch.tensor([volume for _, _, volume in items])


def _centred(batch: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Less the mean of the batch, which is the record alone, and with chance."""
    inputs, labels, volume = batch
    return inputs - inputs.mean() + 0.1 * torch.randn_like(inputs), labels, volume


# ---- attempts to let one record change the others ----


def _guarded_losses(model: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    """Scaled down together when one of them is large: it does not show on ordinary records."""
    losses = classify(model, batch)
    return losses * (300.0 / losses.detach().max()).clamp(max=1.0)


def _branching(model: nn.Module, batch: tuple[Tensor, Tensor, Tensor]) -> Tensor:
    inputs, labels, volume = batch
    if inputs.abs().max() > 20:
        inputs = inputs - inputs.mean(0)
    return classify(model, (inputs, labels, volume))


class Remembers(nn.Module):
    """Once it has seen a large record it answers all others differently."""

    def __init__(self) -> None:
        super().__init__()
        self.layer, self.was_large = nn.Linear(6, 3), False

    def forward(self, inputs: Tensor) -> Tensor:
        if inputs.abs().max() > 20:
            self.was_large = True
        found: Tensor = self.layer(inputs)
        return 0.01 * found if self.was_large else found


def _mixing() -> list[Workload]:
    inputs, labels, volume = _inputs(6), _labels(), _volumes()
    inputs[RECORDS] *= 20.0
    volume[:RECORDS] = 10.0
    rows = (inputs[:-1], labels[:-1], volume[:-1])
    norm = nn.BatchNorm1d(5, affine=False, track_running_stats=False)
    return [
        Workload("losses scaled by their maximum", _perceptron, _guarded_losses, rows),
        Workload("a branch on the batch", _perceptron, _branching, rows),
        Workload("batch normalisation", lambda: nn.Sequential(nn.Linear(6, 5), norm, nn.Linear(5, 3)), classify, rows),
        Workload("a model that remembers", Remembers, classify, rows),
    ]


def records_apart() -> list[str]:
    """What mixes records is refused, or computed as if each record were alone: then the move is within the charge."""
    broke = []
    for workload in _mixing():
        base = release(workload, range(RECORDS))
        more = release(workload, [RECORDS, *range(RECORDS)])  # in front, where the others come after it
        if base.refused or more.refused:
            continue
        moves = {name: more.sums[name] - base.sums[name] for name in base.sums}
        share = share_of_charge(moves, base.queries, base.rounding + more.rounding)
        if not share <= 1 + ROOM:
            broke.append(f"isolation: {workload.name}: one record moved the release by {share:.4g} of the charge")
    return broke


def chance_is_secret() -> list[str]:
    """Dropout and augmentation: a seed of the user's script must not foretell them, nor change anything."""
    broke = []
    dropout = Workload("dropout", lambda: nn.Sequential(nn.Dropout(0.5), nn.Linear(6, 3)), classify,
                       (_inputs(6), _labels(), _volumes() + 1))  # fmt: skip
    augmented = next(one for one in workloads() if one.loading.get("augment"))
    augmented = replace(augmented, build=lambda: nn.Linear(6, 3))
    for workload in (dropout, augmented):
        with torch.random.fork_rng(devices=[]):
            found = []
            for seed, source in ((0, None), (0, None), (1, 5), (2, 5)):
                torch.default_generator.manual_seed(seed)
                randomness = Randomness() if source is None else Randomness.seeded(source)
                found.append(release(workload, range(RECORDS), randomness=randomness).sums)
        if _near(found[0], found[1]):
            broke.append(
                f"chance: the draws of {workload.name} follow the global seed, which a script may have published"
            )
        if not _near(found[2], found[3]):
            broke.append(f"chance: the draws of {workload.name} do not come from the run's source alone")
    return broke


def _near(one: Vectors, other: Vectors) -> bool:
    return all(bool(torch.allclose(one[name], other[name], rtol=0.0, atol=1e-4)) for name in one) and bool(one)


def released_once() -> list[str]:
    """A second release of a sample, of its copy, by another engine or in another process: none of them is paid for."""
    broke = []
    rows, model, other_model = (_inputs(6), _labels(), _volumes()), _perceptron(), _perceptron()
    with engine(model, classify) as private, engine(other_model, classify) as other:
        first, second = private.samples(rows, 2), other.samples(rows, 1)
        sample = next(first)
        if _is_accepted(other, sample):
            broke.append("releases: a sample that another engine drew was released")
        if in_forked_child(lambda: b"accepted" if _is_accepted(private, sample) else b"refused") != b"refused":
            broke.append("releases: a forked process released its parent's sample: two releases for one charge")
        twin = copy.copy(sample)
        private.backward(sample)
        if _is_accepted(private, sample):
            broke.append("releases: a sample was released twice for one charge")
        if _is_accepted(private, twin):
            broke.append("releases: the copy of a released sample was released again")
        first.close()  # type: ignore[attr-defined]
        second.close()  # type: ignore[attr-defined]
    return broke


def _is_accepted(private: PrivateGradient, sample: Sample) -> bool:
    try:
        private.backward(sample)
    except InputError:
        return False
    return True


ATTEMPTS: tuple[Attempt, ...] = (records_apart, chance_is_secret, released_once)


# ---- noise of large models ----


def noise_of_large_model(draws: int, dtype: torch.dtype) -> Table:
    """Releases on nobody, in units of what the ledger claims: [releases, coordinates]."""
    model = _perceptron(dtype, _LARGE)
    each = sum(value.numel() for value in model.parameters())
    steps = max(12, draws // each)  # so many that no two coordinates are equal by rounding
    rows = []
    with engine(model, classify, sampling=_NOBODY, multiplier=1.0) as private:
        for sample in private.samples(
            (torch.zeros(4, _LARGE[0], dtype=dtype), torch.zeros(4).long(), torch.ones(4)), steps
        ):
            model.zero_grad()
            private.backward(sample)
            parts = [value.grad.double().flatten() for value in model.parameters() if value.grad is not None]
            rows.append(torch.cat(parts))
        (query,) = private.ledger.charges[0].event.queries
    return np.asarray((torch.stack(rows) * _NOBODY.denominator / query.noise_stddev).numpy())


def _noise_trials(table: Table, dtype: torch.dtype) -> list[Trial]:
    found = normality_trials(table)
    # coarse results repeat themselves by rounding, however fine the noise was; whole columns do not
    shown_by_rounding = {torch.float32: ("resolution",), torch.bfloat16: ("resolution", "shape", "beyond")}
    kept = [one for one in found if not one.name.startswith(shown_by_rounding.get(dtype, "-"))]
    twice = table.shape[1] - len({column.tobytes() for column in np.ascontiguousarray(table.T)})
    kept.append(Trial("equal coordinates", 0.0 if twice else 1.0, f"{twice} coordinates have the noise of another one"))
    where = f"{table.shape[1]:,} entries, {str(dtype).partition('.')[2]}"
    return [replace(one, name=f"{one.name} ({where})") for one in kept]
