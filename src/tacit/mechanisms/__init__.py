"""Clip, sum, noise: what one record may do to a release, and the noise that hides it."""

from tacit.mechanisms.clipping import CLIPPING_RULES, AdaptiveClip, ClipGroups, ClipLayers, Clipping, ClipRecords
from tacit.mechanisms.grid import Grid, Numerics
from tacit.mechanisms.groups import (
    VectorGroup,
    clip_norms_by_dimension,
    joint_clip,
    noise_by_dimension,
    noise_proportional,
)
from tacit.mechanisms.noise import GaussianNoise
from tacit.mechanisms.release import SLACK, GaussianSumMechanism, Vectors, build_mechanism

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
