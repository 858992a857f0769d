"""Seeded privacy bugs. Each is a small patch of the real code, and each must be caught by a check that is named.

python -m tests.mutants              all of them, as a table; exit code 1 if one survives
python -m tests.mutants --fast       without those that need millions of draws
"""

from tests.mutants import of_accountants, of_clipping, of_kernels, of_ledger, of_noise, of_sampling
from tests.mutants.mutant import Mutant

MUTANTS: list[Mutant] = [
    *of_noise.MUTANTS,
    *of_clipping.MUTANTS,
    *of_sampling.MUTANTS,
    *of_ledger.MUTANTS,
    *of_kernels.MUTANTS,
    *of_accountants.MUTANTS,
]

# What an outside check seeded (the audit missed eight of them, and two ended in tracebacks), and our mutants of it.
# All must be caught by a check of ``tacit audit --self`` (docs/how-to/audit.md has the table).
EIGHTEEN: dict[str, tuple[str, ...]] = {
    "noise x .97": ("noise 3 % low",),
    "rate + 3 %": ("q 3 % high",),
    "half-precision norms": ("norms in half precision", "squares in half precision"),
    "key kept after fork": ("key kept after a fork", "a forked process may release"),
    "one group only": ("one group only is clipped", "one group only is charged", "one layer without noise"),
    "divisor drawn": ("realised divisor",),
    "shared noise word": (
        "one word of noise for two coordinates",
        "one word of noise for two coordinates of a large model",
        "all vectors share a stretch of noise",
    ),
    "no bias in the norm": ("norm without the biases", "norm without the biases, replayed"),
    "charge after the draw": ("charged after the draw", "handed out before the charge", "charged after the release"),
    "settle of one step less": ("settled at one step less",),
    "slack of 0": ("slack of 0",),
    "clip per chunk": ("the sum of a chunk is clipped", "one clip factor for a whole chunk"),
    "C noise x .9 from 16,384 entries": ("C noise x 0.9 from 16,384 entries on, load check off",),
    "convolution norm without its tail": ("a convolution's norm without its tail, load check off",),
    "embedding norm unmerged": ("an embedding's norm unmerged",),
    "plans unverified": (
        "isolation bypassed: losses run on the raw batch",
        "isolation lets a batch statistic through",
        "state outlives a call",
        "collate_fn sees the whole sample",
        "augment sees the whole sample",
    ),
    "second release allowed": ("a sample may be released again",),
    "32-bit key": (
        "a key of 32 bits, filled up with zeros",
        "a key of 32 bits, repeated",
        "a key hashed from 32 bits",
        "the noise uses 32 bits of the key",
    ),
}
