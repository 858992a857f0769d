import pytest
import torch

import tacit
from tacit.errors import InputError


def overconfident(records=4000, factor=3.0):
    generator = torch.Generator().manual_seed(0)
    logits = torch.randn(records, 4, generator=generator)
    return factor * logits, torch.multinomial(logits.softmax(1), 1, generator=generator)[:, 0]


def test_overconfidence_is_mended_and_charged(tmp_path):
    logits, labels = overconfident()
    plan = tacit.TrainingPlan(
        tacit.PoissonSampling(probability=0.1, expected_size=400), tacit.ClipRecords(1.0),
        tacit.GaussianNoise(multiplier=4.0), 120, tmp_path / "ledger.jsonl",
    )  # fmt: skip
    temperature = tacit.training.private_temperature(logits, labels, plan)
    assert temperature == pytest.approx(3.0, rel=0.25)
    before, after = (tacit.scores((logits / t).softmax(1), labels).ece for t in (1.0, temperature))
    assert after < 0.3 * before
    assert tacit.read_ledger(tmp_path).steps == 120


def test_labels_that_do_not_fit_are_refused(tmp_path):
    plan = tacit.TrainingPlan(
        tacit.PoissonSampling(probability=0.1, expected_size=1), tacit.ClipRecords(1.0),
        tacit.GaussianNoise(multiplier=1.0), 5, tmp_path / "ledger.jsonl",
    )  # fmt: skip
    with pytest.raises(InputError, match="one label per row"):
        tacit.training.private_temperature(torch.zeros(10, 3), torch.zeros(9), plan)
    assert not (tmp_path / "ledger.jsonl").exists()
