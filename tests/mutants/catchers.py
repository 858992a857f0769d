"""The checks that mutants must not pass: those of the audit, small, and tests that exist anyway, called directly."""

import sys
import tempfile
import warnings
from collections.abc import Sequence
from pathlib import Path

import torch

import tacit
from tacit.audit import (
    check_canary,
    check_engine,
    check_formulas,
    check_noise,
    check_records,
    check_recount,
    check_replay,
)
from tacit.audit import check_sampler as check_sampling
from tacit.audit.audit import self_subjects
from tacit.audit.canary import claimed_ledger
from tacit.audit.engine.attempts import chance_is_secret, records_apart, released_once
from tacit.audit.engine.workloads import workloads
from tacit.audit.finding import Finding
from tacit.audit.neighbours import CLIPPING, SAMPLING, UNITS, Case, few_cases, opposite_of_its_companion
from tacit.audit.noise.keys import small_keys
from tacit.errors import LedgerError
from tacit.kernels import KernelWarning, calls, dense
from tacit.ledger import Charge, GaussianSumQuery, LedgerFile, LedgerHeader, PoissonSample, read_ledger
from tacit.losses import ModelLosses
from tacit.sampling import SAMPLING_POLICIES
from tacit.training import DataSource, PrivateSum
from tests.mutants.mutant import Catcher

TESTS = Path(__file__).parent.parent
for folder in (TESTS, TESTS / "accountants", TESTS / "gradients"):
    if str(folder) not in sys.path:
        sys.path.append(str(folder))

QUICK, LONG = 300_000, 5_000_000


def broke(finding: Finding) -> Sequence[str]:
    return finding.broke


def replay() -> Sequence[str]:
    return broke(check_replay(few_cases()))


def replay_faults() -> Sequence[str]:
    """Labels that make the model raise, and values that are no numbers."""
    full = SAMPLING["full batch"]
    return broke(
        check_replay([Case(full, CLIPPING["clip"], [float("nan"), 1.0, 1.0, 1.0], label) for label in (1, 99)])
    )


def replay_views() -> Sequence[str]:
    return broke(check_replay([Case(SAMPLING["full batch"], CLIPPING["clip"], [100.0, -3.0, 7.0, 1.0], 1, views=2)]))


def replay_units() -> Sequence[str]:
    full, record = SAMPLING["full batch"], [50.0, -20.0, 3.0, 9.0]
    cases = [Case(full, CLIPPING["clip"], record, label, unit=u, rows=r) for u, r in UNITS.values() for label in (0, 1)]
    return broke(check_replay([*cases, opposite_of_its_companion(full)]))


def replay_nobody() -> Sequence[str]:
    return broke(check_replay([Case(SAMPLING["nobody"], CLIPPING["clip"], [100.0] * 4)]))


def replay_policies() -> Sequence[str]:
    cases = [Case(policy, CLIPPING["clip"], [100.0, -3.0, 7.0, 1.0], 1) for policy in SAMPLING.values()]
    return broke(check_replay(cases))


def engine(*names: str) -> Catcher:
    """The engine on some of its models."""
    return lambda: broke(check_engine(0, [one for one in workloads() if one.name in names], ()))


def engine_attempt(attempt) -> Catcher:
    return lambda: broke(check_engine(0, (), (attempt,)))


def engine_noise() -> Sequence[str]:
    return broke(check_engine(QUICK, (), ()))


def key_sizes() -> Sequence[str]:
    """As many keys as the audit of an installation looks at."""
    return small_keys(300_000)


def kernels_are_compared() -> Sequence[str]:
    """Every kernel that is not there though there is a library."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", KernelWarning)
        every = (calls.ROWS, dense.KERNEL, calls.NOISE)
        return [f"{one.name} is left out" for one in every if one.calls() is None]


def noise() -> Sequence[str]:
    return broke(check_noise(self_subjects()[:1], QUICK, processes=1))


def noise_groups() -> Sequence[str]:
    """Several groups, joint clipping and adaptive clipping."""
    return broke(check_noise(self_subjects()[2:], QUICK, processes=0))


def noise_long() -> Sequence[str]:
    return broke(check_noise(self_subjects()[:1], LONG, processes=1))


def sampler() -> Sequence[str]:
    return broke(check_sampling(list(SAMPLING_POLICIES.values()), 300_000))


def sampler_long() -> Sequence[str]:
    return broke(check_sampling([SAMPLING_POLICIES["poisson"]], 5_000_000))


def canary(steps: int) -> Catcher:
    subject = self_subjects()[0]
    return lambda: broke(check_canary(subject, claimed_ledger(subject, 200), 1e-5, steps=steps))


def recount() -> Sequence[str]:
    return broke(check_recount([SAMPLING_POLICIES["poisson"]]))


def formulas() -> Sequence[str]:
    return broke(check_formulas(2_000))


def seeded_run_is_marked() -> Sequence[str]:
    """The records check must say so about a run that was seeded."""
    with tempfile.TemporaryDirectory() as folder:
        private = _private(folder, randomness=tacit.Randomness.seeded(1))
        for sample in private.samples(DataSource(torch.zeros(10, 3)), 2):
            private.release(sample, private._params)
        private.close()
        said = check_records(Path(folder), 1e-3).broke
    return () if any("seeded" in sentence for sentence in said) else ("a seeded run was not marked",)


def changed_ledger_is_found() -> Sequence[str]:
    return _damaged(lambda text: text.replace('"steps":20', '"steps":10', 1))


def shortened_ledger_is_found() -> Sequence[str]:
    return _damaged(lambda text: "".join(text.splitlines(keepends=True)[:-1]))


def _damaged(change) -> Sequence[str]:
    event = PoissonSample(0.1, (GaussianSumQuery(1.0, 1.0),))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.jsonl"
        with LedgerFile(path, LedgerHeader()) as ledger:
            ledger.reserve([Charge(event, 20)])
            ledger.reserve([Charge(event, 20)])
        path.write_text(change(path.read_text()))
        try:
            read_ledger(path)
        except LedgerError:
            return ()
    return ("a damaged ledger was read as if nothing had happened",)


def torn_line_is_charged() -> Sequence[str]:
    event = PoissonSample(0.1, (GaussianSumQuery(1.0, 1.0),))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "ledger.jsonl"
        with LedgerFile(path, LedgerHeader()) as ledger:
            ledger.reserve([Charge(event, 20)])
        path.write_bytes(path.read_bytes() + b'{"charges":[{"ev')
        found = read_ledger(path).steps
    return () if found == 40 else (f"a torn line was charged as {found - 20} steps",)


def _private(folder: str, **options) -> PrivateSum:
    losses = ModelLosses(torch.nn.Linear(3, 1), lambda model, x: model(x)[:, 0].square())
    sampling, noise = tacit.PoissonSampling(1.0, 10), tacit.GaussianNoise(multiplier=1.0)
    plan = tacit.TrainingPlan(sampling, tacit.ClipRecords(1.0), noise, 2, Path(folder) / "ledger.jsonl")
    return PrivateSum(losses, losses.params, plan, **options)


def mixing_layers() -> Sequence[str]:
    import test_record_mixing as module

    for name in module.MIXING:
        module.test_mixing_layers_are_refused(name)
    return ()


def _existing(module: str, test: str) -> Catcher:
    def run() -> Sequence[str]:
        getattr(__import__(module), test)()
        return ()

    return run


CATCHERS: dict[str, Catcher] = {
    "audit: replay": replay,
    "audit: replay of faults": replay_faults,
    "audit: replay of views": replay_views,
    "audit: replay of units": replay_units,
    "audit: replay of nobody": replay_nobody,
    "audit: replay of policies": replay_policies,
    "audit: engine, convolutions": engine("convolution", "five weights"),
    "audit: engine, embedding": engine("embedding"),
    "audit: engine, linear": engine("linear", "layers clipped apart"),
    "audit: engine, dense networks": engine("dense network"),
    "audit: engine, rounding": engine("worst-case rounding"),
    "audit: engine, data": engine("data set", "augmented data set"),
    "audit: engine, records apart": engine_attempt(records_apart),
    "audit: engine, chance": engine_attempt(chance_is_secret),
    "audit: engine, releases": engine_attempt(released_once),
    "audit: engine, noise": engine_noise,
    "audit: key sizes": key_sizes,
    "audit: noise": noise,
    "audit: noise of groups": noise_groups,
    "audit: noise, 5e6 draws": noise_long,
    "audit: sampler": sampler,
    "audit: sampler, 5e6 decisions": sampler_long,
    "audit: canary": canary(700),
    "audit: canary, 1,500 steps": canary(1500),
    "audit: ledger": recount,
    "audit: accountants": formulas,
    "audit: records of a seeded run": seeded_run_is_marked,
    "a changed ledger is found": changed_ledger_is_found,
    "a shortened ledger is found": shortened_ledger_is_found,
    "a torn line is charged": torn_line_is_charged,
    "kernels are compared when they are loaded": kernels_are_compared,
    "test_record_mixing": mixing_layers,
    "test_the_statement_speaks_of_replacing": _existing("test_fixed_size", "test_the_statement_speaks_of_replacing"),
    "test_pld_charges_twice_the_contribution": _existing(
        "test_fixed_size", "test_pld_charges_twice_the_contribution_and_gdp_refuses_it_by_name"
    ),
    "test_adaptive_ledgers_are_refused": _existing("test_curves", "test_bad_rates_and_adaptive_ledgers_are_refused"),
}
