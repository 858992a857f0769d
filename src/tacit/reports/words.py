"""The promise in words that a citizen, an officer and a mathematician can each read: whose, against whom, how much."""

import math

from tacit.accountants import Guarantee
from tacit.ledger import Ledger, Neighbours, Unit
from tacit.reports.text import in_full, one_in, percent_up, round_up

WHOSE: dict[Unit, str] = {
    "record": "One record (one row of the table)",
    "user": "One person, with all of their records",
    "microbatch": "One microbatch (a small fixed group of records)",
}
SHORT: dict[Unit, str] = {"record": "your record", "user": "all your records", "microbatch": "your group of records"}
DIFFERENCE: dict[Neighbours, str] = {
    "add_remove": "the same data with or without it",
    "replace_one": "the same data with it, or with another in its place",
}
NOTION = {"dp": "differential privacy (worst case)", "bayesian_dp": "Bayesian differential privacy (typical data)"}

BOUND, APPROXIMATION = "certified upper bound", "approximation, not a bound"


def question(ledger: Ledger) -> str:
    """What the attacker tries to find out."""
    if ledger.header.neighbours == "replace_one":
        return f"whether the data held {SHORT[ledger.header.unit]} or another in its place"
    return f"whether {SHORT[ledger.header.unit]} {_was_or_were(ledger.header.unit)} in the data"


def _was_or_were(unit: Unit) -> str:
    return "were" if unit == "user" else "was"


def promise(ledger: Ledger, stated: Guarantee | None, attack: float | None) -> str:
    """The headline in one sentence."""
    if stated is None or attack is None:
        return "No privacy guarantee can be stated for this run. Treat everything it released as if it were the data."
    best = "at best" if stated.is_bound else "by this estimate, which is not a bound,"
    seeded = ledger.header.randomness == "seeded"
    someone, right = ("If its randomness were secret, someone", "would be") if seeded else ("Someone", "is")
    return (
        f"{someone} who sees everything this run released and guesses {question(ledger)} {right} right {best} "
        f"{percent_up(attack)} of the time, if both were equally likely to them before. Tossing a coin is right 50 % "
        "of the time."
    )


def epsilon_in_words(stated: Guarantee) -> str:
    """e^epsilon as a factor between two worlds; for an approximation too, whose section says what it is."""
    if not math.isfinite(stated.epsilon) or stated.epsilon > 50:
        return "Epsilon is so large that it promises nothing."
    factor = round_up(math.exp(stated.epsilon), 2)
    return (
        f"Imagine two worlds that differ only in you: one where you took part, one where {_without_you(stated)}. "
        f"Whatever anyone may see or conclude, it is at most {factor} times as likely in one world as in the other. "
        f"Epsilon, {round_up(stated.epsilon)}, is the logarithm of that factor. 0 would mean that nothing changes "
        "at all."
    )


def _without_you(stated: Guarantee) -> str:
    return "you did not" if stated.neighbours == "add_remove" else "another took your place"


def delta_in_words(stated: Guarantee, size: int | None) -> str:
    records = "" if size is None else f" It lies below 1 in {size:,}, the declared number of protected units."
    return (
        f"The factor may be missed with a small probability. Delta, {in_full(stated.delta)} ({one_in(stated.delta)}), "
        f"limits it.{records}"
    )


def not_promised(ledger: Ledger) -> tuple[str, ...]:
    """What a reader may hope for and does not get."""
    found = [
        "What is true of people in general. If the model learns that a habit is unhealthy, that says something about "
        "everyone with the habit, whether they took part or not.",
        "Other uses of the same data. Whatever else is computed from it adds to the cost, unless it is in this ledger.",
        "The data itself, where it is stored, or who may read it there.",
        "That predictions are right or fair.",
    ]
    if ledger.header.unit != "user":
        found.insert(1, "A person with several records, or a family. Each record is protected; k of them together have "
                        "k times this epsilon and k e^(k epsilon) times this delta.")  # fmt: skip
    return tuple(found)
