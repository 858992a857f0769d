"""``tacit explain``: what an epsilon or a delta means, in a user's words."""

import math
from typing import Annotated, Literal

import typer

from tacit.accountants import Guarantee, check_delta
from tacit.accountants.gaussian import gaussian_mu
from tacit.errors import InputError, check_positive
from tacit.reports.text import in_full, percent_up
from tacit.reports.words import delta_in_words, epsilon_in_words


def explain(
    what: Annotated[Literal["epsilon", "delta"], typer.Argument(help="Which number.")],
    value: Annotated[float, typer.Argument(help="Its value.")],
    delta: Annotated[float, typer.Option(help="The delta beside an epsilon.")] = 1e-5,
) -> None:
    """Say what an epsilon or a delta means to a person whose record is in the data."""
    if what == "delta":
        check_delta(value)
        typer.echo(_of_delta(value))
        return
    check_positive("epsilon", value)
    if value > 50:
        raise InputError(f"an epsilon of {value:g} promises nothing; ask for one below 50")
    check_delta(delta)
    typer.echo(_of_epsilon(_stated(value, delta)))


def _stated(epsilon: float, delta: float) -> Guarantee:
    return Guarantee(epsilon, delta, "dp", "add_remove", "record", "none", (), is_bound=True)


def _of_epsilon(stated: Guarantee) -> str:
    epsilon, delta = stated.epsilon, stated.delta
    by_noise = 0.5 * math.erfc(-gaussian_mu(epsilon, delta) / 2 / math.sqrt(2))
    at_most = 1 - (1 - delta) / (1 + math.exp(epsilon))  # of any mechanism: the trade-off of (epsilon, delta)
    return "\n\n".join(
        (
            f"Epsilon {epsilon:g}, at delta {in_full(delta)}.",
            epsilon_in_words(stated),
            "As a bet: somebody knows everything but whether you took part, and thinks it as likely as not. Having "
            f"seen all that was released, they guess right at most {percent_up(by_noise)} of the time if it was made "
            f"by Gaussian noise alone, as Tacit's are, and {percent_up(at_most)} whatever made it. A coin is "
            "right 50 %.",
            f"A second release at the same epsilon adds to it: two together are {2 * epsilon:g} at most, and for "
            f"Gaussian noise about {math.sqrt(2) * epsilon:.2g}.",
            "It does not say that predictions are right, that the data is stored safely, or that nothing is learned "
            "about people in general. A run's own numbers are on its page: tacit report RUN.",
        )
    )


def _of_delta(delta: float) -> str:
    return "\n\n".join(
        (
            delta_in_words(_stated(1.0, delta), None),
            f"Choose it below one over the number of people: here fewer than {round(1 / delta):,}. A larger one would "
            "allow the publication of a whole record, and is refused where the number is declared.",
        )
    )
