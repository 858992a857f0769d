"""How good a run is, on data that was declared public: the numbers of ``evaluation.json``."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tacit.evaluation import detection, majority_share, reliability, scores
from tacit.runs.facts import FORMAT
from tacit.runs.predictions import LEVELS, Predictor
from tacit.tables import Encoded, target_scale

_BINS = 15
_SHARES = np.linspace(0.05, 1.0, 20)


def evaluate(predictor: Predictor, test: Encoded, name: str | Path) -> dict[str, Any]:
    """Scores, calibration and uncertainty of classes; errors and coverage of numbers."""
    facts = {"format": FORMAT, "data": Path(name).name, "records": len(test.inputs)}
    found = _classes(predictor, test) if predictor.problem.classes is not None else _numbers(predictor, test)
    return facts | found


def _classes(predictor: Predictor, test: Encoded) -> dict[str, Any]:
    said, labels = predictor.classes(test.inputs), torch.from_numpy(test.targets)
    found, diagram = scores(said.mean, labels, bins=_BINS), reliability(said.mean, labels, bins=_BINS)
    right = said.classes == labels
    return {
        "accuracy": found.accuracy,
        "accuracy_of_the_most_frequent": majority_share(labels),
        "nll": found.nll,
        "brier": found.brier,
        "ece": found.ece,
        "mce": found.mce,
        "reliability": {
            "edges": np.linspace(0, 1, _BINS + 1).tolist(),
            "confidence": _plain(diagram.confidences),
            "accuracy": _plain(diagram.accuracies),
            "count": diagram.counts.long().tolist(),
        },
        "entropy": _entropies(said.entropy, right, said.mean.shape[1]),
        "selective": _selective(said.confidence, right),
    } | _detection(predictor, said.mean, labels)


def _detection(predictor: Predictor, probabilities: Tensor, labels: Tensor) -> dict[str, Any]:
    """How well the rarer of two classes is found; nothing for more of them."""
    found, classes = detection(probabilities, labels), predictor.problem.classes
    if found is None or classes is None:
        return {}
    return {"detection": asdict(found) | {"rare": str(classes[found.rare])}}


def _entropies(entropy: Tensor, right: Tensor, classes: int) -> dict[str, Any]:
    """How many right and wrong answers were how uncertain, in nats."""
    edges = np.linspace(0, float(np.log(classes)), 21)
    inside = np.clip(entropy.double().numpy(), edges[0], edges[-1])
    counts = {
        kind: np.histogram(inside[which.numpy()], edges)[0] for kind, which in (("right", right), ("wrong", ~right))
    }
    return {"edges": edges.tolist()} | {kind: count.tolist() for kind, count in counts.items()}


def _selective(confidence: Tensor, right: Tensor) -> dict[str, Any]:
    """The accuracy among the surest share of records."""
    ordered = right[confidence.argsort(descending=True)].double()
    kept = [max(1, round(share * len(ordered))) for share in _SHARES]
    return {"kept": [k / len(ordered) for k in kept], "accuracy": [float(ordered[:k].mean()) for k in kept]}


def _numbers(predictor: Predictor, test: Encoded) -> dict[str, Any]:
    middle, half = target_scale(predictor.problem.schema, predictor.problem.target)
    said, truth = predictor.numbers(test.inputs), middle + half * torch.from_numpy(test.targets).double()
    pairs = [(1 - 2 * level, number) for number, level in enumerate(LEVELS) if level < 0.5][::-1]
    lows, highs = said.quantiles, said.quantiles.flip(1)
    held = [float(((truth >= lows[:, i]) & (truth <= highs[:, i])).double().mean()) for _, i in pairs]
    widths = [float((highs[:, i] - lows[:, i]).mean()) for _, i in pairs]
    levels = [round(level, 10) for level, _ in pairs]
    shown = np.linspace(0, len(truth) - 1, min(200, len(truth))).astype(int).tolist()
    order = said.mean.argsort()[shown]
    return {
        "rmse": float((said.mean - truth).square().mean().sqrt()),
        "nll": _nll(predictor, said.mean, said.posterior_uncertainty, truth, half),
        "rmse_of_a_constant": float(truth.std(correction=0)),
        "coverage": {"level": levels, "held": held},
        "intervals": {
            "level": levels,
            "width": widths,
            "predicted": said.mean[order].tolist(),
            "low": lows[order, 0].tolist(),
            "high": highs[order, 0].tolist(),
            "truth": truth[order].tolist(),
        },
    }


def _nll(predictor: Predictor, mean: Tensor, doubt: Tensor, truth: Tensor, half: float) -> float:
    """Mean negative log-density, with the weights' uncertainty added to each of the residuals' normals."""
    spread = predictor.spread
    stddevs, weights = ((1.0,), (1.0,)) if spread is None else (spread.stddevs, spread.weights)
    density = torch.zeros_like(truth)
    for stddev, weight in zip(stddevs, weights, strict=True):
        variance = (half * stddev) ** 2 + doubt
        density = (
            density + weight * torch.exp(-0.5 * (truth - mean).square() / variance) / (2 * torch.pi * variance).sqrt()
        )
    return float(-density.clamp(min=1e-300).log().mean())


def _plain(values: Tensor) -> list[float | None]:
    """An empty bin has no accuracy."""
    return [None if value != value else value for value in values.tolist()]
