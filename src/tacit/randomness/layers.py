"""Chance inside the model (dropout, stochastic depth), from the run's own source instead of the global one.

A record's masks depend on its place in the batch, hence on which other records were drawn. While nobody can foresee
them that is harmless: masks are then independent of the data, record by record, and the clip holds for any of them. But
a reader who knew the seed (``torch.manual_seed(0)`` at the top of a script) could work out, for each guess of who was
in the batch, every mask, and adding one record would change the sum by more than its clipped gradient.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from tacit.randomness.streams import Randomness


@contextmanager
def random_layers(randomness: Randomness, device: torch.device) -> Iterator[None]:
    """PyTorch's generators start from a secret word for the time of a call, and get their own state back after it.

    Example:
        >>> before = torch.get_rng_state()
        >>> with random_layers(Randomness.seeded(1), torch.device("cpu")):
        ...     masks = torch.rand(3)
        >>> bool((torch.get_rng_state() == before).all())
        True
    """
    word = int(randomness.words("layers", 1)[0]) >> 1
    devices = [device] if device.type == "cuda" else []
    with torch.random.fork_rng(devices=devices):
        torch.default_generator.manual_seed(word)  # torch.manual_seed would reach for every device there is
        if devices:
            torch.cuda.manual_seed(word)
        yield
