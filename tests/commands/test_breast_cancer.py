"""The demo's features are made record by record, from declared bounds (failure-modes F15)."""

import numpy as np
import torch

from tacit.commands.breast_cancer import FEATURES, UPPER_BOUNDS, features

ROWS = np.random.default_rng(0).uniform(0, 1, (6, len(UPPER_BOUNDS))) * np.array(UPPER_BOUNDS)


def test_an_outlier_changes_no_other_record():
    outlier = np.full((1, len(UPPER_BOUNDS)), 1e9)
    assert torch.equal(features(np.concatenate([ROWS, outlier]))[:6], features(ROWS))


def test_every_record_has_norm_one_whatever_it_holds():
    hostile = np.concatenate([ROWS, -ROWS, ROWS * 1e12])
    norms = features(hostile).norm(dim=1)
    assert features(hostile).shape == (18, FEATURES)
    torch.testing.assert_close(norms, torch.ones(18))
