"""Who may release what, how often, and in which process: samples, engines, forks, charges."""

import copy
import dataclasses
import os
import pickle
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

import tacit
from reliability.boundary.attack import SEED, Outcome, attack, ledger_path, linear, one_line, ordinary, squared
from tacit.errors import TacitError

# ---- one charge, one release ----


@contextmanager
def _engine(path: Path | None = None, model: nn.Module | None = None, **more: Any) -> Iterator[tacit.PrivateGradient]:
    with ledger_path() as own:
        private = tacit.PrivateGradient(
            model or linear(), squared, tacit.PoissonSampling(1.0, 24), tacit.ClipRecords(1.0),
            more.pop("noise", tacit.GaussianNoise(1.0)), ledger=path or own, randomness=tacit.Randomness.seeded(SEED),
            **more,
        )  # fmt: skip
        with private:
            yield private


def _released(backward: Callable[[Any], None], sample: Any) -> Outcome:
    """Whether a release that nobody paid for was refused."""
    try:
        backward(sample)
    except TacitError as error:
        return Outcome("refused", one_line(error))
    return Outcome("broke", "released a second time, charged once")


def _again(other: Callable[[Any], Any]) -> Outcome:
    """A sample is released, then something made from it beforehand."""
    with _engine() as private:
        for sample in private.samples(ordinary(), 1):
            try:
                second = other(sample)
            except (TacitError, TypeError, pickle.PicklingError) as error:
                return Outcome("refused", one_line(error))
            private.backward(sample)
            return _released(private.backward, second)
    return Outcome("broke", "no sample was drawn")


@attack(row="F11")
def sample_released_twice():
    """Gradient accumulation by a slip: backward(batch) twice."""
    return _again(lambda sample: sample)


@attack("A7", row="F11")
def copied_sample():
    """copy.copy(sample), released beside the first."""
    return _again(copy.copy)


@attack("A7", row="F11")
def deeply_copied_sample():
    """copy.deepcopy(sample)."""
    return _again(copy.deepcopy)


@attack("A7", row="F11")
def pickled_sample():
    """pickle.loads(pickle.dumps(sample)), as sending it to another process does."""
    return _again(lambda sample: pickle.loads(pickle.dumps(sample)))  # noqa: S301 (our own bytes)


@attack("A7", row="F11")
def replaced_sample():
    """dataclasses.replace(sample)."""
    return _again(lambda sample: dataclasses.replace(sample))


@attack("A7", row="F11")
def sample_made_unreleased_again():
    """sample.released = False."""
    with _engine() as private:
        for sample in private.samples(ordinary(), 1):
            private.backward(sample)
            try:
                sample.released = False
            except (AttributeError, TacitError) as error:
                return Outcome("refused", one_line(error))
            return _released(private.backward, sample)
    return Outcome("broke", "no sample was drawn")


@attack(row="F11")
def sample_with_other_data():
    """sample.data = another batch: the sample that was charged is not the one that is released."""
    with _engine() as private:
        for sample in private.samples(ordinary(), 1):
            try:
                sample.data = (torch.ones(4000, 4), torch.ones(4000))
                private.backward(sample)
            except (AttributeError, TacitError) as error:
                return Outcome("refused", one_line(error))
    return Outcome("broke", "data that was never sampled was released")


@attack(row="F11")
def sample_with_another_mechanism():
    """The noise of a sample can be turned down after the charge."""
    with _engine() as private:
        for sample in private.samples(ordinary(), 1):
            try:
                sample.mechanism.stddevs = (1e-9,)
                private.backward(sample)
            except (AttributeError, TypeError, TacitError) as error:
                return Outcome("refused", one_line(error))
    return Outcome("broke", "noise of 1e-9 where 1 was charged")


@attack("A7", row="F11")
def sample_of_another_engine():
    """A sample of one PrivateGradient, released by another one."""
    with _engine() as one, _engine() as other:
        for sample in one.samples(ordinary(), 1):
            found = _released(other.backward, sample)
            if found.kind == "refused":
                return found
    return Outcome("broke", "another engine, with another ledger, released it")


@attack(row="F11")
def sample_kept_after_the_loop_was_left():
    """The loop is left, the ledger settled and closed; then the sample is released."""
    with _engine() as private:
        kept = list(private.samples(ordinary(), 2))
        charged = private.ledger.steps
    try:
        for sample in kept:
            private.backward(sample)
    except TacitError as error:
        return Outcome("refused", one_line(error))
    return Outcome("moves", moved=len(kept) / max(charged, 1))


@attack(row="F11")
def first_sample_kept_when_the_loop_stops_early():
    """Prefetching: two samples are taken, the loop is left, both are released; the ledger says how many were paid."""
    with _engine() as private:
        samples = private.samples(ordinary(), 40)
        kept = [next(samples) for _ in range(3)]
        samples.close()
        charged, released = private.ledger.steps, 0
        for sample in kept:
            try:
                private.backward(sample)
                released += 1
            except TacitError:
                pass
    return Outcome("moves", moved=released / max(charged, 1))


@attack("B2", row="F22")
def raw_batch_given_to_backward():
    """private.backward((x, y)): the batch of an ordinary loader."""
    with _engine() as private:
        return _released(private.backward, ordinary())


@attack("A7", row="F9", apart=True)
def fork_and_release_in_both():
    """os.fork inside the loop (a loader, a pool): parent and child both release."""
    with tempfile.TemporaryDirectory() as folder, _engine(Path(folder) / "ledger.jsonl") as private:
        pipe = os.pipe()
        released = 0
        child = None
        for sample in private.samples(ordinary(), 3):
            if child is None and (child := os.fork()) == 0:
                os.write(pipe[1], _in_the_child(private, sample))
                os._exit(0)
            private.backward(sample)
            released += 1
        os.waitpid(child or 0, 0)
        os.close(pipe[1])
        said = os.read(pipe[0], 1000).decode()
        if said.startswith("refused"):
            return Outcome("refused", said)
        return Outcome("broke", f"{private.ledger.steps} charged, {released} released, and the child: {said}")


def _in_the_child(private: tacit.PrivateGradient, sample: Any) -> bytes:
    try:
        private.backward(sample)
    except TacitError as error:
        return f"refused in the child: {one_line(error)}".encode()
    except BaseException as error:
        return f"{type(error).__name__} {one_line(error)}".encode()
    return b"released as well"


@attack("A7", row="F9", apart=True)
def fork_and_draw_in_the_child():
    """The loop itself is forked: the child goes on drawing samples under the parent's charge."""
    with tempfile.TemporaryDirectory() as folder, _engine(Path(folder) / "ledger.jsonl") as private:
        pipe = os.pipe()
        samples = private.samples(ordinary(), 6)
        private.backward(next(samples))
        child = os.fork()
        if child == 0:
            os.write(pipe[1], _drawn_in_the_child(private, samples))
            os._exit(0)
        os.waitpid(child, 0)
        os.close(pipe[1])
        said = os.read(pipe[0], 1000).decode()
        released = 1 + sum(1 for sample in samples if private.backward(sample) is None)
        if said.startswith("refused"):
            return Outcome("refused", said)
        return Outcome("broke", f"{private.ledger.steps} charged, {released} released, and the child: {said}")


def _drawn_in_the_child(private: tacit.PrivateGradient, samples: Iterator[Any]) -> bytes:
    try:
        for sample in samples:
            private.backward(sample)
    except TacitError as error:
        return f"refused in the child: {one_line(error)}".encode()
    except BaseException as error:
        return f"{type(error).__name__} {one_line(error)}".encode()
    return b"released as well"


@attack("A7", row="F9")
def copied_engine():
    """copy.deepcopy(private), as ensembles are made: both release under one charge."""
    with _engine() as private:
        for sample in private.samples(ordinary(), 1):
            try:
                other = copy.deepcopy(private)
                both = copy.deepcopy((private, sample))
            except (TypeError, TacitError, ValueError) as error:
                return Outcome("refused", one_line(error))
            private.backward(sample)
            found = _released(other.backward, sample)
            return found if found.kind != "refused" else _released(both[0].backward, both[1])
    return Outcome("broke", "no sample was drawn")


# ---- what is charged is what is added ----


class _Fading:
    """A public protocol, a schedule with state: each time it is asked it gives a larger step, hence less noise."""

    def __init__(self, grows: float) -> None:
        self.size, self.grows = 0.01, grows

    def at(self, step: int) -> float:
        self.size *= self.grows
        return self.size


@attack("A6", row="F6")
def step_size_that_changes_between_charge_and_release():
    """A step size with state, as schedulers have it: SGLD asks for noise by it, once to charge and once to add."""
    stddevs = _spread_of_sgld(_Fading(100.0))
    return Outcome("moves", moved=stddevs)


@attack("A6", row="F6")
def step_size_read_from_a_list_that_shrinks():
    """at(step) pops from a list."""

    class Popping:
        left = [0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0, *[200.0] * 100]  # noqa: RUF012

        def at(self, step: int) -> float:
            return self.left.pop(0)

    return Outcome("moves", moved=_spread_of_sgld(Popping()))


def _spread_of_sgld(step_size: Any) -> float:
    """The charged noise over the noise that was added, at one step on data without gradients; 1 if they agree.

    The parameters after a step are w - eta n (noise / B): eta is asked for a last time, and seen by the recorder.
    """
    seen: list[float] = []

    class Seen:
        def at(self, step: int) -> float:
            seen.append(step_size.at(step))
            return seen[-1]

    model = nn.Linear(4000, 1, bias=False)
    start = model.weight.detach().clone()
    data = (torch.zeros(10, 4000), torch.zeros(10))
    with ledger_path() as path:
        plan = tacit.TrainingPlan(tacit.PoissonSampling(1.0, 10), tacit.ClipRecords(1.0), None, 1, path)
        method = tacit.SGLD(model, squared, step_size=Seen(), dataset_size=10)
        run = tacit.train(method, data, plan, randomness=tacit.Randomness.seeded(SEED))
    charged = run.ledger.charges[0].event.queries[0].noise_stddev
    moved = (run.state.params["weight"] if hasattr(run.state, "params") else run.state[0].params["weight"]) - start
    candidates = [float(moved.std()) / eta for eta in seen if eta > 0]  # one of the etas was used for the step
    added = min(candidates, key=lambda value: abs(value - charged))
    return max(1.0, charged / added) if abs(charged / added - 1) > 0.05 else 1.0


@attack(row="F6")
def clipping_changed_after_the_charge():
    """A clipping value of the user's own (the protocol is public) that grows each time it is asked."""

    class Growing:
        rule = "clip"

        def __init__(self) -> None:
            self.norm = 1.0

        def groups(self, shapes):
            self.norm *= 10
            return tacit.ClipRecords(self.norm).groups(shapes)

    with ledger_path() as path:
        model = linear()
        with tacit.PrivateGradient(
            model, squared, tacit.PoissonSampling(1.0, 24), Growing(), tacit.GaussianNoise(1.0), ledger=path,
            randomness=tacit.Randomness.seeded(SEED),
        ) as private:  # fmt: skip
            for sample in private.samples(ordinary(), 1):
                private.backward(sample)
            charged = private.ledger.charges[0].event.queries[0].sensitivity
    size = float(torch.cat([p.grad.flatten() for p in model.parameters()]).norm()) * 24
    return Outcome("moves", moved=max(0.0, size - 6 * charged) / (24 * charged))


@attack(row="F1")
def denominator_changed_mid_run():
    """sampling.expected_size set to another number between steps: a frozen value refuses it."""
    sampling = tacit.PoissonSampling(1.0, 24)
    try:
        sampling.expected_size = 1  # type: ignore[misc]
    except (AttributeError, TacitError) as error:
        return Outcome("refused", one_line(error) or "frozen")
    return Outcome("broke", "the declared denominator can be changed")


@attack("A1")
def loss_guard_through_train():
    """The loss guard by the batch's maximum through tacit.train and SGD instead of PrivateGradient."""
    from reliability.boundary.attack import neighbour, share
    from reliability.boundary.losses import loss_guard_by_the_batch_maximum as build

    found = []
    for with_record in (False, True):
        loop = build()
        with ledger_path() as path:
            plan = tacit.TrainingPlan(tacit.PoissonSampling(1.0, 24), loop.clipping, loop.noise, 1, path)
            method = tacit.SGD(loop.model, loop.losses, 1.0)
            rows = neighbour(loop) if with_record else loop.rows
            run = tacit.train(method, rows, plan, randomness=tacit.Randomness.seeded(SEED))
        found.append(dict(run.posterior.vectors if hasattr(run.posterior, "vectors") else run.state.params))
    return Outcome("moves", moved=share(found[0], found[1], run.ledger.charges[0].event.queries, 24))
