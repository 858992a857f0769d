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
