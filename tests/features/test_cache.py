"""Kept features: found again by content, private, refused when damaged."""

import stat

import pytest
import torch

from tacit.errors import InputError
from tacit.features import cached_features, feature_folder

IMAGES = torch.arange(24, dtype=torch.uint8).reshape(2, 1, 3, 4)


def halved(images):
    return images.float() / 2


def fail(images):
    raise AssertionError("computed again")


def test_computed_once(tmp_path):
    place = tmp_path / "cache"
    first = cached_features(IMAGES, "halved", halved, place)
    again = cached_features(IMAGES.clone(), "halved", fail, place)
    torch.testing.assert_close(first, again)
    (kept,) = place.iterdir()
    assert stat.S_IMODE(kept.stat().st_mode) == 0o600
    assert stat.S_IMODE(place.stat().st_mode) == 0o700


@pytest.mark.parametrize("other", [(IMAGES + 1, "halved"), (IMAGES, "other"), (IMAGES.reshape(2, 1, 4, 3), "halved")])
def test_anything_else_is_computed_anew(other, tmp_path):
    cached_features(IMAGES, "halved", halved, tmp_path)
    with pytest.raises(AssertionError, match="computed again"):
        cached_features(*other, fail, tmp_path)


def test_a_damaged_file_is_one_line(tmp_path):
    cached_features(IMAGES, "halved", halved, tmp_path)
    next(tmp_path.iterdir()).write_bytes(b"not features")
    with pytest.raises(InputError, match="remove it"):
        cached_features(IMAGES, "halved", fail, tmp_path)


def test_the_folder_can_be_named(monkeypatch, tmp_path):
    monkeypatch.setenv("TACIT_CACHE", str(tmp_path))
    assert feature_folder() == tmp_path
    monkeypatch.delenv("TACIT_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert feature_folder() == tmp_path / "tacit" / "features"
