"""Features of pictures: fixed functions of one record, and a whitening that private statistics pay for."""

from tacit.features.cache import cached_features, feature_folder
from tacit.features.deskew import deskew
from tacit.features.pretrained import MobileNetV2, mobilenet_v2, pretrained_features
from tacit.features.rows import normalise_groups, unit_rows
from tacit.features.scattering import FilterBank, Scattering
from tacit.features.statistics import Statistics, StatisticsPlan, private_statistics
from tacit.features.whitening import Whitening

__all__ = [
    "FilterBank",
    "MobileNetV2",
    "Scattering",
    "Statistics",
    "StatisticsPlan",
    "Whitening",
    "cached_features",
    "deskew",
    "feature_folder",
    "mobilenet_v2",
    "normalise_groups",
    "pretrained_features",
    "private_statistics",
    "unit_rows",
]
