"""Time and width of certified brackets on random ledgers: ``python benchmarks/survey.py``.

Homogeneous ledgers: T from 1 to 1e6, q from 1e-5 to 1, z from 0.3 to 100, delta from 1e-12 to 1e-2, all log-uniform.
Mixed ones: 2 to 50 such kinds, one in ten of them without sampling; "few": the same with at most 100 steps of each and,
where sampled, q below 1e-3, so that moments hardly decay. Processor time of one thread for one answer, the
ledger never seen before. A bracket is narrow if it is within 0.01 % or 1e-6. Prints quantiles and the worst cases.
"""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import argparse
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from document import versions, write_section

from tacit.accountants.pld import Bracket, PoissonGaussian, epsilon_bracket

FAST, RELATIVE, ABSOLUTE = 0.05, 1e-4, 1e-6


@dataclass(frozen=True, slots=True)
class Case:
    events: tuple[PoissonGaussian, ...]
    delta: float

    def __str__(self) -> str:
        some = ", ".join(f"({e.probability:.6g}, {e.noise_multiplier:.6g}, {e.count})" for e in self.events[:3])
        return f"{len(self.events)} kind(s) {some}{' ..' if len(self.events) > 3 else ''}; delta {self.delta:.4g}"


@dataclass(frozen=True, slots=True)
class Answer:
    case: Case
    seconds: float
    found: Bracket

    @property
    def width(self) -> float:
        """In units of what was promised: at most 1 is narrow."""
        return (self.found.upper - self.found.lower) / max(RELATIVE * self.found.lower, ABSOLUTE)


def log_uniform(rng: np.random.Generator, low: float, high: float) -> float:
    return float(np.exp(rng.uniform(np.log(low), np.log(high))))


def kind(rng: np.random.Generator, plain: float = 0.0) -> PoissonGaussian:
    q, z, steps = log_uniform(rng, 1e-5, 1), log_uniform(rng, 0.3, 100), round(log_uniform(rng, 1, 1e6))
    return PoissonGaussian(1.0 if rng.random() < plain else q, z, steps)


def homogeneous(rng: np.random.Generator) -> Case:
    return Case((kind(rng),), log_uniform(rng, 1e-12, 1e-2))


def mixed(rng: np.random.Generator) -> Case:
    kinds = tuple(kind(rng, plain=0.1) for _ in range(round(log_uniform(rng, 2, 50))))
    return Case(kinds, log_uniform(rng, 1e-12, 1e-2))


def few(rng: np.random.Generator) -> Case:
    kinds = [
        PoissonGaussian(
            1.0 if rng.random() < 0.05 else log_uniform(rng, 1e-5, 1e-3),
            log_uniform(rng, 0.3, 100),
            round(log_uniform(rng, 1, 100)),
        )
        for _ in range(round(log_uniform(rng, 2, 50)))
    ]
    return Case(tuple(kinds), log_uniform(rng, 1e-12, 1e-2))


def answer(case: Case) -> Answer:
    start = time.process_time()
    found = epsilon_bracket(case.events, case.delta)
    return Answer(case, time.process_time() - start, found)


def report(name: str, answers: list[Answer], worst: int) -> str:
    """One line of a table; the worst cases are printed below it."""
    times, widths = np.array([a.seconds for a in answers]), np.array([a.width for a in answers])
    middle, ninety, most = (1e3 * np.quantile(times, level) for level in (0.5, 0.9, 1.0))
    line = (
        f"| {name} | {len(answers)} | {middle:.0f} | {ninety:.0f} | {most:.0f} | {100 * np.mean(times > FAST):.1f} % | "
        f"{100 * np.mean(widths > 1):.1f} % | {widths.max():.2g} |"
    )
    print(line, flush=True)
    for key in ("seconds", "width"):
        for one in sorted(answers, key=lambda a: -float(getattr(a, key)))[:worst]:
            print(f"  {1e3 * one.seconds:7.1f} ms  width {one.width:8.2g}  epsilon {one.found.upper:.6g}  {one.case}")
    return line


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--homogeneous", type=int, default=300)
    parser.add_argument("--mixed", type=int, default=60)
    parser.add_argument(
        "--seed", type=int, nargs="+", default=[0], help="so many ledgers of each sort for each of them"
    )
    parser.add_argument("--worst", type=int, default=8, help="how many of the worst cases to print")
    parser.add_argument("--write", type=Path, help="the Markdown file whose section is replaced")
    options = parser.parse_args()
    answer(Case((PoissonGaussian(0.01, 2.0, 100),), 1e-5))  # loads what is loaded late
    rows = []
    surveys = (
        ("homogeneous", homogeneous, options.homogeneous),
        ("mixed", mixed, options.mixed),
        ("mixed, few rare steps", few, options.mixed),
    )
    for name, draw, number in surveys:
        generators = [np.random.default_rng(seed) for seed in options.seed]
        rows.append(report(name, [answer(draw(rng)) for rng in generators for _ in range(number)], options.worst))
    head = [
        "| ledgers | number | median ms | 90 % ms | most ms | over 50 ms | too wide | widest, of what is promised |",
        "|---" * 8 + "|",
    ]
    title = "Random ledgers: processor time of one thread for one certified bracket (0.01 % or 1e-6 is promised)."
    if options.write:
        seeds = "Seeds " + ", ".join(str(seed) for seed in options.seed)
        text = f"{title}\n{seeds}; {versions('numpy', 'scipy')}.\n\n" + "\n".join(head + rows)
        write_section(options.write, "survey", text)


if __name__ == "__main__":
    main()
