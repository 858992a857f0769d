"""Chance that everybody can foresee, or that one record draws away from the others.

Rows keep their numbers, so that chance which belongs to a row and a step is the same in both runs: the record stands at
the end, and what it draws away shows at the second step. Where the user's own generator decides, it stands in front.
"""

import random
import threading
from functools import partial

import numpy as np
import torch
from torch import nn

import tacit
from reliability.boundary.attack import (
    SEED,
    Items,
    Loop,
    Outcome,
    attack,
    ledger_path,
    linear,
    ordinary,
    seeded,
    squared,
)


def _signs(draw, **more) -> Loop:
    """The losses' signs come from draws."""

    def losses(model, batch):
        return squared(model, batch) * draw(len(batch[0]))

    return Loop(losses, steps=3, **more)


def _items(draw, **more) -> Loop:
    """The targets' signs come from draws in __getitem__."""
    return Loop(dataset=lambda rows: Items(rows, lambda index, row: (row[0], row[1] * draw())), steps=3, **more)


@attack()
def dropout_under_a_public_seed():
    """torch.manual_seed(0) and nn.Dropout: one record more shifts the masks of all."""
    model = nn.Sequential(nn.Dropout(0.5), linear())
    return Loop(model=model, steps=3, rows=_one_hot())


@attack()
def dropout_seeded_inside_the_losses():
    """torch.manual_seed(0) at the top of the losses, to repeat the masks."""

    def losses(model, batch):
        torch.manual_seed(0)
        return squared(model, batch)

    return Loop(losses, model=nn.Sequential(nn.Dropout(0.5), linear()), steps=3, rows=_one_hot())


@attack()
def torch_rand_inside_the_losses():
    """torch.rand(len(x)): random signs."""
    return _signs(lambda n: torch.rand(n).sub(0.5).sign())


@attack()
def own_torch_generator_inside_the_losses():
    """torch.Generator().manual_seed(0), kept by the user: nobody reseeds it."""
    generator = torch.Generator().manual_seed(0)
    return _signs(lambda n: torch.rand(n, generator=generator).sub(0.5).sign())


@attack()
def fresh_torch_generator_inside_the_losses():
    """A generator seeded anew at every call."""
    return _signs(lambda n: torch.rand(n, generator=torch.Generator().manual_seed(0)).sub(0.5).sign(), first=True)


@attack()
def numpy_chance_inside_the_losses():
    """np.random.rand(len(x))."""
    return _signs(lambda n: torch.from_numpy(np.sign(np.random.rand(n) - 0.5)).float())


@attack()
def own_numpy_generator_inside_the_losses():
    """np.random.default_rng(0), kept by the user."""
    generator = np.random.default_rng(0)
    return _signs(lambda n: torch.from_numpy(np.sign(generator.random(n) - 0.5)).float())


@attack()
def python_chance_inside_the_losses():
    """random.random() for each record."""
    return _signs(lambda n: torch.tensor([1.0 if random.random() < 0.5 else -1.0 for _ in range(n)]))


@attack()
def own_python_generator_over_the_chunks():
    """random.Random(0) is asked once a call: one chunk more, and the next step draws another number."""
    chance = random.Random(0)

    def losses(model, batch):
        return squared(model, batch) * (1 if chance.random() < 0.5 else -1)

    return Loop(losses, steps=3, physical_batch=24)


@attack()
def numbers_of_the_global_state():
    """torch.get_rng_state() as a hash: signs from the generator's own state."""

    def losses(model, batch):
        torch.rand(len(batch[0]))
        return squared(model, batch) * (1 if int(torch.get_rng_state()[:200].sum()) % 2 else -1)

    return Loop(losses, steps=3)


@attack()
def initial_seed_as_a_number():
    """torch.initial_seed() decides the sign."""

    def losses(model, batch):
        return squared(model, batch) * (1 if torch.initial_seed() % 2 else -1)

    return Loop(losses, steps=3, physical_batch=24)


@attack("A5")
def augment_under_a_public_seed():
    """augment with torch.rand under torch.manual_seed(0)."""

    def augment(batch):
        return batch[0], batch[1] * torch.rand(len(batch[1])).sub(0.5).sign()

    return Loop(samples={"augment": augment, "views": 1}, steps=3)


@attack("A5")
def random_items_under_a_public_seed():
    """torch.rand in __getitem__ under torch.manual_seed(0)."""
    return _items(lambda: torch.rand(()).sub(0.5).sign())


@attack("A5")
def numpy_items_under_a_public_seed():
    """np.random in __getitem__."""
    return _items(lambda: float(np.sign(np.random.rand() - 0.5)))


@attack("A5")
def python_items_under_a_public_seed():
    """random.random() in __getitem__."""
    return _items(lambda: 1.0 if random.random() < 0.5 else -1.0)


@attack()
def items_seeded_by_their_data_set():
    """A generator of the data set's own: rng = random.Random(0) in __init__."""
    chance = random.Random(0)
    return _items(lambda: 1.0 if chance.random() < 0.5 else -1.0)


@attack("A5")
def random_items_in_two_workers():
    """torch.rand in __getitem__ with workers=2."""
    return _items(_torch_sign, samples={"workers": 2})


@attack()
def seeded_workers_by_numpy():
    """np.random in __getitem__ with workers=2."""
    return _items(_numpy_sign, samples={"workers": 2})


@attack()
def items_that_reseed_the_world():
    """torch.manual_seed(index) in __getitem__, for repeatable crops: the global generators are the user's again."""

    def item(index, row):
        torch.manual_seed(index)
        random.seed(index)
        np.random.seed(index)
        return row[0], row[1] * _torch_sign()

    def losses(model, batch):
        return squared(model, batch) * torch.rand(len(batch[0])).sub(0.5).sign()

    return Loop(losses, dataset=lambda rows: Items(rows, item), steps=3)


@attack()
def collate_with_chance():
    """Random signs drawn in collate_fn."""

    def collate(items):
        y = torch.stack([y for _, y in items])
        return torch.stack([x for x, _ in items]), y * torch.rand(len(y)).sub(0.5).sign()

    return Loop(dataset=Items, samples={"collate_fn": collate}, steps=3)


@attack()
def stochastic_depth_for_the_batch():
    """A layer is skipped with chance one half, for the whole batch at once, by Python's random."""
    chance = random.Random(1)

    class Skipped(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside, self.layer = linear(4, 4), linear()

        def forward(self, x):
            return self.layer(x if chance.random() < 0.5 else -self.inside(x))

    return Loop(model=Skipped(), steps=3, physical_batch=24)


@attack("A5")
def two_threads_with_dropout():
    """Two private loops in two threads: the global generator must be as before, and nobody falsely refused."""
    make = partial(seeded, lambda: nn.Sequential(nn.Linear(4, 64), nn.Dropout(0.5), nn.Linear(64, 1)))
    before = torch.get_rng_state()
    wrong: list[str] = []
    for _ in range(3):
        threads = [threading.Thread(target=_in_a_thread, args=(make(), wrong)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    if wrong:
        return Outcome("broke", f"{len(wrong)} of 6 runs: {wrong[0]}")
    if not torch.equal(before, torch.get_rng_state()):
        return Outcome("broke", "the global generator is not as it was before")
    return Outcome("moves", moved=1.0)


def _in_a_thread(model: nn.Module, wrong: list[str]) -> None:
    try:
        with ledger_path() as path:
            private = tacit.PrivateGradient(
                model, squared, tacit.PoissonSampling(1.0, 24), tacit.ClipRecords(1.0), tacit.GaussianNoise(1.0),
                ledger=path, randomness=tacit.Randomness.seeded(SEED),
            )  # fmt: skip
            with private:
                for sample in private.samples(ordinary(64), 15):
                    private.backward(sample)
    except Exception as error:
        wrong.append(f"{type(error).__name__}: {str(error)[:80]}")


def _torch_sign() -> torch.Tensor:
    return torch.rand(()).sub(0.5).sign()


def _numpy_sign() -> float:
    return float(np.sign(np.random.rand() - 0.5))


def _one_hot() -> tuple[torch.Tensor, torch.Tensor]:
    """Records whose gradient is there or not, as the mask falls."""
    return torch.eye(4).repeat(6, 1) * 5, torch.full((24,), -20.0)
