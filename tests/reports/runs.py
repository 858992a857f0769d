"""Small real runs for the tests of reports: trained by tacit.train, with the files that a run from a table has."""

import json

import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy

import tacit
from tacit.evaluation import majority_share, reliability

RECORDS, STEPS, PROBES, DELTA = 300, 100, 60, 1e-5


def losses(model, batch):
    return cross_entropy(model(batch[0]), batch[1], reduction="none")


def make_run(folder, *, seeded=False, evidence=False, members=False, dataset="patients", assumptions=()):
    """A ledger (and evidence) by a real private run; returns the model's probabilities on 200 other records."""
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(RECORDS + 200, 6, generator=generator)
    y = (x[:, 0] + 0.5 * torch.randn(len(x), generator=generator) > 0).long()
    train, test = (x[:RECORDS], y[:RECORDS]), (x[RECORDS:], y[RECORDS:])
    probes = (test[0][:PROBES], test[1][:PROBES])
    model = nn.Linear(6, 2)
    method = tacit.SGLD(model, losses, tacit.GaussianPrior(1.0), 1.0 / RECORDS, RECORDS, temperature=None)
    plan = tacit.TrainingPlan(
        tacit.PoissonSampling(0.2, 0.2 * RECORDS), tacit.ClipRecords(1.0), tacit.GaussianNoise(multiplier=6.0), STEPS,
        folder / "ledger.jsonl", budget=tacit.Budget(2.0, DELTA), dataset=dataset, dataset_size=RECORDS,
        assumptions=assumptions,
    )  # fmt: skip
    run = tacit.train(
        method, train, plan, keep_last=10, randomness=tacit.Randomness.seeded(1) if seeded else None,
        evidence=tacit.EvidencePlan(probes=probes, probe_every=20, members=members) if evidence else None,
    )  # fmt: skip
    return tacit.predict(model, run.posterior, test[0]), test[1]


def write_facts(folder, **changes):
    facts = {
        "format": 1, "task": "classification", "target": "outcome", "classes": ["well", "ill"],
        "features": ["age", "weight", "height", "pulse", "sleep", "work"], "dataset": "patients",
        "n_records": RECORDS, "unit": "record", "method": "sgld", "model": "linear", "epsilon": 2.0, "delta": DELTA,
        "effective_temperature": 12.5, "settings": [{"name": "clip", "value": 1.0, "why": "few features"}],
        "warnings": ["few records for this epsilon"], "schema": {"columns": {}}, **changes,
    }  # fmt: skip
    (folder / "run.json").write_text(json.dumps(facts))


def write_evaluation(folder, prediction, labels):
    """What `tacit train` writes beside a run when test data was declared public."""
    found, scores = reliability(prediction.mean, labels, bins=10), tacit.scores(prediction.mean, labels)
    right = (prediction.classes == labels).numpy()
    edges = np.linspace(0, np.log(2), 9)
    entropy = np.clip(prediction.entropy.numpy(), 0, np.log(2))
    surest = right[np.argsort(entropy, kind="stable")]
    kept = np.linspace(0.1, 1, 10)
    value = {
        "format": 1, "data": "test.csv", "records": len(labels), "accuracy": float(right.mean()),
        "accuracy_of_the_most_frequent": majority_share(labels),
        "detection": {"rare": "ill", "auc": 0.9, "sensitivity": 0.75, "specificity": 0.875},
        "nll": scores.nll, "brier": scores.brier, "ece": found.ece, "mce": found.mce,
        "reliability": {
            "edges": np.linspace(0, 1, 11).tolist(), "confidence": found.confidences.tolist(),
            "accuracy": found.accuracies.tolist(), "count": found.counts.tolist(),
        },
        "entropy": {
            "edges": edges.tolist(), "right": np.histogram(entropy[right], edges)[0].tolist(),
            "wrong": np.histogram(entropy[~right], edges)[0].tolist(),
        },
        "selective": {
            "kept": kept.tolist(), "accuracy": [float(surest[: round(k * len(surest))].mean()) for k in kept],
        },
    }  # fmt: skip
    (folder / "evaluation.json").write_text(json.dumps(value))


def write_regression(folder, **changes):
    value = {
        "format": 1, "data": "test.csv", "records": 80, "rmse": 1.25, "nll": 1.7,
        "coverage": {"level": [0.5, 0.8, 0.9, 0.95], "held": [0.55, 0.81, 0.925, 0.95]}, **changes,
    }  # fmt: skip
    (folder / "evaluation.json").write_text(json.dumps(value))
