"""Clip, sum, noise: what one record may do to a release, and the noise that hides it."""

from tacit.mechanisms.clipping import CLIPPING_RULES, AdaptiveClip, ClipGroups, ClipLayers, Clipping, ClipRecords
from tacit.mechanisms.gaussian_sum import SLACK, GaussianSumMechanism, build_mechanism
from tacit.mechanisms.grid import Grid, Numerics
from tacit.mechanisms.groups import (
    VectorGroup,
    clip_norms_by_dimension,
    joint_clip,
    noise_by_dimension,
    noise_proportional,
)
from tacit.mechanisms.noise import GaussianNoise
from tacit.types import Vectors

__all__ = [
    "CLIPPING_RULES",
    "SLACK",
    "AdaptiveClip",
    "ClipGroups",
    "ClipLayers",
    "ClipRecords",
    "Clipping",
    "GaussianNoise",
    "GaussianSumMechanism",
    "Grid",
    "Numerics",
    "VectorGroup",
    "Vectors",
    "build_mechanism",
    "clip_norms_by_dimension",
    "joint_clip",
    "noise_by_dimension",
    "noise_proportional",
]
