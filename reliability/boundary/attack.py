"""What an attack is, and how it is judged: the same private loop on D and on D with one record more.

An attack is a function that builds everything anew, model, losses, caches, data, and returns a :class:`Loop`; it is
called once for each of the two data sets, so that nothing is carried over between them but what the library carries.
Where a loop cannot say it (forks, copies, threads), the function runs by itself and returns an :class:`Outcome`.
"""

import contextlib
import json
import math
import os
import random
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MemberDescriptorType
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

import tacit
from tacit.errors import TacitError

ROOM = 1e-6  # for the measurement itself
SEED = 11
ATTACKS: dict[str, "Attack"] = {}

Rows = Any  # a tuple of tensors, or a list of items


@dataclass(frozen=True, slots=True)
class Outcome:
    """How an attack ended. ``moved`` is the largest move of a release over what was charged: 1 is the promise."""

    kind: Literal["moves", "refused", "leaked", "broke"]
    words: str = ""
    moved: float = 0.0
    must_run: bool = False

    @property
    def holds(self) -> bool:
        if self.kind == "moves":
            return self.moved <= 1 + ROOM
        return self.kind == "refused" and not self.must_run

    def __str__(self) -> str:
        return f"moves {self.moved:.4f}" if self.kind == "moves" else f"{self.kind}: {self.words}"


@dataclass(frozen=True, slots=True)
class Attack:
    """One way to break the promise. ``finding`` is where it was first seen: A1 to B2, or "own".

    ``limit`` says why nothing from inside the process can stand against it; the page of pitfalls says so to users.
    """

    name: str
    finding: str
    build: Callable[[], "Loop | Outcome"]
    row: str
    slow: bool
    apart: bool
    limit: str = ""

    def run(self) -> Outcome:
        return in_own_process(self.name) if self.apart else self.run_here()

    def run_here(self) -> Outcome:
        with ordinary_process():
            try:
                return self._judged()
            except TacitError as error:
                return refusal(error)
            except Exception as error:
                return Outcome("broke", f"{type(error).__name__}: {one_line(error)}")

    def control(self) -> Outcome | None:
        """The same on D and on D again: what moves then is no record. None where there is no loop."""
        if self.apart:
            return None
        with ordinary_process():
            public_seeds()
            first = self.build()
            if isinstance(first, Outcome):
                return None
            one = first.run(with_record=False)
            public_seeds()
            second = self.build()
            assert isinstance(second, Loop)
            return compare(one, second.run(with_record=False), replace(first, alive=False))

    def _judged(self) -> Outcome:
        public_seeds()
        first = self.build()
        if isinstance(first, Outcome):
            return first
        one = first.run(with_record=False)
        public_seeds()
        second = self.build()
        assert isinstance(second, Loop)
        return compare(one, second.run(with_record=True), first)


def attack(
    finding: str = "own", *, row: str = "F4", slow: bool = False, apart: bool = False, limit: str = ""
) -> Callable[[Callable[[], "Loop | Outcome"]], Callable[[], "Loop | Outcome"]]:
    """Enter a function among the attacks, under its own name; ``apart`` runs it in a process of its own."""

    def enter(build: Callable[[], Loop | Outcome]) -> Callable[[], Loop | Outcome]:
        name = build.__name__.replace("_", " ")
        assert name not in ATTACKS, name
        ATTACKS[name] = Attack(name, finding, build, row, slow, apart, limit)
        return build

    return enter


# ---- an ordinary model, ordinary data and one record that is out of the ordinary ----


def linear(inputs: int = 4, outputs: int = 1) -> nn.Module:
    return seeded(lambda: nn.Linear(inputs, outputs))


def network() -> nn.Module:
    return seeded(lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1)))


def seeded(make: Callable[[], Any]) -> Any:
    """Initial weights are public and the same in both runs."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        return make()


def ordinary(records: int = 24, *shape: int, low: float = 3.0) -> tuple[Tensor, Tensor]:
    """Records whose gradients point the same way, so that what happens to all of them adds up."""
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(records, *(shape or (4,)), generator=generator) * 0.5
    return x, low + 0.1 * torch.randn(records, generator=generator)


def outlier(*shape: int) -> tuple[Tensor, Tensor]:
    size = shape or (4,)
    x = torch.linspace(40.0, 70.0, math.prod(size)).reshape(1, *size)
    return x, torch.tensor([-5.0])


def squared(model: nn.Module, batch: Any) -> Tensor:
    return (model(batch[0]).flatten(1)[:, 0] - batch[1]).square()


def classify(model: nn.Module, batch: Any) -> Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="none")


def one_class(records: int = 24) -> tuple[Tensor, Tensor]:
    """Records of one class among three, so that their gradients add up."""
    return ordinary(records)[0], torch.zeros(records, dtype=torch.long)


def other_class(model: nn.Module) -> tuple[Tensor, Tensor]:
    """A large record of the class that the model finds least likely."""
    x = outlier()[0] * 100
    return x, model(x).argmin(1)


def tokens(records: int = 24, length: int = 6) -> tuple[Tensor, Tensor]:
    """Words 0 to 9, labels 0 and 1."""
    generator = torch.Generator().manual_seed(3)
    return torch.randint(0, 10, (records, length), generator=generator), torch.zeros(records)


def rare_token(length: int = 6) -> tuple[Tensor, Tensor]:
    return torch.full((1, length), 15), torch.tensor([1.0])


class Then(nn.Module):
    """A function of the inputs, then a layer: where users put what they do to a batch."""

    def __init__(self, function: Callable[[Tensor], Tensor], inputs: int = 4) -> None:
        super().__init__()
        self.function = function
        self.layer = linear(inputs)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(self.function(x))


class Items(torch.utils.data.Dataset):
    """A map-style data set whose items are made by a function of the row."""

    def __init__(self, rows: Rows, item: Callable[[int, Any], Any] = lambda index, row: row) -> None:
        self.rows = [*zip(*rows, strict=True)] if isinstance(rows, tuple) else rows
        self.item = item

    def __len__(self) -> int:
        return len(self.rows)

    def __getitem__(self, index: int) -> Any:
        return self.item(index, self.rows[index])


# ---- the loop ----


@dataclass
class Loop:
    """A private training loop of a few steps at public weights, on D or on D and one record more.

    Args:
        rows, more: D and the record; ``first`` puts it in front, ``drop`` takes the first row away instead.
        dataset: makes the user's data set of the rows.
        samples: further arguments of ``PrivateGradient.samples``; a callable gets the rows.
        before: called with the step before each release, for what users do between steps.
        alive: the record has a gradient: a release that it does not move is one that was lost; "each": every parameter.
        must_run: a refusal breaks the promise too.
    """

    losses: Callable[[nn.Module, Any], Tensor] = squared
    model: nn.Module = field(default_factory=linear)
    rows: Rows = field(default_factory=ordinary)
    more: Rows = field(default_factory=outlier)
    first: bool = False
    drop: bool = False
    dataset: Callable[[Rows], Any] = lambda rows: rows
    samples: Mapping[str, Any] | Callable[[Rows], Mapping[str, Any]] = field(default_factory=dict)
    steps: int = 1
    clipping: Any = field(default_factory=lambda: tacit.ClipRecords(1.0))
    noise: Any = field(default_factory=lambda: tacit.GaussianNoise(multiplier=1.0))
    unit: Any = field(default_factory=tacit.Records)
    physical_batch: int = 256
    before: Callable[[int], None] | None = None
    alive: bool | Literal["each"] = False
    must_run: bool = False

    @property
    def denominator(self) -> int:
        return size(self.rows)

    def run(self, with_record: bool) -> "Trace":
        rows = neighbour(self) if with_record else self.rows
        more = self.samples(rows) if callable(self.samples) else self.samples
        trace = Trace(self.model)
        with ledger_path() as path:
            try:
                self._release(rows, more, path, trace)
            except TacitError as error:
                trace.ended = refusal(error)
            except Exception as error:
                trace.ended = Outcome("broke", f"{type(error).__name__}: {one_line(error)}")
        trace.keep_state()
        return trace

    def _release(self, rows: Rows, more: Mapping[str, Any], path: Path, trace: "Trace") -> None:
        sampling = tacit.PoissonSampling(1.0, self.denominator)
        with tacit.PrivateGradient(
            self.model,
            self.losses,
            sampling,
            self.clipping,
            self.noise,
            ledger=path,
            unit=self.unit,
            physical_batch=self.physical_batch,
            randomness=tacit.Randomness.seeded(SEED),
        ) as private:
            for step, sample in enumerate(private.samples(self.dataset(rows), self.steps, **more)):
                if self.before is not None:
                    self.before(step)
                self.model.zero_grad()
                private.backward(sample)
                trace.keep(self.model)
            trace.queries = [c.event.queries for c in private.ledger.charges for _ in range(c.steps)]


def size(rows: Rows) -> int:
    return len(rows[0]) if isinstance(rows, tuple) else len(rows)


def neighbour(loop: Loop) -> Rows:
    if loop.drop:
        return tuple(part[1:] for part in loop.rows) if isinstance(loop.rows, tuple) else loop.rows[1:]
    pair = (loop.more, loop.rows) if loop.first else (loop.rows, loop.more)
    if isinstance(loop.rows, tuple):
        return tuple(torch.cat(parts) for parts in zip(*pair, strict=True))
    return [*pair[0], *pair[1]]


# ---- what left, and how far it moved ----


@dataclass
class Trace:
    """What left one run: releases, what was charged for them, and the state of the user's module afterwards."""

    model: nn.Module
    released: list[dict[str, Tensor]] = field(default_factory=list)
    queries: list[Any] = field(default_factory=list)
    state: dict[str, Any] = field(default_factory=dict)
    ended: Outcome | None = None

    def keep(self, model: nn.Module) -> None:
        trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        without = [name for name, p in trained.items() if p.grad is None]
        if without and self.ended is None:
            self.ended = Outcome("broke", f"{without[0]} requires a gradient and got none, without a word")
        self.released.append({name: p.grad.detach().clone() for name, p in trained.items() if p.grad is not None})

    def keep_state(self) -> None:
        """Everything of the module but .grad: parameters, buffers, attributes, also those of its classes."""
        for path, module in self.model.named_modules():
            prefix = f"{path}." if path else ""
            holders = [vars(module), *(vars(kind) for kind in type(module).__mro__ if _is_users(kind))]
            held = {name: value for kind in type(module).__mro__ for name, value in vars(kind).items()}
            slots = [name for name, value in held.items() if isinstance(value, MemberDescriptorType)]
            holders.append({name: getattr(module, name, None) for name in slots})
            holders += [module._parameters, module._buffers]
            for holder in holders:
                for name, value in [*holder.items()]:
                    plain = _plain(value)
                    if plain is not None and not name.startswith(("__", "_torchdynamo")) and name not in _OWN:
                        self.state[prefix + name] = plain


_OWN = {"_parameters", "_buffers", "_modules"}  # looked at one by one


def _is_users(kind: type) -> bool:
    return kind.__module__.startswith("reliability.")


def _plain(value: Any) -> Any:
    """A value that can be compared, or None for what cannot: functions, modules, generators."""
    if isinstance(value, Tensor):
        if value.is_sparse or value.is_nested or torch._C._functorch.is_batchedtensor(value):
            return f"a {type(value).__name__} of another kind"
        return value.detach().clone()
    if isinstance(value, np.ndarray):
        return torch.from_numpy(value.copy())
    if isinstance(value, bool | int | float | str | complex):
        return value
    if isinstance(value, list | tuple | set | frozenset):
        return [plain for item in value if (plain := _plain(item)) is not None]
    if isinstance(value, dict) and value and all(isinstance(key, str | int) for key in value):
        return {key: plain for key, item in value.items() if (plain := _plain(item)) is not None}
    return None


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.shape == other.shape and bool(torch.equal(one.nan_to_num(7), other.nan_to_num(7)))
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(_same(a, b) for a, b in zip(one, other, strict=True))
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    return type(one) is type(other) and bool(one == other)


def compare(one: Trace, other: Trace, loop: Loop) -> Outcome:
    """The worst of: an error, a state that differs, a release that is none, and the largest move."""
    found = _compared(one, other, loop)
    return Outcome(found.kind, found.words, found.moved, must_run=loop.must_run)


def _compared(one: Trace, other: Trace, loop: Loop) -> Outcome:
    differs = [name for name in sorted(one.state.keys() | other.state.keys())
               if not _same(one.state.get(name), other.state.get(name))]  # fmt: skip
    pairs = [*zip(one.released, other.released, one.queries or other.queries, strict=False)]
    numbers = all(bool(torch.isfinite(v).all()) for pair in pairs for side in pair[:2] for v in side.values())
    moved = max((share(*pair, loop.denominator) for pair in pairs), default=0.0) if numbers else math.nan
    ended = one.ended or other.ended
    if not numbers:
        return Outcome("broke", "a release is not finite")
    if moved > 1 + ROOM:
        return Outcome("moves", moved=moved)
    if differs:
        return Outcome("leaked", f"{differs[0]} differs after the run" + (f", then {ended}" if ended else ""))
    if ended is not None:
        only = " (with the record only)" if one.ended is None else ""
        return Outcome(ended.kind, ended.words + only)
    if loop.alive and moved < 1e-3:
        return Outcome("broke", "the record's gradient is zero, without a word")
    still = [name for a, b, _ in pairs for name in a if name in b and torch.equal(a[name], b[name])]
    if loop.alive == "each" and still:
        return Outcome("broke", f"the record's gradient of {still[0]} is zero, without a word")
    return Outcome("moves", moved=moved)


def share(one: Mapping[str, Tensor], other: Mapping[str, Tensor], queries: Sequence[Any], denominator: float) -> float:
    """The larger of each group's move over its sensitivity, and of the joint move over 1/z (audit/replay.py).

    What rounding to the parameters' type can have added after the noise is taken off: it is post-processing.
    """
    largest, joint, allowed = 0.0, 0.0, 0.0
    for query in queries:
        names = list(one) if query.group == "all" else [name for name in query.group.split(",") if name in one]
        if not names or any(name not in other or one[name].shape != other[name].shape for name in names):
            continue
        pairs = [(one[name].double(), other[name].double(), torch.finfo(one[name].dtype).eps / 2) for name in names]
        moves = [((a - b).abs() - (a.abs() + b.abs()) * eps).clamp(min=0) for a, b, eps in pairs]
        moved = math.sqrt(sum(float(move.square().sum()) for move in moves)) * denominator
        largest = max(largest, moved / query.sensitivity)
        joint += (moved / query.noise_stddev) ** 2
        allowed += (query.sensitivity / query.noise_stddev) ** 2
    return max(largest, math.sqrt(joint / allowed)) if allowed else 0.0


# ---- surroundings ----


def refusal(error: TacitError) -> Outcome:
    """A refusal is one line that says what was found."""
    words = str(error)
    if "\n" in words.strip():
        return Outcome("broke", f"a refusal of several lines: {one_line(error)}")
    return Outcome("refused", words)


def one_line(error: BaseException) -> str:
    lines = str(error).strip().splitlines()
    return lines[0][:160] if lines else "no message"


def public_seeds() -> None:
    """What stands at the top of many scripts, and is known to everyone."""
    torch.manual_seed(0)
    np.random.seed(0)
    random.seed(0)


@contextlib.contextmanager
def ledger_path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder) / "ledger.jsonl"


@contextlib.contextmanager
def ordinary_process() -> Iterator[None]:
    """What an attack does to the process is undone: seeds, grad mode, default types, warnings."""
    numpy_state, python_state = np.random.get_state(), random.getstate()
    kind, enabled, threads = torch.get_default_dtype(), torch.is_grad_enabled(), torch.get_num_threads()
    with torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            np.random.set_state(numpy_state)
            random.setstate(python_state)
            torch.set_default_dtype(kind)
            torch.set_grad_enabled(enabled)
            torch.set_num_threads(threads)


def in_own_process(name: str, source: Path | None = None, seconds: float = 180) -> Outcome:
    """Run an attack in a fresh process: for forks, for crashes, and for a changed copy of the library."""
    root = Path(__file__).parents[2]
    path = os.pathsep.join([str(source or root / "src"), str(root)])
    code = (
        "import json, torch; torch.set_num_threads(1)\n"
        "from reliability.boundary.catalogue import ATTACKS\n"
        f"found = ATTACKS[{name!r}].run_here()\n"
        "print('OUTCOME', json.dumps([found.kind, found.words, found.moved, found.must_run]), flush=True)"
    )
    command = [sys.executable, "-W", "ignore", "-c", code]
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds, env={**os.environ, "PYTHONPATH": path}
        )
    except subprocess.TimeoutExpired:
        return Outcome("broke", f"no answer within {seconds:.0f} s")
    lines = [line for line in done.stdout.splitlines() if line.startswith("OUTCOME")]
    if done.returncode < 0:
        said = (done.stderr.strip().splitlines() or [""])[-1]
        return Outcome("broke", f"the process died of signal {-done.returncode} ({said[:100]})")
    if not lines:
        return Outcome("broke", (done.stderr.strip().splitlines() or ["no answer"])[-1][:160])
    return Outcome(*json.loads(lines[-1].removeprefix("OUTCOME ")))
