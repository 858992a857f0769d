"""F7, F8, F9: the noise of empty samples, judged by the ledger's own numbers, and repetition over processes."""

from collections.abc import Iterator

import numpy as np

from reliability.figures import Figure, tries
from tacit.audit.audit import self_subjects
from tacit.audit.finding import rejected
from tacit.audit.noise.check import released_noise
from tacit.audit.noise.keys import repeated_blocks
from tacit.audit.noise.normality import normality_trials, scale_of
from tacit.audit.noise.tails import far_draws, farthest_draws
from tacit.randomness import Randomness


def prove(effort: float) -> Iterator[Figure]:
    draws = tries(5_000_000, effort, least=50_000)
    table = released_noise(self_subjects()[0], draws)
    broke = rejected(normality_trials(table))
    off = abs(scale_of(table) - 1)
    goal = "scale within 0.25 % on 5e6 draws" if effort >= 1 else ""
    held = off < 0.0025 or effort < 1
    tried = "noise: scale, shape, tails, coordinates, lags"
    yield Figure("F8", tried, table.size, len(broke), f"scale off by {off:.3%}", goal, held)
    reached = f"farthest draw {farthest_draws()[1]:.4f}"
    yield Figure("F8", "known far draws on every path, range", 3, len(far_draws()), reached, "range >= 8")
    for subject in self_subjects()[1:]:
        empty = released_noise(subject, draws // 10)
        found = len(rejected(normality_trials(empty)))
        yield Figure("F7", f"empty samples release pure noise: {subject.name}", empty.shape[0], found)
    processes = tries(4, effort)
    yield Figure("F9", f"{processes} forked processes x 100 steps: repeated 16-byte blocks", processes * 100,
                 len(repeated_blocks(processes)))  # fmt: skip
    sources = tries(1000, effort, least=20)
    first = {Randomness().words("noise", 2).tobytes() for _ in range(sources)}
    yield Figure("F9", "fresh sources that share a first block", sources, sources - len(first))
    words = np.unpackbits(Randomness().words("sampling", draws // 10).view(np.uint8)).reshape(-1, 64).mean(0)
    biased = int((np.abs(words - 0.5) > 6 * 0.5 / (draws // 10) ** 0.5).sum())
    yield Figure("F8", "bits of the key stream that are not even", 64, biased)
