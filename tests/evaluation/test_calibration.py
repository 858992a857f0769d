import pytest
import torch

from tacit.errors import InputError
from tacit.evaluation import draw_reliability, reliability


def two_class(confidence):
    return torch.stack([1 - confidence, confidence], dim=1)


def test_a_calibrated_forecast_has_no_error():
    confidence = torch.full((1000,), 0.75)
    labels = (torch.arange(1000) % 4 != 0).long()
    result = reliability(two_class(confidence), labels)
    assert result.ece == pytest.approx(0, abs=1e-6)
    assert result.accuracy == pytest.approx(0.75)


def test_errors_by_hand():
    confidence = torch.cat([torch.full((80,), 0.9), torch.full((20,), 0.6)])
    labels = torch.cat([torch.ones(80), torch.zeros(20)]).long()
    result = reliability(two_class(confidence), labels, bins=10)
    assert result.ece == pytest.approx(0.8 * 0.1 + 0.2 * 0.6, abs=1e-6)
    assert result.mce == pytest.approx(0.6, abs=1e-6)
    assert result.mce_of_filled_bins == pytest.approx(0.1, abs=1e-6)


def test_it_can_be_drawn(tmp_path):
    import matplotlib

    matplotlib.use("agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots()
    draw_reliability(axes, reliability(two_class(torch.rand(50)), torch.randint(0, 2, (50,))), "title")
    figure.savefig(tmp_path / "x.png")
    pyplot.close(figure)
    assert (tmp_path / "x.png").stat().st_size > 1000


def test_labels_must_fit():
    with pytest.raises(InputError):
        reliability(torch.rand(3, 2), torch.zeros(4))
