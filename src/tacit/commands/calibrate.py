"""``tacit calibrate``: the noise, the steps or the sampling rate that a budget allows."""

from dataclasses import asdict
from typing import Annotated

import typer

from tacit.accountants import Calibration, calibrate_noise, calibrate_probability, calibrate_steps
from tacit.accountants.guarantee import check_delta
from tacit.commands.output import console, print_json
from tacit.errors import InputError


def calibrate(
    epsilon: Annotated[float, typer.Option(help="The target epsilon; the answer never exceeds it.")],
    delta: Annotated[float, typer.Option(help="The target delta; below 1/n.")] = 1e-5,
    poisson: Annotated[float | None, typer.Option(help="The sampling probability q; left out: find it.")] = None,
    noise: Annotated[float | None, typer.Option(help="The noise multiplier z; left out: find it.")] = None,
    steps: Annotated[int | None, typer.Option(help="The number of steps T; left out: find it.")] = None,
    dataset_size: Annotated[int | None, typer.Option(help="The declared number of records, to check delta.")] = None,
    accountant: Annotated[str, typer.Option(help="pld (tight) or rdp.")] = "pld",
    json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Find the one of --noise, --steps and --poisson that is left out, at most at the target epsilon."""
    check_delta(delta, dataset_size)
    if accountant not in ("pld", "rdp"):
        raise InputError(f"--accountant must be pld or rdp, which are bounds; found {accountant!r}")
    found = _solve(epsilon, delta, poisson, noise, steps, accountant)
    if json:
        print_json(asdict(found))
        return
    console.print(
        f"noise multiplier {found.noise_multiplier:.6g}, sampling probability {found.probability:.6g}, "
        f"{found.steps} steps: epsilon {found.epsilon:.6g} at delta {found.delta:g} ({found.accountant}, "
        "add/remove one record, hypothetical: no run was recorded)",
        highlight=False,
    )


def _solve(
    epsilon: float, delta: float, poisson: float | None, noise: float | None, steps: int | None, accountant: str
) -> Calibration:
    match (poisson, noise, steps):
        case (float(), None, int()):
            return calibrate_noise(epsilon, delta, probability=poisson, steps=steps, accountant=accountant)
        case (float(), float(), None):
            return calibrate_steps(epsilon, delta, probability=poisson, noise_multiplier=noise, accountant=accountant)
        case (None, float(), int()):
            return calibrate_probability(epsilon, delta, noise_multiplier=noise, steps=steps, accountant=accountant)
        case _:
            raise InputError("give exactly two of --poisson, --noise and --steps; the third is found")
