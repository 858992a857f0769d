"""What nobody should ask for, as a table: what is called, with what, and the word that the refusal has to name.

A row of MAKERS is (what, arguments that are fine, {argument: bad values}); every bad value is one case. The others are
calls that a function in a folder makes.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

import tacit
from tacit.accountants import RenyiFilter, check_delta, group_privacy
from tacit.evidence import Stretch
from tacit.ledger import BallsInBinsStep, Head, ShuffledStep

NAN, INF = math.nan, math.inf
POSITIVE = [NAN, INF, -INF, 0, -1.0, True, "1", None, [1.0]]
SHARE = [NAN, INF, 0, -0.5, 1.5, True, "0.5", None]  # of (0, 1]
FRACTION = [NAN, INF, -0.5, 1.5, "0.5", None]  # of [0, 1) or so
COUNT = [0, -1, 1.5, NAN, True, "3", None]
DELTA = [0, 1, -1e-5, 2.0, NAN, INF, "1e-5", None, True]
WORD = ["nonsense", None, 3]

QUERY = tacit.ledger.GaussianSumQuery(1.0, 1.0)
EVENT = tacit.ledger.PoissonSample(0.1, (QUERY,))
SAMPLING, CLIP, NOISE = tacit.PoissonSampling(0.5, 20), tacit.ClipRecords(1.0), tacit.GaussianNoise(multiplier=1.0)
INPUTS, LABELS = torch.randn(40, 3), torch.randint(0, 2, (40,))
PROBABILITIES = torch.full((40, 2), 0.5)


def losses(model: nn.Module, batch: Any) -> torch.Tensor:
    return nn.functional.cross_entropy(model(batch[0]), batch[1], reduction="none")


def model() -> nn.Module:
    return nn.Linear(3, 2)


def _plan(**other: Any) -> tacit.TrainingPlan:
    given = {"sampling": SAMPLING, "clipping": CLIP, "noise": NOISE, "steps": 3, "ledger": "never-written.jsonl"}
    return tacit.TrainingPlan(**{**given, **other})


def _sampler(kind: Any) -> tuple[Any, dict[str, Any], dict[str, list[Any]]]:
    good = {"model": model(), "user_losses": losses, "dataset_size": 40}
    bad = {"step_size": POSITIVE, "dataset_size": COUNT, "temperature": [NAN, INF, -1.0, "1", True], "noise": WORD}
    return kind, good, bad


MAKERS: list[tuple[Callable[..., Any], dict[str, Any], dict[str, list[Any]]]] = [
    (tacit.ledger.GaussianSumQuery, {"clip_norm": 1.0, "noise_stddev": 1.0},
     {"clip_norm": POSITIVE, "noise_stddev": POSITIVE, "slack": [NAN, INF, -0.1, 1.0, "0"], "multiplicity": COUNT}),
    (tacit.ledger.PoissonSample, {"probability": 0.1, "queries": (QUERY,)}, {"probability": SHARE}),
    (tacit.ledger.FixedSizeSample, {"size": 2, "population": 4, "queries": (QUERY,)},
     {"size": [*COUNT, 5], "population": COUNT}),
    (BallsInBinsStep, {"bins": 2, "queries": (QUERY,)}, {"bins": COUNT}),
    (ShuffledStep, {"batches": 2, "queries": (QUERY,)}, {"batches": COUNT}),
    (tacit.ledger.PosteriorSample, {"log_likelihood_range": 1.0, "power": 1.0, "exact": True},
     {"log_likelihood_range": POSITIVE, "power": POSITIVE, "exact": [1, "yes", None]}),
    (tacit.ledger.Charge, {"event": EVENT, "steps": 1}, {"steps": [-1, 1.5, NAN, True, "3", None]}),
    (tacit.ledger.LedgerHeader, {}, {
        "unit": WORD, "neighbours": WORD, "schedule": WORD, "randomness": WORD, "dataset": [None, 3],
        "dataset_size": [0, -1, 1.5, True, "3"], "epsilon": [NAN, -1.0, 0, "1", True], "delta": [NAN, 0, 1, 2.0, "x"],
        "filter_order": [2.0], "assumptions": ["a sentence", [1], None],
    }),
    (tacit.Budget, {"epsilon": 1.0, "delta": 1e-5}, {"epsilon": POSITIVE, "delta": DELTA}),
    (tacit.Budget(1.0, 1e-5).split, {"shares": [0.5]}, {"shares": [[], [0.6, 0.6], [-0.1], [NAN], ["x"], None]}),
    (tacit.PoissonSampling, {"probability": 0.1, "expected_size": 10},
     {"probability": SHARE, "expected_size": POSITIVE}),
    (tacit.FixedSizeSampling, {"size": 2, "population": 4}, {"size": [*COUNT, 5], "population": COUNT}),
    (tacit.BallsInBinsSampling, {"bins": 2, "expected_size": 10.0}, {"bins": COUNT, "expected_size": POSITIVE}),
    (tacit.Microbatches, {"size": 2}, {"size": COUNT, "protect": WORD}),
    (tacit.ClipRecords, {"norm": 1.0}, {"norm": POSITIVE, "rule": WORD}),
    (tacit.ClipLayers, {"norm": 1.0}, {"norm": POSITIVE, "rule": WORD, "allocation": WORD}),
    (tacit.ClipGroups, {"vector_groups": (tacit.VectorGroup(("w",), 1.0),)},
     {"vector_groups": [(), None, ("w",)], "rule": WORD}),
    (tacit.AdaptiveClip, {"initial": 1.0},
     {"initial": POSITIVE, "quantile": FRACTION, "learning_rate": POSITIVE, "count_noise": POSITIVE, "rule": WORD}),
    (tacit.VectorGroup, {"names": ("w",), "clip_norm": 1.0},
     {"names": [(), None, "w", ("w", "w"), (3,)], "clip_norm": POSITIVE, "noise_stddev": [NAN, INF, 0, -1, "1", True],
      "scales": [(1.0, 2.0), (0.0,), (NAN,), ("1",)]}),
    (tacit.GaussianNoise, {"multiplier": 1.0}, {"multiplier": [NAN, INF, 0, -1.0, "1", True], "allocation": WORD}),
    (tacit.GaussianNoise, {"stddev": 1.0}, {"stddev": [NAN, INF, 0, -1.0, "1", True], "multiplier": [1.0]}),
    (tacit.Randomness.seeded, {"seed": 1}, {"seed": [1.5, True, "1", None]}),
    (_plan, {}, {
        "steps": COUNT, "physical_batch": COUNT[:-1], "block": COUNT[:-1],
        "dataset_size": [1, 0, -40, 39.5, "40", True],
        "schedule": WORD, "sampling": [None, 0.5, EVENT], "clipping": [None, 1.0], "noise": [1.0, "1"],
        "budget": [1.0, (1.0, 1e-5)], "unit": ["record", None], "dataset": [None, 3], "assumptions": ["one", [1]],
        "ledger": [None, 3], "isolation": WORD,
    }),
    (tacit.EvidencePlan, {"members": True}, {"members": [False], "probe_every": [0, -1, 1.5, True, "2"]}),
    (tacit.training.IndividualFilter, {"epsilon": 1.0, "delta": 1e-5},
     {"epsilon": POSITIVE, "delta": DELTA, "moment": [0, -1, 1.5, True, "2"]}),
    (tacit.DataSource, {"rows": (INPUTS, LABELS)}, {
        "rows": [(INPUTS[:0], LABELS[:0]), (INPUTS, LABELS[:3]), None, 3, [], (), {}, torch.tensor(1.0)],
        "workers": [-1, 1.5, "2", True], "views": [0, -1, 1.5, 2], "user_ids": [[1, 2], 3],
        "record_ids": [[1, 2], 3],
    }),
    (tacit.SGD, {"model": model(), "user_losses": losses, "learning_rate": 0.1}, {
        "learning_rate": POSITIVE, "momentum": [*FRACTION, 1.0], "dataset_size": [0, -1, 1.5, True, "3"],
        "prior": [None, 1.0, "gaussian"],
    }),
    _sampler(tacit.SGLD), _sampler(tacit.inference.SGHMC), _sampler(tacit.inference.SGNHT),
    _sampler(tacit.inference.PSGLD),
    (tacit.inference.SGHMC, {"model": model(), "user_losses": losses, "dataset_size": 40}, {"friction": POSITIVE}),
    (tacit.inference.SGNHT, {"model": model(), "user_losses": losses, "dataset_size": 40}, {"diffusion": POSITIVE}),
    (tacit.inference.PSGLD, {"model": model(), "user_losses": losses, "dataset_size": 40},
     {"damping": POSITIVE, "decay": [*FRACTION, 1.0], "adapt_steps": [-1, 1.5, "2", True]}),
    (tacit.VariationalInference, {"model": model(), "user_losses": losses, "dataset_size": 40}, {
        "dataset_size": COUNT, "initial_stddev": POSITIVE, "temperature": [NAN, INF, -1.0, "1", True],
        "average": [*FRACTION, 1.0],
    }),
    (tacit.bayes_by_backprop, {"model": model(), "losses": losses, "dataset_size": 40},
     {"dataset_size": COUNT, "learning_rate": POSITIVE, "initial_stddev": POSITIVE, "momentum": [*FRACTION, 1.0]}),
    (tacit.MCDropout, {"model": nn.Sequential(nn.Dropout(), nn.Linear(3, 2)), "user_losses": losses},
     {"model": [model()], "draws": COUNT, "average": [*FRACTION, 1.0], "dataset_size": [0, -1, 1.5, "3", True]}),
    (tacit.inference.PlainDescent, {"learning_rate": 0.1}, {"learning_rate": POSITIVE, "momentum": [*FRACTION, 1.0]}),
    (tacit.inference.AdamDescent, {}, {
        "learning_rate": POSITIVE, "decay": [*FRACTION, 1.0], "square_decay": [*FRACTION, 1.0], "floor": POSITIVE,
    }),
    (tacit.inference.FixedStep, {"size": 0.1}, {"size": POSITIVE}),
    (tacit.inference.DecreasingStep, {"first": 0.1}, {"first": POSITIVE}),
    (tacit.inference.PolynomialStep, {"a": 0.1},
     {"a": POSITIVE, "b": [NAN, INF, -1.0, "1", None], "gamma": [NAN, INF, -0.5, "0.5", None]}),
    (tacit.inference.CyclicalStep, {"first": 0.1, "length": 10},
     {"first": POSITIVE, "length": COUNT, "exploration": [NAN, INF, -0.1, 1.5, "0.5", None]}),
    (tacit.GaussianPrior, {"stddev": 1.0}, {"stddev": POSITIVE}),
    (tacit.inference.LaplacePrior, {"scale": 1.0}, {"scale": POSITIVE}),
    (tacit.inference.ScaleMixturePrior, {"share": 0.5, "wide": 1.0, "narrow": 0.1},
     {"share": FRACTION, "wide": POSITIVE, "narrow": POSITIVE}),
    (tacit.likelihoods.Gaussian, {"stddev": 1.0}, {"stddev": POSITIVE}),
    (tacit.likelihoods.HeteroscedasticGaussian, {}, {"least_stddev": POSITIVE}),
    (tacit.inference.BoundedBernoulli, {"least": 0.1}, {"least": [NAN, INF, 0, -0.1, 0.5, "0.1", None], "a": POSITIVE}),
    (tacit.inference.BoundedLogistic, {"features": 2},
     {"features": COUNT, "bound": POSITIVE, "prior_stddev": POSITIVE}),
    (tacit.inference.stable_logistic_step, {"dataset_size": 40, "prior_stddev": 1.0},
     {"dataset_size": COUNT, "prior_stddev": POSITIVE}),
    (tacit.accountants.bayesian.IndividualAccountant, {}, {"percentile": FRACTION, "gamma": FRACTION, "by": WORD}),
    (tacit.accountants.bayesian.BayesianAccountant, {}, {
        "composition": WORD, "estimator": WORD, "conversion": WORD, "gamma": [NAN, 0, 1, 2.0, "x"],
        "percentile": [NAN, -0.1, 1.5, "x"], "moments": [(), (0,), ("1",), (1.5,)],
    }),
    (tacit.accountants.attack_probability, {"epsilon": 1.0},
     {"epsilon": [NAN, -1.0, "1", None], "delta": [NAN, -1.0, 1.5, "x"]}),
    (tacit.calibrate_noise, {"epsilon": 1.0, "delta": 1e-5, "probability": 0.1, "steps": 10, "accountant": "rdp"},
     {"epsilon": POSITIVE, "delta": DELTA, "probability": SHARE, "steps": COUNT, "accountant": WORD}),
    (tacit.accountants.calibrate_steps,
     {"epsilon": 1.0, "delta": 1e-5, "probability": 0.1, "noise_multiplier": 2.0, "accountant": "rdp"},
     {"epsilon": [*POSITIVE, 1e-9], "delta": DELTA, "probability": SHARE, "noise_multiplier": POSITIVE}),
    (tacit.accountants.calibrate_probability,
     {"epsilon": 1.0, "delta": 1e-5, "noise_multiplier": 2.0, "steps": 10, "accountant": "rdp"},
     {"epsilon": POSITIVE, "delta": DELTA, "steps": COUNT, "noise_multiplier": POSITIVE}),
    (tacit.guarantees, {"ledger": tacit.ledger.Ledger.planned([tacit.ledger.Charge(EVENT, 3)]), "delta": 1e-5},
     {"delta": DELTA, "only": ["pld"], "ledger": [None, "run"]}),
    (check_delta, {"delta": 1e-5, "dataset_size": 100}, {"delta": [*DELTA, 0.01, 0.5]}),
    (group_privacy, {"epsilon": 1.0, "delta": 1e-5, "records": 2}, {"records": COUNT}),
    (tacit.ledger.merged_noise_multiplier, {"queries": (QUERY,)}, {"queries": [()]}),
    (tacit.Draws, {"vectors": {"w": torch.ones(4, 2)}},
     {"vectors": [{}, {"w": 3}, {"w": torch.tensor(1.0)}], "chains": [*COUNT, 3]}),
    (tacit.posteriors.combine, {"posteriors": [tacit.posteriors.Point({"w": torch.ones(1)})]}, {"posteriors": [[]]}),
    (tacit.posteriors.DropoutPosterior, {"vectors": {"w": torch.ones(2)}}, {"draws": COUNT}),
    (tacit.posteriors.GaussianPosterior, {"mean": {"w": torch.ones(2)}, "stddev": {"w": torch.ones(2)}},
     {"draws": COUNT, "stddev": [None, {}, {"w": -torch.ones(2)}, {"w": torch.ones(3)}, {"w": torch.full((2,), NAN)}]}),
    (tacit.scores, {"probabilities": PROBABILITIES, "labels": LABELS}, {
        "probabilities": [PROBABILITIES[:3], PROBABILITIES[0], PROBABILITIES * NAN, PROBABILITIES - 1],
        "labels": [LABELS[:3], LABELS + 5, LABELS - 5, LABELS.double()], "bins": COUNT,
    }),
    (tacit.reliability, {"probabilities": PROBABILITIES, "labels": LABELS},
     {"labels": [LABELS[:3], LABELS + 5, LABELS - 5], "bins": COUNT}),
    (tacit.evaluation.coverage, {"cumulative": torch.rand(9)}, {"cumulative": [torch.rand(0), torch.rand(9) + 2],
                                                    "levels": [(), (1.5,), (NAN,), ("x",)]}),
    (tacit.separation, {"known": torch.rand(9), "unknown": torch.rand(9)},
     {"known": [torch.rand(0), torch.rand(9) * NAN], "unknown": [torch.rand(0)]}),
    (tacit.evaluation.leakage_check, {"members": np.random.rand(12), "held_out": np.random.rand(12)},
     {"members": [[], [1.0], [NAN] * 9, None], "held_out": [[], ["x", "y"]]}),
    (tacit.predict,
     {"model": model(), "posterior": tacit.posteriors.Point(dict(model().named_parameters())), "inputs": INPUTS},
     {"batch_size": COUNT, "link": WORD, "inputs": [INPUTS[:0], None]}),
    (tacit.replace_batch_norm, {"model": nn.BatchNorm2d(4)}, {"groups": COUNT}),
    (tacit.evidence.Evidence,
     {"head": Head(1, "f" * 64), "kind": "probes", "shares": np.ones((1, 2), np.float32),
      "stretches": (Stretch(0.1, 1.0, 1, 0, 0),)},
     {"kind": WORD, "shares": [np.ones(2, np.float32), np.ones((1, 2)), np.full((1, 2), NAN, np.float32), None],
      "stretches": [(Stretch(0.1, 1.0, 1, 0, 3),), (Stretch(0.1, 1.0, 0, 0, 0),)]}),
    (RenyiFilter.opened,
     {"epsilon": 1.0, "delta": 1e-5, "first": tacit.ledger.Charge(EVENT, 1), "ledger": tacit.ledger.Ledger()},
     {"delta": DELTA, "epsilon": [1e-9]}),
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Case:
    """``act`` gets an empty folder, and is to be refused with a line that holds ``says``; nothing may be in it then."""

    name: str
    says: str
    act: Callable[[Path], object]


def made() -> Iterator[Case]:
    for maker, good, bad in MAKERS:
        for argument, values in bad.items():
            for value in values:
                name = f"{maker.__name__}({argument}={_short(value)})"
                given = {**good, argument: value}
                yield Case(name, argument, lambda folder, maker=maker, given=given: maker(**given))


def _short(value: Any) -> str:
    return " ".join(repr(value).split())[:30]


def _training(says: str, data: Any = (INPUTS, LABELS), learning: Any = None, **other: Any) -> Case:
    """A run that must not begin. What is None stays as it is in a good run."""
    of_plan = {name: other.pop(name) for name in list(other) if name in tacit.TrainingPlan.__dataclass_fields__}

    def act(folder: Path) -> object:
        method = learning(model()) if learning is not None else tacit.SGD(model(), losses, 0.1)
        return tacit.train(method, data, _plan(**{"ledger": folder / "ledger.jsonl", **of_plan}), **other)

    changed = ", ".join(f"{name}={_short(value)}" for name, value in {**of_plan, **other}.items())
    return Case(f"train({changed or _short(data)}) names {says}", says, act)


def _wrong_shape(model: nn.Module, batch: Any) -> torch.Tensor:
    return losses(model, batch).mean()


def trainings() -> Iterator[Case]:
    for name in ("keep_last", "keep_every", "chains", "checkpoint_every"):
        for value in COUNT:
            yield _training("keep" if name.startswith("keep") else name, **{name: value})
    yield _training("accountant", learning=lambda m: tacit.guarantees(tacit.ledger.Ledger(), 1e-5, only=["psychic"]))
    yield _training("model", learning=lambda m: tacit.SGD(None, losses, 0.1))  # type: ignore[arg-type]
    yield _training("losses", learning=lambda m: tacit.SGD(m, None, 0.1))  # type: ignore[arg-type]
    yield _training("train", learning=lambda m: tacit.SGD(nn.Identity(), losses, 0.1))
    yield _training("keep", keep_last=5)
    yield _training("starts", starts=[])
    yield _training("starts", starts=[{"w": torch.ones(1)}])
    yield _training("resume", resume=True)
    yield _training("empty", data=(INPUTS[:0], LABELS[:0]))
    yield _training("records", data=(INPUTS, LABELS[:3]))
    yield _training("losses", learning=lambda m: tacit.SGD(m, _wrong_shape, 0.1))
    yield _training("BatchNorm", learning=lambda m: tacit.SGD(nn.Sequential(m, nn.BatchNorm1d(2)), losses, 0.1))
    yield _training("gradient", learning=lambda m: tacit.SGD(m.requires_grad_(False), losses, 0.1))
    yield _training("noise", noise=None)
    yield _training("noise", learning=lambda m: tacit.SGLD(m, losses, dataset_size=40))
    yield _training("population", sampling=tacit.FixedSizeSampling(5, 10))
    yield _training("user", unit=tacit.Users())
    yield _training("unit", unit=tacit.Microbatches(2), individual_filter=tacit.training.IndividualFilter(1.0, 1e-5))
    yield _training("delta", budget=tacit.Budget(1.0, 0.5))
    yield _training("budget", budget=tacit.Budget(1e-3, 1e-5))
    for bad in ("text", torch.randn(40, 3), (INPUTS, LABELS.double() + 0.5), (INPUTS, ["a"] * 40), np.ones((40, 3))):
        yield _training("", data=bad)
    yield from _private_gradients()


def _private_gradients() -> Iterator[Case]:
    for name, value in (("steps", 0), ("steps", -3), ("steps", 2.5), ("steps", "3"), ("first", 9), ("first", -1)):
        yield Case(f"samples({name}={value!r})", "steps", lambda folder, given={name: value}: _samples(folder, given))
    for name, value in (("block", 0), ("physical_batch", -1), ("schedule", "sometimes"), ("dataset_size", 3)):
        yield Case(
            f"PrivateGradient({name}={value!r})",
            name,
            lambda folder, given={name: value}: tacit.PrivateGradient(
                model(), losses, SAMPLING, CLIP, NOISE, ledger=folder / "ledger.jsonl", **given
            ),
        )


def _samples(folder: Path, given: dict[str, Any]) -> object:
    with tacit.PrivateGradient(model(), losses, SAMPLING, CLIP, NOISE, ledger=folder / "ledger.jsonl") as private:
        return next(iter(private.samples((INPUTS, LABELS), **{"steps": 3, **given})))


FILES: dict[str, bytes] = {
    "empty": b"", "text": b"hello", "pickle": b"\x80\x04}.", "json": b"{}", "zeros": bytes(100), "newline": b"\n",
    "list": b"[1]\n", "null": b"null\n", "number": b"1\n", "binary": bytes(range(256)),
}  # fmt: skip


def _open(path: Path) -> object:
    """A file of somebody's, taken for a ledger. An empty one, or one of zeros, becomes one."""
    return (
        tacit.ledger.LedgerFile(path, tacit.ledger.LedgerHeader()).close()
        if any(path.read_bytes())
        else tacit.read_ledger(path)
    )


READERS: tuple[Callable[[Path], object], ...] = (
    tacit.read_ledger, tacit.load_posterior, tacit.evidence.load_evidence,
    _open,
)  # fmt: skip


def files() -> Iterator[Case]:
    """Files that are not there, folders, pipes, links, and files of something else."""
    for reader in READERS:
        name = reader.__name__
        for kind, data in FILES.items():
            yield Case(f"{name}: {kind}", "x", lambda folder, reader=reader, data=data: _of(reader, folder, data))
        if reader is not _open:
            yield Case(f"{name}: missing", "x", lambda folder, reader=reader: reader(folder / "x"))
            yield Case(f"{name}: a folder", "", lambda folder, reader=reader: reader(folder))


def _of(reader: Callable[[Path], object], folder: Path, data: bytes) -> object:
    path = folder / "x"
    path.write_bytes(data)
    try:
        return reader(path)
    finally:
        assert path.read_bytes() == data, "the file was changed"
        path.unlink()


WHAT_IF = {"--poisson": "0.1", "--noise": "1", "--steps": "3"}
FINDING = {"--epsilon": "1", "--poisson": "0.1", "--steps": "3"}
BAD_NUMBERS = ["nan", "inf", "-inf", "0", "-1", "x", ""]
COMMANDS: list[tuple[str, dict[str, str], dict[str, list[str]]]] = [
    ("account", WHAT_IF, {
        "--poisson": [*BAD_NUMBERS, "1.5"], "--noise": BAD_NUMBERS, "--steps": [*BAD_NUMBERS, "1.5", "1e9"],
        "--delta": [*BAD_NUMBERS, "1", "2"], "--dataset-size": [*BAD_NUMBERS, "1000000"], "--accountant": ["x", ""],
        "--plot": ["x.gif", "nowhere/x.png", "x"],
    }),
    ("calibrate", FINDING, {
        "--epsilon": BAD_NUMBERS, "--poisson": [*BAD_NUMBERS, "1.5"], "--steps": [*BAD_NUMBERS, "1.5"],
        "--delta": [*BAD_NUMBERS, "1", "2"], "--dataset-size": [*BAD_NUMBERS, "1000000"], "--noise": ["1"],
        "--accountant": ["x", "gdp", ""],
    }),
]  # fmt: skip
PLAIN_COMMANDS = [
    ["account"], ["account", "nowhere"], ["account", "nowhere", "--bayesian"], ["account", "--dance"],
    ["account", "--poisson", "0.1"], ["account", "nowhere", "--poisson", "0.1"], ["account", "/"],
    ["account", "--bayesian", "--poisson", "0.1", "--noise", "1", "--steps", "3"], ["account", "a", "b"],
    ["calibrate"], ["calibrate", "--epsilon", "1"], ["calibrate", "--epsilon", "1", "--poisson", "0.1"],
    ["calibrate", "--epsilon", "1", "--noise", "1", "--poisson", "0.1", "--steps", "3"],
    ["ledger", "show"], ["ledger", "show", "nowhere"], ["ledger", "verify", "nowhere"], ["ledger", "head", "nowhere"],
    ["ledger", "verify", "/dev/null"], ["ledger", "head", "/"], ["ledger", "burn"], ["ledger", "verify", "a", "b"],
    ["demo", "--out"], ["demo", "--out", "/dev/null"], ["demo", "--epsilon", "1"], ["demo", "extra"], ["dance"],
    ["--dance"], ["account", "\0"], ["ledger", "verify", "x" * 5000],
]  # fmt: skip


def commands() -> Iterator[list[str]]:
    """Arguments of the command line that must end with exit code 2 and one line."""
    for name, good, bad in COMMANDS:
        for option, values in bad.items():
            for value in values:
                given = {**good, option: value}
                yield [name, *(part for pair in given.items() for part in pair)]
    yield from PLAIN_COMMANDS


def all_calls() -> list[Case]:
    return [*made(), *trainings(), *files()]
