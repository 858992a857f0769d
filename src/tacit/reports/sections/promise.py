"""The statement: which number a run stands for, what the best attack makes of it, and what both mean."""

import math
from collections.abc import Sequence

from tacit.accountants import Guarantee, Refusal, attack_probability, best_attack, best_bound
from tacit.errors import RefusedError
from tacit.ledger import Ledger
from tacit.reports.content import Headline, Paragraph, Picture, Points, Section, Terms
from tacit.reports.pictures import People
from tacit.reports.text import in_full, percent_up, round_down, round_up
from tacit.reports.words import (
    APPROXIMATION,
    BOUND,
    DIFFERENCE,
    WHOSE,
    delta_in_words,
    epsilon_in_words,
    not_promised,
    promise,
    question,
)


def headline(ledger: Ledger, results: Sequence[Guarantee | Refusal]) -> Headline:
    """The smallest certified epsilon; two bounds at one delta both hold, an approximation never enters a minimum."""
    stated = stated_guarantee(results)
    attack, by = (None, "") if stated is None else _attack(ledger, stated)
    return Headline(stated, attack, by, promise(ledger, stated, attack))


def stated_guarantee(results: Sequence[Guarantee | Refusal]) -> Guarantee | None:
    """The best bound or, where no accountant has one, the most cautious of the approximations."""
    given = [result for result in results if isinstance(result, Guarantee)]
    return best_bound(results) or max(given, key=lambda result: result.epsilon, default=None)


def _attack(ledger: Ledger, stated: Guarantee) -> tuple[float, str]:
    """P(A) by the whole privacy curve where it is known (curves.py), else from (epsilon, delta) alone (rules.py)."""
    if not math.isfinite(stated.epsilon):
        return 1.0, "no finite epsilon"
    from_pair = attack_probability(stated.epsilon, stated.delta)
    try:
        curve = best_attack(ledger)
    except RefusedError:
        return from_pair, "from epsilon and delta: (e^epsilon + delta) / (1 + e^epsilon)"
    if stated.is_bound and curve <= from_pair:
        return curve, "from the whole privacy curve: (1 + delta at epsilon 0) / 2"
    return from_pair, "from epsilon and delta: (e^epsilon + delta) / (1 + e^epsilon)"


def attack_picture(ledger: Ledger, said: Headline) -> Picture | None:
    if said.attack is None or said.guarantee is None:
        return None
    people = People.of(said.attack)
    atmost = "at most " if said.guarantee.is_bound else "about "
    more = f"{atmost}{people.more} more because of what this run released, and" if people.more else "and"
    return Picture(
        "attack",
        f"Of 100 guesses, {atmost}{people.right} are right",
        f"A hundred people each guess {question(ledger)}. 50 are right by tossing a coin, {more} "
        f"{50 - people.more} are wrong. Exactly: {percent_up(said.attack)}, rounded up to whole people. Both answers "
        "were equally likely to them before; other odds change by a factor of at most e^epsilon, but for delta.",
        people,
    )


def promise_section(ledger: Ledger, said: Headline) -> Section:
    blocks: list[Paragraph | Terms | Points] = [Paragraph(_against(ledger))]
    stated = said.guarantee
    if stated is not None:
        size = ledger.header.dataset_size
        blocks.append(
            Terms(
                (
                    ("Who is protected", f"{WHOSE[ledger.header.unit]}. Compared are {_compared(ledger)}."),
                    (f"Epsilon {round_up(stated.epsilon)}", epsilon_in_words(stated)),
                    (f"Delta {in_full(stated.delta)}", delta_in_words(stated, size)),
                    ("How sure is it?", _how_sure(stated)),
                    (f"Best guess {percent_up(said.attack or 1.0)}", f"P(A) at even odds beforehand, {said.by}."),
                )
            )
        )
    blocks.append(Points("What is not promised", not_promised(ledger)))
    return Section("promise", "What is promised, and to whom", tuple(blocks))


def _compared(ledger: Ledger) -> str:
    return DIFFERENCE[ledger.header.neighbours]


def _against(ledger: Ledger) -> str:
    return (
        "The promise holds against anybody: someone with any amount of computing power, who knows every other record, "
        f"knows how training works, and sees everything that the run released over its {ledger.steps:,} steps. What "
        "they learn later elsewhere does not weaken it."
    )


def _how_sure(stated: Guarantee) -> str:
    if not stated.is_bound:
        return f"{APPROXIMATION.capitalize()}: the truth may be worse. No accountant could certify this run."
    text = f"{BOUND.capitalize()}, by the accountant {stated.accountant}."
    if stated.lower is not None and stated.lower > 0:
        between = f"{round_down(stated.lower)} and {round_up(stated.epsilon, 4)}"
        text += f" The true epsilon of the recorded mechanism lies between {between}."
    return text
