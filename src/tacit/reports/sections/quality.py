"""How good the predictions are, on test data that was declared public: calibration, uncertainty, when it declines."""

import math
from collections.abc import Sequence

import numpy as np

from tacit.reports.content import Block, Paragraph, Picture, Section, Table, Terms
from tacit.reports.pictures import Axis, Chart, Series, room_above
from tacit.reports.text import percent
from tacit.runs.facts import AnsweredQuery
from tacit.runs.quality.evaluation_file import Classification, Evaluation, Regression

ENOUGH = 25  # as in evaluation/calibration.py: a bin with fewer records says nothing
DECLINED = 0.2


def quality_section(found: Evaluation | None, held_out: Sequence[AnsweredQuery] = ()) -> Section:
    title = "How good are its predictions?"
    private = _held_out(held_out)
    match found:
        case None if private:
            return Section("quality", title, private)
        case None:
            words = "No test data that was declared public was given to this run, so nothing is said here."
            return Section("quality", title, (Paragraph(words),))
        case Classification():
            return Section("quality", title, (*private, *_classes(found)))
        case Regression():
            return Section("quality", title, (*private, *_numbers(found)))


def _held_out(scores: Sequence[AnsweredQuery]) -> tuple[Block, ...]:
    """Scores on private records that were not trained on, from noisy counts that the ledger was charged for."""
    if not scores:
        return ()
    words = (
        "Measured on private records that were held out of training, by noisy counts that are part of the cost above. "
        "The intervals hold the noise and the chance in who was held out, for people like those in the data."
    )
    rows = tuple(
        (score.query, score.cell, *(_score(number) for number in (score.value, score.low, score.high)))
        for score in scores
    )
    columns = ("Score", "Of", "Value", "Low (95 %)", "High (95 %)")
    return Paragraph(words), Table("Scores on records that were held out", columns, rows, numeric=(2, 3, 4))


def _source(found: Evaluation) -> Paragraph:
    return Paragraph(
        f"Measured on {found.records:,} records of “{found.data}”, which were declared public. The numbers are read "
        "from evaluation.json; unlike the privacy numbers, nobody can compute them again from the ledger."
    )


def _classes(found: Classification) -> list[Block]:
    blocks: list[Block] = [_source(found)]
    scores = (
        ("Right answers", percent(found.accuracy)),
        ("The same for always saying the most frequent", _share(found.accuracy_of_the_most_frequent)),
        (f"Found of “{found.rare}” (sensitivity)", _share(found.sensitivity)),
        ("Right of all others (specificity)", _share(found.specificity)),
        ("Area under the ROC curve (AUC, 0.5 is chance)", _score(found.auc)),
        ("Calibration error (ECE)", _score(found.ece)),
        ("Largest in a filled bin (MCE)", _largest_gap(found)),
        ("Negative log-likelihood", _score(found.nll)),
        ("Brier score (summed over classes, 0 to 2)", _score(found.brier)),
    )
    blocks.append(_scores(scores))
    if found.edges:
        blocks.append(reliability_picture(found))
    if found.entropy_edges:
        blocks.append(uncertainty_picture(found))
    if len(found.kept) > 1:
        blocks.append(selective_picture(found))
    return blocks


def _numbers(found: Regression) -> list[Block]:
    scores = (
        ("Typical error (RMSE)", _score(found.rmse)),
        ("The same for a constant guess", _score(found.rmse_of_a_constant)),
        ("Negative log-likelihood", _score(found.nll)),
    )
    blocks: list[Block] = [_source(found), _scores(scores)]
    if len(found.level) > 1:
        blocks.append(coverage_picture(found))
    return blocks


def _scores(scores: tuple[tuple[str, str], ...]) -> Terms:
    return Terms(tuple((name, value) for name, value in scores if value), large=True)


def _largest_gap(found: Classification) -> str:
    if found.count and max(found.count) < ENOUGH:
        return f"not measured (no bin has {ENOUGH} records)"
    return _score(found.mce)


def _share(value: float | None) -> str:
    return "" if value is None else percent(value)


def _score(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"


def reliability_picture(found: Classification) -> Picture:
    centres = tuple((low + high) / 2 for low, high in zip(found.edges, found.edges[1:], strict=False))
    total = sum(found.count) or 1.0
    filled = [i for i, count in enumerate(found.count) if count and not math.isnan(found.observed[i])]
    enough = tuple(i for i in filled if found.count[i] >= ENOUGH)
    few = tuple(i for i in filled if found.count[i] < ENOUGH)
    series = [
        Series("share of all answers", centres, tuple(count / total for count in found.count), "pale", "bars",
               0.92 * (found.edges[1] - found.edges[0])),
        Series("perfect", (0.0, 1.0), (0.0, 1.0), "guide"),
        Series("share that was right", *_at(found, enough), "strong", "points"),
    ]  # fmt: skip
    if few:
        series.append(Series(f"the same, from fewer than {ENOUGH} records", *_at(found, few), "strong", "few"))
    return Picture(
        "reliability",
        "Does it know how sure it may be?",
        _reliability_words(found, filled),
        Chart(
            Axis("how sure it says it is", 0.0, 1.0, percent=True),
            Axis("how often it is right", 0.0, 1.0, percent=True),
            tuple(series),
        ),
    )


def _at(found: Classification, bins: tuple[int, ...]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    return tuple(found.confidence[i] for i in bins), tuple(found.observed[i] for i in bins)


def _reliability_words(found: Classification, filled: list[int]) -> str:
    text = "If it says it is 80 % sure, it should be right 8 times in 10: the points should lie on the dashed line."
    if filled:
        most = max(filled, key=lambda i: found.count[i])
        text += (
            f" Most answers ({found.count[most]:,.0f}) come with about {percent(found.confidence[most], 0)} "
            f"confidence; of them {percent(found.observed[most])} are right."
        )
    return text if found.ece is None else f"{text} On average the two differ by {percent(found.ece)} (ECE)."


def uncertainty_picture(found: Classification) -> Picture:
    edges, right, wrong = found.entropy_edges, sum(found.entropy_right), sum(found.entropy_wrong)
    width = edges[1] - edges[0]
    low = tuple(edge + 0.29 * width for edge in edges[:-1])
    high = tuple(edge + 0.71 * width for edge in edges[:-1])
    shares_right = tuple(count / (right or 1) for count in found.entropy_right)
    shares_wrong = tuple(count / (wrong or 1) for count in found.entropy_wrong)
    half = edges[0] + (edges[-1] - edges[0]) / 2
    return Picture(
        "uncertainty",
        "Is it less sure when it is wrong?",
        f"How uncertain its answers are (entropy, 0 is certain), apart for the {right:,.0f} right and the {wrong:,.0f} "
        f"wrong ones. Above the middle of the scale lie {percent(_above(shares_right, edges, half), 0)} of the right "
        f"and {percent(_above(shares_wrong, edges, half), 0)} of the wrong answers.",
        Chart(
            Axis("uncertainty (entropy)", edges[0], edges[-1]),
            Axis("share of these answers", 0.0, room_above((*shares_right, *shares_wrong)), percent=True),
            (
                Series(f"{right:,.0f} right answers", low, shares_right, "strong", "bars", 0.4 * width),
                Series(f"{wrong:,.0f} wrong answers", high, shares_wrong, "warm", "bars", 0.4 * width),
            ),
        ),
    )


def _above(shares: tuple[float, ...], edges: tuple[float, ...], level: float) -> float:
    return sum(share for share, edge in zip(shares, edges, strict=False) if edge >= level - 1e-12)


def selective_picture(found: Classification) -> Picture:
    kept, accuracy = (tuple(v) for v in zip(*sorted(zip(found.kept, found.kept_accuracy, strict=True)), strict=True))
    then = float(np.interp(1 - DECLINED, kept, accuracy))
    declined = tuple(1 - share for share in reversed(kept))
    values = tuple(reversed(accuracy))
    lowest = max(0.0, math.floor(20 * (min(values) - 0.02)) / 20)
    return Picture(
        "selective",
        "What if it may say “I do not know”?",
        f"If it may decline the {percent(DECLINED, 0)} of cases it is least sure of, {percent(then)} of the rest are "
        f"right, instead of {percent(found.accuracy)} of all.",
        Chart(
            Axis("share of cases it declines", 0.0, 1.0, percent=True),
            Axis("right among the rest", lowest, 1.0, percent=True),
            (
                Series("right among those it answers", declined, values),
                Series(f"declines {percent(DECLINED, 0)}", (DECLINED,), (then,), "warm", "points"),
            ),
        ),
    )


def coverage_picture(found: Regression) -> Picture:
    level, held = (tuple(v) for v in zip(*sorted(zip(found.level, found.held, strict=True)), strict=True))
    nearest = min(range(len(level)), key=lambda i: abs(level[i] - 0.9))
    return Picture(
        "coverage",
        "Do its intervals hold the truth?",
        f"An interval of {percent(level[nearest], 0)} should hold the truth in {percent(level[nearest], 0)} of the "
        f"cases; it does in {percent(held[nearest])}. Below the dashed line it is too sure, above it too careful.",
        Chart(
            Axis("what the interval promises", 0.0, 1.0, percent=True),
            Axis("how often it holds the truth", 0.0, 1.0, percent=True),
            (
                Series("intervals that held the truth", level, held),
                Series("perfect", (0.0, 1.0), (0.0, 1.0), "guide"),
            ),
        ),
    )
