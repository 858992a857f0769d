"""F2: every policy draws at the rate its event states, independently; alpha 1e-6 for all tests together."""

from collections.abc import Iterator

from reliability.figures import Figure, tries
from tacit.audit.sampler import check_sampler
from tacit.sampling import SAMPLING_POLICIES, PoissonSampling


def prove(effort: float) -> Iterator[Figure]:
    decisions = tries(20_000_000, effort, least=100_000)
    for name, policy in SAMPLING_POLICIES.items():
        finding = check_sampler([policy], decisions)
        yield Figure("F2", f"sampler: {name}", decisions, len(finding.broke), finding.measured, "alpha 1e-6")
    rare = check_sampler([PoissonSampling(0.001, 1.0)], decisions, units=1000)
    yield Figure("F2", "sampler: poisson, q = 0.001", decisions, len(rare.broke), rare.measured, "alpha 1e-6")
